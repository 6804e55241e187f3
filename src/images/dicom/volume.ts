/**
 * Slices to one volume (PS3.3 C.7.6.2): sorted along their normal, and refused if they are not an
 * even stack. A network that is given a gap, a doubled slice or a sheared stack measures a body
 * that does not exist.
 */
import { rangeOf } from "../../base/range.js";
import {
  addWarnings,
  type Warning,
  type Image,
  type PixelFormat,
  type PlaneFault,
  type PlanePosition,
  type Spacing,
  type StackFlaws,
  type StackTolerance,
  type TransformStep,
  type Volume,
} from "../image.js";
import type { RadserveError } from "../../base/errors.js";
import { cross, dot, length, unit, type Vector } from "../vectors.js";
import { acquisitionCaveats } from "./acquisition.js";
import { checkNoPart } from "./concatenation.js";
import { COARSE_MM, isBesideBy, isEvenBut, roundingOf } from "./rounded-positions.js";
import { seriesInvalid } from "./series-fault.js";
import { samePlaneMm } from "./shared-places.js";
import { spacingCaveats } from "./stated-counts.js";

/**
 * Positions are decimal text; scanners round it, mostly to two or more digits. Less than this is no
 * distance, unless it is much of the distance of slices: those of a microscope have more digits.
 */
const ROUNDING_MM = 0.01;
const ROUNDING_PART = 0.1;
/**
 * How far the distance of two neighbours may be from the usual one, as a part of it: table feeds
 * are more exact.
 */
const SPACING_TOLERANCE = 0.01;
/**
 * How far a slice may be from where the even stack has it, in spacings: small differences of one
 * sign add up.
 */
const PLACE_TOLERANCE = 0.1;
/**
 * How far a slice may be off the line along the normal, in pixels: below it, no voxel gets another
 * one's value.
 */
const SHEAR_TOLERANCE = 0.1;
/** A distance from here on means a missing slice, in spacings. */
const GAP = 1.5;
/** Direction cosines of parallel slices: 0.0001 moves a corner 250 mm away by 0.025 mm. */
const PARALLEL_TOLERANCE = 1e-4;
/**
 * How far in-plane spacings may differ, as a part of them; the last of 512 pixels of 0.7 mm moves
 * by 0.04 mm.
 */
const IN_PLANE_TOLERANCE = 1e-4;

/**
 * The fields of the pixel format that have to be equal in all slices. How many bits a value has,
 * and where, tells nothing of what it means: that is decided by each slice's own modality
 * transform.
 */
const MEANING: readonly (keyof PixelFormat)[] = [
  "samplesPerPixel",
  "float",
  "photometricInterpretation",
  "packed422",
];

/** The tolerance of a model whose manifest names none. */
const STRAIGHT: StackTolerance = { tiltDegrees: 0, missing: 0 };

const LISTED = 10;
const DEGREES = 180 / Math.PI;

/** The facts that decide whether a frame belongs to a volume, and where. */
export interface SliceFacts {
  format: PixelFormat;
  plane: PlanePosition | undefined;
  planeFault?: PlaneFault | undefined;
  spacing: Spacing | undefined;
  /** The units of the modality values; asked for once it is known where the slices lie. */
  units?: () => string | undefined;
}

interface LocatedSlice extends SliceFacts {
  plane: PlanePosition;
  spacing: Spacing;
}

/**
 * The slices as one volume. They are sorted by the projection of ImagePositionPatient on the
 * normal, which is the cross product of the direction along a row and the direction along a column:
 * so column, row and slice index always make a right-handed system, whatever way the scanner went.
 * The spacing of the slices comes from those projections, never from SliceThickness, which may
 * overlap or leave gaps.
 * @param tolerance tilt and missing slices up to it become flaws of the volume, and are no error
 * Throws series_invalid, with the fault as `details.reason` and its numbers.
 */
