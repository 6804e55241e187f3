/**
 * Pixels of a PNG whose index lies beyond its palette. They have no colour (PNG third edition,
 * section 11.2.2 calls it an error), and what a decoder makes of them differs.
 */
import { crc32 } from "node:zlib";
import { CHECK_SUM_BYTES, chunksBeforePixels, INDEXED, pngHead } from "./png-chunks.js";

const OF_COLOUR = 3;

/**
 * The same picture with white for every index that the palette of the file does not have: pixels
 * that look otherwise in it have such an index. Undefined where the palette has a colour for each
 * index that the bits of a sample can tell, or the file is no such PNG.
 */
export function withWhitePalette(file: Uint8Array): Uint8Array | undefined {
  const data = Buffer.from(file.buffer, file.byteOffset, file.byteLength);
  const head = pngHead(data);
  if (head?.colourType !== INDEXED) return undefined;
  const whole = OF_COLOUR * 2 ** head.bits;
  for (const { type, at, from, length } of chunksBeforePixels(data)) {
    if (type !== "PLTE") continue;
    if (length >= whole) return undefined;
    const white = Buffer.alloc(whole - length, 0xff);
    const chunk = Buffer.concat([data.subarray(at + 4, from + length), white]);
    const [size, sum] = [Buffer.alloc(4), Buffer.alloc(CHECK_SUM_BYTES)];
    size.writeUInt32BE(whole);
    sum.writeUInt32BE(crc32(chunk));
    const after = data.subarray(from + length + CHECK_SUM_BYTES);
    return Buffer.concat([data.subarray(0, at), size, chunk, sum, after]);
  }
  return undefined;
}
