/**
 * Functional groups and dimensions of a segmentation (PS3.3 C.7.6.16, C.7.6.17): which segment each
 * frame is of, which frame of the source, and where that lies.
 */
import { dcm } from "../../manifest/texts.js";
import { rangeOf } from "../../base/range.js";
import { tagOf } from "../../images/dicom/dictionary.js";
import type { Attributes, PlanePosition, Spacing } from "../../images/image.js";
import { alongNormal } from "../../images/vectors.js";
import { codeItem } from "./codes.js";
import type { Dataset } from "./elements.js";
import { declaredThickness, type FrameGrid, type Places } from "./grid.js";
import type { PhaseSegment } from "./segments.js";
import { slideGeometry, type SlideGeometry, type TilePosition } from "./slide.js";
import { analysed, referenced, takeOver, type SourceFrame } from "./source.js";
import type { Subject } from "./subject.js";
import { derivedUid } from "./uid.js";
import { oneLine } from "./values.js";

/**
 * @param parts the segments on the frames of each phase; undefined if every frame is of all
 * segments: a label map
 */
export function framePositions(
  { image, attributes, phases }: Pick<Subject, "image" | "attributes" | "phases">,
  grid: FrameGrid,
  parts: readonly PhaseSegment[] | undefined,
): Dataset {
  const frameOfReference = frameOfReferenceOf(attributes);
  const isSlide =
    frameOfReference !== undefined && grid.sources !== undefined && typeof phases !== "string";
  const slide = isSlide ? slideGeometry(image, attributes) : undefined;
  if (slide !== undefined)
    return {
      FrameOfReferenceUID: frameOfReference,
      ...tilePositions({ image, attributes, grid, parts, slide }),
    };
  const { channels, bySegment, organization: organizationOf } = channelsOf(parts);
  const positions = Array.from({ length: grid.frames }, (_, frame) => ({
    plane: grid.plane(frame),
    spacing: grid.spacing(frame),
    thickness: grid.thickness(frame),
  }));
  const indicator = oneLine(attributes.string("PositionReferenceIndicator") ?? "", 64);
  const located = positions.every(
    ({ plane, spacing }) => plane !== undefined && spacing?.patient === true,
  );
  const isPlaced =
    frameOfReference !== undefined && located && grid.hasOwnPositions && typeof phases !== "string";
  const inPhases = parts === undefined ? undefined : phases;
  const geometry = isPlaced ? geometryOf(positions, inPhases) : undefined;
  const organization = organizationOf(geometry === undefined ? "stack" : "position");
  const perFrame = channels.flatMap((segment) =>
    framesOf(segment, grid).map((frame) => {
      const position = geometry?.distinct === true ? (geometry.rank[frame] ?? 1) : frame + 1;
      return frameItem(grid, segment, frame, {
        place: [position],
        stack: { StackID: "1", InStackPositionNumber: position },
        groups: geometry?.own[frame],
      });
    }),
  );
  return {
    ...(geometry === undefined
      ? { PatientOrientation: patientOrientation({ image, attributes }) }
      : { FrameOfReferenceUID: frameOfReference, PositionReferenceIndicator: indicator }),
    DimensionOrganizationSequence: [{ DimensionOrganizationUID: organization }],
    DimensionIndexSequence: dimensions(
      organization,
      bySegment,
      geometry !== undefined && geometry.distinct,
    ),
    SharedFunctionalGroupsSequence: [geometry?.shared ?? {}],
    PerFrameFunctionalGroupsSequence: perFrame,
  };
}

/** The Frame of Reference UID of the source, if it gives a valid one. */
export function frameOfReferenceOf(attributes: Attributes): Dataset[string] | undefined {
  return takeOver(attributes, ["FrameOfReferenceUID"])["FrameOfReferenceUID"];
}

/**
 * The frames of one place in their order, whether segments are a dimension, and the UIDs of the
 * dimensions.
 */
