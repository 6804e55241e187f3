/**
 * The decode gate: 12-bit lossless JPEG that a codec turns into zeros, and similar failures, must not become a result.
 * It judges decoded frames of compressed pixel data alone; native containers may hold overlays in their high bits.
 */
import { RadserveError } from "../errors.js";
import type { PixelFormat } from "../image.js";

/** True where every pixel equals the first. */
export function isConstant(data: Uint8Array, pixelBytes: number): boolean {
  // Comparing the buffer with itself, shifted by a pixel, is one memcmp
  return (
    data.length <= pixelBytes ||
    Buffer.compare(data.subarray(pixelBytes), data.subarray(0, -pixelBytes)) === 0
  );
}

/**
 * Bytes of entropy-coded data that a constant frame can take at most, by coding. A predictor codes one symbol a
 * sample, hardly ever more than 2 bits; a DCT block of 64 samples two symbols; the others code runs and zero trees.
 * Headers and tables are not counted, and 2 KiB are left for tiles, restart markers and padding.
 */
export function constantFrameLimit(coding: "predictive" | "block" | "run", format: PixelFormat): number {
  const samples = format.rows * format.columns * format.samplesPerPixel;
  const bits = coding === "predictive" ? 2 : coding === "block" ? 0.5 : 0.1;
  return 2048 + (samples * bits) / 8;
}

/** The first bits outside BitsStored at HighBit that are neither zero nor the sign; undefined where there are none. */
export function strayBits(data: Uint8Array, format: PixelFormat): number | undefined {
  const { bitsAllocated, highBit, signed } = format;
  if (highBit + 1 === bitsAllocated || format.float) return undefined;
  const ones = 2 ** (bitsAllocated - highBit - 1) - 1;
  const words =
    bitsAllocated === 8
      ? data
      : bitsAllocated === 16
        ? new Uint16Array(data.buffer, data.byteOffset, data.length >>> 1)
        : new Uint32Array(data.buffer, data.byteOffset, data.length >>> 2);
  for (const word of words) {
    const high = word >>> (highBit + 1);
    if (high === 0) continue;
    const negative = signed && ((word >>> highBit) & 1) === 1;
    if (!(negative && high === ones)) return word;
  }
  return undefined;
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
