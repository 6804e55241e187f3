/**
 * How the values of DICOM attributes are read for the rules of a manifest, and which of them may be
 * told.
 */
import { calculationTechniques } from "../images/dicom/derived-values.js";
import { macrosOf } from "../images/dicom/frame-values.js";
import type { Attributes, Image } from "../images/image.js";

/** One refusal; `code` is stable and for programs. */
export interface Reason {
  code: string;
  message: string;
}

/** Attributes whose values describe the technique, never the person; only these are quoted. */
export const TECHNICAL = new Set(
  (
    "AcquisitionContrast AnatomicRegionSequence BitsStored BodyPartExamined BurnedInAnnotation " +
    "ComplexImageComponent ConversionType ConvolutionKernel EchoTime FrameType ImageLaterality ImageType " +
    "KVP Laterality LossyImageCompression MagneticFieldStrength Modality MRAcquisitionType NumberOfFrames " +
    "PatientPosition PhotometricInterpretation PixelPresentation PresentationIntentType " +
    "RecognizableVisualFeatures RepetitionTime RescaleType ScanningSequence SequenceVariant " +
    "SliceThickness SOPClassUID SpacingBetweenSlices ViewPosition VolumeBasedCalculationTechnique " +
    "VolumetricProperties XRayTubeCurrent"
  ).split(" "),
);

/** Whether multi-frame objects keep an attribute there, behind all that stands at the top. */
export const isOfFrames = (keyword: string): boolean => macrosOf(keyword).length > 0;

/** The data set of a file, or those of all files of a series. */
export function dataSets(image: Image): readonly Attributes[] {
  return image.series?.attributes ?? (image.attributes === undefined ? [] : [image.attributes]);
}

/**
 * Non-empty values of an attribute, at the top of the data set or in the functional group that
 * holds it.
 */
export function stringsOf(attributes: Attributes | undefined, keyword: string): string[] {
  if (keyword === "VolumeBasedCalculationTechnique")
    return attributes === undefined ? [] : calculationTechniques(attributes);
  return stringsIn(holders(attributes, keyword), keyword);
}

const stringsIn = (holding: readonly Attributes[], keyword: string): string[] =>
  holding.flatMap((holder) => holder.strings(keyword) ?? []).filter((value) => value !== "");

export function numbersOf(attributes: Attributes | undefined, keyword: string): number[] {
  const found = holders(attributes, keyword);
  if (keyword === "PatientAge")
    return found.flatMap((holder) => ageIn("years", holder.string(keyword)) ?? []);
  return numbersIn(found, keyword);
}

const numbersIn = (holding: readonly Attributes[], keyword: string): number[] =>
  holding
    .flatMap((holder) => holder.numbers(keyword) ?? [])
    .filter((value) => Number.isFinite(value));

/** The non-empty values of an attribute in a frame, as `stringsOf` and `numbersOf` have them. */
interface FrameValues {
  strings: readonly string[];
  numbers: readonly number[];
}

/**
 * The values of an attribute in each frame of an object whose frames differ in it; once for all
 * frames of any other object. A frame of which nothing is said has none.
 */
export function valuesByFrame(attributes: Attributes, keyword: string): FrameValues[] {
  const frames = isSaidAtTop(attributes, keyword) ? [] : itemsOf(attributes, PER_FRAME);
  const own = frames.map((frame) => holdersIn(frame, keyword));
  if (own.every((holding) => holding.length === 0))
    return [{ strings: stringsOf(attributes, keyword), numbers: numbersOf(attributes, keyword) }];
  const valuesOf = (holding: readonly Attributes[]) => {
    return { strings: stringsIn(holding, keyword), numbers: numbersIn(holding, keyword) };
  };
  const shared = valuesOf(
    itemsOf(attributes, SHARED).flatMap((group) => holdersIn(group, keyword)),
  );
  return own.map((holding) => (holding.length > 0 ? valuesOf(holding) : shared));
}

/** The value at the index, as a list that is empty where there is none; all without an index. */
export function picked<T>(values: readonly T[], index: number | undefined): readonly T[] {
  return index === undefined ? values : values.slice(index, index + 1);
}

/**
 * Data sets that hold an attribute: the top level, else shared, else per-frame functional groups
 * (PS3.3 C.7.6.16.1).
 */
export function holders(attributes: Attributes | undefined, keyword: string): Attributes[] {
  if (attributes === undefined) return [];
  if (isSaidAtTop(attributes, keyword)) return [attributes];
  return [SHARED, PER_FRAME]
    .flatMap((sequence) => itemsOf(attributes, sequence))
    .flatMap((item) => holdersIn(item, keyword));
}

const isSaidAtTop = (attributes: Attributes, keyword: string): boolean =>
  (attributes.strings(keyword) ?? []).some((value) => value !== "");

const SHARED = "SharedFunctionalGroupsSequence";
const PER_FRAME = "PerFrameFunctionalGroupsSequence";
const itemsOf = (attributes: Attributes, sequence: string) => attributes.sequence(sequence) ?? [];

/** The functional groups of an item that hold the attribute. */
const holdersIn = (item: Attributes, keyword: string): Attributes[] =>
  macrosOf(keyword)
    .flatMap((name) => item.sequence(name) ?? [])
    .filter((holder) => holder.has(keyword));

/** Days in each unit of an age: a year has twelve months. */
const DAYS = { D: 1, W: 7, M: 365.25 / 12, Y: 365.25 };
const AGE_UNITS = { days: "D", weeks: "W", months: "M", years: "Y" } as const;
export type AgeUnit = keyof typeof AGE_UNITS;

/**
 * Value Representation AS (PS3.5 6.2), three digits and D, W, M or Y, in a unit; undefined for
 * other text.
 */
export function ageIn(unit: AgeUnit, text: string | undefined): number | undefined {
  const match = /^(\d{3})([DWMY])$/.exec(text ?? "");
  if (match === null) return undefined;
  const [count, of, to] = [Number(match[1]), match[2] as keyof typeof DAYS, AGE_UNITS[unit]];
  if (of === to) return count;
  // Exact between years and months.
  if (of === "Y" && to === "M") return count * 12;
  if (of === "M" && to === "Y") return count / 12;
  return (count * DAYS[of]) / DAYS[to];
}

/** PatientAge: patient_age. */
export function snakeCase(keyword: string): string {
  return keyword
    .replace(/([a-z0-9])([A-Z])/g, "$1_$2")
    .replace(/([A-Z])([A-Z][a-z])/g, "$1_$2")
    .toLowerCase();
}
