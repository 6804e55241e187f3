/**
 * The segmentation: Segmentation Storage, binary, or fractional where the manifest calls the output probabilities
 * (PS3.3 A.51, C.8.20). Every segment has a frame for every frame of the source, empty ones too: what the model did
 * not mark was looked at.
 */
import type { EngineOutput } from "../../engine/types.js";
import { equalTo, nonZero, packBits } from "../../addon/bytes.js";
import type { Attributes, Image, PlanePosition, Spacing } from "../../images/image.js";
import { isFractional } from "../../manifest/manifest.js";
import type { Rgb } from "../picture/colour.js";
import { labelColours } from "../picture/palette.js";
import {
  algorithm,
  codeItem,
  codeOf,
  commonModules,
  lossiness,
  oneLine,
  seedOf,
  segmentsOf,
  segmentTracking,
  sideOf,
  uncoded,
  type Segment,
  type Subject,
} from "./common.js";
import { dcm } from "./content.js";
import { dicomObject, type DicomObject } from "./dataset.js";
import type { Dataset } from "./elements.js";
import { referenced, referencedObjects, takeOver } from "./source.js";
import { tagOf } from "../../images/dicom/dictionary.js";
import { derivedUid } from "./uid.js";

export const SEGMENTATION = "1.2.840.10008.5.1.4.1.1.66.4";

/** What the model gave for each frame of the image, in its order. */
export type FrameOutputs = readonly (readonly EngineOutput[])[];

/** Number of a SEG frame (from 1): all source frames of the first segment, then those of the second. */
export function segFrameNumber(segment: number, frame: number, frames: number): number {
  return (segment - 1) * frames + frame + 1;
}

/** The pixels of a frame in a segment, one byte each: 0 or 1 in a mask, 0 to 255 among probabilities. */
export type PlanesOf = (segment: Segment, frame: number) => Uint8Array;

/** @throws Error where an output is no segmentation of the image's size: the engine's contract is broken */
export function maskOf(outputs: FrameOutputs, pixels: number): PlanesOf {
  return (segment, frame) => {
    const { mask, overlapping } = segmentationAt(outputs, segment, frame, pixels);
    return overlapping
      ? nonZero(mask.subarray(segment.index * pixels, (segment.index + 1) * pixels), pixels)
      : equalTo(mask, segment.index + 1, pixels);
  };
}

/** Probabilities in steps of 1/255. @throws as maskOf, and where the output has none */
export function fractionsOf(outputs: FrameOutputs, pixels: number): PlanesOf {
  return (segment, frame) => {
    const { fractions } = segmentationAt(outputs, segment, frame, pixels);
    const plane = segment.index * pixels;
    if (fractions === undefined || fractions.length < plane + pixels)
      throw new Error("A fractional segmentation has a plane of probabilities for every label");
    return fractions.subarray(plane, plane + pixels);
  };
}

function segmentationAt(outputs: FrameOutputs, segment: Segment, frame: number, pixels: number) {
  const given = outputs[frame]?.[segment.output];
  if (given?.kind !== "segmentation" || given.rows * given.columns !== pixels)
    throw new Error("A segmentation has a mask of the source's size for every frame");
  return given;
}

/** How a model's segments are written: all of a kind, as the manifest says. */
export function segmentPlanes(model: Subject["model"], outputs: FrameOutputs, pixels: number): PlanesOf {
  return model.manifest.outputs.some(isFractional) ? fractionsOf(outputs, pixels) : maskOf(outputs, pixels);
}

/** Frames of one bit a pixel, one behind the other without padding, the first pixel in the lowest bit (PS3.5 8.1.1). */
function packed(segments: readonly Segment[], frames: number, pixels: number, planeAt: PlanesOf): Uint8Array {
  const bits = new Uint8Array(Math.ceil((segments.length * frames * pixels) / 8));
  let at = 0;
  for (const segment of segments)
    for (let frame = 0; frame < frames; frame++, at += pixels) packBits(planeAt(segment, frame), bits, at);
  return bits;
}

/** The same, one byte a pixel. */
function bytesOf(segments: readonly Segment[], frames: number, pixels: number, planeAt: PlanesOf) {
  const bytes = new Uint8Array(segments.length * frames * pixels);
  let at = 0;
  for (const segment of segments)
    for (let frame = 0; frame < frames; frame++, at += pixels) bytes.set(planeAt(segment, frame), at);
  return bytes;
}

