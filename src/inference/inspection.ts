/**
 * A file and its decoded pixels: the JSON of `radserve inspect`, which conformance tests read too,
 * and its text for people.
 */
import { sha256 } from "../files/durable-files.js";
import { sopClassName } from "../images/dicom/dictionary.js";
import { transferSyntax } from "../images/dicom/transfer-syntax.js";
import { volumeOf } from "../images/dicom/volume.js";
import { errors, RadserveError } from "../base/errors.js";
import type { Image, PixelFormat, PlanePosition, VolumeGeometry } from "../images/image.js";
import { stepText } from "../images/step-text.js";
import { valueReader } from "../images/stored-values.js";
import { displaySteps } from "../models/transform-steps.js";

/** A value that the file does not have is null. */
export type Inspection = Awaited<ReturnType<typeof inspectImage>>;

/**
 * Decodes first and last frame and describes the image; no patient data.
 *
 * Hashes are over the stored values as `Image.frame` gives them: little endian, one container of
 * BitsAllocated a sample, unmasked, colour by pixel, before rescale, tables, windows and inversion.
 * min, max and mean are of the values masked to BitsStored at HighBit and read by sign.
 * Floating-point values that are not numbers (NaN or infinite) are left out of them and counted.
 * Throws what `Image.frame` throws.
 */
export async function inspectImage(image: Image) {
  const { source, format } = image;
  const interpretation = image.interpretation(0);
  const first = summarise(await image.frame(0), format);
  const last =
    image.frameCount === 1 ? first : summarise(await image.frame(image.frameCount - 1), format);
  return {
    format: source.format,
    file_sha256: source.fileSha256,
    bytes: source.bytes,
    transfer_syntax: source.transferSyntaxUid ?? null,
    transfer_syntax_name: nameOrNull(source.transferSyntaxUid, (uid) => transferSyntax(uid).name),
    sop_class_uid: source.sopClassUid ?? null,
    sop_class_name: nameOrNull(source.sopClassUid, sopClassName),
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
    // Only an ultrasound image has regions, each with its scale in mm
    regions: image.regions?.(0) ?? null,
    pixel_aspect: image.pixelAspect(0),
    plane: image.plane(0) ?? null,
    volume: volumeFacts(image),
    // Only a folder has slices
    slice_order: image.series?.slices.map(({ sopInstanceUid }) => sopInstanceUid ?? null) ?? null,
    units: interpretation.units ?? null,
    padding: interpretation.padding ?? null,
    transforms: displaySteps(image),
    first_frame: first,
    last_frame: last,
    warnings: image.warnings,
  };
}

function nameOrNull(uid: string | undefined, name: (uid: string) => string): string | null {
  return uid === undefined ? null : name(uid);
}

