/**
 * Pixels of a PNG whose index lies beyond its palette. They have no colour (PNG third edition,
 * section 11.2.2 calls it an error), and what a decoder makes of them differs.
 */
import { crc32 } from "node:zlib";

const SIGNATURE_BYTES = 8;
/** Length and type before the data of a chunk, and the check sum behind it. */
const BEFORE_DATA = 8;
const CHECK_SUM = 4;
const OF_COLOUR = 3;
/** In the header chunk, which is the first. */
const BITS_AT = SIGNATURE_BYTES + BEFORE_DATA + 8;
const COLOUR_TYPE_AT = BITS_AT + 1;
const INDEXED = 3;

/**
 * The same picture with white for every index that the palette of the file does not have: pixels
 * that look otherwise in it have such an index. Undefined where the palette has a colour for each
 * index that the bits of a sample can tell, or the file is no such PNG.
 */
export function withWhitePalette(file: Uint8Array): Uint8Array | undefined {
  const data = Buffer.from(file.buffer, file.byteOffset, file.byteLength);
  if (data[COLOUR_TYPE_AT] !== INDEXED) return undefined;
  const whole = OF_COLOUR * 2 ** data.readUInt8(BITS_AT);
  for (let at = SIGNATURE_BYTES; at + BEFORE_DATA <= data.length;) {
    const length = data.readUInt32BE(at);
    const from = at + BEFORE_DATA;
    const after = from + length + CHECK_SUM;
    const type = data.toString("latin1", at + 4, from);
    if (type === "IDAT") return undefined;
    if (type === "PLTE") {
      if (length >= whole) return undefined;
      const white = Buffer.alloc(whole - length, 0xff);
      const chunk = Buffer.concat([data.subarray(at + 4, from + length), white]);
      const [size, sum] = [Buffer.alloc(4), Buffer.alloc(CHECK_SUM)];
      size.writeUInt32BE(whole);
      sum.writeUInt32BE(crc32(chunk));
      return Buffer.concat([data.subarray(0, at), size, chunk, sum, data.subarray(after)]);
    }
    at = after;
  }
  return undefined;
}
