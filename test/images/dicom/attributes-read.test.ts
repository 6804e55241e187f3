/**
 * Every attribute that is read, with every kind of wrong value: each ends equal to the right file,
 * refused by name, or with a warning that names it. The list comes from the code; one that no file
 * of this test holds fails it.
 */
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import t from "tap";
import { RadserveError } from "../../../src/base/errors.js";
import { DataSetAttributes } from "../../../src/images/dicom/attributes.js";
import { IGNORED, REFUSED } from "../../../src/images/dicom/attributes-read.js";
import { dictionaryVr, multiplicityOf, tagOf } from "../../../src/images/dicom/dictionary.js";
import { isLocalizer } from "../../../src/images/dicom/dicom-file.js";
import { partCaveats } from "../../../src/images/dicom/concatenation.js";
import { readImage } from "../../../src/images/read-image.js";
import { openInput } from "../../../src/files/guarded-paths.js";
import { readInput } from "../../../src/inference/read-input.js";
import { sha256 } from "../../../src/files/durable-files.js";
import { lossiness } from "../../../src/results/dicom/modules.js";
import { statedSides } from "../../../src/results/findings/sides.js";
import { opticalPaths, slideGeometry } from "../../../src/results/dicom/slide.js";
import {
  anatomyOfSeries,
  leftOut,
  patientAndStudy,
  PATIENT,
  STUDY,
} from "../../../src/results/dicom/source.js";
import {
  CT,
  dicomFile,
  imageAttributes,
  Typed,
  type Attributes,
  type Value,
} from "../../support/dicom.js";
import { folderOf, multiFrame, readFolder } from "../../support/series.js";
import { root } from "../../support/server.js";

const GREY = imageAttributes({
  StudyInstanceUID: "1.2.3",
  SeriesInstanceUID: "1.2.3.4",
  FrameOfReferenceUID: "1.2.3.6",
  BitsAllocated: 16,
  BitsStored: 12,
  HighBit: 11,
  InstanceNumber: "7",
  NumberOfFrames: "1",
});
const CODE = { CodeValue: "12738006", CodingSchemeDesignator: "SCT", CodeMeaning: "Brain" };
const LEFT = { CodeValue: "7771000", CodingSchemeDesignator: "SCT", CodeMeaning: "Left" };
const PLANE = { ImagePositionPatient: "1\\2\\3", ImageOrientationPatient: "1\\0\\0\\0\\1\\0" };
const LUT = { LUTDescriptor: [2, 0, 16], LUTData: [5, 4000] };
const REFERENCE = { ReferencedSOPClassUID: CT, ReferencedSOPInstanceUID: "1.2.3.9" };

/** A right value for each attribute that results take over. */
const TAKEN_OVER: Attributes = Object.fromEntries(
  [...PATIENT, ...STUDY].map((keyword): [string, Value] => {
    const known: Readonly<Record<string, Value>> = {
      PatientSex: "F",
      PatientIdentityRemoved: "NO",
      TypeOfPatientID: "TEXT",
      QualityControlSubject: "NO",
      PatientSexNeutered: "UNALTERED",
      SmokingStatus: "NO",
      PregnancyStatus: 1,
      PatientSize: "1.7",
      PatientWeight: "70",
      ReferencedPatientSequence: [REFERENCE],
      ReferencedStudySequence: [REFERENCE],
      OtherPatientIDsSequence: [{ PatientID: "2" }],
      IssuerOfAccessionNumberSequence: [{ LocalNamespaceEntityID: "A" }],
      IssuerOfPatientIDQualifiersSequence: [
        { UniversalEntityID: "A", UniversalEntityIDType: "DNS" },
      ],
    };
    const byVr: Readonly<Record<string, Value>> = {
      AS: "045Y",
      DA: "19700102",
      TM: "101112",
      CS: "OWNER",
      SQ: [CODE],
    };
    return [keyword, known[keyword] ?? byVr[dictionaryVr(tagOf(keyword)!)] ?? "Someone"];
  }),
);