function channelsOf(parts: readonly PhaseSegment[] | undefined) {
  const channels: readonly (PhaseSegment | undefined)[] = parts ?? [undefined];
  const form = parts === undefined ? ["labelmap"] : [];
  return {
    channels,
    bySegment: parts !== undefined,
    organization: (place: string) => derivedUid("dimensions", [place, ...form]),
  };
}

/** Patient Orientation of all frames; empty if the files of a series do not give the same one. */
function patientOrientation({
  image,
  attributes,
}: Pick<Subject, "image" | "attributes">): string[] {
  const [first = [], ...others] = (image.series?.attributes ?? [attributes]).map(orientationIn);
  return others.every((other) => String(other) === String(first)) ? first : [];
}

/** Empty if a file gives none that the standard allows (PS3.3 C.7.6.1.1.1). */
function orientationIn(attributes: Attributes): string[] {
  const values = attributes.strings("PatientOrientation") ?? [];
  return values.length === 2 && values.every((value) => /^[LRAPHF]{1,3}$/.test(value))
    ? values
    : [];
}

/** The frames of a segment: those of its phase. */
const framesOf = (part: PhaseSegment | undefined, { frames }: FrameGrid): readonly number[] =>
  part?.phase.frames ?? Array.from({ length: frames }, (_, frame) => frame);

interface Geometry {
  /** Groups that every frame shares. */
  shared: Dataset;
  /** Groups of each source frame. */
  own: Dataset[];
  /** True if no two frames of a phase have one position, so that the position is a dimension. */
  distinct: boolean;
  /** Rank of each source frame's position (from 1). */
  rank: number[];
}

interface FramePosition {
  plane: PlanePosition | undefined;
  spacing: Pick<Spacing, "row" | "column"> | undefined;
  /** SliceThickness as it is declared. */
  thickness: number | undefined;
}

