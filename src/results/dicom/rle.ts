/**
 * RLE Lossless (PS3.5 annex G) for the pictures that are written: a quarter of the bytes, exact, read everywhere. By
 * hand: the codec package's encoder takes as long as all the drawing. What is written is read back before it is kept.
 */
import { packRle } from "../../engine-pixels.js";

export const RLE_LOSSLESS = "1.2.840.10008.1.2.5";

/**
 * One frame, RGB by pixel in 8 bits, as an RLE codestream: three planes, each row by row. Equal pixels give equal bytes.
 */
export function rleFrame(rgb: Uint8Array, rows: number, columns: number): Uint8Array {
  return packRle(rgb, rows, columns);
}