const BASES: Readonly<Record<string, Attributes>> = {
  ct: {
    ...GREY,
    ...TAKEN_OVER,
    ...PLANE,
    SOPClassUID: CT,
    Modality: "CT",
    ImageType: "ORIGINAL\\PRIMARY\\AXIAL",
    PixelSpacing: "0.5\\0.25",
    SliceThickness: "3",
    BurnedInAnnotation: "NO",
    VolumeBasedCalculationTechnique: "NONE",
    DerivationDescription: "Cropped",
    DerivationCodeSequence: [CODE],
    RescaleSlope: "2",
    RescaleIntercept: "-1024",
    RescaleType: "HU",
    PixelPaddingValue: 1,
    PixelPaddingRangeLimit: 3,
    BodyPartExamined: "CHEST",
    Laterality: "L",
    ImageLaterality: "L",
    PatientOrientation: "L\\P",
    AnatomicalOrientationType: "BIPED",
    PositionReferenceIndicator: "XY",
    PresentationLUTShape: "INVERSE",
    VOILUTFunction: "SIGMOID",
    WindowCenter: "40",
    WindowWidth: "400",
    LossyImageCompression: "01",
    LossyImageCompressionRatio: "10",
    LossyImageCompressionMethod: "ISO_10918_1",
    AnatomicRegionSequence: [{ ...CODE, AnatomicRegionModifierSequence: [LEFT] }],
    ContributingEquipmentSequence: [{ PurposeOfReferenceCodeSequence: [CODE] }],
    VOILUTSequence: [{ ...LUT, LUTExplanation: "Bone" }],
    RealWorldValueMappingSequence: [
      {
        RealWorldValueFirstValueMapped: 0,
        RealWorldValueLastValueMapped: 4095,
        LUTLabel: "SUV",
        RealWorldValueSlope: 2,
        RealWorldValueIntercept: 1,
        MeasurementUnitsCodeSequence: [CODE],
      },
    ],
  },
  doubles: {
    ...GREY,
    RealWorldValueMappingSequence: [
      {
        DoubleFloatRealWorldValueFirstValueMapped: 0,
        DoubleFloatRealWorldValueLastValueMapped: 9,
        RealWorldValueSlope: 2,
        RealWorldValueIntercept: 1,
      },
    ],
  },
  // Without PixelRepresentation the VR of these tells the sign
  unsaid: Object.fromEntries(
    Object.entries({
      ...GREY,
      SmallestImagePixelValue: 0,
      LargestImagePixelValue: 9,
      SmallestPixelValueInSeries: 0,
      LargestPixelValueInSeries: 9,
    }).filter(([keyword]) => keyword !== "PixelRepresentation"),
  ),
  dx: {
    ...GREY,
    Modality: "DX",
    PixelSpacing: "0.5\\0.5",
    ImagerPixelSpacing: "0.6\\0.6",
    NominalScannedPixelSpacing: "0.7\\0.7",
    PixelSpacingCalibrationType: "FIDUCIAL",
  },
  xa: {
    ...GREY,
    SOPClassUID: "1.2.840.10008.5.1.4.1.1.12.1",
    PixelIntensityRelationship: "LOG",
    ModalityLUTSequence: [{ ...LUT, ModalityLUTType: "OD" }],
  },
  lut: { ...GREY, ModalityLUTSequence: [{ ...LUT, ModalityLUTType: "OD" }] },
  aspect: { ...GREY, PixelAspectRatio: "2\\1" },
  us: {
    ...GREY,
    Modality: "US",
    SequenceOfUltrasoundRegions: [
      {
        RegionSpatialFormat: 1,
        RegionFlags: 0,
        RegionLocationMinX0: 0,
        RegionLocationMinY0: 0,
        RegionLocationMaxX1: 3,
        RegionLocationMaxY1: 3,
        PhysicalUnitsXDirection: 3,
        PhysicalUnitsYDirection: 3,
        PhysicalDeltaX: 0.1,
        PhysicalDeltaY: 0.2,
      },
    ],
  },
  pt: {
    ...GREY,
    Modality: "PT",
    Units: "BQML",
    SUVType: "BW",
    CorrectedImage: "ATTN\\DECY",
    PatientWeight: "70",
    DecayCorrection: "ADMIN",
    RescaleSlope: "2",
    RescaleIntercept: "0",
    SeriesDate: "20260101",
    SeriesTime: "100000",
    AcquisitionDate: "20260101",
    AcquisitionTime: "100000",
    TimezoneOffsetFromUTC: "+0100",
    RadiopharmaceuticalInformationSequence: [
      {
        RadionuclideTotalDose: "1e8",
        RadionuclideHalfLife: "6586",
        RadiopharmaceuticalStartTime: "090000",
        RadiopharmaceuticalStartDateTime: "20260101090000",
      },
    ],
  },
  gml: {
    ...GREY,
    Modality: "PT",
    Units: "GML",
    SUVType: "BW",
    CorrectedImage: "ATTN\\DECY",
    DecayCorrection: "START",
    RescaleSlope: "2",
    RescaleIntercept: "0",
  },
  // Reconstructed after the scan, so that the frame's own time counts
  "pt of a later computation": {
    ...GREY,
    Modality: "PT",
    Units: "BQML",
    CorrectedImage: "ATTN\\DECY",
    PatientWeight: "70",
    DecayCorrection: "START",
    RescaleSlope: "2",
    RescaleIntercept: "0",
    SeriesDate: "20260101",
    SeriesTime: "110000",
    AcquisitionDate: "20260101",
    AcquisitionTime: "100000",
    FrameReferenceTime: "1000",
    ActualFrameDuration: "2000",
    RadiopharmaceuticalInformationSequence: [
      {
        RadionuclideTotalDose: "1e8",
        RadionuclideHalfLife: "6586",
        RadiopharmaceuticalStartTime: "090000",
      },
    ],
  },
  nm: {
    ...GREY,
    Modality: "NM",
    ImageType: "ORIGINAL\\PRIMARY\\RECON TOMO\\EMISSION",
    NumberOfFrames: "2",
    PixelSpacing: "4\\4",
    SpacingBetweenSlices: "2.5",
    SliceVector: new Typed("US", [1, 2]),
    FrameIncrementPointer: [0x00540080],
    DetectorInformationSequence: [PLANE],
  },
  codes: {
    ...GREY,
    AnatomicRegionSequence: [{ ...CODE, CodeValue: undefined, LongCodeValue: "12738006123456789" }],
    ContributingEquipmentSequence: [
      { PurposeOfReferenceCodeSequence: [{ URNCodeValue: "urn:oid:1.2.3", CodeMeaning: "Brain" }] },
    ],
  },
  dose: {
    ...GREY,
    ...PLANE,
    Modality: "RTDOSE",
    DoseGridScaling: "0.001",
    DoseUnits: "GY",
    NumberOfFrames: "2",
    FrameIncrementPointer: [0x3004000c],
    GridFrameOffsetVector: "0\\3",
  },
  colour: {
    ...GREY,
    BitsAllocated: 8,
    BitsStored: 8,
    HighBit: 7,
    SamplesPerPixel: 3,
    PhotometricInterpretation: "RGB",
    PlanarConfiguration: 1,
  },
  palette: {
    ...GREY,
    PhotometricInterpretation: "PALETTE COLOR",
    ...Object.fromEntries(
      ["Red", "Green", "Blue"].flatMap((colour): [string, Value][] => [
        [`${colour}PaletteColorLookupTableDescriptor`, [2, 0, 16]],
        [`${colour}PaletteColorLookupTableData`, [0, 65535]],
      ]),
    ),
  },
  enhanced: {
    ...GREY,
    SOPClassUID: "1.2.840.10008.5.1.4.1.1.2.1",
    Modality: "CT",
    SharedFunctionalGroupsSequence: [
      {
        PixelMeasuresSequence: [{ PixelSpacing: "0.5\\0.5" }],
        PlaneOrientationSequence: [{ ImageOrientationPatient: "1\\0\\0\\0\\1\\0" }],
        CTImageFrameTypeSequence: [{ FrameType: "ORIGINAL\\PRIMARY\\AXIAL\\NONE" }],
        FrameVOILUTSequence: [{ WindowCenter: "40", WindowWidth: "400" }],
        FrameAnatomySequence: [{ FrameLaterality: "R" }],
      },
    ],
    PerFrameFunctionalGroupsSequence: [
      {
        PlanePositionSequence: [{ ImagePositionPatient: "1\\2\\3" }],
        PixelValueTransformationSequence: [
          { RescaleSlope: "2", RescaleIntercept: "1", RescaleType: "HU" },
        ],
      },
    ],
  },
  slide: {
    ...GREY,
    Modality: "SM",
    ImageOrientationSlide: "0\\-1\\0\\-1\\0\\0",
    TotalPixelMatrixRows: 4,
    TotalPixelMatrixColumns: 4,
    TotalPixelMatrixFocalPlanes: 1,
    NumberOfOpticalPaths: 1,
    DimensionOrganizationType: "TILED_FULL",
    OpticalPathSequence: [{ OpticalPathIdentifier: "1" }],
    TotalPixelMatrixOriginSequence: [
      {
        XOffsetInSlideCoordinateSystem: "20",
        YOffsetInSlideCoordinateSystem: "40",
        ZOffsetInSlideCoordinateSystem: "1",
      },
    ],
    SharedFunctionalGroupsSequence: [{ PixelMeasuresSequence: [{ PixelSpacing: "0.001\\0.001" }] }],
  },
  sparse: {
    ...GREY,
    NumberOfFrames: "2",
    Modality: "SM",
    ImageOrientationSlide: "0\\-1\\0\\-1\\0\\0",
    TotalPixelMatrixRows: 4,
    TotalPixelMatrixColumns: 4,
    DimensionOrganizationType: "TILED_SPARSE",
    TotalPixelMatrixOriginSequence: [
      { XOffsetInSlideCoordinateSystem: "20", YOffsetInSlideCoordinateSystem: "40" },
    ],
    SharedFunctionalGroupsSequence: [{ PixelMeasuresSequence: [{ PixelSpacing: "0.001\\0.001" }] }],
    PerFrameFunctionalGroupsSequence: ["1", "2"].map((path) => ({
      PlanePositionSlideSequence: [
        {
          RowPositionInTotalImagePixelMatrix: 1,
          ColumnPositionInTotalImagePixelMatrix: 1,
          XOffsetInSlideCoordinateSystem: "20",
          YOffsetInSlideCoordinateSystem: "40",
          ZOffsetInSlideCoordinateSystem: "0",
        },
      ],
      OpticalPathIdentificationSequence: [{ OpticalPathIdentifier: path }],
    })),
  },
  part: {
    ...GREY,
    ConcatenationUID: "1.2.3.8",
    InConcatenationNumber: 1,
    InConcatenationTotalNumber: 2,
    ConcatenationFrameOffsetNumber: 0,
  },
  float: {
    ...GREY,
    BitsAllocated: 32,
    FloatPixelPaddingValue: -1,
    FloatPixelPaddingRangeLimit: -2,
    FloatPixelData: new Typed(
      "OF",
      new Uint8Array(Float32Array.from({ length: 16 }, (_, i) => i).buffer),
    ),
  },
  double: {
    ...GREY,
    BitsAllocated: 64,
    DoubleFloatPixelPaddingValue: -1,
    DoubleFloatPixelPaddingRangeLimit: -2,
    DoubleFloatPixelData: new Typed(
      "OD",
      new Uint8Array(Float64Array.from({ length: 16 }, (_, i) => i).buffer),
    ),
  },
};

