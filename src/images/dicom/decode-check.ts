/**
 * The decode gate: 12-bit lossless JPEG that a codec turns into zeros, and similar failures, must
 * not become a result. It refuses decoded frames of compressed pixel data only; for native ones,
 * whose containers may contain anything beside the image, it warns.
 */
import { findStray } from "../../addon/bytes.js";
import { errors, type RadserveError } from "../../base/errors.js";
import { warn, type PixelFormat, type Warning } from "../image.js";
import { storedRange } from "../stored-values.js";
import type { CodestreamHeader } from "./codestream.js";

/** True if every pixel equals the first. */
export function isConstant(data: Uint8Array, pixelBytes: number): boolean {
  // Comparing the buffer with itself, shifted by a pixel, is one memcmp
  return (
    data.length <= pixelBytes ||
    Buffer.compare(data.subarray(pixelBytes), data.subarray(0, -pixelBytes)) === 0
  );
}

/** Rows of zeros that a frame has to end in, beside the row in which they begin. */
const LEAST_ROWS = 2;
/** Part of a row that its image has to take, and what is cut off of it. */
const LEAST_OF_ROW = 1 / 16;
/** How much of a row is not 0 where image is; air in CT may be 0 here and there. */
const FILLED = 2 / 3;

/** The first pixel from which on all are 0. */
function endOf(data: Uint8Array, pixelBytes: number): number {
  let last = data.length - 1;
  while (last >= 0 && data[last] === 0) last -= 1;
  return Math.floor(last / pixelBytes) + 1;
}

/** The last row of a frame that is not 0 throughout, from 0; -1 where all of it is. */
export const lastRow = (
  data: Uint8Array,
  { columns, samplesPerPixel, bitsAllocated }: PixelFormat,
) => Math.ceil(endOf(data, (samplesPerPixel * bitsAllocated) / 8) / columns) - 1;

/**
 * Whether a grey frame ends within a row and is zeros from there on, as that of a file is whose
 * copy broke off and was filled up. What ends by itself (a body, a masked organ, a scanned circle)
 * fills neither the row up to there nor the row above beyond it.
 * @param data stored values
 */
export function breaksOff(data: Uint8Array, format: PixelFormat): boolean {
  const { rows, columns, samplesPerPixel, bitsAllocated } = format;
  if (samplesPerPixel > 1) return false;
  const pixelBytes = bitsAllocated / 8;
  const end = endOf(data, pixelBytes);
  const start = end - (end % columns);
  const isWithin =
    end - start >= columns * LEAST_OF_ROW && start + columns - end >= columns * LEAST_OF_ROW;
  if (!isWithin || start === 0 || rows - start / columns <= LEAST_ROWS) return false;
  const isFilled = (from: number, to: number) => {
    let filled = 0;
    for (let pixel = from; pixel < to; pixel++)
      if (data.subarray(pixel * pixelBytes, (pixel + 1) * pixelBytes).some((byte) => byte !== 0))
        filled += 1;
    return filled >= FILLED * (to - from);
  };
  return isFilled(start, end) && isFilled(end - columns, start);
}

/**
 * Bytes of entropy-coded data that a constant frame can take at most. A predictor codes one symbol
 * a sample, hardly ever of more than 2 bits; a DCT block of 64 samples two symbols; wavelets code
 * the lowest band in full and little else; JPEG-LS and JPEG XL code runs. 2 KiB are left for tiles,
 * restart markers and padding.
 */
export function constantFrameLimit(header: CodestreamHeader): number {
  const samples = header.rows * header.columns * header.components;
  const wavelet = header.kind === "jpeg2000" || header.kind === "htj2k";
  const lowestBand = wavelet ? (samples / 4 ** header.decompositions) * (header.precision + 6) : 0;
  const bits = header.kind !== "jpeg" ? 0.1 : header.lossless ? 2 : 0.5;
  return 2048 + (lowestBand + samples * bits) / 8;
}

/**
 * True if there is more entropy-coded data than a constant frame takes. Coders with a fixed Huffman
 * table spend many bits on every sample of a constant frame too: if the table says how many, and
 * the data is that long, all is well.
 */
export function isTooLongForConstant(header: CodestreamHeader): boolean {
  if (header.entropyBytes <= constantFrameLimit(header)) return false;
  if (header.sameSampleBits === undefined) return true;
  const expected = (header.rows * header.columns * header.components * header.sameSampleBits) / 8;
  return Math.abs(header.entropyBytes - expected) > 64 + expected / 1000;
}

/**
 * The first value with bits above HighBit that are neither zero nor the sign; undefined if there is
 * none.
 * @param overlays bits of the container that overlays lie in
 */
