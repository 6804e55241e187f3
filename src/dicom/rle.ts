/**
 * RLE Lossless (PS3.5 annex G). By hand: the codec package's decoder leaves what a short segment does not fill as
 * zeros and does not say so.
 */
import { RadserveError } from "../errors.js";
import type { PixelFormat } from "../image.js";
import { unpackedBits } from "./samples.js";

const HEADER = 64;

/**
 * Decodes one frame to the layout of `format` (by pixel, little endian). Segments are byte planes, most significant
 * byte first, sample after sample (G.2), whatever Planar Configuration says.
 * Throws RadserveError: corrupt_image, truncated_image.
 */
export function decodeRle(bytes: Uint8Array, format: PixelFormat): Uint8Array {
  const pixels = format.rows * format.columns;
  const bytesPerSample = format.bitsAllocated / 8;
  const planes = bytesPerSample * format.samplesPerPixel;
  if (bytes.length < HEADER)
    throw new RadserveError("truncated_image", "An RLE frame ends inside its header of 64 bytes.");
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const segments = view.getUint32(0, true);
  if (segments !== planes)
    throw new RadserveError(
      "corrupt_image",
      `An RLE frame has ${segments} segments where ${planes} were expected ` +
        `(${format.samplesPerPixel} samples of ${format.bitsAllocated} bits).`,
    );
  // A run of two bytes gives at most 128: less cannot be the whole frame, and nothing is allocated for it
  if (pixels * planes > bytes.length * 64)
    throw new RadserveError("truncated_image", "An RLE frame is too short to hold its rows and columns.");
  const offsets = Array.from({ length: segments }, (_, i) => view.getUint32(4 + i * 4, true));
  const out = new Uint8Array(pixels * planes);
  offsets.forEach((offset, segment) => {
    const end = offsets[segment + 1] ?? bytes.length;
    if (offset < HEADER || offset > bytes.length || end < offset)
      throw new RadserveError("corrupt_image", `RLE segment ${segment + 1} lies outside its frame.`);
    const sample = Math.floor(segment / bytesPerSample);
    const byte = bytesPerSample - 1 - (segment % bytesPerSample);
    unpackSegment(
      bytes.subarray(offset, Math.min(end, bytes.length)),
      out,
      sample * bytesPerSample + byte,
      planes,
    );
  });
  return out;
}

/** One frame of BitsAllocated 1: one segment of packed bits, to one byte a pixel. Errors as decodeRle. */
export function decodeRleBits(bytes: Uint8Array, format: PixelFormat): Uint8Array {
  const pixels = format.rows * format.columns * format.samplesPerPixel;
  const packed = { ...format, rows: 1, columns: Math.ceil(pixels / 8), samplesPerPixel: 1 };
  return unpackedBits(decodeRle(bytes, packed), 0, pixels);
}

/** PackBits (G.3.2) into every `stride`th byte from `at`. The segment has to fill them all. */
function unpackSegment(packed: Uint8Array, out: Uint8Array, at: number, stride: number): void {
  let i = 0;
  const length = out.length;
  while (at < length) {
    const control = packed[i++];
    if (control === undefined)
      throw new RadserveError("truncated_image", "An RLE segment ends before its pixels do.");
    if (control === 128) continue;
    const literal = control < 128;
    const count = literal ? control + 1 : 257 - control;
    if (i + (literal ? count : 1) > packed.length)
      throw new RadserveError("truncated_image", "An RLE segment ends inside a run.");
    // Encoders may run past the last pixel by padding; what is beyond is dropped
    const stop = Math.min(length, at + count * stride);
    if (literal) {
      let from = i;
      for (; at < stop; at += stride) out[at] = packed[from++] ?? 0;
      i += count;
    } else {
      const value = packed[i++] ?? 0;
      for (; at < stop; at += stride) out[at] = value;
    }
  }
}