/** Image Pixel and Segmentation Image modules that depend on the type (PS3.3 C.8.20.2). */
function pixelModule(subject: Subject, segments: readonly Segment[], outputs: FrameOutputs): Dataset {
  const { frameCount, format } = subject.image;
  const pixels = format.rows * format.columns;
  if (subject.model.manifest.outputs.some(isFractional))
    return {
      ...{ BitsAllocated: 8, BitsStored: 8, HighBit: 7 },
      SegmentationType: "FRACTIONAL",
      SegmentationFractionalType: "PROBABILITY",
      MaximumFractionalValue: 255,
      PixelData: bytesOf(segments, frameCount, pixels, fractionsOf(outputs, pixels)),
    };
  return {
    ...{ BitsAllocated: 1, BitsStored: 1, HighBit: 0 },
    SegmentationType: "BINARY",
    PixelData: packed(segments, frameCount, pixels, maskOf(outputs, pixels)),
  };
}

export function segmentation(subject: Subject, outputs: FrameOutputs): DicomObject {
  const { image, attributes, ids, model } = subject;
  const { rows, columns } = image.format;
  const segments = segmentsOf(model.manifest.outputs);
  const frames = image.frameCount;
  const exclusive =
    outputs[0]?.filter((output) => output.kind === "segmentation").length === 1 &&
    outputs[0].every(
      (output) => output.kind !== "segmentation" || (!output.overlapping && output.fractions === undefined),
    );
  const dataset: Dataset = {
    SOPClassUID: SEGMENTATION,
    Modality: "SEG",
    ...commonModules(subject, "seg"),
    // The side stands with each segment's region: General Series' Laterality is not for segmentations (C.7.3.1)
    ...takeOver(attributes, ["BodyPartExamined"]),
    ...placeOfFrames(subject, segments),
    ImageType: ["DERIVED", "PRIMARY"],
    ContentLabel: "SEGMENTATION",
    ContentDescription: oneLine(`${model.name} ${model.version}`, 64),
    ContentCreatorName: "",
    SamplesPerPixel: 1,
    PhotometricInterpretation: "MONOCHROME2",
    NumberOfFrames: segments.length * frames,
    Rows: rows,
    Columns: columns,
    PixelRepresentation: 0,
    BurnedInAnnotation: "NO",
    ...lossiness(image, attributes),
    SegmentsOverlap: exclusive ? "NO" : "UNDEFINED",
    SegmentSequence: segmentItems(subject, segments),
    ReferencedSeriesSequence: [
      { SeriesInstanceUID: ids.seriesInstanceUid, ReferencedInstanceSequence: referencedObjects(ids.frames) },
    ],
    ...pixelModule(subject, segments, outputs),
  };
  return dicomObject(dataset, seedOf(subject));
}

function segmentItems(subject: Subject, segments: readonly Segment[]): Dataset[] {
  const { model } = subject;
  const colours = labelColours(model.manifest.outputs);
  return segments.map((segment) => {
    const { category, finding_site, label } = segment.label;
    const code = codeOf(segment.label);
    const laterality = sideOf(subject, segment.label);
    if (category === undefined) throw uncoded(segment.label);
    const { id, uid } = segmentTracking(subject, segment);
    const colour = colours[segment.output]?.[segment.index];
    const side = laterality === undefined ? {} : { AnatomicRegionModifierSequence: [codeItem(laterality)] };
    return {
      SegmentNumber: segment.number,
      SegmentLabel: oneLine(label, 64),
      SegmentedPropertyCategoryCodeSequence: [codeItem(category)],
      SegmentedPropertyTypeCodeSequence: [codeItem(code)],
      ...(finding_site === undefined
        ? {}
        : { AnatomicRegionSequence: [{ ...codeItem(finding_site), ...side }] }),
      SegmentAlgorithmType: "AUTOMATIC",
      SegmentAlgorithmName: oneLine(model.name, 64),
      SegmentationAlgorithmIdentificationSequence: [algorithm(model)],
      TrackingID: id,
      TrackingUID: uid,
      ...(colour === undefined ? {} : { RecommendedDisplayCIELabValue: cieLab(colour) }),
    };
  });
}

/** sRGB to CIELab with the profile connection space's white, D50, scaled to 16 bits (PS3.3 C.10.7.1.1). */
export function cieLab(rgb: Rgb): [number, number, number] {
  const [r, g, b] = rgb.map((value) => {
    const c = value / 255;
    return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  }) as [number, number, number];
  // sRGB's matrix, adapted from D65 to D50 (Bradford)
  const x = (0.4360747 * r + 0.3850649 * g + 0.1430804 * b) / 0.96422;
  const y = 0.2225045 * r + 0.7168786 * g + 0.0606169 * b;
  const z = (0.0139322 * r + 0.0971045 * g + 0.7141733 * b) / 0.82521;
  const f = (t: number) => (t > 216 / 24389 ? Math.cbrt(t) : (t * (24389 / 27) + 16) / 116);
  const lab = [116 * f(y) - 16, 500 * (f(x) - f(y)), 200 * (f(y) - f(z))] as const;
  const scaled = (value: number) => Math.max(0, Math.min(65535, Math.round(value)));
  return [
    scaled((lab[0] / 100) * 65535),
    scaled(((lab[1] + 128) / 255) * 65535),
    scaled(((lab[2] + 128) / 255) * 65535),
  ];
}

