/**
 * The attributes that are read of a source, and what one with a wrong value does to its file. An
 * attribute that decides pixels, places, quantities or the patient refuses the file and is named,
 * because nobody can know what was meant. Any other attribute is read as absent, with a warning; a
 * step that needs it says that it is missing. Attributes that are only copied into our objects are
 * checked there.
 */
import { describeTag, dictionaryVr, multiplicityOf, tagOf, type Tag } from "./dictionary.js";
import { decimal, FORMS } from "./value-forms.js";

const words = (...lines: string[]) => lines.flatMap((line) => line.split(" "));

/** Whose values cannot be wrong without refusing the file. */
export const REFUSED: readonly string[] = words(
  "TransferSyntaxUID MediaStorageSOPClassUID SOPClassUID SOPInstanceUID StudyInstanceUID SeriesInstanceUID FrameOfReferenceUID Modality ImageType FrameType",
  "SamplesPerPixel PhotometricInterpretation PlanarConfiguration NumberOfFrames Rows Columns BitsAllocated BitsStored",
  "HighBit PixelRepresentation PixelPaddingValue PixelPaddingRangeLimit FloatPixelPaddingValue",
  "FloatPixelPaddingRangeLimit DoubleFloatPixelPaddingValue DoubleFloatPixelPaddingRangeLimit",
  "RescaleSlope RescaleIntercept RescaleType DoseGridScaling DoseUnits Units PixelIntensityRelationship",
  "LUTDescriptor ModalityLUTType RedPaletteColorLookupTableDescriptor GreenPaletteColorLookupTableDescriptor",
  "BluePaletteColorLookupTableDescriptor PixelSpacing ImagerPixelSpacing NominalScannedPixelSpacing PixelAspectRatio",
  "PixelSpacingCalibrationType ImagePositionPatient ImageOrientationPatient GridFrameOffsetVector",
  "RegionSpatialFormat RegionFlags RegionLocationMinX0 RegionLocationMinY0 RegionLocationMaxX1 RegionLocationMaxY1",
  "PhysicalUnitsXDirection PhysicalUnitsYDirection PhysicalDeltaX PhysicalDeltaY",
  "ConcatenationUID InConcatenationNumber InConcatenationTotalNumber ConcatenationFrameOffsetNumber",
  "ImageOrientationSlide TotalPixelMatrixRows TotalPixelMatrixColumns TotalPixelMatrixFocalPlanes NumberOfOpticalPaths OpticalPathIdentifier",
  "XOffsetInSlideCoordinateSystem YOffsetInSlideCoordinateSystem ZOffsetInSlideCoordinateSystem",
  "RowPositionInTotalImagePixelMatrix ColumnPositionInTotalImagePixelMatrix DimensionOrganizationType",
  "PerFrameFunctionalGroupsSequence SharedFunctionalGroupsSequence PixelMeasuresSequence PlanePositionSequence",
  "PlaneOrientationSequence PixelValueTransformationSequence CTImageFrameTypeSequence ModalityLUTSequence",
  "SequenceOfUltrasoundRegions TotalPixelMatrixOriginSequence PlanePositionSlideSequence OpticalPathSequence",
  "OpticalPathIdentificationSequence",
);

/** Which are read as absent where their values are wrong. */
export const IGNORED: readonly string[] = words(
  "InstanceNumber SliceThickness BurnedInAnnotation BodyPartExamined Laterality ImageLaterality FrameLaterality PatientOrientation AnatomicalOrientationType",
  "PositionReferenceIndicator PresentationLUTShape VOILUTFunction LUTExplanation SmallestImagePixelValue",
  "LargestImagePixelValue SmallestPixelValueInSeries LargestPixelValueInSeries LossyImageCompression",
  "LossyImageCompressionRatio LossyImageCompressionMethod PatientSize PatientWeight DecayCorrection CorrectedImage SUVType",
  "StudyDate StudyTime SeriesDate SeriesTime AcquisitionDate AcquisitionTime TimezoneOffsetFromUTC",
  "RadiopharmaceuticalStartDateTime RadiopharmaceuticalStartTime",
  "RadionuclideTotalDose RadionuclideHalfLife RealWorldValueSlope RealWorldValueIntercept",
  "RealWorldValueFirstValueMapped RealWorldValueLastValueMapped DoubleFloatRealWorldValueFirstValueMapped",
  "DoubleFloatRealWorldValueLastValueMapped LUTLabel CodeValue LongCodeValue URNCodeValue CodingSchemeDesignator",
  "SpacingBetweenSlices SliceVector FrameIncrementPointer DetectorInformationSequence FrameReferenceTime ActualFrameDuration",
  "RealWorldValueMappingSequence MeasurementUnitsCodeSequence VOILUTSequence FrameVOILUTSequence",
  "RadiopharmaceuticalInformationSequence FrameAnatomySequence AnatomicRegionSequence",
  "VolumeBasedCalculationTechnique DerivationDescription DerivationCodeSequence DerivationImageSequence",
  "AnatomicRegionModifierSequence ContributingEquipmentSequence PurposeOfReferenceCodeSequence",
);

