/** A thread that decodes frames for another one; see decoders.ts. */
import { answerOwner } from "../../base/service-thread.js";
import type { Warning } from "../image.js";
import { decodeFrame } from "./codecs.js";
import type { DecodedFrame, DecodeOrder } from "./decoders.js";

answerOwner<DecodeOrder, DecodedFrame>(async ({ header, format }, transfer) => {
  const warnings: Warning[] = [];
  const decoded = await decodeFrame(header, format, warnings);
  // Transferred with its whole buffer, which must be its own
  const data = decoded.byteLength === decoded.buffer.byteLength ? decoded : new Uint8Array(decoded);
  transfer.push(data.buffer as ArrayBuffer);
  return { data, warnings };
});
