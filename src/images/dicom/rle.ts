/**
 * RLE Lossless (PS3.5 annex G). By hand: the codec package's decoder leaves what a short segment
 * does not fill as zeros and does not say so.
 */
import { unpackedBits, unpackRle, type RleFault } from "../../addon/bytes.js";
import { errors, RadserveError, type ErrorCode } from "../../base/errors.js";
import type { PixelFormat } from "../image.js";

const HEADER = 64;

/**
 * Decodes one frame to the layout of `format` (by pixel, little endian). Segments are byte planes,
 * most significant byte first, sample after sample (G.2), whatever Planar Configuration says.
 * Throws RadserveError: corrupt_image, truncated_image.
 */
export function decodeRle(bytes: Uint8Array, format: PixelFormat): Uint8Array {
  const pixels = format.rows * format.columns;
  const bytesPerSample = format.bitsAllocated / 8;
  const planes = bytesPerSample * format.samplesPerPixel;
  if (bytes.length < HEADER)
    throw errors.truncated_image("An RLE frame ends inside its header of 64 bytes.");
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const segments = view.getUint32(0, true);
  if (segments !== planes)
    throw errors.corrupt_image(
      `An RLE frame has ${segments} segments where ${planes} were expected ` +
        `(${format.samplesPerPixel} samples of ${format.bitsAllocated} bits).`,
    );
  // A run of two bytes gives at most 128: less cannot be the whole frame, and nothing is allocated
  // for it
  if (pixels * planes > bytes.length * 64)
    throw errors.truncated_image("An RLE frame is too short to hold its rows and columns.");
  // Every byte is written, or the frame is refused
  const out = Buffer.allocUnsafeSlow(pixels * planes);
  const found = unpackRle(bytes, format.samplesPerPixel, bytesPerSample, out);
  if (found === undefined) return out;
  const [code, message] = FAULTS[found.fault];
  throw new RadserveError(code, message(found.segment + 1));
}

const FAULTS = {
  outside: ["corrupt_image", (segment: number) => `RLE segment ${segment} lies outside its frame.`],
  short: ["truncated_image", () => "An RLE segment ends before its pixels do."],
  cut_run: ["truncated_image", () => "An RLE segment ends inside a run."],
} as const satisfies Record<RleFault["fault"], [ErrorCode, (segment: number) => string]>;

/**
 * One frame of BitsAllocated 1: one segment of packed bits, to one byte a pixel. Errors as
 * decodeRle.
 */
export function decodeRleBits(bytes: Uint8Array, format: PixelFormat): Uint8Array {
  const pixels = format.rows * format.columns * format.samplesPerPixel;
  const packed = { ...format, rows: 1, columns: Math.ceil(pixels / 8), samplesPerPixel: 1 };
  return unpackedBits(decodeRle(bytes, packed), 0, pixels);
}
