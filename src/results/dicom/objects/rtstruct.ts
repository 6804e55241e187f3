/**
 * The structure set: RT Structure Set Storage (PS3.3 A.19), for planning systems and viewers that
 * read no segmentations. Each segment is a region of interest; its contours lie in the planes of
 * the source's frames, along the edges of pixels, so that they enclose exactly the model's mask.
 */
import type { Attributes, Image, PlanePosition, Spacing } from "../../../images/image.js";
import { DOCUMENT_BYTES, FINDING_BYTES, type Material, type ObjectKind } from "./kind.js";
import { IMPLICIT_VR_LITTLE_ENDIAN } from "../../../images/dicom/transfer-syntax.js";
import { labelColours } from "../../colour.js";
import { sideOf } from "../../findings/sides.js";
import { codeOf, propertyType } from "../codes.js";
import { boxesOf, contoursOf, filled, type LabelBounds, type Contour } from "../contours.js";
import { dicomObject, type Dataset, type DicomObject } from "../elements.js";
import { frameOfReferenceOf } from "../frame-positions.js";
import { frameFinder, hasOwnPositions } from "../grid.js";
import { commonModules } from "../modules.js";
import {
  partName,
  partsOf,
  phasesIn,
  segmentsOf,
  segmentTracking,
  type FrameOutputs,
  type PhaseSegment,
  type Segment,
} from "../segments.js";
import { dot, type Vector } from "../../../images/vectors.js";
import { referenced } from "../source.js";
import { seedOf, type Subject } from "../subject.js";
import { oneLine } from "../values.js";

export const RT_STRUCTURE_SET = "1.2.840.10008.5.1.4.1.1.481.3";
/** The class of a study that the standard asks for, although it is retired (PS3.3 C.8.8.5). */
const DETACHED_STUDY_MANAGEMENT = "1.2.840.10008.3.1.2.3.1";

/** More points than these are noise and no structures; planning systems do not open them. */
const MOST_POINTS = 4_000_000;
/** Digits behind the point, in mm: finer than any plan, and the file stays small. */
const DECIMALS = 4;
/** Pixels smaller than this, in mm, would need more digits. */
const LEAST_SPACING = 0.01;

/** Where a frame lies in the patient. */
interface FramePlane {
  plane: PlanePosition;
  spacing: Spacing;
}

/** Why contours cannot be written, in words; undefined if they can. */
function whyNoContours(
  { image, phases }: Pick<Material, "image" | "phases">,
  outputs: FrameOutputs,
): string | undefined {
  if (planesOf(image) === undefined)
    return `the source does not say where its pixels lie in the patient (FrameOfReferenceUID, ImagePositionPatient, ImageOrientationPatient, PixelSpacing of at least ${LEAST_SPACING} mm)`;
  if (typeof phases === "string") return phases;
  const points = countPoints(image, outputs);
  return points > MOST_POINTS
    ? `its contours would have ${points} points, and at most ${MOST_POINTS} are written`
    : undefined;
}

/** The planes of all frames; undefined if one of them is not known. */
function planesOf(image: Image): FramePlane[] | undefined {
  const { attributes } = image;
  if (attributes === undefined || !hasOwnPositions(image, attributes)) return undefined;
  if (frameOfReferenceOf(attributes) === undefined) return undefined;
  const planes: FramePlane[] = [];
  for (let frame = 0; frame < image.frameCount; frame++) {
    const [plane, spacing] = [image.plane(frame), image.spacing(frame)];
    if (plane === undefined || spacing?.patient !== true) return undefined;
    if (Math.min(spacing.row, spacing.column) < LEAST_SPACING) return undefined;
    planes.push({ plane, spacing });
  }
  return planes;
}

/**
 * About how many points all contours have: where a line between labels turns, the contours of both
 * sides have one.
 */
function countPoints(image: Image, outputs: FrameOutputs): number {
  const { rows, columns } = image.format;
  let points = 0;
  for (const given of outputs.flat()) {
    if (given.kind !== "segmentation") continue;
    const planes = given.mask.length / (rows * columns);
    for (let plane = 0; plane < planes; plane++)
      points += corners(given.mask.subarray(plane * rows * columns), rows, columns);
    if (points > MOST_POINTS) break;
  }
  return points;
}