export function assemble(
  slices: readonly SliceFacts[],
  tolerance: StackTolerance = STRAIGHT,
): Volume {
  const [first, ...others] = located(slices);
  if (first === undefined || others.length === 0)
    throw seriesInvalid(
      "single_slice",
      `Expected at least two slices, found ${slices.length}. Send the whole series, or the path of the image itself.`,
      { slices: slices.length },
    );
  const all = [first, ...others];
  checkAlike(all);
  const axes = axesOf(first.plane);
  checkParallel(first, all);
  const along = all.map(({ plane }) => dot(plane.position, axes.normal));
  const frames = along.map((_, i) => i).sort((a, b) => at(along, a) - at(along, b));
  const sorted = frames.map((frame) => at(along, frame));
  checkDuplicates(sorted, samePlaneMm(Math.min(first.spacing.row, first.spacing.column)));
  const positions = frames.map((frame) => all[frame]?.plane.position ?? first.plane.position);
  const rounding = roundingOf(positions, axes.normal, sorted);
  const beside = shearOf(positions, axes.normal, Math.min(first.spacing.row, first.spacing.column));
  const explained =
    beside !== undefined && rounding !== undefined && isBesideBy(rounding, positions, axes.normal);
  const shear = explained ? undefined : beside;
  if (shear !== undefined && (!shear.even || shear.angle > tolerance.tiltDegrees))
    throw shear.fault;
  const even = evenSpacing(sorted, tolerance.missing, rounding?.along ?? 0);
  const { spacing: sliceSpacing, places, missing, gap } = even;
  const [x, y, z] = shear?.aside ?? [0, 0, 0];
  const flaws: StackFlaws = {
    tiltDegrees: shear?.angle ?? 0,
    missing,
    places,
    aside: { row: dot([x, y, z], axes.row), column: dot([x, y, z], axes.column) },
    refusals: { tilt: shear?.fault, gap },
  };
  return {
    ...(shear === undefined && gap === undefined ? {} : { flaws }),
    ...(explained || even.rounded ? { rounded: true } : {}),
    frames,
    geometry: {
      origin: positions[0] ?? first.plane.position,
      columnDirection: axes.column,
      rowDirection: axes.row,
      sliceDirection: axes.normal,
      columnSpacing: first.spacing.column,
      rowSpacing: first.spacing.row,
      sliceSpacing,
    },
  };
}

/**
 * The volume that an image's frames are. Throws series_invalid if they are not one, or not one that
 * is as straight and as whole as the tolerance asks.
 */
export function volumeOf(image: Image, tolerance: StackTolerance = STRAIGHT): Volume {
  if (image.series !== undefined) {
    const { volume } = image.series;
    const { tiltDegrees, missing, refusals } = volume.flaws ?? {
      ...STRAIGHT,
      refusals: { tilt: undefined, gap: undefined },
    };
    if (refusals.tilt !== undefined && tiltDegrees > tolerance.tiltDegrees) throw refusals.tilt;
    if (refusals.gap !== undefined && missing > tolerance.missing) throw refusals.gap;
    return volume;
  }
  checkNoPart(image.attributes);
  checkFramePositions(image);
  const volume = assemble(
    Array.from({ length: image.frameCount }, (_, frame) => ({
      format: image.format,
      plane: image.plane(frame),
      planeFault: image.planeFault?.(frame),
      spacing: image.spacing(frame),
      units: () => image.interpretation(frame).units,
    })),
    tolerance,
  );
  addWarnings(image.warnings, [...volumeCaveats(volume), ...frameCaveats(image, volume)]);
  return volume;
}