export function strayBits(data: Uint8Array, format: PixelFormat, overlays = 0): number | undefined {
  const { bitsAllocated, highBit, signed } = format;
  if (highBit + 1 === bitsAllocated || format.float) return undefined;
  const above = 2 ** bitsAllocated - 2 ** (highBit + 1);
  return findStray(data, bitsAllocated / 8, above & ~overlays, signed ? highBit : undefined);
}

/** Lossy coding rings at edges: the part of the range by which values may leave it. */
const MOST_OVERSHOOT = 1 / 8;

/**
 * Values of a lossy frame that leave BitsStored become the nearest that does not; cut off at the
 * high bit instead, white would turn black. In place. Only for what is coded with more bits than
 * are stored.
 */
export function clampOvershoot(data: Uint8Array, format: PixelFormat, warnings: Warning[]): void {
  const { bitsAllocated, bitsStored, highBit, signed } = format;
  if (bitsAllocated > 16 || highBit + 1 !== bitsStored || strayBits(data, format) === undefined)
    return;
  const [low, high] = storedRange(format);
  const { buffer, byteOffset, length } = data;
  const values =
    bitsAllocated === 8
      ? new (signed ? Int8Array : Uint8Array)(buffer as ArrayBuffer, byteOffset, length)
      : new (signed ? Int16Array : Uint16Array)(buffer as ArrayBuffer, byteOffset, length >>> 1);
  // More than ringing is no ringing: checkStoredBits refuses it
  const beyond = 2 ** bitsStored * MOST_OVERSHOOT;
  if (values.some((value) => value < low - beyond || value > high + beyond)) return;
  for (let i = 0; i < values.length; i++) values[i] = Math.min(high, Math.max(low, values[i] ?? 0));
  warn(
    warnings,
    "overshoot_clamped",
    `Lossy compression left values outside BitsStored ${bitsStored}; they were set to the nearest one inside.`,
  );
}

/** Throws decode_suspect if values leave BitsStored, except for overlays. */
export function checkStoredBits(
  data: Uint8Array,
  format: PixelFormat,
  overlays: number,
  codec: string,
): void {
  const stray = strayBits(data, format, overlays);
  if (stray !== undefined)
    throw errors.decode_suspect(
      `The ${codec} decoder gave the value ${stray}, which does not fit BitsStored ${format.bitsStored} at HighBit ` +
        `${format.highBit}. Either the attributes or the codestream are wrong; compare with the source.`,
      { value: stray, bits_stored: format.bitsStored, high_bit: format.highBit },
    );
}

/** True if bits below the stored ones are set that no overlay explains. */
function hasBitsBelow(
  data: Uint8Array,
  { bitsAllocated, bitsStored, highBit }: PixelFormat,
  overlays: number,
): boolean {
  const below = (2 ** (highBit + 1 - bitsStored) - 1) & ~overlays;
  return below !== 0 && findStray(data, bitsAllocated / 8, below, undefined) !== undefined;
}

/**
 * Bits of a container outside BitsStored may contain anything (PS3.5 section 8.1.1), but if no
 * overlay lies there, BitsStored or HighBit may be wrong.
 */
export function warnOfStrayBits(
  data: Uint8Array,
  format: PixelFormat,
  overlays: number,
  warnings: Warning[],
): void {
  const { bitsStored, highBit, float, signed } = format;
  if (float) return;
  const above = strayBits(data, format, overlays) !== undefined;
  // If all that lies above the high bit continues it as a sign does, the values are signed
  if (above && !signed && strayBits(data, { ...format, signed: true }, overlays) === undefined)
    warn(
      warnings,
      "sign_mismatch",
      `PixelRepresentation is 0 but the bits above BitsStored ${bitsStored} are those of signed values; values are read by PixelRepresentation.`,
    );
  if (above || hasBitsBelow(data, format, overlays))
    warn(
      warnings,
      "stray_bits",
      `Stored values have bits outside BitsStored ${bitsStored} at HighBit ${highBit} that no overlay explains; they were ` +
        "left out. Check BitsStored, HighBit and PixelPaddingValue at the source.",
    );
}

/** The refusal of an image whose frames are all constant although they are too long for that. */
export function constantFrames(frames: number, entropyBytes: number): RadserveError {
  return errors.decode_suspect(
    `Every pixel of ${frames === 1 ? "the frame" : `all ${frames} frames`} decoded to one value, but ${entropyBytes} bytes ` +
      "of compressed data hold more than that. The decoder failed on this file; convert it to Explicit VR Little Endian.",
    { frames, entropy_bytes: entropyBytes },
  );
}