/** Where an attribute lies in a file: keywords of sequences, and its own. */
type Path = readonly string[];

function pathsTo(keyword: string, attributes: Attributes): Path[] {
  return Object.entries(attributes).flatMap(([key, value]): Path[] => {
    const inside = Array.isArray(value) && typeof value[0] === "object" ? value[0] : {};
    return [
      ...(key === keyword ? [[key]] : []),
      ...pathsTo(keyword, inside).map((path) => [key, ...path]),
    ];
  });
}

function changed(
  attributes: Attributes,
  [key = "", ...inside]: Path,
  change: (holder: Attributes) => Attributes,
): Attributes {
  if (inside.length === 0) return change(attributes);
  const [first = {}, ...others] = attributes[key] as Attributes[];
  return { ...attributes, [key]: [changed(first, inside, change), ...others] };
}

const NUMBERS = new Set(["DS", "IS", "US", "SS", "UL", "SL", "FL", "FD", "xs"]);
const bytesOf = (text: string) =>
  new Uint8Array(Buffer.from(text.length % 2 ? `${text} ` : text, "latin1"));

/** Each kind of wrong value; undefined where the attribute has no such one. */
const KINDS: Readonly<
  Record<string, (keyword: string, vr: string, value: Value) => Attributes | undefined>
> = {
  absent: (keyword) => ({ [keyword]: undefined }),
  empty: (keyword, vr) => ({ [keyword]: new Typed(vr, vr === "SQ" ? [] : "") }),
  twice: (keyword, vr, value) => {
    const other: Value =
      vr === "SQ"
        ? [{ CodeMeaning: "Other" }]
        : typeof value === "string"
          ? other4(value)
          : [value].flat().map((n) => Number(n) + 1);
    return { [tagOf(keyword)!.toString(16).padStart(8, "0")]: new Typed(vr, other) };
  },
  "twice the same": (keyword, vr, value) => ({
    [tagOf(keyword)!.toString(16).padStart(8, "0")]: new Typed(vr, value),
  }),
  "another VR": (keyword, vr) => ({
    [keyword]:
      vr === "SQ" || NUMBERS.has(vr)
        ? new Typed("OB", Uint8Array.of(1, 2))
        : new Typed("FD", [1.5]),
  }),
  "a value more": (keyword, vr, value) =>
    ["SQ", "LT", "ST"].includes(vr) || multiplicityOf(tagOf(keyword)!).endsWith("n")
      ? undefined
      : {
          [keyword]:
            typeof value === "string"
              ? new Typed(vr, `${value}\\${value.split("\\")[0]!}`)
              : new Typed(vr, [...[value as number[]].flat(), 1]),
        },
  "not as numbers are written": (keyword, vr) =>
    NUMBERS.has(vr)
      ? { [keyword]: new Typed(vr === "FL" || vr === "FD" ? "DS" : "IS", bytesOf("0x10")) }
      : undefined,
  "a comma": (keyword, vr) => (vr === "DS" ? { [keyword]: bytesOf("0,5\\0,5") } : undefined),
  "an underscore": (keyword, vr) =>
    vr === "DS" || vr === "IS" ? { [keyword]: bytesOf("1_000") } : undefined,
  "a blank inside": (keyword, vr) =>
    vr === "DS" || vr === "IS" ? { [keyword]: bytesOf("1 5") } : undefined,
  "no number": (keyword, vr, value) =>
    vr === "DS"
      ? {
          [keyword]: (value as string)
            .split("\\")
            .map(() => "NaN")
            .join("\\"),
        }
      : vr === "FD" || vr === "FL"
        ? { [keyword]: new Typed(vr, [Number.NaN]) }
        : undefined,
  "beyond what is physical": (keyword, vr, value) =>
    vr === "DS"
      ? {
          [keyword]: (value as string)
            .split("\\")
            .map(() => "1e200")
            .join("\\"),
        }
      : vr === "FD"
        ? { [keyword]: new Typed(vr, [1e300]) }
        : undefined,
  "a term that there is not": (keyword) =>
    /^(?:Image|Frame)?Laterality$|^PresentationLUTShape$|^LossyImageCompression$|^BurnedInAnnotation$/.test(
      keyword,
    )
      ? { [keyword]: "LEFT" }
      : undefined,
  "characters outside": (keyword, vr) =>
    vr === "CS" ? { [keyword]: bytesOf("A*\x01B") } : undefined,
};

