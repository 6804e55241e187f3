/** JPEG 2000 through the system's OpenJPEG, inside the decoder process. */
import * as openJpeg from "../../addon/openjpeg.js";
import type { Jpeg2000Order } from "./jpeg2000.js";

/** Throws what the library says. */
export function decodeJpeg2000(
  codestream: Uint8Array,
  { frame, threads }: Jpeg2000Order,
): { done: Record<string, never>; pixels: Uint8Array } {
  return { done: {}, pixels: openJpeg.decodeJpeg2000(codestream, frame, threads) };
}