/** A position that all frames have in common is the first one's, or they are times of one slice. */
function checkFramePositions(image: Image): void {
  const { attributes, frameCount } = image;
  const perFrame = attributes?.sequence("PerFrameFunctionalGroupsSequence") ?? [];
  if (frameCount < 2 || perFrame.some((group) => group.has("PlanePositionSequence"))) return;
  const first = image.plane(0)?.position;
  const isAtTop = attributes?.has("ImagePositionPatient") === true;
  // A fault of its own says more
  if (first === undefined && (!isAtTop || image.planeFault?.(0) !== undefined)) return;
  for (let frame = 1; frame < frameCount; frame++) {
    const position = image.plane(frame)?.position;
    if ([0, 1, 2].some((axis) => position?.[axis] !== first?.[axis])) return;
  }
  throw seriesInvalid(
    "missing_frame_positions",
    `Expected a position for each frame (Plane Position in PerFrameFunctionalGroupsSequence), found one ImagePositionPatient for all ${frameCount}: ` +
      "they are times of one slice, or where they lie is not stated. Export the object with the positions of its frames, or as single slices.",
    { frames: frameCount },
  );
}

/** Whether the frames of one file are of one acquisition, and all there; looked at once. */
function frameCaveats(image: Image, { geometry }: Volume): readonly Warning[] {
  const { attributes } = image;
  if (attributes === undefined) return [];
  const known = frameWarnings.get(image);
  if (known !== undefined) return known;
  const slices = Array.from({ length: image.frameCount }, (_, frame) => {
    return { attributes, frame, plane: image.plane(frame) };
  });
  const found = [
    ...acquisitionCaveats(slices, "frames of the image"),
    ...spacingCaveats(slices, geometry.sliceSpacing),
  ];
  frameWarnings.set(image, found);
  return found;
}
const frameWarnings = new WeakMap<Image, readonly Warning[]>();

/** Warnings about how the slices were put together. */
export function volumeCaveats({ rounded, geometry }: Volume): Warning[] {
  if (rounded !== true) return [];
  const message =
    `The slices lie evenly, every ${shown(geometry.sliceSpacing)} mm, only if their positions were rounded to ` +
    `${COARSE_MM} mm, as the differences of all of them are; they were taken so.`;
  return [{ code: "rounded_positions", message }];
}

/** How the slices were put in order, for the receipt. */
export function sortingStep({ frames, geometry }: Volume): TransformStep {
  return {
    step: "sort_slices",
    by: "ImagePositionPatient",
    along: geometry.sliceDirection,
    slices: frames.length,
    spacing_mm: geometry.sliceSpacing,
  };
}

function located(slices: readonly SliceFacts[]): LocatedSlice[] {
  const fault = slices.find(({ planeFault }) => planeFault !== undefined)?.planeFault;
  if (fault !== undefined) throw seriesInvalid(fault.reason, fault.message);
  const usable = slices.filter(
    (slice): slice is LocatedSlice => slice.plane !== undefined && slice.spacing?.patient === true,
  );
  const missing = slices.length - usable.length;
  if (missing > 0)
    throw seriesInvalid(
      "missing_geometry",
      `Expected ImagePositionPatient, ImageOrientationPatient and PixelSpacing in all ${slices.length} slices; ${missing} ` +
        `${missing === 1 ? "lacks" : "lack"} one of them. Send slices that say where in the patient they lie.`,
      { slices: slices.length, missing },
    );
  return usable;
}

/** Throws for what no image can be made of, volume or not. */
export function checkFormats(all: readonly Pick<SliceFacts, "format">[]): void {
  const sizes = new Set(all.map(({ format }) => `${format.columns} x ${format.rows}`));
  if (sizes.size > 1)
    throw seriesInvalid(
      "mixed_size",
      `Expected slices of one size, found ${quotedList([...sizes])}. Leave out files that are not slices of this volume.`,
      { sizes: [...sizes].slice(0, LISTED) },
    );
  const mixed = MEANING.filter((field) => new Set(all.map(({ format }) => format[field])).size > 1);
  if (mixed.length > 0)
    throw seriesInvalid(
      "mixed_format",
      `Expected slices whose pixels mean the same; they differ in ${mixed.join(", ")}. Leave out files that are not slices of this volume.`,
      { fields: mixed },
    );
}