const other4 = (value: string) =>
  /^[\d.\\-]+$/.test(value)
    ? value.replace(/\d$/, (digit) => String((Number(digit) + 1) % 10))
    : `${value.slice(0, -1)}X`;

/** Everything that a file says, as results go on from it. */
async function facts(attributes: Attributes): Promise<{ facts: string; said: string[] }> {
  const bits = attributes["BitsAllocated"] as number;
  const hasPixels = !Object.keys(attributes).some((keyword) => keyword.endsWith("FloatPixelData"));
  const image = await readImage(
    dicomFile({
      attributes,
      ...(hasPixels
        ? { pixels: Uint8Array.from({ length: 96 }, (_, i) => i % (bits === 8 ? 48 : 4)) }
        : {}),
    }),
  );
  const set = image.attributes!;
  const source = { ...image.source, fileSha256: "", bytes: 0 };
  const frames = Array.from({ length: image.frameCount }, (_, frame) => frame);
  const found = {
    source,
    format: image.format,
    frames: await Promise.all(
      frames.map(async (frame) => [
        sha256(await image.frame(frame)),
        image.interpretation(frame),
        image.spacing(frame),
        image.regions?.(frame),
        image.plane(frame),
        image.pixelAspect(frame),
      ]),
    ),
    patient: patientAndStudy(set, "1.2.3"),
    anatomy: anatomyOfSeries(set),
    sides: [...statedSides(image, undefined)],
    lossiness: lossiness(image, set),
    tiles: slideGeometry(image, set),
    paths: opticalPaths(image, set),
    part: partCaveats(set),
    other: [
      "FrameOfReferenceUID",
      "SliceThickness",
      "BurnedInAnnotation",
      "InstanceNumber",
      "PatientOrientation",
      "PositionReferenceIndicator",
      "BodyPartExamined",
    ].map((keyword) => set.comparable(keyword)),
    isLocalizer: isLocalizer(image.attributes as DataSetAttributes),
    makers: (set.sequence("ContributingEquipmentSequence") ?? []).map((item) =>
      item.sequence("PurposeOfReferenceCodeSequence")?.[0]?.string("CodeValue"),
    ),
  };
  const left = leftOut(set);
  return {
    facts: JSON.stringify(found, (_, value: unknown) =>
      typeof value === "number" && !Number.isFinite(value)
        ? String(value)
        : value === "" || (Array.isArray(value) && value.length === 0)
          ? undefined
          : ArrayBuffer.isView(value)
            ? [...(value as Uint8Array)]
            : value,
    ),
    said: [...image.warnings.map(({ message }) => message), ...left.identity, ...left.others],
  };
}

