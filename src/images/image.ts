/**
 * The Image that readers give and everything else takes: pixels as stored, and all that is needed
 * to interpret them. Readers (DICOM, PNG, JPEG, TIFF) make an Image; nothing after them looks at
 * the file again.
 */
import type { WarningCode } from "../base/warnings.js";
import { errors, type RadserveError } from "../base/errors.js";

/**
 * Photometric Interpretation of the decoded frames (PS3.3 C.7.6.3.1.2); JPEG 2000 colour transforms
 * are already undone.
 */
export type PhotometricInterpretation =
  | "MONOCHROME1"
  | "MONOCHROME2"
  | "PALETTE COLOR"
  | "RGB"
  | "YBR_FULL"
  | "YBR_FULL_422"
  | "YBR_PARTIAL_420";

/**
 * How the stored samples lie in a frame's bytes (PS3.5 section 8): little endian, colour by pixel,
 * rows top to bottom.
 */
export interface PixelFormat {
  rows: number;
  columns: number;
  samplesPerPixel: number;
  /** 8, 16, 32 or 64: the container; one-bit pixels are unpacked to 8 with bitsStored 1. */
  bitsAllocated: 8 | 16 | 32 | 64;
  bitsStored: number;
  highBit: number;
  signed: boolean;
  /**
   * Float Pixel Data and Double Float Pixel Data hold IEEE numbers; then bitsStored is
   * bitsAllocated.
   */
  float: boolean;
  photometricInterpretation: PhotometricInterpretation;
  /** Native YBR_FULL_422: the frame is packed Y1 Y2 Cb Cr, two bytes a pixel. */
  packed422: boolean;
}

/**
 * A lookup table (PS3.3 C.11.1.1, C.11.2.1): input below firstMapped takes the first entry, above
 * the last.
 */
export interface LookupTable {
  firstMapped: number;
  /** Bits of each entry, 8 or 16 (entries are unpacked to 16-bit numbers either way). */
  bits: number;
  entries: Uint16Array;
}

/** Stored value to modality value (PS3.3 C.11.1): a lookup table excludes rescale. */
export type ModalityTransform =
  | { kind: "identity" }
  /**
   * `empty` names the attribute of a file whose slope is 0: its stored values are all 0, so that
   * any slope will do.
   */
  | { kind: "rescale"; slope: number; intercept: number; empty?: string }
  | { kind: "lut"; lut: LookupTable };

/** Modality value to display value (PS3.3 C.11.2). */
export type VoiTransform =
  | {
      kind: "window";
      center: number;
      width: number;
      function: "LINEAR" | "LINEAR_EXACT" | "SIGMOID";
      explanation?: string;
    }
  | { kind: "lut"; lut: LookupTable; explanation?: string };

export interface Palette {
  firstMapped: number;
  bits: number;
  red: Uint16Array;
  green: Uint16Array;
  blue: Uint16Array;
}

/**
 * Everything that turns one frame's stored values into meaning; per-frame functional groups
 * override shared ones.
 */
export interface Interpretation {
  modality: ModalityTransform;
  /**
   * Unit of modality values: "HU" only if the object says so or its SOP class defines it; undefined
   * if unknown.
   */
  units: string | undefined;
  /** In the order of the file: windows first, then VOI LUTs; empty if the file gives none. */
  voi: VoiTransform[];
  /**
   * Stored values to leave out (PS3.3 C.7.5.1.1.2), inclusive, in either order; equal if there is
   * no range limit.
   */
  padding: { from: number; to: number } | undefined;
  palette: Palette | undefined;
  /**
   * BitsStored and PixelRepresentation of the frame's own file, where its values are kept in
   * another format beside those of others: what is scaled or inverted over all that the bits allow
   * goes by these (PS3.5 section 8.1.1).
   */
  ownBits?: Pick<PixelFormat, "bitsStored" | "signed">;
  /** Real world value mappings of the file, beside its modality transform. */
  realWorld?: readonly RealWorldMapping[];
  /**
   * How modality values become standardised uptake values; undefined if the image is not of
   * positron emission.
   */
  suv?: SuvScale | undefined;
}