function checkAlike(all: readonly LocatedSlice[]): void {
  checkFormats(all);
  const units = new Set(all.map((slice) => slice.units?.() ?? "none"));
  if (units.size > 1)
    throw seriesInvalid(
      "mixed_units",
      `Expected slices whose values have one unit, found ${quotedList([...units])}. A rescale is missing in some slices, some are derived (ImageType), or they are of several series: correct them at the source.`,
      { units: [...units] },
    );
  for (const side of ["row", "column"] as const) {
    const values = all.map(({ spacing }) => spacing[side]);
    const [least, most] = rangeOf(values);
    if (most - least > IN_PLANE_TOLERANCE * least)
      throw seriesInvalid(
        "mixed_spacing",
        `Expected one PixelSpacing, found ${side} spacings from ${shown(least)} to ${shown(most)} mm. Send one acquisition at a time.`,
        { side, least_mm: least, most_mm: most },
      );
  }
}

/** Unit vectors at right angles from direction cosines, which are rounded. */
function axesOf(plane: PlanePosition): { column: Vector; row: Vector; normal: Vector } {
  const [a, b, c, d, e, f] = plane.orientation;
  const along = unit([a, b, c]);
  const normal = unit(cross(along, [d, e, f]));
  return { column: along, row: cross(normal, along), normal };
}

function checkParallel(first: LocatedSlice, all: readonly LocatedSlice[]): void {
  const turned = all.filter(({ plane }) =>
    plane.orientation.some(
      (cosine, i) => !(Math.abs(cosine - at(first.plane.orientation, i)) <= PARALLEL_TOLERANCE),
    ),
  ).length;
  if (turned > 0)
    throw seriesInvalid(
      "mixed_orientation",
      `Expected parallel slices; ${turned} of ${all.length} ${turned === 1 ? "is" : "are"} turned against the first. Send each stack on its own.`,
      { slices: all.length, turned },
    );
}

function checkDuplicates(sorted: readonly number[], within: number): void {
  const doubled = sorted.filter((place, i) => i > 0 && place - at(sorted, i - 1) <= within);
  if (doubled.length > 0)
    throw seriesInvalid(
      "duplicate_position",
      `Expected every slice at a place of its own; ${doubled.length} of ${sorted.length} ${doubled.length === 1 ? "lies" : "lie"} where another does. ` +
        "Send one time, echo or reconstruction at a time.",
      { slices: sorted.length, duplicates: doubled.length, at_mm: doubled.slice(0, LISTED) },
    );
}

interface Shear {
  /** Degrees between the normal and the way to the slice that lies furthest beside it. */
  angle: number;
  /** Whether all slices lie on one line. */
  even: boolean;
  /** How far the line goes aside for each mm along the normal. */
  aside: Vector;
  fault: RadserveError;
}

/**
 * Gantry tilt and every other shear: slices that do not follow each other along their normal (PS3.3
 * C.8.2.1, Gantry/Detector Tilt). Undefined if they do.
 */
function shearOf(positions: readonly Vector[], normal: Vector, pixel: number): Shear | undefined {
  const [origin] = positions;
  const last = positions.at(-1);
  if (origin === undefined || last === undefined) return undefined;
  const beside = (position: Vector): { along: number; off: Vector } => {
    const from: Vector = [
      position[0] - origin[0],
      position[1] - origin[1],
      position[2] - origin[2],
    ];
    const along = dot(from, normal);
    return {
      along,
      off: [from[0] - along * normal[0], from[1] - along * normal[1], from[2] - along * normal[2]],
    };
  };
  let worst = { offset: 0, angle: 0 };
  for (const position of positions) {
    const { along, off } = beside(position);
    const offset = length(off);
    if (offset > worst.offset) worst = { offset, angle: Math.atan2(offset, along) * DEGREES };
  }
  const most = SHEAR_TOLERANCE * pixel;
  if (worst.offset <= most) return undefined;
  const end = beside(last);
  const aside: Vector = [end.off[0] / end.along, end.off[1] / end.along, end.off[2] / end.along];
  const even = positions.every((position) => {
    const { along, off } = beside(position);
    return (
      length([off[0] - along * aside[0], off[1] - along * aside[1], off[2] - along * aside[2]]) <=
      most
    );
  });
  return {
    angle: Math.atan(length(aside)) * DEGREES,
    even,
    aside,
    fault: seriesInvalid(
      "tilt",
      `Expected slices one behind the other along their normal; one lies ${shown(worst.offset)} mm beside it (${shown(worst.angle)} degrees). ` +
        "The gantry was tilted or the stack is sheared: have it resampled to straight slices first.",
      { offset_mm: worst.offset, angle_degrees: worst.angle },
    ),
  };
}