/** Functional groups and dimensions: which segment, and which frame of the source at which place. */
function placeOfFrames(subject: Subject, segments: readonly Segment[]): Dataset {
  const { image, attributes } = subject;
  const places = Array.from({ length: image.frameCount }, (_, frame) => ({
    plane: image.plane(frame),
    spacing: image.spacing(frame),
    thickness: declaredThickness(image, attributes, frame),
  }));
  const frameOfReference = takeOver(attributes, ["FrameOfReferenceUID"])["FrameOfReferenceUID"];
  const between = sliceSpacing(places.map(({ plane }) => plane));
  const located = places.every(
    ({ plane, spacing, thickness = between }) =>
      plane !== undefined && spacing?.patient === true && thickness !== undefined,
  );
  const geometry =
    frameOfReference !== undefined && located && hasOwnPlaces(image, attributes)
      ? geometryOf(places, between)
      : undefined;
  const organization = derivedUid("dimensions", [geometry === undefined ? "stack" : "position"]);
  const perFrame = segments.flatMap((segment) =>
    places.map((_, frame) => frameItem(subject, segment, frame, geometry)),
  );
  return {
    ...(geometry === undefined
      ? { PatientOrientation: patientOrientation(attributes) }
      : { FrameOfReferenceUID: frameOfReference, PositionReferenceIndicator: indicator(subject) }),
    DimensionOrganizationSequence: [{ DimensionOrganizationUID: organization }],
    DimensionIndexSequence: dimensions(organization, geometry !== undefined && geometry.distinct),
    SharedFunctionalGroupsSequence: [geometry?.shared ?? {}],
    PerFrameFunctionalGroupsSequence: perFrame,
  };
}

/** Empty where the source gives none that the standard allows (PS3.3 C.7.6.1.1.1). */
function patientOrientation(attributes: Attributes): string[] {
  const values = attributes.strings("PatientOrientation") ?? [];
  return values.length === 2 && values.every((value) => /^[LRAPHF]{1,3}$/.test(value)) ? values : [];
}

/**
 * Whether the planes are those of the frames. Many frames without functional groups share the attributes of the first,
 * and where the others lie is said elsewhere or nowhere.
 */
function hasOwnPlaces(image: Image, attributes: Attributes): boolean {
  const single = image.frameCount === 1 || image.series !== undefined;
  return single || attributes.has("PerFrameFunctionalGroupsSequence");
}

function indicator({ attributes }: Subject): string {
  return oneLine(attributes.string("PositionReferenceIndicator") ?? "", 64);
}

interface Geometry {
  /** Groups that every frame shares. */
  shared: Dataset;
  /** Groups of each source frame. */
  own: Dataset[];
  /** No two frames lie at one place, so that the place is a dimension. */
  distinct: boolean;
  /** Rank of each source frame's position (from 1). */
  rank: number[];
}

interface FramePlace {
  plane: PlanePosition | undefined;
  spacing: Spacing | undefined;
  /** SliceThickness as the source declares it. */
  thickness: number | undefined;
}

/** @param between the distance of the frames, where they have one: the thickness of those that declare none */
function geometryOf(places: readonly FramePlace[], between: number | undefined): Geometry {
  const distance = between === undefined ? {} : { SpacingBetweenSlices: between };
  const groups = places.map(({ plane, spacing, thickness = between }) => ({
    orientation: { PlaneOrientationSequence: [{ ImageOrientationPatient: plane?.orientation ?? [] }] },
    measures: {
      PixelMeasuresSequence: [
        {
          PixelSpacing: [spacing?.row ?? 0, spacing?.column ?? 0],
          SliceThickness: thickness,
          ...distance,
        },
      ],
    },
    position: { PlanePositionSequence: [{ ImagePositionPatient: plane?.position ?? [] }] },
  }));
  const [first] = groups;
  const same = (key: "orientation" | "measures") =>
    groups.every((group) => JSON.stringify(group[key]) === JSON.stringify(first?.[key]));
  const [oneOrientation, oneMeasure] = [same("orientation"), same("measures")];
  const keys = groups.map(({ position }) => JSON.stringify(position));
  const along = places.map(({ plane }) => (plane === undefined ? 0 : alongNormal(plane)));
  const order = along.map((_, frame) => frame).sort((a, b) => (along[a] ?? 0) - (along[b] ?? 0) || a - b);
  return {
    shared: {
      ...(oneOrientation ? first?.orientation : {}),
      ...(oneMeasure ? first?.measures : {}),
    },
    own: groups.map(({ orientation, measures, position }) => ({
      ...position,
      ...(oneOrientation ? {} : orientation),
      ...(oneMeasure ? {} : measures),
    })),
    distinct: new Set(keys).size === keys.length,
    rank: along.map((_, frame) => order.indexOf(frame) + 1),
  };
}