function corners(mask: Uint8Array, rows: number, columns: number): number {
  let count = 0;
  for (let y = 1; y < rows; y++)
    for (let x = 1; x < columns; x++) {
      const at = y * columns + x;
      const [here, left, above, both] = [
        mask[at],
        mask[at - 1],
        mask[at - columns],
        mask[at - columns - 1],
      ];
      if ((here === left) !== (above === both) || (here === above) !== (left === both)) count += 2;
    }
  return count;
}

/** @param outputs of a source for which `whyNoContours` finds no reason */
export function structureSet(subject: Subject, outputs: FrameOutputs): DicomObject {
  const { image, attributes, ids, model } = subject;
  const planes = planesOf(image);
  const frameOfReference = frameOfReferenceOf(attributes);
  if (planes === undefined || frameOfReference === undefined)
    throw new Error("Contours are made of sources that lie in the patient");
  const segments = segmentsOf(model.manifest.outputs);
  const regions = partsOf(segments, phasesIn(subject));
  const found = contoursBySegment(subject, segments, outputs);
  const { ContentDate, ContentTime, ...common } = commonModules(subject, "rtstruct");
  const dataset: Dataset = {
    SOPClassUID: RT_STRUCTURE_SET,
    Modality: "RTSTRUCT",
    ...common,
    OperatorsName: "",
    FrameOfReferenceUID: frameOfReference,
    PositionReferenceIndicator: "",
    StructureSetLabel: "SEGMENTATION",
    StructureSetName: oneLine(`${model.name} ${model.version}`, 64),
    StructureSetDate: ContentDate,
    StructureSetTime: ContentTime,
    ReferencedFrameOfReferenceSequence: [
      {
        FrameOfReferenceUID: frameOfReference,
        RTReferencedStudySequence: [
          {
            ReferencedSOPClassUID: DETACHED_STUDY_MANAGEMENT,
            ReferencedSOPInstanceUID: ids.studyInstanceUid,
            RTReferencedSeriesSequence: [
              {
                SeriesInstanceUID: ids.seriesInstanceUid,
                ContourImageSequence: referenced(ids.frames),
              },
            ],
          },
        ],
      },
    ],
    StructureSetROISequence: regions.map((region) => ({
      ROINumber: region.number,
      ReferencedFrameOfReferenceUID: frameOfReference,
      ROIName: partName(region),
      ROIGenerationAlgorithm: "AUTOMATIC",
      ROIGenerationDescription: oneLine(`${model.name} ${model.version}`, 64),
    })),
    ROIContourSequence: regions.map((region) => regionItem(subject, region, found, planes)),
    RTROIObservationsSequence: regions.map((region) => observationItem(subject, region)),
    ApprovalStatus: "UNAPPROVED",
  };
  return dicomObject(dataset, seedOf(subject), IMPLICIT_VR_LITTLE_ENDIAN);
}

/** Contours by output and label, then by frame (from 0). */
type SegmentContours = ReadonlyMap<string, ReadonlyMap<number, readonly Contour[]>>;

const keyOf = ({ output, index }: Segment): string => `${output} ${index}`;

function contoursBySegment(
  { image }: Pick<Subject, "image">,
  segments: readonly Segment[],
  outputs: FrameOutputs,
): SegmentContours {
  const found = new Map(segments.map((segment) => [keyOf(segment), new Map<number, Contour[]>()]));
  for (let frame = 0; frame < image.frameCount; frame++)
    for (const { labels, label, segment, box } of labelledPlanes(image, segments, outputs, frame)) {
      if (box === undefined) continue;
      const contours = contoursOf({ labels, stride: image.format.columns, label, box });
      found.get(keyOf(segment))?.set(frame, contours);
    }
  return found;
}

interface LabelledPlane {
  segment: Segment;
  /** One byte a pixel. */
  labels: Uint8Array;
  /** The segment's among the labels. */
  label: number;
  /** Around the segment's pixels; undefined if it has none on this frame. */
  box: LabelBounds | undefined;
}

