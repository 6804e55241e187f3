/**
 * Planes of one byte a pixel, compared and packed four pixels at a time: masks are millions of pixels, gone over once for
 * every label. Words are little endian, as on every machine that this runs on.
 */

/** The bytes as words, and how many of them; copied where they do not begin at a word. */
function wordsOf(bytes: Uint8Array): Uint32Array {
  const aligned = bytes.byteOffset % 4 === 0 ? bytes : bytes.slice();
  return new Uint32Array(aligned.buffer, aligned.byteOffset, aligned.length >>> 2);
}

/** Times this, a byte stands in all four of a word. */
const EACH = 0x01010101;

/** 1 in every byte that is zero, 0 in every other. */
function zeroBytes(word: number): number {
  const low = ((word & 0x7f7f7f7f) + 0x7f7f7f7f) | 0;
  return ~(low | word | 0x7f7f7f7f) >>> 7;
}

/** 1 where a byte is the value, 0 elsewhere; as long as `length`, with 0 where there are no more bytes. */
export function equalTo(bytes: Uint8Array, value: number, length: number): Uint8Array {
  return compared(bytes, value, length, 0);
}

/** 1 where a byte is not zero, 0 elsewhere; as long as `length`, with 0 where there are no more bytes. */
export function nonZero(bytes: Uint8Array, length: number): Uint8Array {
  return compared(bytes, 0, length, 1);
}

/** Whether each byte is the value, 1 for yes and 0 for no; the other way round where `flip` is 1. */
function compared(bytes: Uint8Array, value: number, length: number, flip: 0 | 1): Uint8Array {
  const plane = new Uint8Array(length);
  const count = Math.min(length, bytes.length);
  const [from, to] = [wordsOf(bytes.subarray(0, count)), wordsOf(plane)];
  const [pattern, flips] = [Math.imul(value, EACH), Math.imul(flip, EACH)];
  for (let i = 0; i < from.length; i++) to[i] = zeroBytes((from[i] ?? 0) ^ pattern) ^ flips;
  for (let i = 4 * from.length; i < count; i++) plane[i] = (bytes[i] === value ? 1 : 0) ^ flip;
  return plane;
}

/** Gathers the lowest bits of a word's four bytes in the highest four bits: no two products meet there. */
const GATHER = (1 << 28) | (1 << 21) | (1 << 14) | (1 << 7);

/**
 * Packs a plane of 0 and 1 from bit `at` on, the first pixel in the lowest bit.
 * @param bits zero from there on
 */
export function packBits(plane: Uint8Array, bits: Uint8Array, at: number): void {
  const shift = at & 7;
  const words = wordsOf(plane);
  const whole = plane.length >>> 3;
  let to = at >>> 3;
  for (let i = 0; i < whole; i++, to++) {
    const low = Math.imul(words[2 * i] ?? 0, GATHER) >>> 28;
    const high = Math.imul(words[2 * i + 1] ?? 0, GATHER) >>> 28;
    const eight = (low | (high << 4)) << shift;
    bits[to] = (bits[to] ?? 0) | eight;
    if (shift > 0) bits[to + 1] = eight >>> 8;
  }
  for (let i = 8 * whole; i < plane.length; i++) {
    const bit = at + i;
    bits[bit >>> 3] = (bits[bit >>> 3] ?? 0) | ((plane[i] ?? 0) << (bit & 7));
  }
}