/** Attributes that are read and checked where that is done. */
const CHECKED_ELSEWHERE: Readonly<Record<string, string>> = {
  TransferSyntaxUID: "of the file meta information",
  MediaStorageSOPClassUID: "of the file meta information",
  PixelData: "its length",
  FloatPixelData: "its length",
  DoubleFloatPixelData: "its length",
  WindowCenter: "window_ignored, each by itself",
  WindowWidth: "window_ignored, each by itself",
  WindowCenterWidthExplanation: "only shown",
  RETIRED_ImageDimensions: "only whether it is there",
  LUTData: "by its descriptor",
  RedPaletteColorLookupTableData: "by its descriptor",
  GreenPaletteColorLookupTableData: "by its descriptor",
  BluePaletteColorLookupTableData: "by its descriptor",
  // Of items of the sequences that results take over, or of a whole module: what has not its form
  // is left out
  CodingSchemeVersion: "taken over",
  CodeMeaning: "taken over",
  UniversalEntityID: "taken over",
  UniversalEntityIDType: "taken over",
  IdentifierTypeCode: "taken over",
  LocalNamespaceEntityID: "taken over",
  ReferencedSOPClassUID: "taken over",
  ReferencedSOPInstanceUID: "taken over",
  ClinicalTrialSponsorName: "taken over",
  ClinicalTrialProtocolID: "taken over",
  DerivationImageSequence: "of our objects",
  SourceImageSequence: "of our objects",
  ReferencedFrameNumber: "of our objects",
  RequestAttributesSequence: "taken over",
  ContributionDescription: "only whether it begins as ours",
  ConvolutionKernel: "a preference: a value that is not in its order comes last",
  AcquisitionDateTime: "where there is no AcquisitionTime, for a warning (acquisition.test.ts)",
  ClinicalTrialSubjectID: "taken over",
  ClinicalTrialSubjectReadingID: "taken over",
};

/** What reads only objects that Radserve wrote. */
const OF_OUR_OBJECTS = [
  "features/gateway/deliver/",
  "commit/verify.ts",
  "dicom/segmentation-grid.ts",
  "dicom/segments.ts",
  "dicom/check.ts",
  "objects/rtstruct.ts",
  "objects/seg.ts",
  "objects/sr.ts",
  "features/viewer/marks.ts",
  "results/nifti/masks.ts",
];

const LISTED = new Set([
  ...REFUSED,
  ...IGNORED,
  ...PATIENT,
  ...STUDY,
  ...Object.keys(CHECKED_ELSEWHERE),
]);

/**
 * Why a file without an attribute, or with an empty one, is another right file; and why a wrong
 * value may be equal.
 */