/** Where the segments of a frame are found. */
function labelledPlanes(
  { format }: Image,
  segments: readonly Segment[],
  outputs: FrameOutputs,
  frame: number,
): LabelledPlane[] {
  const { rows, columns } = format;
  const pixels = rows * columns;
  const boxes = new Map<Uint8Array, ReadonlyMap<number, LabelBounds>>();
  const boxOf = (labels: Uint8Array, label: number) => {
    const known = boxes.get(labels) ?? boxesOf(labels, rows, columns);
    boxes.set(labels, known);
    return known.get(label);
  };
  return segments.map((segment) => {
    const given = outputs[frame]?.[segment.output];
    if (given?.kind !== "segmentation")
      throw new Error("A segmentation has a mask for every frame");
    const { mask, overlapping } = given;
    const { index } = segment;
    const labels = overlapping ? mask.subarray(index * pixels, (index + 1) * pixels) : mask;
    const label = overlapping ? 1 : index + 1;
    return { segment, labels, label, box: boxOf(labels, label) };
  });
}

function regionItem(
  { ids, model }: Subject,
  segment: PhaseSegment,
  found: SegmentContours,
  planes: readonly FramePlane[],
): Dataset {
  const colour = labelColours(model.manifest.outputs)[segment.output]?.[segment.index];
  const { frames } = segment.phase;
  const contours = frames.flatMap((frame) => {
    const lines = found.get(keyOf(segment))?.get(frame);
    if (lines === undefined) return [];
    const [source, place] = [ids.frames[frame], planes[frame]];
    if (source === undefined || place === undefined)
      throw new Error("Every frame has its source and place");
    return lines.map((line) => contourItem(line, place, referenced([source])));
  });
  return {
    ReferencedROINumber: segment.number,
    ...(colour === undefined ? {} : { ROIDisplayColor: [...colour] }),
    // A segment that was not found has no contours
    ...(contours.length === 0 ? {} : { ContourSequence: contours }),
  };
}

function contourItem(contour: Contour, place: FramePlane, images: Dataset[]): Dataset {
  return {
    ContourImageSequence: images,
    ContourGeometricType: "CLOSED_PLANAR",
    NumberOfContourPoints: contour.length / 2,
    ContourData: inPatient(contour, place),
  };
}

/**
 * Corners of pixels as points in the patient (PS3.3 C.7.6.2.1.1): the centre of the first pixel is
 * its position.
 */
function inPatient(contour: Contour, { plane, spacing }: FramePlane): string[] {
  const { position, orientation } = plane;
  const texts: string[] = [];
  for (let i = 0; i < contour.length; i += 2) {
    const alongRow = ((contour[i] ?? 0) - 0.5) * spacing.column;
    const alongColumn = ((contour[i + 1] ?? 0) - 0.5) * spacing.row;
    for (const axis of [0, 1, 2] as const) {
      const at =
        position[axis] + alongRow * orientation[axis] + alongColumn * (orientation[axis + 3] ?? 0);
      texts.push(String(Number(at.toFixed(DECIMALS)) + 0));
    }
  }
  return texts;
}

function observationItem(subject: Subject, segment: PhaseSegment): Dataset {
  const side = sideOf(subject.image, segment.label);
  return {
    ObservationNumber: segment.number,
    ReferencedROINumber: segment.number,
    ROIObservationDescription: oneLine(segmentTracking(subject, segment).uid, 1024),
    RTROIIdentificationCodeSequence: [propertyType(codeOf(segment.label), side)],
    RTROIInterpretedType: "",
    ROIInterpreter: "",
  };
}

/**
 * Fills the contours that were written, and compares them with the masks.
 * @returns what is wrong, in words; undefined if nothing is
 */