/**
 * Beyond what is physical: magnitudes from the least to the most, or 0 where that has a meaning.
 */
interface Limits {
  least: number;
  most: number;
  /** 0 is how some writers leave it unsaid, and nothing is below. */
  positive?: true;
}

/** Millimetres between pixels: of an electron microscope to those of a whole body in one pixel. */
export const SPACING: Limits = { least: 1e-6, most: 1e4, positive: true };
/** Millimetres from the origin of a frame of reference. */
const PLACE: Limits = { least: 0, most: 1e7 };
/** The largest magnitude that single precision, in which models take values, holds with room. */
const SCALE: Limits = { least: 1e-20, most: 1e20 };

const LIMITS: ReadonlyMap<string, Limits> = new Map([
  ...words("PixelSpacing ImagerPixelSpacing NominalScannedPixelSpacing").map(
    (each) => [each, SPACING] as const,
  ),
  ...words(
    "ImagePositionPatient GridFrameOffsetVector XOffsetInSlideCoordinateSystem YOffsetInSlideCoordinateSystem",
    "ZOffsetInSlideCoordinateSystem SpacingBetweenSlices",
  ).map((each) => [each, PLACE] as const),
  ...words(
    "RescaleSlope RescaleIntercept DoseGridScaling RealWorldValueSlope RealWorldValueIntercept",
  ).map((each) => [each, SCALE] as const),
  // Whole numbers
  ["PixelAspectRatio", { least: 1, most: 1e6, positive: true }],
  // Of an ultrasound region, in whatever unit; in centimetres they have the limits of a spacing too
  ["PhysicalDeltaX", SCALE],
  ["PhysicalDeltaY", SCALE],
  // 0 in projections
  ["SliceThickness", { least: 0, most: 1e4 }],
  // A direction cosine; a factor
  ["ImageOrientationSlide", { least: 0, most: 1.01 }],
  ["LossyImageCompressionRatio", { least: 0, most: 1e6 }],
  // Metres, kilograms; who does not know them writes 0
  ["PatientSize", { least: 0, most: 300, positive: true }],
  ["PatientWeight", { least: 0, most: 2000, positive: true }],
  // Becquerels, seconds
  ["RadionuclideTotalDose", { least: 0, most: 1e12 }],
  ["RadionuclideHalfLife", { least: 0, most: 1e12 }],
  // Milliseconds
  ["FrameReferenceTime", { least: 0, most: 1e12 }],
  ["ActualFrameDuration", { least: 0, most: 1e12 }],
]);

/**
 * Attributes that decide nothing where one of the others is there, which is read in their place: a
 * wrong value of them is then no reason to refuse a file.
 */
const DECIDED_BY: Readonly<Record<string, readonly string[]>> = {
  PixelAspectRatio: words("PixelSpacing ImagerPixelSpacing NominalScannedPixelSpacing"),
};

/** How an attribute that is read has to look. */
export interface AttributeReading {
  keyword: string;
  tag: Tag;
  refused: boolean;
  /** Where one of these is there, a wrong value is read as absent and refuses nothing. */
  decidedBy: readonly Tag[];
  /** By the dictionary, as dictionaryVr gives it. */
  vr: string;
  /** How many values it has: exactly, or at most. */
  values: { exactly: number } | { most: number };
  limits: Limits | undefined;
}

/** Four or five by PS3.6; scanners write fewer and more, and each is looked at by itself. */
const FRAME_TYPES = "1-n";

let readings: ReadonlyMap<Tag, AttributeReading> | undefined;

/** How the attribute has to look; undefined if it is not read. */
export function readingOf(tag: Tag): AttributeReading | undefined {
  readings ??= new Map(
    [...REFUSED, ...IGNORED].flatMap((keyword) => {
      const known = tagOf(keyword);
      if (known === undefined) return [];
      const vr = dictionaryVr(known);
      const multiplicity = keyword === "FrameType" ? FRAME_TYPES : multiplicityOf(known);
      const [, least, more] = /^(\d+)(?:-(.+))?$/.exec(multiplicity) ?? [];
      const values =
        more === undefined
          ? { exactly: Number(least) }
          : { most: Number(/^\d+$/.test(more) ? more : Infinity) };
      const refused = REFUSED.includes(keyword);
      const decidedBy = (DECIDED_BY[keyword] ?? []).flatMap((other) => tagOf(other) ?? []);
      const limits = LIMITS.get(keyword);
      return [[known, { keyword, tag: known, refused, decidedBy, vr, values, limits }]];
    }),
  );
  return readings.get(tag);
}

