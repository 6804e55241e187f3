/**
 * RLE Lossless (PS3.5 annex G). By hand: the codec package's decoder leaves what a short segment
 * does not fill as zeros and does not say so.
 */
import { unpackedBits, unpackRle, type RleFault } from "../../addon/bytes.js";
import { errors, RadserveError, type ErrorCode } from "../../base/errors.js";
import type { PixelFormat } from "../image.js";

const HEADER = 64;
/** Places in a header (PS3.5 G.5). */
const MOST_SEGMENTS = 15;

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

/**
 * Whether each segment of a frame has the runs of so many bytes: nothing is unpacked.
 * @param bytes of a frame that begins with the header of RLE
 */
export function endsRle(frame: Uint8Array, bytes: number): boolean {
  const view = new DataView(frame.buffer, frame.byteOffset, frame.byteLength);
  if (frame.length < HEADER) return false;
  const segments = Math.min(view.getUint32(0, true), MOST_SEGMENTS);
  for (let segment = 1; segment <= segments; segment++) {
    const end = segment === segments ? frame.length : view.getUint32(4 * (segment + 1), true);
    let at = view.getUint32(4 * segment, true);
    for (let left = bytes; left > 0;) {
      const control = view.getInt8(Math.min(at, frame.length - 1));
      if (control >= 0) at += 2 + control;
      else at += control === -128 ? 1 : 2;
      if (at > Math.min(end, frame.length)) return false;
      if (control !== -128) left -= 1 + Math.abs(control);
    }
  }
  return true;
}
