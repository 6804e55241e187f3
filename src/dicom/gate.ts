/**
 * The decode gate: 12-bit lossless JPEG that a codec turns into zeros, and similar failures, must not become a result.
 * It judges decoded frames of compressed pixel data alone; native containers may hold overlays in their high bits.
 */
import { RadserveError } from "../errors.js";
import type { PixelFormat } from "../image.js";
import type { CodestreamHeader } from "./codestream.js";

/** True where every pixel equals the first. */
export function isConstant(data: Uint8Array, pixelBytes: number): boolean {
  // Comparing the buffer with itself, shifted by a pixel, is one memcmp
  return (
    data.length <= pixelBytes ||
    Buffer.compare(data.subarray(pixelBytes), data.subarray(0, -pixelBytes)) === 0
  );
}

/**
 * Bytes of entropy-coded data that a constant frame can take at most. A predictor codes one symbol a sample, hardly
 * ever of more than 2 bits; a DCT block of 64 samples two symbols; wavelets code the lowest band in full and little
 * else; JPEG-LS and JPEG XL code runs. 2 KiB are left for tiles, restart markers and padding.
 */
export function constantFrameLimit(header: CodestreamHeader): number {
  const samples = header.rows * header.columns * header.components;
  const wavelet = header.kind === "jpeg2000" || header.kind === "htj2k";
  const lowestBand = wavelet ? (samples / 4 ** header.decompositions) * (header.precision + 6) : 0;
  const bits = header.kind !== "jpeg" ? 0.1 : header.lossless ? 2 : 0.5;
  return 2048 + (lowestBand + samples * bits) / 8;
}

/** The first bits outside BitsStored at HighBit that are neither zero nor the sign; undefined where there are none. */
export function strayBits(data: Uint8Array, format: PixelFormat): number | undefined {
  const { bitsAllocated, highBit, signed } = format;
  if (highBit + 1 === bitsAllocated || format.float) return undefined;
  if (!anyHighBits(data, bitsAllocated, highBit)) return undefined;
  const ones = 2 ** (bitsAllocated - highBit - 1) - 1;
  const words =
    bitsAllocated === 8
      ? data
      : bitsAllocated === 16
        ? new Uint16Array(data.buffer, data.byteOffset, data.length >>> 1)
        : new Uint32Array(data.buffer, data.byteOffset, data.length >>> 2);
  // By index: an iterator takes ten times as long
  for (let i = 0; i < words.length; i++) {
    const word = words[i] ?? 0;
    const high = word >>> (highBit + 1);
    if (high === 0) continue;
    const negative = signed && ((word >>> highBit) & 1) === 1;
    if (!(negative && high === ones)) return word;
  }
  return undefined;
}

/** False where no container has a bit above HighBit, which is nearly always and quickly said: four bytes at a time. */
function anyHighBits(data: Uint8Array, bitsAllocated: number, highBit: number): boolean {
  if (data.byteOffset % 4 !== 0 || data.length % 4 !== 0) return true;
  let above = 0;
  for (let bit = 0; bit < 32; bit++) if (bit % bitsAllocated > highBit) above |= 1 << bit;
  let seen = 0;
  const words = new Int32Array(data.buffer, data.byteOffset, data.length >>> 2);
  for (let i = 0; i < words.length; i++) seen |= words[i] ?? 0;
  return (seen & above) !== 0;
}

/** Throws decode_suspect where values leave BitsStored. */
export function checkStoredBits(data: Uint8Array, format: PixelFormat, codec: string): void {
  const stray = strayBits(data, format);
  if (stray !== undefined)
    throw new RadserveError(
      "decode_suspect",
      `The ${codec} decoder gave the value ${stray}, which does not fit BitsStored ${format.bitsStored} at HighBit ` +
        `${format.highBit}. Either the attributes or the codestream are wrong; compare with the source.`,
      { value: stray, bits_stored: format.bitsStored, high_bit: format.highBit },
    );
}

/** The refusal of an image whose frames are all constant although they are too long for that. */
export function constantFrames(frames: number, entropyBytes: number): RadserveError {
  return new RadserveError(
    "decode_suspect",
    `Every pixel of ${frames === 1 ? "the frame" : `all ${frames} frames`} decoded to one value, but ${entropyBytes} bytes ` +
      "of compressed data hold more than that. The decoder failed on this file; convert it to Explicit VR Little Endian.",
    { frames, entropy_bytes: entropyBytes },
  );
}
