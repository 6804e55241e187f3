/** The Image Pixel Module (PS3.3 C.7.6.3): attributes to a checked PixelFormat. */
import { errors, type RadserveError } from "../../base/errors.js";
import { ownValue } from "../../base/own-value.js";
import { warn, type PixelFormat, type Warning } from "../image.js";
import type { DataSetAttributes } from "./attributes.js";
import { baseColour } from "./coded-colour.js";

/** Which element holds the pixels: their type differs (PS3.3 C.7.6.3, C.7.6.24, C.7.6.25). */
export type PixelElement = "PixelData" | "FloatPixelData" | "DoubleFloatPixelData";

export interface ImagePixel {
  format: PixelFormat;
  frameCount: number;
  /** PhotometricInterpretation, in capitals. */
  tag: string;
  /** As declared: 1 means packed bits. */
  bitsAllocated: number;
  /** Native pixels and RLE of several samples: 1 is by plane. */
  planarConfiguration: number;
  /** It is not stated, and 0 was taken. */
  planarIsGuessed: boolean;
}

function bad(attribute: string, expected: string, found: unknown): RadserveError {
  return errors.corrupt_image(
    `${attribute} should be ${expected} but is ${typeof found === "number" ? found : "absent"}. ` +
      "Correct the attribute at the source.",
    { attribute },
  );
}

function integer(
  attributes: DataSetAttributes,
  keyword: string,
  low: number,
  high: number,
): number {
  const value = attributes.number(keyword);
  if (value === undefined || !Number.isInteger(value) || value < low || value > high)
    throw bad(keyword, low === high ? `${low}` : `an integer from ${low} to ${high}`, value);
  return value;
}

const SAMPLES: Readonly<Record<string, number>> = {
  MONOCHROME1: 1,
  MONOCHROME2: 1,
  "PALETTE COLOR": 1,
  RGB: 3,
  YBR_FULL: 3,
  YBR_FULL_422: 3,
  YBR_ICT: 3,
  YBR_RCT: 3,
  XYB: 3,
  YBR_PARTIAL_420: 3,
};

/**
 * 134 megapixels, the same as for other picture files: five times a mammogram. A segmentation of a
 * frame on its own grid takes some 24 bytes a pixel at its peak, 3 GiB here.
 */
const MAX_FRAME_PIXELS = 2 ** 27;

/**
 * Reads and checks the module. Throws corrupt_image naming the attribute that is wrong, or
 * unsupported_format for retired photometric interpretations (HSV, ARGB, CMYK, YBR_PARTIAL_422).
 */
export function readImagePixel(
  attributes: DataSetAttributes,
  element: PixelElement,
  warnings: Warning[],
): ImagePixel {
  const rows = integer(attributes, "Rows", 1, 65535);
  const columns = integer(attributes, "Columns", 1, 65535);
  if (rows * columns > MAX_FRAME_PIXELS)
    throw errors.unsupported_format(
      `Expected frames of at most ${MAX_FRAME_PIXELS} pixels; found ${columns} x ${rows}.`,
      { most: MAX_FRAME_PIXELS, rows, columns },
    );
  const frames = frameCount(attributes, warnings);
  if (!Number.isInteger(frames) || frames < 1 || frames > 2 ** 31)
    throw bad("NumberOfFrames", "a positive integer", frames);
  if (frames > MOST_FRAMES)
    throw errors.unsupported_format(
      `Expected at most ${MOST_FRAMES} frames, found NumberOfFrames ${frames}. Split the object at its source.`,
      { most: MOST_FRAMES },
    );
  const tag = photometric(attributes, element, warnings);
  const samples = samplesPerPixel(attributes, tag, warnings);
  const bits =
    element === "PixelData" ? integerBits(attributes, samples, warnings) : floatBits(element);
  const stated = samples > 1 ? attributes.number("PlanarConfiguration") : 0;
  const planar = stated ?? 0;
  if (planar !== 0 && planar !== 1) throw bad("PlanarConfiguration", "0 or 1", planar);
  return {
    format: {
      rows,
      columns,
      samplesPerPixel: samples,
      ...bits.format,
      photometricInterpretation: baseColour(tag),
      packed422: false,
    },
    frameCount: frames,
    tag,
    bitsAllocated: bits.declared,
    planarConfiguration: planar,
    planarIsGuessed: stated === undefined,
  };
}

/**
 * Each frame takes time and memory, however small it is. The largest whole slide images have some
 * 500,000.
 */
const MOST_FRAMES = 1_000_000;

/**
 * Some writers of single frames put 0 there; the length of the pixel data is checked against the
 * one frame.
 */