/** One item of the Real World Value Mapping (PS3.3 C.7.6.16.2.11). */
export interface RealWorldMapping {
  /**
   * Code Value of the Measurement Units Code Sequence: UCUM, for example mm2/s; undefined if the
   * item has none.
   */
  units: string | undefined;
  /** LUT Label, which tells mappings of one object apart. */
  label: string | undefined;
  /** The stored values that it is defined for, inclusive. */
  first: number;
  last: number;
  /** Stored value times slope plus intercept; undefined if it is given as a table. */
  linear: { slope: number; intercept: number } | undefined;
}

/**
 * The factor from modality values to SUV by body weight, in g/ml, with what was assumed; or why
 * there is none, in words.
 */
export type SuvScale = { factor: number; caveat?: Warning } | { missing: string };

/**
 * Millimetres between pixel centres. `source` tells patient spacing from detector spacing
 * (ImagerPixelSpacing is not patient spacing).
 */
export interface Spacing {
  row: number;
  column: number;
  source:
    | "PixelSpacing"
    | "ImagerPixelSpacing"
    | "NominalScannedPixelSpacing"
    | "SequenceOfUltrasoundRegions";
  /** True if lengths and areas measured with it are lengths and areas in the patient. */
  patient: boolean;
}

/** A part of an ultrasound image that has a scale of its own (PS3.3 C.8.5.5). */
export interface UltrasoundRegion {
  /** First and last pixels, from 0, the last ones included. */
  x0: number;
  y0: number;
  x1: number;
  y1: number;
  /** Millimetres between pixel centres; undefined if the region does not give lengths. */
  scale: { row: number; column: number } | undefined;
  /** Where regions overlap, the pixels are those of the regions of high priority. */
  highPriority: boolean;
}

/** Where a slice lies in the patient (PS3.3 C.7.6.2): mm, direction cosines. */
export interface PlanePosition {
  position: [number, number, number];
  orientation: [number, number, number, number, number, number];
}

/**
 * Why a frame that says where it lies has no plane. What needs none goes on; what needs one is
 * refused with this.
 */
export interface PlaneFault {
  /** `details.reason` of the refusal, and the code of the warning. */
  reason: "invalid_orientation" | "missing_geometry" | "mosaic";
  /** Says what was expected, what was found and what to do. */
  message: string;
}

/**
 * A stack of parallel, equally spaced slices in the patient's coordinates (PS3.3 C.7.6.2: x to the
 * left, y to the back, z to the head; mm).
 */
export interface VolumeGeometry {
  /** Centre of the first voxel: slice 0, row 0, column 0. */
  origin: [number, number, number];
  /** Unit vectors along which the column index, the row index and the slice index grow. */
  columnDirection: [number, number, number];
  rowDirection: [number, number, number];
  sliceDirection: [number, number, number];
  /** Distances between voxel centres. */
  columnSpacing: number;
  rowSpacing: number;
  sliceSpacing: number;
}

/** Slices in their order, as one body. */
export interface Volume {
  geometry: VolumeGeometry;
  /** Which frame of the image (from 0) each slice is, along `geometry.sliceDirection`. */
  frames: readonly number[];
  /** Set where the slices lie evenly only if their positions were rounded. */
  rounded?: boolean;
  /** Set for a stack that is not straight or not whole, which only some models take. */
  flaws?: StackFlaws;
}

/** How far a stack of slices may be from a straight and whole one. */
export interface StackTolerance {
  /** Between the line along which slices follow each other and their normal. */
  tiltDegrees: number;
  /** Slices between the first and the last that are not there. */
  missing: number;
}

/** For who shows slices and gives them to no model. */
export const ANY_STACK: StackTolerance = { tiltDegrees: 90, missing: Infinity };

/** The tilt and the gaps of an even stack. */
export interface StackFlaws extends StackTolerance {
  /** The place of each slice in the stack as it would be if none were missing, from 0. */
  places: readonly number[];
  /**
   * How far the stack goes aside, in mm along the rows' and the columns' index, for each mm along
   * the normal.
   */
  aside: { row: number; column: number };
  /** The refusal for a model that does not take it. */
  refusals: { tilt: RadserveError | undefined; gap: RadserveError | undefined };
}

