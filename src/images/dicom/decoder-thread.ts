/** A thread that decodes frames for another one; see decoders.ts. */
import { parentPort } from "node:worker_threads";
import { asRadserveError } from "../../base/errors.js";
import type { Warning } from "../image.js";
import { decodeFrame } from "./codecs.js";
import type { DecodeAnswer, DecodeOrder } from "./decoders.js";

parentPort?.on("message", (order: DecodeOrder) => void answer(order));

async function answer({ id, header, format }: DecodeOrder): Promise<void> {
  const warnings: Warning[] = [];
  try {
    const decoded = await decodeFrame(header, format, warnings);
    // Transferred with its whole buffer, which must be its own
    const data = decoded.byteLength === decoded.buffer.byteLength ? decoded : new Uint8Array(decoded);
    post({ id, data, warnings }, [data.buffer as ArrayBuffer]);
  } catch (error) {
    post({ id, error: asRadserveError(error).toObject(), warnings }, []);
  }
}

function post(message: DecodeAnswer, transfer: ArrayBuffer[]): void {
  parentPort?.postMessage(message, transfer);
}
