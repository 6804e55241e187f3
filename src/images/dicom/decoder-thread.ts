/** A thread that decodes frames for another one; see decoders.ts. */
import { moved } from "../../base/remote.js";
import { answerOwner } from "../../base/service-thread.js";
import type { Warning } from "../image.js";
import { decodeFrame } from "./codecs.js";
import type { DecoderThread } from "./decoders.js";

const methods: DecoderThread = {
  async decode(header, format) {
    const warnings: Warning[] = [];
    const decoded = await decodeFrame(header, format, warnings);
    // Moved with its whole buffer, which must be its own
    const data =
      decoded.byteLength === decoded.buffer.byteLength ? decoded : new Uint8Array(decoded);
    return moved({ data, warnings }, [data.buffer as ArrayBuffer]);
  },
};

answerOwner(methods);