/** Which object a slice of a series came from. */
export interface SliceIdentity {
  sopInstanceUid: string | undefined;
  fileSha256: string;
  /** From 1; undefined if its file holds a single frame. */
  frame: number | undefined;
  /** Which of the series' `attributes` are its file's. */
  file: number;
}

/** Facts about the files of an image that was read from many. */
export interface Series {
  /** @throws RadserveError series_invalid for a grouped series whose slices are no volume */
  readonly volume: Volume;
  /**
   * The series was asked for as one item for models of single images too, which look at its slices
   * one by one.
   */
  grouped: boolean;
  /** In the order of the image's frames, which is the order of the slices. */
  slices: readonly SliceIdentity[];
  /** The data set of each file; the image's own `attributes` are those of the first slice's. */
  attributes: readonly Attributes[];
  /** Series that lie in the same folder beside it. */
  others: number;
}

/** A caveat about the file that does not forbid using it; goes into the receipt. */
export interface Warning {
  code: string;
  message: string;
}

/**
 * More different caveats than these say nothing more to a person, and a hostile file would fill
 * results with them.
 */
const MOST_WARNINGS = 50;

/** Adds a caveat once; of more than MOST_WARNINGS only that there are more is said. */
export function warn(warnings: Warning[], code: WarningCode, message: string): void {
  addOnce(warnings, code, message);
}

/** The same for caveats that were made elsewhere. */
export function addWarnings(warnings: Warning[], made: readonly Warning[]): void {
  for (const { code, message } of made) addOnce(warnings, code, message);
}

function addOnce(warnings: Warning[], code: string, message: string): void {
  if (
    warnings.length > MOST_WARNINGS ||
    warnings.some((w) => w.code === code && w.message === message)
  )
    return;
  warnings.push(
    warnings.length < MOST_WARNINGS
      ? { code, message }
      : {
          code: "more_warnings",
          message: `The file has more than ${MOST_WARNINGS} faults; the others are not listed.`,
        },
  );
}

/**
 * One step that was or would be applied, with its parameters, for the receipt and for `inspect`.
 */
export interface TransformStep {
  step: string;
  [parameter: string]: unknown;
}

/** Identity of the source; patient data stays in `tags` and never reaches logs or errors. */
export interface SourceIdentity {
  format: "dicom" | "png" | "jpeg" | "tiff";
  /**
   * For a series, over the hashes of its slices' files, in hexadecimal, a line feed after each, in
   * their order.
   */
  fileSha256: string;
  /** Size of the file, or of all files of a series. */
  bytes: number;
  sopClassUid: string | undefined;
  sopInstanceUid: string | undefined;
  studyInstanceUid: string | undefined;
  seriesInstanceUid: string | undefined;
  transferSyntaxUid: string | undefined;
  modality: string | undefined;
}

/**
 * The attributes of a DICOM data set outside its pixels, by keyword. Read-only and lazily decoded.
 * Strings are decoded from the data set's character sets and trimmed of padding.
 */
export interface Attributes {
  /**
   * All values of an attribute as text; undefined if it is absent, an empty array if it is empty.
   */
  strings(keyword: string): string[] | undefined;
  /** First value as text; undefined if absent or empty. */
  string(keyword: string): string | undefined;
  /**
   * All values as one text that only equal values have: bytes that no character set explains count
   * as they are.
   */
  comparable(keyword: string): string;
  /**
   * All values as numbers (DS, IS, US, SS, UL, SL, FL, FD); empty if one of them is not a number.
   */
  numbers(keyword: string): number[] | undefined;
  number(keyword: string): number | undefined;
  sequence(keyword: string): Attributes[] | undefined;
  has(keyword: string): boolean;
}

/**
 * A candidate for a member of a case, or why it is none: then the image has no pixels that can be
 * used.
 */
export interface Candidate {
  image: Image;
  fault?: RadserveError | undefined;
}