const REASONS: readonly [reason: string, keywords: string][] = [
  [
    "results take over what the source has, and have none where it has none",
    [...PATIENT, ...STUDY].join(" "),
  ],
  [
    "whoever needs it refuses its absence by name: no objects without UIDs, no model of a modality or class without it",
    "SOPClassUID SOPInstanceUID StudyInstanceUID SeriesInstanceUID FrameOfReferenceUID Modality",
  ],
  [
    "the default is the standard's: one frame, by pixel, square, linear, unspecified",
    "NumberOfFrames PlanarConfiguration PixelAspectRatio VOILUTFunction PixelIntensityRelationship RegionFlags NumberOfOpticalPaths TotalPixelMatrixFocalPlanes SUVType",
  ],
  [
    "nothing is padding where the file names none",
    "PixelPaddingValue PixelPaddingRangeLimit FloatPixelPaddingValue FloatPixelPaddingRangeLimit DoubleFloatPixelPaddingValue DoubleFloatPixelPaddingRangeLimit",
  ],
  [
    "without units a model that asks for some refuses it by name; a CT image has Hounsfield units by its class",
    "RescaleType DoseGridScaling DoseUnits Units ModalityLUTType ModalityLUTSequence PixelValueTransformationSequence LUTDescriptor",
  ],
  ["the intercept of positron emission is 0 (PS3.3 C.8.9.1)", "RescaleIntercept"],
  [
    "no spacing, no plane: lengths, areas and objects that need them are not given, with the reason",
    "PixelSpacing ImagerPixelSpacing NominalScannedPixelSpacing PixelSpacingCalibrationType ImagePositionPatient ImageOrientationPatient GridFrameOffsetVector RegionSpatialFormat PhysicalUnitsXDirection PhysicalUnitsYDirection PhysicalDeltaX PhysicalDeltaY SequenceOfUltrasoundRegions DetectorInformationSequence PerFrameFunctionalGroupsSequence SharedFunctionalGroupsSequence PixelMeasuresSequence PlanePositionSequence PlaneOrientationSequence",
  ],
  [
    "a region that does not say where it lies is the whole image",
    "RegionLocationMinX0 RegionLocationMinY0 RegionLocationMaxX1 RegionLocationMaxY1",
  ],
  [
    "without all of them no place on the slide is written (docs/results.md)",
    "ImageOrientationSlide TotalPixelMatrixRows TotalPixelMatrixColumns XOffsetInSlideCoordinateSystem YOffsetInSlideCoordinateSystem ZOffsetInSlideCoordinateSystem RowPositionInTotalImagePixelMatrix ColumnPositionInTotalImagePixelMatrix DimensionOrganizationType OpticalPathSequence TotalPixelMatrixOriginSequence PlanePositionSlideSequence",
  ],
  [
    "a path without a name has its number; tiles of one place without a path have none, with a warning (`place_left_out`)",
    "OpticalPathIdentificationSequence OpticalPathIdentifier",
  ],
  ["slices lie by SliceVector where nothing points to it, too", "FrameIncrementPointer"],
  [
    "the file is no part of a concatenation, or its warning lacks the number",
    "ConcatenationUID InConcatenationNumber InConcatenationTotalNumber ConcatenationFrameOffsetNumber",
  ],
  [
    "types that name another kind of image are looked for",
    "ImageType FrameType CTImageFrameTypeSequence VolumeBasedCalculationTechnique DerivationDescription DerivationCodeSequence",
  ],
  [
    "no side is stated",
    "Laterality ImageLaterality FrameLaterality FrameAnatomySequence AnatomicRegionSequence AnatomicRegionModifierSequence",
  ],
  [
    "it is only shown or counted",
    "InstanceNumber SliceThickness BodyPartExamined PatientOrientation AnatomicalOrientationType PositionReferenceIndicator PresentationLUTShape LUTExplanation VOILUTSequence FrameVOILUTSequence LUTLabel",
  ],
  ["a picture of an image that does not say so may have text burned in", "BurnedInAnnotation"],
  [
    "how lossy an image is follows from its transfer syntax too",
    "LossyImageCompression LossyImageCompressionRatio LossyImageCompressionMethod",
  ],
  [
    "the sign follows from another attribute of the pixels",
    "SmallestImagePixelValue LargestImagePixelValue SmallestPixelValueInSeries LargestPixelValueInSeries",
  ],
  [
    "they only show that a single image is not of the scan's first frame",
    "FrameReferenceTime ActualFrameDuration",
  ],
  [
    "SUV names what it lacks",
    "SeriesDate SeriesTime AcquisitionDate AcquisitionTime TimezoneOffsetFromUTC RadiopharmaceuticalStartDateTime RadiopharmaceuticalStartTime DecayCorrection CorrectedImage RadionuclideTotalDose RadionuclideHalfLife RadiopharmaceuticalInformationSequence",
  ],
  [
    "no real world value: a model that asks for one refuses by name",
    "RealWorldValueSlope RealWorldValueIntercept RealWorldValueFirstValueMapped RealWorldValueLastValueMapped DoubleFloatRealWorldValueFirstValueMapped DoubleFloatRealWorldValueLastValueMapped RealWorldValueMappingSequence MeasurementUnitsCodeSequence",
  ],
  [
    "a code that lacks a part is none",
    "CodeValue LongCodeValue URNCodeValue CodingSchemeDesignator ContributingEquipmentSequence PurposeOfReferenceCodeSequence",
  ],
];

const reasonOf = (keyword: string) =>
  REASONS.find(([, keywords]) => keywords.split(" ").includes(keyword))?.[0];

