/**
 * The grid in which a segmentation lies: that of the source, frame for frame, or one of its own,
 * which the frame of reference ties to the source (PS3.3 A.51.5.1).
 */
import {
  attributesOfFrame,
  type Attributes,
  type Image,
  type PlanePosition,
  type Spacing,
} from "../../images/image.js";
import { dot, type Vector } from "../../images/vectors.js";
import type { ModelGrid } from "../findings/volume-outputs.js";
import type { FrameOutputs } from "./segments.js";
import type { SourceFrame, SourceIds } from "./source.js";
import type { Subject } from "./subject.js";

/** The frames that every segment has, in pixels and mm of the patient. */
export interface FrameGrid {
  rows: number;
  columns: number;
  frames: number;
  plane(frame: number): PlanePosition | undefined;
  spacing(frame: number): Pick<Spacing, "row" | "column" | "patient"> | undefined;
  /** SliceThickness, as it is declared. */
  thickness(frame: number): number | undefined;
  /** Whether the planes are those of the frames. */
  hasOwnPositions: boolean;
  /**
   * The frames of the source to which those of the grid belong pixel by pixel; undefined if there
   * are none.
   */
  sources: readonly SourceFrame[] | undefined;
  /** Which frame an item of PerFrameFunctionalGroupsSequence tells of; undefined for none. */
  frameOf(groups: Attributes): number | undefined;
}

/** The model's output for each frame of a grid. */
export interface Masks {
  grid: FrameGrid;
  outputs: FrameOutputs;
}

/** Where the frames of a grid lie. */
export type Places = Pick<
  FrameGrid,
  "frames" | "plane" | "spacing" | "thickness" | "hasOwnPositions"
>;

export function sourcePlaces(image: Image, attributes: Attributes): Places {
  return {
    frames: image.frameCount,
    plane: (frame) => image.plane(frame),
    spacing: (frame) => image.spacing(frame),
    thickness: (frame) => declaredThickness(image, attributes, frame),
    hasOwnPositions: hasOwnPositions(image, attributes),
  };
}

export function sourceGrid({
  image,
  attributes,
  ids,
}: Pick<Subject, "image" | "attributes" | "ids">): FrameGrid {
  const frameOf = frameFinder(ids);
  return {
    ...sourcePlaces(image, attributes),
    rows: image.format.rows,
    columns: image.format.columns,
    sources: ids.frames,
    frameOf: (groups) =>
      frameOf(
        groups.sequence("DerivationImageSequence")?.[0]?.sequence("SourceImageSequence")?.[0],
      ),
  };
}

/** A grid of its own, with a frame for each slice: they follow each other along their normal. */
export function volumeGrid({ slices, rows, columns, geometry }: ModelGrid): FrameGrid {
  const { origin, columnDirection, rowDirection, sliceDirection } = geometry;
  const { columnSpacing, rowSpacing, sliceSpacing } = geometry;
  return {
    rows,
    columns,
    frames: slices,
    plane: (frame) => ({
      position: [
        origin[0] + frame * sliceSpacing * sliceDirection[0],
        origin[1] + frame * sliceSpacing * sliceDirection[1],
        origin[2] + frame * sliceSpacing * sliceDirection[2],
      ],
      orientation: [...columnDirection, ...rowDirection],
    }),
    spacing: () => ({ row: rowSpacing, column: columnSpacing, patient: true }),
    thickness: () => sliceSpacing,
    hasOwnPositions: true,
    sources: undefined,
    frameOf: (groups) => {
      const [x, y, z] = positionOf(groups) ?? [];
      if (x === undefined || y === undefined || z === undefined) return undefined;
      const away: Vector = [x - origin[0], y - origin[1], z - origin[2]];
      const frame = Math.round(dot(away, sliceDirection) / sliceSpacing);
      return frame >= 0 && frame < slices ? frame : undefined;
    },
  };
}

/** Tells which frame of the source a reference means; undefined where it is none of them. */
export function frameFinder({
  frames,
}: SourceIds): (reference: Attributes | undefined) => number | undefined {
  const keyOf = (uid = "", frame: number | undefined) => `${uid} ${frame ?? ""}`;
  const byKey = new Map(
    frames.map((one, frame) => [keyOf(one.sopInstanceUid, one.frameNumber), frame]),
  );
  return (reference) =>
    byKey.get(
      keyOf(
        reference?.string("ReferencedSOPInstanceUID"),
        reference?.number("ReferencedFrameNumber"),
      ),
    );
}

/** Decimal strings have 16 characters, so that the last digits of what is written may differ. */
export const WRITTEN_TOLERANCE = 1e-6;

/** Whether numbers that were written, in mm or as direction cosines, are those that were meant. */
export const isNear = (
  expected: readonly number[],
  found: readonly number[] | undefined,
): boolean =>
  found?.length === expected.length &&
  expected.every((value, i) => Math.abs(value - (found[i] ?? NaN)) <= WRITTEN_TOLERANCE);

/** How all frames of a grid of its own are turned and spaced. */
interface Turned {
  /** As ImageOrientationPatient. */
  orientation: readonly number[];
  /** Spacing of rows and of columns, mm. */
  spacing: readonly number[];
  thickness: number;
}

/**
 * Whether the shared functional groups of a segmentation say that its frames are turned and spaced
 * so.
 */
export function isTurned(
  attributes: Attributes,
  { orientation, spacing, thickness }: Turned,
): boolean {
  const [shared] = attributes.sequence("SharedFunctionalGroupsSequence") ?? [];
  const [measures] = shared?.sequence("PixelMeasuresSequence") ?? [];
  const [turned] = shared?.sequence("PlaneOrientationSequence") ?? [];
  return (
    isNear(orientation, turned?.numbers("ImageOrientationPatient")) &&
    isNear(spacing, measures?.numbers("PixelSpacing")) &&
    isNear([thickness], measures?.numbers("SliceThickness"))
  );
}

export function positionOf(groups: Attributes): number[] | undefined {
  return groups.sequence("PlanePositionSequence")?.[0]?.numbers("ImagePositionPatient");
}

/**
 * Whether each frame has a plane of its own. Frames without functional groups share the attributes
 * of the first frame; the positions of the others are given elsewhere or nowhere: in a dose grid by
 * its offsets, in a nuclear medicine reconstruction by the slice numbers.
 */
export function hasOwnPositions(image: Image, attributes: Attributes): boolean {
  const { frameCount, series } = image;
  const inVolume = series?.grouped === false;
  const single =
    frameCount === 1 || inVolume || series?.slices.every((slice) => slice.frame === undefined);
  const given = ["PerFrameFunctionalGroupsSequence", "GridFrameOffsetVector", "SliceVector"];
  return single === true || given.some((keyword) => attributes.has(keyword));
}

/**
 * SliceThickness in the frame's functional groups, else in the object or, in a series, in the
 * slice's file.
 */
export function declaredThickness(
  image: Image,
  attributes: Attributes,
  frame: number,
): number | undefined {
  const { series } = image;
  const own = attributesOfFrame(image, frame) ?? attributes;
  const inFile = series === undefined ? frame : (series.slices[frame]?.frame ?? 1) - 1;
  const groups = [
    own.sequence("PerFrameFunctionalGroupsSequence")?.[inFile],
    own.sequence("SharedFunctionalGroupsSequence")?.[0],
  ].map((group) => group?.sequence("PixelMeasuresSequence")?.[0]);
  const found = [...groups, own].map((holder) => holder?.number("SliceThickness"));
  return found.find((value) => value !== undefined && value > 0);
}