/** The volume whose slices the frames are; null if they are no volume. */
function volumeFacts(image: Image): ({ slices: number } & VolumeGeometry) | null {
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
 * Stored values of frame `number`, counted from 1 as DICOM counts frames: the bytes that
 * inspectImage hashes. Throws bad_request for a frame the image does not have.
 */
export async function dumpFrame(image: Image, number: number): Promise<Uint8Array> {
  if (!Number.isInteger(number) || number < 1 || number > image.frameCount)
    throw errors.bad_request(
      `Expected a frame number from 1 to ${image.frameCount} but received ${number}.`,
    );
  return image.frame(number - 1);
}

/** A summary of the stored values of one frame, as inspectImage describes. */
function summarise(data: Uint8Array, format: PixelFormat) {
  const read = valueReader(data, format);
  const count = data.length / (format.bitsAllocated / 8);
  let [min, max, sum, counted] = [Infinity, -Infinity, 0, 0];
  for (let i = 0; i < count; i++) {
    const value = read(i);
    if (!Number.isFinite(value)) continue;
    if (value < min) min = value;
    if (value > max) max = value;
    sum += value;
    counted++;
  }
  const none = { min: null, max: null, mean: null };
  const numbers = counted === 0 ? none : { min, max, mean: sum / counted };
  return { sha256: sha256(data), ...numbers, not_numbers: count - counted };
}

/** An inspection in words, one fact a line. */
export function formatInspection(inspection: Inspection): string {
  const i = inspection;
  const sign = i.float ? "floating point" : i.signed ? "signed" : "unsigned";
  const size = `${i.columns} x ${i.rows}, ${i.frames} frame${i.frames === 1 ? "" : "s"}`;
  const lines: [string, string | null][] = [
    [
      "Format",
      i.transfer_syntax === null
        ? i.format
        : `${i.format}, ${i.transfer_syntax_name ?? ""} (${i.transfer_syntax})`,
    ],
    ["Modality", i.modality],
    ["SOP class", i.sop_class_uid === null ? null : (i.sop_class_name ?? "") + uidBehind(i)],
    ["SOP instance", i.sop_instance_uid],
    ["Series", i.slice_order === null ? null : i.series_instance_uid],
    [
      i.slice_order === null ? "File" : "Slices",
      `${i.bytes} bytes, sha256 ${i.file_sha256}${i.slice_order === null ? "" : " over those of the slices in their order"}`,
    ],
    ["Size", size],
    [
      "Pixels",
      `${i.photometric_interpretation}, ${i.samples} x ${i.bits_stored} of ${i.bits_allocated} bits, ${sign}`,
    ],
    [
      "Spacing",
      i.spacing_mm === null
        ? null
        : `${rounded(i.spacing_mm.row)} x ${rounded(i.spacing_mm.column)} mm (between rows x columns; ${i.spacing_mm.source}${i.spacing_mm.patient ? "" : ", not in the patient"})`,
    ],
    [
      "Pixel aspect",
      i.pixel_aspect === 1 ? null : `${rounded(i.pixel_aspect)} times as high as wide`,
    ],
    ["Position", i.plane === null || i.volume !== null ? null : planeText(i.plane)],
    ["Volume", i.volume === null ? null : volumeText(i.volume)],
    [
      "Padding",
      i.padding === null
        ? null
        : `stored values ${i.padding.from} to ${i.padding.to} are Pixel Padding`,
    ],
    ["First frame", frameText(i.first_frame)],
    ["Last frame", i.frames === 1 ? null : frameText(i.last_frame)],
    ["Values", valuesText(i)],
    ...displayLines(i),
    ...i.warnings.map((w): [string, string] => ["Warning", `${w.message} [${w.code}]`]),
  ];
  return lines
    .filter((line): line is [string, string] => line[1] !== null)
    .map(([name, text]) => `${name.padEnd(13)}${text}\n`)
    .join("");
}

/**
 * The steps from stored values to the screen. If a step is there more than once, a viewer lets its
 * reader choose.
 */
function displayLines({ transforms, samples }: Inspection): [string, string][] {
  const steps = transforms.map(stepText);
  const windowed = transforms.some(({ step }) =>
    ["window", "voi_lut", "palette_to_rgb"].includes(step),
  );
  if (samples === 1 && !windowed) steps.push("no window: least to greatest value");
  return steps.map((text, n) => [n === 0 ? "Display" : "", text]);
}

/** The range of the first frame after its rescale, in words; its units if there is no rescale. */
function valuesText({ first_frame: frame, transforms, units }: Inspection): string | null {
  const rescale = transforms.find(({ step }) => step === "rescale");
  if (rescale === undefined) return units;
  if (frame.min === null) return null;
  const [low, high] = [frame.min, frame.max]
    .map((value) => rounded(value * Number(rescale["slope"]) + Number(rescale["intercept"])))
    .sort((a, b) => a - b);
  return `${low} to ${high} ${units ?? "of no stated unit"} in the first frame`;
}

/** The UID behind the name of a SOP class, unless the name holds it already. */
function uidBehind({ sop_class_name: name, sop_class_uid: uid }: Inspection): string {
  return uid === null || name?.includes(uid) === true ? "" : ` (${uid})`;
}

function planeText({ position, orientation }: PlanePosition): string {
  return `${position.map(rounded).join("\\")} mm, rows along ${orientation.slice(0, 3).map(rounded).join("\\")}, columns along ${orientation.slice(3).map(rounded).join("\\")}`;
}

function volumeText(volume: NonNullable<Inspection["volume"]>): string {
  const { slices, sliceSpacing, columnDirection, rowDirection, sliceDirection, origin } = volume;
  const directions = [columnDirection, rowDirection, sliceDirection].map((d) =>
    d.map(rounded).join("\\"),
  );
  return `${slices} slices ${rounded(sliceSpacing)} mm apart, from ${origin.map(rounded).join("\\")} along ${directions.join(" and ")} (columns, rows, slices)`;
}

const rounded = (value: number): number => Number(value.toFixed(4));

function frameText(frame: Inspection["first_frame"]): string {
  const range =
    frame.min === null
      ? "no numbers"
      : `${frame.min} to ${frame.max}, mean ${frame.mean.toFixed(3)}`;
  const others =
    frame.not_numbers === 0 ? "" : `, ${frame.not_numbers} not numbers (NaN or infinite)`;
  return `${range}${others}, sha256 ${frame.sha256}`;
}