/**
 * Any number can be one that pixels are padded with, NaN among them, or the end of a range of
 * stored values.
 */
const ANY_NUMBER = (keyword: string, kind: string) =>
  (kind === "no number" && keyword.endsWith("FloatPixelPaddingValue")) ||
  (kind === "beyond what is physical" && /^DoubleFloat(PixelPadding|RealWorld)/.test(keyword));

const known = new Map<Attributes, ReturnType<typeof facts>>();

/** Of a base file, once. */
function rightFacts(base: Attributes): ReturnType<typeof facts> {
  const found = known.get(base) ?? facts(base);
  known.set(base, found);
  return found;
}

type Ending = "equal" | "refused" | "warned" | "unsaid";

/** How a file that was changed ends; undefined if it differs without a word. */
async function ending(
  keyword: string,
  base: Attributes,
  file: Attributes,
  unsaid?: string,
): Promise<Ending | undefined> {
  try {
    const right = await rightFacts(base);
    const found = await facts(file);
    const isNamed = found.said.some(
      (message) => message.includes(keyword) && !right.said.includes(message),
    );
    if (isNamed) return "warned";
    if (found.facts === right.facts) return "equal";
    return found.facts === unsaid ? "unsaid" : undefined;
  } catch (error) {
    if (!(error instanceof RadserveError)) throw error;
    return error.message.includes(keyword) ? "refused" : undefined;
  }
}

t.setTimeout(120_000);
t.test("each attribute that is read, with each kind of wrong value", async (t) => {
  const read = new Set<string>();
  const { value: element } = Object.getOwnPropertyDescriptor(
    DataSetAttributes.prototype,
    "element",
  ) as {
    value: (this: DataSetAttributes, keyword: string) => ReturnType<DataSetAttributes["element"]>;
  };
  t.teardown(() => (DataSetAttributes.prototype.element = element));
  DataSetAttributes.prototype.element = function (keyword) {
    read.add(keyword);
    return element.call(this, keyword);
  };
  const unexplained = new Set<string>();
  const counts = new Map<string, Map<string, number>>();
  for (const keyword of new Set([...REFUSED, ...IGNORED, ...PATIENT, ...STUDY])) {
    const places = Object.entries(BASES).flatMap(([name, base]) =>
      pathsTo(keyword, base).map((path) => ({ name, base, path })),
    );
    if (Object.hasOwn(CHECKED_ELSEWHERE, keyword)) continue;
    if (places.length === 0) t.fail(`${keyword} is in no file of this test`);
    for (const { name, base, path } of places.slice(0, 2)) {
      const vr = dictionaryVr(tagOf(keyword)!);
      for (const [kind, change] of Object.entries(KINDS)) {
        const value = path.reduce<Value>(
          (holder, key, i) => (i === 0 ? base[key] : (holder as Attributes[])[0]![key]) as Value,
          "",
        );
        const more = change(keyword, vr === "xs" || vr === "lt" ? "US" : vr, value);
        if (more === undefined || ANY_NUMBER(keyword, kind)) continue;
        const without = changed(base, path, (holder) => ({ ...holder, [keyword]: undefined }));
        const isLack = kind === "absent" || kind === "empty";
        const unsaid = isLack
          ? await facts(without).then(
              (found) => found.facts,
              () => undefined,
            )
          : undefined;
        const end = await ending(
          keyword,
          base,
          changed(base, path, (holder) => ({ ...holder, ...more })),
          unsaid,
        );
        if (end === undefined) t.fail(`${keyword} in ${name}, ${kind}: differs without a word`);
        const row = counts.get(kind) ?? new Map<string, number>();
        row.set(end ?? "silent", (row.get(end ?? "silent") ?? 0) + 1);
        counts.set(kind, row);
        const reason = reasonOf(keyword);
        if ((end === "equal" || end === "unsaid") && reason === undefined)
          unexplained.add(`${keyword} (${end})`);
      }
    }
  }
  t.strictSame(
    [...unexplained],
    [],
    "each cell that is equal, or that lacks what the file lacks, has its reason",
  );
  for (const [kind, row] of counts) t.comment(kind, JSON.stringify(Object.fromEntries(row)));
  t.strictSame(
    [...read].filter((keyword) => !LISTED.has(keyword)),
    [],
    "nothing else is read",
  );
});

/** The wrong values of an attribute that stands at the top of a file, of each kind. */
function* wrongValues(base: Attributes): Generator<[keyword: string, kind: string, Attributes]> {
  for (const keyword of [...REFUSED, ...IGNORED]) {
    const value = base[keyword];
    if (value === undefined || Object.hasOwn(CHECKED_ELSEWHERE, keyword)) continue;
    const vr = dictionaryVr(tagOf(keyword)!);
    for (const [kind, change] of Object.entries(KINDS)) {
      if (["absent", "empty", "twice the same"].includes(kind) || ANY_NUMBER(keyword, kind))
        continue;
      const more = change(keyword, vr === "xs" || vr === "lt" ? "US" : vr, value as Value);
      if (more !== undefined) yield [keyword, kind, more];
    }
  }
}