function geometryOf(positions: readonly FramePosition[], phases: Subject["phases"]): Geometry {
  const parted = phases === undefined || typeof phases === "string" ? undefined : phases;
  const all = parted?.map(({ frames }) => frames) ?? [positions.map((_, frame) => frame)];
  const between = distanceIn(all.map((frames) => frames.map((frame) => positions[frame]?.plane)));
  const assumed = between ?? assumedThickness(positions);
  const distance = between === undefined ? {} : { SpacingBetweenSlices: between };
  const groups = positions.map(({ plane, spacing, thickness = assumed }) => ({
    orientation: {
      PlaneOrientationSequence: [{ ImageOrientationPatient: plane?.orientation ?? [] }],
    },
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
  const along = positions.map(({ plane }) => (plane === undefined ? 0 : alongNormal(plane)));
  const order = along
    .map((_, frame) => frame)
    .sort((a, b) => (along[a] ?? 0) - (along[b] ?? 0) || a - b);
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
    distinct: all.every(
      (frames) => new Set(frames.map((frame) => keys[frame])).size === frames.length,
    ),
    rank: along.map((_, frame) => order.indexOf(frame) + 1),
  };
}

/**
 * Slice Thickness (PS3.3 C.7.6.16.2.1, Type 1C) where frames neither declare it nor lie evenly:
 * readers of segmentations place no frame without it (dcmqi, highdicom). No frame is then deeper
 * than a pixel is wide, so that none reaches into another.
 */
function assumedThickness(positions: readonly FramePosition[]): number {
  const spacings = positions.flatMap(({ spacing }) =>
    spacing === undefined ? [] : [spacing.row, spacing.column],
  );
  return Math.min(...rangeOf(spacings));
}

/**
 * Whether Slice Thickness is assumed in frames of a segmentation, which a warning says.
 */
export function isThicknessAssumed(
  { image, attributes, phases }: Pick<Subject, "image" | "attributes" | "phases">,
  grid: Places,
): boolean {
  const all = Array.from({ length: grid.frames }, (_, frame) => frame);
  if (all.every((frame) => grid.thickness(frame) !== undefined)) return false;
  if (frameOfReferenceOf(attributes) === undefined || !grid.hasOwnPositions) return false;
  if (typeof phases === "string" || slideGeometry(image, attributes) !== undefined) return false;
  if (!all.every((frame) => grid.plane(frame) && grid.spacing(frame)?.patient === true))
    return false;
  const parts = phases?.map(({ frames }) => frames) ?? [all];
  return distanceIn(parts.map((frames) => frames.map((frame) => grid.plane(frame)))) === undefined;
}

/** The distance of slices that all phases have; undefined if they have none. */
function distanceIn(phases: readonly (PlanePosition | undefined)[][]): number | undefined {
  const [first, ...others] = phases.map(sliceSpacing);
  const isSame = (other: number | undefined) =>
    first !== undefined && other !== undefined && Math.abs(other - first) <= 0.01 * first;
  return others.every(isSame) ? first : undefined;
}

/** Direction cosines of scanners differ in their last digits from slice to slice. */
const PARALLEL = 1e-3;

/**
 * Distance of the slices along their normal; undefined if they are not parallel, or not evenly
 * spaced.
 */
function sliceSpacing(planes: readonly (PlanePosition | undefined)[]): number | undefined {
  const [first] = planes;
  const isParallel = (plane: PlanePosition | undefined) =>
    plane?.orientation.every(
      (cosine, i) => Math.abs(cosine - (first?.orientation[i] ?? NaN)) < PARALLEL,
    );
  if (!planes.every(isParallel)) return undefined;
  const along = planes.map((plane) => (plane === undefined ? NaN : alongNormal(plane)));
  const sorted = [...along].sort((a, b) => a - b);
  const steps = sorted.slice(1).map((position, i) => position - (sorted[i] ?? position));
  const [least, most] = rangeOf(steps);
  const even = steps.length > 0 && least > 0 && most - least <= 0.01 * most;
  return even ? steps.reduce((sum, step) => sum + step, 0) / steps.length : undefined;
}

function dimensions(organization: string, bySegment: boolean, byPosition: boolean): Dataset[] {
  return [
    ...segmentDimension(organization, bySegment),
    byPosition
      ? dimension(organization, "ImagePositionPatient", "PlanePositionSequence", "Position")
      : dimension(organization, "InStackPositionNumber", "FrameContentSequence", "Frame"),
  ];
}

function segmentDimension(organization: string, bySegment: boolean): Dataset[] {
  return bySegment
    ? [
        dimension(
          organization,
          "ReferencedSegmentNumber",
          "SegmentIdentificationSequence",
          "Segment",
        ),
      ]
    : [];
}

function dimension(organization: string, keyword: string, group: string, label: string): Dataset {
  return {
    DimensionOrganizationUID: organization,
    DimensionIndexPointer: tagOf(keyword) ?? 0,
    FunctionalGroupPointer: tagOf(group) ?? 0,
    DimensionDescriptionLabel: label,
  };
}

/**
 * The modules of a segmentation of tiles on a slide (PS3.3 C.8.12.14, A.51.5.1): each frame says
 * which tile it is, and rows and columns of the total pixel matrix are dimensions, unless several
 * frames of a segment show one tile: those of several focal planes.
 */
function tilePositions({
  image,
  attributes,
  grid,
  parts,
  slide,
}: Pick<Subject, "image" | "attributes"> & {
  grid: FrameGrid;
  parts: readonly PhaseSegment[] | undefined;
  slide: SlideGeometry;
}): Dataset {
  const { channels, bySegment, organization: organizationOf } = channelsOf(parts);
  const { tiles, origin, spacing } = slide;
  const places = tiles.map(({ row, column }) => `${row} ${column}`);
  const distinct = channels.every((segment) => {
    const frames = framesOf(segment, grid);
    return new Set(frames.map((frame) => places[frame])).size === frames.length;
  });
  const organization = organizationOf(distinct ? "tile" : "stack");
  const ranks = {
    row: rankOf(tiles.map(({ row }) => row)),
    column: rankOf(tiles.map(({ column }) => column)),
  };
  const perFrame = channels.flatMap((segment) =>
    framesOf(segment, grid).map((frame) => {
      const tile = tiles[frame];
      if (tile === undefined) throw new Error("Every frame has its tile");
      return frameItem(grid, segment, frame, {
        place: distinct ? [ranks.row(tile.row), ranks.column(tile.column)] : [frame + 1],
        stack: distinct ? {} : { StackID: "1", InStackPositionNumber: frame + 1 },
        groups: { PlanePositionSlideSequence: [tileItem(tile)] },
      });
    }),
  );
  const thickness = declaredThickness(image, attributes, 0);
  const byTile = [
    ...segmentDimension(organization, bySegment),
    dimension(
      organization,
      "RowPositionInTotalImagePixelMatrix",
      "PlanePositionSlideSequence",
      "Row",
    ),
    dimension(
      organization,
      "ColumnPositionInTotalImagePixelMatrix",
      "PlanePositionSlideSequence",
      "Column",
    ),
  ];
  return {
    // It is the patient's, and of a slide mostly unknown
    PatientOrientation: patientOrientation({ image, attributes }),
    PositionReferenceIndicator: "SLIDE_CORNER",
    DimensionOrganizationType: "TILED_SPARSE",
    DimensionOrganizationSequence: [{ DimensionOrganizationUID: organization }],
    DimensionIndexSequence: distinct ? byTile : dimensions(organization, bySegment, false),
    TotalPixelMatrixRows: slide.rows,
    TotalPixelMatrixColumns: slide.columns,
    TotalPixelMatrixOriginSequence: [
      {
        XOffsetInSlideCoordinateSystem: [origin.x],
        YOffsetInSlideCoordinateSystem: [origin.y],
        ...(origin.z === undefined ? {} : { ZOffsetInSlideCoordinateSystem: [origin.z] }),
      },
    ],
    ImageOrientationSlide: slide.orientation,
    SharedFunctionalGroupsSequence: [
      {
        PixelMeasuresSequence: [
          {
            PixelSpacing: [spacing.row, spacing.column],
            ...(thickness === undefined ? {} : { SliceThickness: thickness }),
          },
        ],
      },
    ],
    PerFrameFunctionalGroupsSequence: perFrame,
  };
}

function tileItem({ row, column, x, y, z }: TilePosition): Dataset {
  return {
    RowPositionInTotalImagePixelMatrix: row,
    ColumnPositionInTotalImagePixelMatrix: column,
    XOffsetInSlideCoordinateSystem: [x],
    YOffsetInSlideCoordinateSystem: [y],
    ZOffsetInSlideCoordinateSystem: [z],
  };
}

/** The rank of each value (from 1) among the values there are. */
function rankOf(values: readonly number[]): (value: number) => number {
  const sorted = [...new Set(values)].sort((a, b) => a - b);
  const ranks = new Map(sorted.map((value, i) => [value, i + 1]));
  return (value) => ranks.get(value) ?? 0;
}

interface FramePlace {
  /** Values of the dimensions behind the segment. */
  place: readonly number[];
  /** Where the frame stands in the stack of all frames, if they are one. */
  stack: Dataset;
  /** Functional groups of its own. */
  groups: Dataset | undefined;
}

function frameItem(
  { sources }: FrameGrid,
  segment: PhaseSegment | undefined,
  frame: number,
  { place, stack, groups }: FramePlace,
): Dataset {
  return {
    FrameContentSequence: [
      {
        ...stack,
        DimensionIndexValues: [...(segment === undefined ? [] : [segment.number]), ...place],
      },
    ],
    ...(segment === undefined
      ? {}
      : { SegmentIdentificationSequence: [{ ReferencedSegmentNumber: segment.number }] }),
    ...groups,
    ...(sources === undefined ? {} : { DerivationImageSequence: [derivation(sources[frame])] }),
  };
}

/**
 * Derivation Image (PS3.3 C.7.6.16.2.6): for frames that are those of the source; others have their
 * place alone (A.51.5).
 */
function derivation(source: SourceFrame | undefined): Dataset {
  if (source === undefined) throw new Error("Every frame has its source");
  return {
    DerivationCodeSequence: [codeItem(dcm("113076", "Segmentation"))],
    SourceImageSequence: analysed(referenced([source]), "YES"),
  };
}