function frameCount(attributes: DataSetAttributes, warnings: Warning[]): number {
  if (attributes.string("NumberOfFrames") === undefined) return 1;
  const frames = attributes.number("NumberOfFrames");
  if (frames !== 0) return frames ?? Number.NaN;
  warn(warnings, "no_frames", "NumberOfFrames is 0; one frame was read.");
  return 1;
}

function photometric(
  attributes: DataSetAttributes,
  element: PixelElement,
  warnings: Warning[],
): string {
  const tag = attributes.string("PhotometricInterpretation")?.toUpperCase();
  if (tag === undefined && element !== "PixelData") return "MONOCHROME2";
  // ACR-NEMA, before DICOM, had grey images alone and no such attribute; it had Image Dimensions
  // (0028,0005)
  if (
    tag === undefined &&
    attributes.has("RETIRED_ImageDimensions") &&
    (attributes.number("SamplesPerPixel") ?? 1) === 1
  ) {
    warn(
      warnings,
      "missing_attribute",
      "PhotometricInterpretation is absent, as before DICOM; MONOCHROME2 was taken.",
    );
    return "MONOCHROME2";
  }
  if (tag === undefined) throw bad("PhotometricInterpretation", "present", undefined);
  if (ownValue(SAMPLES, tag) === undefined)
    throw errors.unsupported_format(
      `PhotometricInterpretation ${/^[A-Z0-9_ ]{1,16}$/.test(tag) ? tag : "of this file"} is not supported; supported are ` +
        `${Object.keys(SAMPLES).join(", ")}.`,
    );
  return tag;
}

function samplesPerPixel(attributes: DataSetAttributes, tag: string, warnings: Warning[]): number {
  const expected = ownValue(SAMPLES, tag) ?? 1;
  const found = attributes.number("SamplesPerPixel");
  if (found === undefined) {
    warn(warnings, "missing_attribute", `SamplesPerPixel is absent; ${tag} has ${expected}.`);
    return expected;
  }
  // XYB says how a picture is coded, and a grey one has one sample all the same
  if (found !== expected && !(tag === "XYB" && found === 1))
    throw bad("SamplesPerPixel", `${expected} with PhotometricInterpretation ${tag}`, found);
  return found;
}

interface DeclaredBits {
  declared: number;
  format: Pick<PixelFormat, "bitsAllocated" | "bitsStored" | "highBit" | "signed" | "float">;
}

function floatBits(element: PixelElement): DeclaredBits {
  const bits = element === "FloatPixelData" ? 32 : 64;
  return {
    declared: bits,
    format: { bitsAllocated: bits, bitsStored: bits, highBit: bits - 1, signed: true, float: true },
  };
}

/**
 * The sign if Pixel Representation is absent, told by other attributes. Throws corrupt_image if
 * none tells it.
 */
function signFound(attributes: DataSetAttributes, unsigned: boolean, warnings: Warning[]): boolean {
  const found = attributes.signOfVrs;
  if (!unsigned && found === undefined) throw bad("PixelRepresentation", "0 or 1", undefined);
  const signed = !unsigned && found === true;
  warn(
    warnings,
    "missing_attribute",
    `PixelRepresentation is absent; ${signed ? 1 : 0} follows from other attributes.`,
  );
  return signed;
}

function integerBits(
  attributes: DataSetAttributes,
  samples: number,
  warnings: Warning[],
): DeclaredBits {
  const declared = attributes.number("BitsAllocated");
  if (declared !== 1 && declared !== 8 && declared !== 16 && declared !== 32)
    throw bad("BitsAllocated", "1, 8, 16 or 32", declared);
  const bitsStored = integer(attributes, "BitsStored", 1, declared);
  let highBit = attributes.number("HighBit");
  if (highBit === undefined) {
    highBit = bitsStored - 1;
    warn(
      warnings,
      "missing_attribute",
      `HighBit is absent; BitsStored - 1 (${highBit}) was taken.`,
    );
  }
  if (!Number.isInteger(highBit) || highBit < bitsStored - 1 || highBit >= declared)
    throw bad(
      "HighBit",
      `from BitsStored - 1 (${bitsStored - 1}) to BitsAllocated - 1 (${declared - 1})`,
      highBit,
    );
  const signed = attributes.has("PixelRepresentation")
    ? integer(attributes, "PixelRepresentation", 0, 1) === 1
    : signFound(attributes, samples === 3 || declared === 1, warnings);
  if (declared === 1 && signed) throw bad("PixelRepresentation", "0 with BitsAllocated 1", 1);
  if (samples > 1 && signed)
    throw bad("PixelRepresentation", `0 with SamplesPerPixel ${samples}`, 1);
  return {
    declared,
    format: {
      bitsAllocated: declared === 1 ? 8 : declared,
      bitsStored,
      highBit,
      signed,
      float: false,
    },
  };
}