t.test("in one slice of many", async (t) => {
  const ct = BASES["ct"]!;
  const pixels = Uint8Array.from({ length: 32 }, (_each, i) => i % 4);
  const at = (z: number): Attributes => ({
    ...ct,
    SOPInstanceUID: `1.2.3.4.${z + 1}`,
    ImagePositionPatient: `1\\2\\${z}`,
  });
  const written = (z: number, more: Attributes) =>
    dicomFile({ attributes: { ...at(z), ...more }, pixels });
  const folder = folderOf(
    t,
    [0, 1, 2].map((z) => written(z, {})),
  );
  const right = (await readFolder(t, folder)).warnings.map(({ message }) => message);
  let cells = 0;
  for (const [keyword, kind, more] of wrongValues(at(1))) {
    const alone = await ending(keyword, at(1), { ...at(1), ...more });
    if (alone !== "refused" && alone !== "warned") continue;
    writeFileSync(join(folder, "1.dcm"), written(1, more));
    const opened = await openInput(folder, undefined);
    try {
      const image = await readInput(opened);
      const told = image.warnings.filter(({ message }) => !right.includes(message));
      const isNamed = alone === "warned" && told.some(({ message }) => message.includes(keyword));
      if (!isNamed) t.fail(`${keyword}, ${kind}: ${alone} alone, and not in a series`);
    } catch (error) {
      if (!(error instanceof RadserveError)) throw error;
      if (!error.message.includes(keyword) && alone === "refused")
        t.fail(`${keyword}, ${kind}: ${error.message}`);
    } finally {
      opened.close();
    }
    cells += 1;
  }
  t.ok(cells > 200, `${cells} cells`);
});

t.test("in one frame of many", async (t) => {
  const macros: Readonly<Record<string, Attributes>> = {
    PlanePositionSequence: { ImagePositionPatient: "0\\0\\2" },
    PlaneOrientationSequence: { ImageOrientationPatient: "1\\0\\0\\0\\1\\0" },
    PixelMeasuresSequence: { PixelSpacing: "0.5\\0.8", SliceThickness: "1" },
    PixelValueTransformationSequence: {
      RescaleSlope: "2",
      RescaleIntercept: "-1024",
      RescaleType: "HU",
    },
  };
  const file = (second: Attributes) =>
    multiFrame([0, 2, 4], {
      RescaleSlope: undefined,
      RescaleIntercept: undefined,
      SharedFunctionalGroupsSequence: undefined,
      PerFrameFunctionalGroupsSequence: [0, 2, 4].map((z, i) => ({
        ...Object.fromEntries(Object.entries(macros).map(([name, item]) => [name, [item]])),
        PlanePositionSequence: [{ ImagePositionPatient: `0\\0\\${z}` }],
        ...(i === 1 ? second : {}),
      })),
    });
  const said = async (second: Attributes): Promise<string[]> => {
    try {
      const image = await readImage(file(second));
      for (const frame of [0, 1, 2]) {
        image.interpretation(frame);
        image.spacing(frame);
        image.plane(frame);
      }
      return image.warnings.map(({ message }) => message);
    } catch (error) {
      if (error instanceof RadserveError) return [error.message];
      throw error;
    }
  };
  t.strictSame(await said({}), []);
  let cells = 0;
  for (const [macro, item] of Object.entries(macros))
    for (const [keyword, kind, more] of wrongValues(item)) {
      const told = await said({ [macro]: [{ ...item, ...more }] });
      if (!told.some((message) => message.includes(keyword)))
        t.fail(`${keyword}, ${kind}: ${told.join(" ")}`);
      cells += 1;
    }
  t.ok(cells > 30, `${cells} cells`);
});

t.test("the private twin of an attribute is not that attribute", async (t) => {
  for (const [name, base] of Object.entries(BASES)) {
    const twins: Attributes = {};
    for (const keyword of [...REFUSED, ...IGNORED]) {
      const tag = tagOf(keyword)!;
      const [group, element] = [(tag >>> 16) + 1, tag & 0xff];
      const hex = (value: number, digits: number) => value.toString(16).padStart(digits, "0");
      if (group < 9) continue;
      twins[`${hex(group, 4)}0010`] = new Typed("LO", "TWIN");
      twins[`${hex(group, 4)}10${hex(element, 2)}`] = new Typed("DS", "77\\0x10");
    }
    t.equal((await facts({ ...base, ...twins })).facts, (await rightFacts(base)).facts, name);
  }
});

t.test("the code asks for no attribute by name that is not listed", (t) => {
  const files = readdirSync(join(root, "src"), { recursive: true, encoding: "utf8" });
  const asked = files
    .filter((file) => file.endsWith(".ts") && !OF_OUR_OBJECTS.some((part) => file.includes(part)))
    .flatMap((file) => [
      ...readFileSync(join(root, "src", file), "utf8").matchAll(
        /\.(?:strings?|numbers?|sequence|comparable|numbersAs)\(\s*"([A-Z]\w+)"/g,
      ),
    ])
    .map(([, keyword = ""]) => keyword);
  t.ok(asked.length > 100);
  t.strictSame(
    [...new Set(asked)].filter((keyword) => !LISTED.has(keyword)),
    [],
  );
  t.end();
});