function checkContours(
  attributes: Attributes,
  subject: Subject,
  outputs: FrameOutputs,
): string | undefined {
  const { image, ids, model } = subject;
  const planes = planesOf(image) ?? [];
  const segments = segmentsOf(model.manifest.outputs);
  const { rows, columns } = image.format;
  const frameOf = frameFinder(ids);
  const regions = attributes.sequence("ROIContourSequence") ?? [];
  const parts = new Map(partsOf(segments, phasesIn(subject)).map((part) => [part.number, part]));
  const read = new Map<string, Contour[]>();
  for (const region of regions)
    for (const item of region.sequence("ContourSequence") ?? []) {
      const frame = frameOf(item.sequence("ContourImageSequence")?.[0]);
      const place = planes[frame ?? -1];
      if (frame === undefined || place === undefined) return "a contour is of no source frame";
      const points = onPixels(item.numbers("ContourData") ?? [], place);
      if (points === undefined) return "a contour lies off the corners of pixels, or off its frame";
      const part = parts.get(region.number("ReferencedROINumber") ?? 0);
      if (part?.phase.frames.includes(frame) !== true)
        return "a contour is of a frame of another phase than its region";
      const key = `${keyOf(part)} ${frame}`;
      const others = read.get(key);
      if (others === undefined) read.set(key, [points]);
      else others.push(points);
    }
  for (let frame = 0; frame < image.frameCount; frame++)
    for (const { labels, label, segment, box } of labelledPlanes(image, segments, outputs, frame)) {
      const lines = read.get(`${keyOf(segment)} ${frame}`);
      if (lines === undefined && box === undefined) continue;
      const mask = filled(lines ?? [], rows, columns);
      if (mask.some((inside, at) => (inside === 1) !== (labels[at] === label)))
        return `the contours of segment ${segment.number} do not enclose the mask of frame ${frame + 1}`;
    }
  return undefined;
}

/** Part of a pixel by which a written point may miss its corner: digits are cut off. */
const OFF_CORNER = 0.05;

/**
 * Points in the patient as corners of pixels; undefined if one is none of this plane. Direction
 * cosines of scanners are neither of length 1 nor at right angles to the last digit, so that the
 * system is solved, not projected.
 */
function onPixels(data: readonly number[], { plane, spacing }: FramePlane): Contour | undefined {
  const {
    position,
    orientation: [a, b, c, d, e, f],
  } = plane;
  const row: Vector = [a * spacing.column, b * spacing.column, c * spacing.column];
  const column: Vector = [d * spacing.row, e * spacing.row, f * spacing.row];
  const [rr, rc, cc] = [dot(row, row), dot(row, column), dot(column, column)];
  const determinant = rr * cc - rc * rc;
  const points: number[] = [];
  for (let i = 0; i + 2 < data.length; i += 3) {
    const offset: Vector = [
      (data[i] ?? NaN) - position[0],
      (data[i + 1] ?? NaN) - position[1],
      (data[i + 2] ?? NaN) - position[2],
    ];
    const [alongRow, alongColumn] = [dot(offset, row), dot(offset, column)];
    const x = (alongRow * cc - alongColumn * rc) / determinant + 0.5;
    const y = (alongColumn * rr - alongRow * rc) / determinant + 0.5;
    const [cornerX, cornerY] = [Math.round(x), Math.round(y)];
    const apart = [0, 1, 2].map(
      (axis) =>
        (offset[axis] ?? NaN) -
        (cornerX - 0.5) * (row[axis] ?? 0) -
        (cornerY - 0.5) * (column[axis] ?? 0),
    );
    if (!(Math.hypot(...apart) <= OFF_CORNER * Math.min(spacing.row, spacing.column)))
      return undefined;
    points.push(cornerX, cornerY);
  }
  return points;
}

export const rtstruct: ObjectKind = {
  ofMasks: true,
  whyNot: (material) =>
    material.outputs === undefined ? undefined : whyNoContours(material, material.outputs),
  room: ({ labels, frames, pixels }) => DOCUMENT_BYTES + pixels + FINDING_BYTES * labels * frames,
  make: ({ subject, outputs }) => {
    if (outputs === undefined) throw new Error("Contours are made of masks");
    return structureSet(subject, outputs);
  },
  fault: ({ attributes }, _, { subject, outputs }) =>
    outputs === undefined ? undefined : checkContours(attributes, subject, outputs),
};