/** Several series or single images that are looked at together. */
export interface Case {
  /** In the order in which they count; results lie in the first. */
  members: readonly [Image, ...Image[]];
  /** All of the folder that they were chosen from, they themselves among them. */
  candidates: readonly Candidate[];
  /** Those of them that are none of the members. */
  notChosen?: readonly NotChosen[] | undefined;
}

/** A series or image of a folder that a choice left out. */
export interface NotChosen {
  image: Pick<Image, "source" | "frameCount">;
  /** For each model that could have taken it. */
  why: readonly { model: string; role?: string; code: string; message: string }[];
}

/**
 * How frames are compressed, and the bytes that it takes to decode one beside the file and the
 * frame itself.
 */
export interface Codec {
  kind: "jpeg" | "jpeg-ls" | "jpeg2000" | "htj2k" | "jpeg-xl";
  bytes: number;
  /** The codestream does not give back exactly what was compressed; of JPEG XL it is not known. */
  lossy?: boolean;
}

export interface Image {
  source: SourceIdentity;
  format: PixelFormat;
  frameCount: number;
  /**
   * Stored values of one frame (from 0), decoded on first use, in the layout of `format`. Throws
   * RadserveError: corrupt_image, truncated_image, decode_suspect, unsupported_transfer_syntax.
   */
  frame(index: number): Promise<Uint8Array>;
  /** Of the frames that take most, where the codecs of a thread decode them. */
  codec?: Codec;
  interpretation(frame: number): Interpretation;
  /** The spacing that the whole frame has, or all of its regions. */
  spacing(frame: number): Spacing | undefined;
  /**
   * The regions within each of which the spacing holds; undefined if it holds for the whole frame.
   */
  regions?(frame: number): readonly UltrasoundRegion[] | undefined;
  plane(frame: number): PlanePosition | undefined;
  /** Why there is no plane although the file says something of it. */
  planeFault?(frame: number): PlaneFault | undefined;
  /**
   * Height of a pixel divided by its width (PS3.3 C.7.6.3.1.7, or from spacing); 1 if nothing says
   * otherwise.
   */
  pixelAspect(frame: number): number;
  /** Data set attributes; undefined for PNG, JPEG and TIFF. */
  attributes: Attributes | undefined;
  /**
   * The reader's assumptions and repairs, for example a missing preamble. Grows while frames are
   * decoded.
   */
  warnings: Warning[];
  /** Steps the reader itself applied, for example an EXIF orientation. */
  transforms: TransformStep[];
  /** Present if the image is a folder that holds one series: its frames are the slices, sorted. */
  series?: Series;
  /**
   * Of a folder of several series: those that were not taken, where a rule and nobody by name
   * chose.
   */
  notChosen?: readonly NotChosen[];
  /**
   * Present if the image is a case of several: then the rest is that of its first member, but for
   * what tells of all.
   */
  case?: Case;
  /**
   * Frees the file's bytes, if the image keeps them; nothing may be asked of the image from then
   * on.
   */
  release?(): void;
  /** Hashes the file now, and not when its SHA-256 is first asked for. */
  hash?(): void;
}

/** The codec that takes the most; lossy if one of them is. */
export function largestCodec(images: readonly Pick<Image, "codec">[]): Codec | undefined {
  const all = images.flatMap(({ codec }) => codec ?? []);
  const [largest] = all.toSorted((a, b) => b.bytes - a.bytes);
  return largest && all.some(({ lossy }) => lossy) ? { ...largest, lossy: true } : largest;
}

/** The data set that says what a frame (from 0) shows: in a series, that of the slice's file. */
export function attributesOfFrame(
  { attributes, series }: Pick<Image, "attributes" | "series">,
  frame: number,
): Attributes | undefined {
  return series?.attributes[series.slices[frame]?.file ?? 0] ?? attributes;
}

/** Gives a frame's index (from 0) back. Throws bad_request if the image has no such frame. */
export function checkedFrame(index: number, count: number): number {
  if (Number.isInteger(index) && index >= 0 && index < count) return index;
  throw errors.bad_request(`Expected a frame from 0 to ${count - 1} but received ${index}.`);
}