/** A value that an attribute cannot have. */
export interface AttributeFault {
  /** The finding, in words that quote nothing: the value may be a person's. */
  found: string;
  /** It is how writers leave it unsaid: absent, and no reason to refuse. */
  unsaid?: true;
}

/** The fault of a number of values that its attribute cannot have; there is one value at least. */
export function multiplicityFault(
  { values }: AttributeReading,
  found: number,
): AttributeFault | undefined {
  const right = "exactly" in values ? found === values.exactly : found <= values.most;
  return right ? undefined : { found: `${found} values` };
}

/** The fault of numbers, as they are written and as they are. */
export function numberFault(
  { keyword, vr, limits }: AttributeReading,
  values: readonly (number | string)[],
): AttributeFault | undefined {
  const numbers = values.map((value) => (typeof value === "number" ? value : decimal(value)));
  const wrong = numbers.findIndex((number) => number === undefined || !Number.isFinite(number));
  // A frame of floating-point pixels may be padded with NaN
  if (wrong >= 0 && typeof values[wrong] === "number" && keyword.endsWith("FloatPixelPaddingValue"))
    return undefined;
  if (wrong >= 0) return { found: described(values[wrong]) };
  const known = numbers.map((number) => number ?? 0);
  if (
    !FRACTIONS.has(vr) &&
    known.some((number) => !Number.isInteger(number) || Math.abs(number) > MOST_INTEGER)
  )
    return { found: "a number that is not an integer of this attribute" };
  if (limits === undefined) return undefined;
  if (limits.positive === true && known.every((number) => number === 0))
    return { found: "0", unsaid: true };
  const { least, most, positive } = limits;
  const isPossible = (number: number) =>
    (Math.abs(number) >= least && Math.abs(number) <= most && !(positive === true && number < 0)) ||
    (number === 0 && positive === undefined);
  if (known.every(isPossible)) return undefined;
  return { found: `a number beyond what is physical (magnitudes from ${least} to ${most})` };
}

/** VRs of numbers that may have a fraction. */
const FRACTIONS = new Set(["DS", "FL", "FD", "OF", "OD"]);
/** The largest value of UL. */
const MOST_INTEGER = 2 ** 32 - 1;

function described(value: string | number | undefined): string {
  if (typeof value === "number") return "a value that is not a number, or infinite";
  if (value === undefined || value === "") return "an empty value beside others";
  if (value.includes(",")) return "a value with a comma";
  if (/\s/.test(value)) return "a value with a blank inside";
  return "a value that is not a decimal number";
}

/** Values that count, of attributes of which another would count for none without a word. */
const ENUMERATED: ReadonlyMap<string, readonly string[]> = new Map([
  ["Laterality", ["L", "R"]],
  ["ImageLaterality", ["L", "R", "B", "U"]],
  ["FrameLaterality", ["L", "R", "B", "U"]],
  ["PresentationLUTShape", ["IDENTITY", "INVERSE", "LIN OD"]],
  ["LossyImageCompression", ["00", "01"]],
  ["BurnedInAnnotation", ["YES", "NO"]],
  ["AnatomicalOrientationType", ["BIPED", "QUADRUPED"]],
]);

/** The fault of texts of a VR that has a form; names of types are left as devices write them. */
export function textFault(
  { vr, tag, keyword }: AttributeReading,
  values: readonly string[],
): AttributeFault | undefined {
  if (vr !== "CS" || AS_WRITTEN.includes(tag)) return undefined;
  const known = ENUMERATED.get(keyword);
  if (known !== undefined && !values.every((value) => known.includes(value)))
    return { found: `a value other than ${known.join(", ")}` };
  const form = FORMS.get(vr);
  const fits = values.every((value) => value === "" || form?.test(value.toUpperCase()) === true);
  return fits ? undefined : { found: "a value with characters that CS does not have, or too many" };
}

const AS_WRITTEN: readonly Tag[] = [0x00080008, 0x00089007];

/** "PixelSpacing (0028,0030) should have 2 values of VR DS (PS3.5 section 6.2)". */
export function wanted({ tag, vr, values }: AttributeReading): string {
  const count =
    "exactly" in values
      ? `${values.exactly}`
      : values.most === Infinity
        ? "1 or more"
        : `at most ${values.most}`;
  const one = "exactly" in values && values.exactly === 1;
  const kind = vr === "xs" ? "US or SS" : vr;
  return `${describeTag(tag)} should have ${count} ${one ? "value" : "values"} of VR ${kind} (PS3.5 section 6.2)`;
}
