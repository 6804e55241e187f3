/** What a file is and what its decoded pixels are: the JSON of `radserve inspect`, which conformance tests read too. */
import { sha256 } from "../files/durable-files.js";
import { sopClassName } from "../images/dicom/dictionary.js";
import { transferSyntax } from "../images/dicom/transfer-syntax.js";
import { volumeOf } from "../images/dicom/volume.js";
import { RadserveError } from "../base/errors.js";
import type {
  Image,
  PixelFormat,
  PlanePosition,
  Spacing,
  TransformStep,
  VolumeGeometry,
  Warning,
} from "../images/image.js";
import { valueReader } from "../images/stored-values.js";
import { displaySteps } from "../models/transform-steps.js";

/** A summary of the stored values of one frame, as inspectImage describes. */
export interface FrameSummary {
  sha256: string;
  min: number;
  max: number;
  mean: number;
}

export interface Inspection {
  format: Image["source"]["format"];
  file_sha256: string;
  bytes: number;
  transfer_syntax: string | null;
  transfer_syntax_name: string | null;
  sop_class_uid: string | null;
  sop_class_name: string | null;
  sop_instance_uid: string | null;
  series_instance_uid: string | null;
  study_instance_uid: string | null;
  modality: string | null;
  frames: number;
  rows: number;
  columns: number;
  samples: number;
  bits_allocated: number;
  bits_stored: number;
  high_bit: number;
  signed: boolean;
  float: boolean;
  photometric_interpretation: string;
  spacing_mm: Spacing | null;
  pixel_aspect: number;
  plane: PlanePosition | null;
  /** How the frames lie as slices of one volume; null if they are no volume. */
  volume: ({ slices: number } & VolumeGeometry) | null;
  /** SOPInstanceUIDs of the slices of a folder, in their order; null for a file. */
  slice_order: (string | null)[] | null;
  units: string | null;
  padding: { from: number; to: number } | null;
  transforms: TransformStep[];
  first_frame: FrameSummary;
  last_frame: FrameSummary;
  warnings: Warning[];
}

/**
 * Decodes first and last frame and describes the image; no patient data.
 *
 * Hashes are over the stored values as `Image.frame` gives them: little endian, one container of BitsAllocated a
 * sample, unmasked, colour by pixel, before rescale, tables, windows and inversion. min, max and mean are of the
 * values masked to BitsStored at HighBit and read by sign. NaN of floating-point pixels is left out of them.
 * Throws what `Image.frame` throws.
 */
export async function inspectImage(image: Image): Promise<Inspection> {
  const { source, format } = image;
  const interpretation = image.interpretation(0);
  const first = summarise(await image.frame(0), format);
  const last = image.frameCount === 1 ? first : summarise(await image.frame(image.frameCount - 1), format);
  return {
    format: source.format,
    file_sha256: source.fileSha256,
    bytes: source.bytes,
    transfer_syntax: source.transferSyntaxUid ?? null,
    transfer_syntax_name: named(source.transferSyntaxUid, (uid) => transferSyntax(uid).name),
    sop_class_uid: source.sopClassUid ?? null,
    sop_class_name: named(source.sopClassUid, sopClassName),
    sop_instance_uid: source.sopInstanceUid ?? null,
    series_instance_uid: source.seriesInstanceUid ?? null,
    study_instance_uid: source.studyInstanceUid ?? null,
    modality: source.modality ?? null,
    frames: image.frameCount,
    rows: format.rows,
    columns: format.columns,
    samples: format.samplesPerPixel,
    bits_allocated: format.bitsAllocated,
    bits_stored: format.bitsStored,
    high_bit: format.highBit,
    signed: format.signed,
    float: format.float,
    photometric_interpretation: format.photometricInterpretation,
    spacing_mm: image.spacing(0) ?? null,
    pixel_aspect: image.pixelAspect(0),
    plane: image.plane(0) ?? null,
    volume: volumeFacts(image),
    slice_order: image.series?.slices.map(({ sopInstanceUid }) => sopInstanceUid ?? null) ?? null,
    units: interpretation.units ?? null,
    padding: interpretation.padding ?? null,
    transforms: displaySteps(image),
    first_frame: first,
    last_frame: last,
    warnings: image.warnings,
  };
}

function named(uid: string | undefined, name: (uid: string) => string): string | null {
  return uid === undefined ? null : name(uid);
}

function volumeFacts(image: Image): Inspection["volume"] {
  if (image.frameCount === 1) return null;
  try {
    const { frames, geometry } = volumeOf(image);
    return { slices: frames.length, ...geometry };
  } catch (error) {
    if (error instanceof RadserveError && error.code === "series_invalid") return null;
    throw error;
  }
}

/**
 * Stored values of frame `number`, counted from 1 as DICOM counts frames: the bytes that inspectImage hashes.
 * Throws bad_request for a frame the image does not have.
 */
export async function dumpFrame(image: Image, number: number): Promise<Uint8Array> {
  if (!Number.isInteger(number) || number < 1 || number > image.frameCount)
    throw new RadserveError(
      "bad_request",
      `Expected a frame number from 1 to ${image.frameCount} but received ${number}.`,
    );
  return image.frame(number - 1);
}

function summarise(data: Uint8Array, format: PixelFormat): FrameSummary {
  const read = valueReader(data, format);
  const count = data.length / (format.bitsAllocated / 8);
  let min = Infinity;
  let max = -Infinity;
  let sum = 0;
  let counted = 0;
  for (let i = 0; i < count; i++) {
    const value = read(i);
    if (Number.isNaN(value)) continue;
    if (value < min) min = value;
    if (value > max) max = value;
    sum += value;
    counted++;
  }
  return {
    sha256: sha256(data),
    min: counted === 0 ? 0 : min,
    max: counted === 0 ? 0 : max,
    mean: counted === 0 ? 0 : sum / counted,
  };
}