interface Evenness {
  /** The distance of neighbours. */
  spacing: number;
  /** Where each slice lies, in spacings. */
  places: number[];
  missing: number;
  /** The refusal that says that slices are missing. */
  gap: RadserveError | undefined;
  /** Whether the distances are even only because the positions were rounded. */
  rounded: boolean;
}

/**
 * Throws for uneven distances, and for more missing slices than `mostMissing`.
 * @param rounding how far places may be from an even line in all, because they were rounded
 */
function evenSpacing(sorted: readonly number[], mostMissing: number, rounding: number): Evenness {
  const steps = sorted.slice(1).map((place, i) => place - at(sorted, i));
  const usual = at(
    [...steps].sort((a, b) => a - b),
    Math.floor((steps.length - 1) / 2),
  );
  const gaps = steps.flatMap((step, i) =>
    step < GAP * usual
      ? []
      : [
          {
            after_mm: at(sorted, i),
            before_mm: at(sorted, i + 1),
            missing: Math.round(step / usual) - 1,
          },
        ],
  );
  const missing = gaps.reduce((sum, gap) => sum + gap.missing, 0);
  const gap =
    gaps.length === 0
      ? undefined
      : seriesInvalid(
          "gap",
          `Expected slices every ${shown(usual)} mm; ${missing} ${missing === 1 ? "is" : "are"} missing at ${gaps.length === 1 ? "one place" : `${gaps.length} places`}. ` +
            "Send the series again from its source, whole.",
          { spacing_mm: usual, missing, gaps: gaps.slice(0, LISTED) },
        );
  if (gap !== undefined && missing > mostMissing) throw gap;
  const places = [0];
  for (const [i, step] of steps.entries())
    places.push(at(places, i) + (step < GAP * usual ? 1 : Math.round(step / usual)));
  const mean = (at(sorted, sorted.length - 1) - at(sorted, 0)) / at(places, places.length - 1);
  const unlike = steps.map((step, i) =>
    Math.abs(step - (at(places, i + 1) - at(places, i)) * usual),
  );
  const [, astray] = rangeOf(
    sorted.map((place, i) => Math.abs(place - at(sorted, 0) - at(places, i) * mean)),
  );
  const uneven =
    rangeOf(unlike)[1] >
      Math.max(Math.min(ROUNDING_MM, ROUNDING_PART * usual), SPACING_TOLERANCE * usual) ||
    astray > PLACE_TOLERANCE * mean;
  const rounded = uneven && rounding > 0 && isEvenBut(rounding, sorted, places, mean);
  if (uneven && !rounded) {
    const [least, most] = rangeOf(steps);
    throw seriesInvalid(
      "uneven_spacing",
      `Expected slices at even distances, found ${shown(least)} to ${shown(most)} mm. Have them reconstructed at one distance.`,
      { least_mm: least, most_mm: most, astray_mm: astray },
    );
  }
  return { spacing: mean, places, missing, gap, rounded };
}

const at = (values: readonly number[], index: number): number => values[index] ?? NaN;

const shown = (value: number): string => String(Number(value.toPrecision(4)));

function quotedList(values: readonly string[]): string {
  return values.length > LISTED
    ? `${values.slice(0, LISTED).join(", ")} and ${values.length - LISTED} more`
    : values.join(", ");
}
