/** Frames of pixel data that is not compressed (PS3.5 section 8.1.1). */
import { unpackedBits } from "../../addon/bytes.js";
import { errors } from "../../base/errors.js";
import { count, counted } from "../../base/table.js";
import { warn, type PixelFormat, type Warning } from "../image.js";
import type { Element } from "./elements.js";
import type { ImagePixel } from "./pixel-format.js";
import { interleaved, swapped } from "./samples.js";

export interface NativePixels {
  bytes: Uint8Array;
  /** Bytes are swapped in units of this size; 1 if none are. */
  swapUnit: number;
  pixel: ImagePixel;
}

export function frameLength(format: PixelFormat): number {
  const pixels = format.rows * format.columns;
  return format.packed422
    ? pixels * 2
    : (pixels * format.samplesPerPixel * format.bitsAllocated) / 8;
}

/** Bits of one frame as stored; with one bit allocated frames need not begin on a byte. */
function storedBits(pixel: ImagePixel): number {
  const { format } = pixel;
  if (pixel.bitsAllocated === 1) return format.rows * format.columns * format.samplesPerPixel;
  return frameLength(format) * 8;
}

/**
 * Big endian swaps words of the VR (PS3.5 section 7.3 and annex A.3): OW holds eight-bit samples in
 * swapped pairs. Samples of 32 bits in OW are swapped as 32-bit words, as pydicom and the files in
 * circulation have it; DCMTK swaps the 16-bit words in place, and nothing in a file says which:
 * nativePixels warns.
 */
function swapUnit(element: Element, bitsAllocated: number): number {
  if (element.encoding.littleEndian || element.vr === "OB") return 1;
  // Bytes of an unknown representation stay bytes, as other readers have it
  if (element.vr === "UN" && bitsAllocated <= 8) return 1;
  if (element.vr === "OD" || element.vr === "OV") return 8;
  if (element.vr === "OF" || element.vr === "OL") return 4;
  return Math.max(2, bitsAllocated / 8);
}

/**
 * Checks that all frames are there, one behind the other. YBR_FULL_422 of full length is stored
 * without subsampling, whatever it says, and its colours are in doubt (coded-colour.ts). Throws
 * truncated_image, or corrupt_image for 4:2:2 with an odd number of columns and for bits that were
 * padded.
 */
export function nativePixels(
  bytes: Uint8Array,
  element: Element,
  pixel: ImagePixel,
  warnings: Warning[],
): NativePixels {
  const { format, frameCount } = pixel;
  if (format.photometricInterpretation === "YBR_PARTIAL_420")
    throw errors.corrupt_image("PhotometricInterpretation YBR_PARTIAL_420 is for MPEG video only.");
  let found = pixel;
  if (format.photometricInterpretation === "YBR_FULL_422") {
    const full = format.rows * format.columns * 3 * frameCount;
    found = { ...pixel, format: subsampled(pixel, element.length >= full) };
  }
  const expected = Math.ceil((storedBits(found) * frameCount) / 8);
  if (bytes.length < expected)
    throw errors.truncated_image(
      `The pixel data has ${count(bytes.length)} bytes where ${count(expected)} are needed: ${counted(frameCount, "frame")} of ` +
        `${format.rows} x ${format.columns}, ${counted(format.samplesPerPixel, "sample")} of ${pixel.bitsAllocated} bits. Send the file again from its source.`,
      { expected_bytes: expected, found_bytes: bytes.length },
    );
  checkBitFrames(bytes.length, found, expected);
  if (
    pixel.bitsAllocated === 32 &&
    element.vr === "OW" &&
    !element.encoding.littleEndian &&
    !format.float
  )
    warn(
      warnings,
      "big_endian_32_bit",
      "Big-endian 32-bit pixels in OW were taken as 32-bit words; some writers swap their halves. Check the values.",
    );
  if (pixel.bitsAllocated > 8 && element.vr === "OB" && !element.encoding.littleEndian)
    warn(
      warnings,
      "big_endian_bytes",
      "Big-endian pixel data of more than 8 bits lies in OB, whose bytes have no order; the low byte was taken as the " +
        "first, and readers differ. Check the values.",
    );
  if (pixel.planarIsGuessed)
    warn(
      warnings,
      "missing_attribute",
      "PlanarConfiguration is absent; 0 was taken (colour by pixel). Check the colours.",
    );
  if (bytes.length > expected + 1)
    warn(
      warnings,
      "extra_pixel_data",
      `The pixel data is ${bytes.length - expected} bytes longer than its frames; they were ignored.`,
    );
  return { bytes, swapUnit: swapUnit(element, pixel.bitsAllocated), pixel: found };
}

/**
 * Frames of bits follow each other without a gap (PS3.5 section 8.1.1). Some writers begin each on
 * a byte: read one behind the other, all but the first would be shifted.
 */
function checkBitFrames(length: number, pixel: ImagePixel, expected: number): void {
  const { bitsAllocated, frameCount } = pixel;
  if (bitsAllocated !== 1) return;
  const padded = Math.ceil(storedBits(pixel) / 8) * frameCount;
  if (padded <= expected + (expected % 2) || Math.ceil(length / 2) !== Math.ceil(padded / 2))
    return;
  throw errors.corrupt_image(
    `The pixel data has ${count(length)} bytes, as if each frame of 1-bit pixels began on a byte; without gaps, as PS3.5 ` +
      `section 8.1.1 has it, the frames take ${count(expected)}. Correct the object at the source.`,
    { expected_bytes: expected, found_bytes: length },
  );
}

function subsampled({ format, planarConfiguration }: ImagePixel, isFull: boolean): PixelFormat {
  const byPlane = planarConfiguration === 1;
  if (isFull) return format;
  if (format.columns % 2 === 1 || format.bitsAllocated !== 8 || byPlane)
    throw errors.corrupt_image(
      "PhotometricInterpretation YBR_FULL_422 needs an even number of Columns, BitsAllocated 8 and PlanarConfiguration 0.",
    );
  return { ...format, packed422: true };
}

/**
 * One frame. A view of the file if nothing has to be moved: little endian, by pixel, and aligned so
 * that typed arrays can lie over it.
 */
export function nativeFrame(pixels: NativePixels, index: number): Uint8Array {
  const { pixel } = pixels;
  const { format } = pixel;
  if (pixel.bitsAllocated === 1) {
    const bits = storedBits(pixel);
    const whole = pixels.swapUnit > 1 ? swapped(pixels.bytes, pixels.swapUnit) : pixels.bytes;
    const frame = unpackedBits(whole, index * bits, bits);
    return pixel.planarConfiguration === 1 ? interleaved(frame, format.samplesPerPixel, 1) : frame;
  }
  const length = frameLength(format);
  let frame = sliceSwapped(pixels, index * length, length);
  if (format.samplesPerPixel > 1 && pixel.planarConfiguration === 1 && !format.packed422)
    frame = interleaved(frame, format.samplesPerPixel, format.bitsAllocated / 8);
  return frame.byteOffset % (format.bitsAllocated / 8) === 0 ? frame : new Uint8Array(frame);
}

/** Eight-bit frames of odd length begin in the middle of a swapped word. */
function sliceSwapped(
  { bytes, swapUnit: unit }: NativePixels,
  start: number,
  length: number,
): Uint8Array {
  if (unit === 1) return bytes.subarray(start, start + length);
  const from = start - (start % unit);
  const to = Math.min(bytes.length, Math.ceil((start + length) / unit) * unit);
  return swapped(bytes.subarray(from, to), unit).subarray(start - from, start - from + length);
}