function alongNormal({ position: p, orientation: o }: PlanePosition): number {
  const normal = [o[1] * o[5] - o[2] * o[4], o[2] * o[3] - o[0] * o[5], o[0] * o[4] - o[1] * o[3]] as const;
  return p[0] * normal[0] + p[1] * normal[1] + p[2] * normal[2];
}

/** Direction cosines of scanners differ in their last digits from slice to slice. */
const PARALLEL = 1e-3;

/** Distance of the slices along their normal; undefined where they are not parallel, or not evenly spaced. */
function sliceSpacing(planes: readonly (PlanePosition | undefined)[]): number | undefined {
  const [first] = planes;
  const isParallel = (plane: PlanePosition | undefined) =>
    plane?.orientation.every((cosine, i) => Math.abs(cosine - (first?.orientation[i] ?? NaN)) < PARALLEL);
  if (!planes.every(isParallel)) return undefined;
  const along = planes.map((plane) => (plane === undefined ? NaN : alongNormal(plane)));
  const sorted = [...along].sort((a, b) => a - b);
  const steps = sorted.slice(1).map((place, i) => place - (sorted[i] ?? place));
  const [least, most] = [Math.min(...steps), Math.max(...steps)];
  const even = steps.length > 0 && least > 0 && most - least <= 0.01 * most;
  return even ? steps.reduce((sum, step) => sum + step, 0) / steps.length : undefined;
}

/** Of the frame's functional groups, else of the object or, in a series, of the slice's file. */
function declaredThickness(image: Image, attributes: Attributes, frame: number): number | undefined {
  const { series } = image;
  const own = series?.attributes.length === image.frameCount ? series.attributes[frame] : undefined;
  const inFile = series === undefined ? frame : (series.slices[frame]?.frame ?? 1) - 1;
  const groups = [
    attributes.sequence("PerFrameFunctionalGroupsSequence")?.[inFile],
    attributes.sequence("SharedFunctionalGroupsSequence")?.[0],
  ].map((group) => group?.sequence("PixelMeasuresSequence")?.[0]);
  const found = [...groups, own ?? attributes].map((place) => place?.number("SliceThickness"));
  return found.find((value) => value !== undefined && value > 0);
}

function dimensions(organization: string, byPosition: boolean): Dataset[] {
  const pointer = (keyword: string, group: string, label: string): Dataset => ({
    DimensionOrganizationUID: organization,
    DimensionIndexPointer: tagOf(keyword) ?? 0,
    FunctionalGroupPointer: tagOf(group) ?? 0,
    DimensionDescriptionLabel: label,
  });
  return [
    pointer("ReferencedSegmentNumber", "SegmentIdentificationSequence", "Segment"),
    byPosition
      ? pointer("ImagePositionPatient", "PlanePositionSequence", "Position")
      : pointer("InStackPositionNumber", "FrameContentSequence", "Frame"),
  ];
}

function frameItem(
  { ids }: Subject,
  segment: Segment,
  frame: number,
  geometry: Geometry | undefined,
): Dataset {
  const source = ids.frames[frame];
  if (source === undefined) throw new Error("Every frame has its source");
  const place = geometry?.distinct === true ? (geometry.rank[frame] ?? 1) : frame + 1;
  const purpose = dcm("121322", "Source image for image processing operation");
  return {
    FrameContentSequence: [
      { StackID: "1", InStackPositionNumber: place, DimensionIndexValues: [segment.number, place] },
    ],
    SegmentIdentificationSequence: [{ ReferencedSegmentNumber: segment.number }],
    ...geometry?.own[frame],
    DerivationImageSequence: [
      {
        DerivationCodeSequence: [codeItem(dcm("113076", "Segmentation"))],
        SourceImageSequence: referenced([source]).map((item) => ({
          ...item,
          SpatialLocationsPreserved: "YES",
          PurposeOfReferenceCodeSequence: [codeItem(purpose)],
        })),
      },
    ],
  };
}
