/** Where frames lie in the patient (PS3.3 C.7.6.2, C.7.6.16.2.3, C.8.4.11, C.8.4.15, C.8.8.3.2). */
import { errors } from "../../base/errors.js";
import { warn, type PlaneFault, type PlanePosition, type Warning } from "../image.js";
import { cross, dot, length, unit, type Vector } from "../vectors.js";
import type { DataSetAttributes } from "./attributes.js";
import { holderOf, perFrame } from "./functional-groups.js";
import { mosaicReader } from "./mosaic.js";
import { isQuadruped } from "./species.js";

/**
 * A frame's plane, or why it has none although it says something of it. A frame that says nothing
 * has neither.
 */
export interface Placed {
  plane?: PlanePosition | undefined;
  fault?: PlaneFault | undefined;
}

type Orientation = PlanePosition["orientation"];

const NOWHERE = "where the frame lies in the patient is not known";

/**
 * The plane of each frame (from 0).
 * Throws corrupt_image if the planes of a dose grid cannot be told.
 */
export function planeReader(
  attributes: DataSetAttributes,
  frames: number,
  warnings: Warning[],
): (frame: number) => Placed {
  const mosaic = mosaicReader(attributes);
  const hasItems = attributes.has("PerFrameFunctionalGroupsSequence");
  const stated = perFrame(attributes, (frame) => {
    const [position, orientation] = [
      holderOf(attributes, frame, "PlanePositionSequence", ["ImagePositionPatient"], warnings),
      holderOf(
        attributes,
        frame,
        "PlaneOrientationSequence",
        ["ImageOrientationPatient"],
        warnings,
      ),
    ];
    // One position at the top is none of many frames, of which each has an item of its own
    const isOfAll = position === attributes && frames > 1 && hasItems;
    return isOfAll ? {} : placedBy(position, orientation);
  });
  const planes =
    reconstructedSlices(attributes, frames, warnings) ??
    dosePlanes(attributes, frames, stated(0).plane);
  return (frame) => {
    const fault = mosaic(frame);
    if (fault !== undefined) return { fault };
    return planes === undefined ? stated(frame) : (planes[frame] ?? {});
  };
}

function placedBy(position: DataSetAttributes, orientation: DataSetAttributes): Placed {
  const place = position.numbers("ImagePositionPatient");
  const found = orientation.numbers("ImageOrientationPatient");
  const directions = directionsOf(orientation);
  if (directions === undefined) return found === undefined || found.length === 0 ? {} : lost(found);
  return place?.length === 3
    ? { plane: { position: place as PlanePosition["position"], orientation: directions } }
    : {};
}

/**
 * Cosines of three digits still make unit vectors at right angles by this much; coarser ones are no
 * directions.
 */
const UNIT_TOLERANCE = 1e-3;

/**
 * ImageOrientationPatient, if it is two unit vectors at right angles as far as rounding lets it be.
 */
export function directionsOf(attributes: DataSetAttributes | undefined): Orientation | undefined {
  const found = attributes?.numbers("ImageOrientationPatient");
  const [a, b, c, d, e, f] = found ?? [];
  if (found?.length !== 6 || a === undefined || b === undefined || c === undefined)
    return undefined;
  if (d === undefined || e === undefined || f === undefined) return undefined;
  const [along, down]: [Vector, Vector] = [
    [a, b, c],
    [d, e, f],
  ];
  const worst = Math.max(
    Math.abs(length(along) - 1),
    Math.abs(length(down) - 1),
    Math.abs(dot(along, down)),
  );
  return worst <= UNIT_TOLERANCE ? [a, b, c, d, e, f] : undefined;
}

/** Axis of the patient (x, y, z) and direction along it that the first letter of a side names. */
const SIDES: ReadonlyMap<string, readonly [axis: 0 | 1 | 2, sign: 1 | -1]> = new Map([
  ["L", [0, 1]],
  ["R", [0, -1]],
  ["P", [1, 1]],
  ["A", [1, -1]],
  ["H", [2, 1]],
  ["F", [2, -1]],
]);

/**
 * Whether PatientOrientation (PS3.3 C.7.6.1.1.1) names directions that a plane has, and that lie
 * across each other.
 */
export function checkSides(
  attributes: DataSetAttributes,
  plane: PlanePosition | undefined,
  warnings: Warning[],
): void {
  if (isQuadruped(attributes)) {
    warn(
      warnings,
      "quadruped",
      "The patient is an animal (AnatomicalOrientationType or PatientSpeciesDescription): its sides are not a human's, so that none is drawn, and findings get none from the image.",
    );
    return;
  }
  const stated = (attributes.strings("PatientOrientation") ?? []).map((side) =>
    /^[LRPAHF]{1,3}$/.test(side) ? SIDES.get(side.charAt(0)) : undefined,
  );
  const [along, down] = stated;
  if (along === undefined || down === undefined) return;
  const turned = stated.some(
    (side, i) =>
      side !== undefined && (plane?.orientation[3 * i + side[0]] ?? side[1]) * side[1] <= 0,
  );
  if (along[0] !== down[0] && !turned) return;
  warn(
    warnings,
    "orientation_mismatch",
    along[0] === down[0]
      ? "PatientOrientation names one axis of the patient for rows and for columns; no side was taken from it."
      : "PatientOrientation contradicts ImageOrientationPatient, which was believed. Check the sides of the image.",
  );
}

function lost(found: readonly number[]): Placed {
  return {
    fault: {
      reason: "invalid_orientation",
      message:
        `Expected ImageOrientationPatient as two unit vectors at right angles, found ${found.slice(0, 6).join("\\")}; ` +
        `${NOWHERE}. Correct the attribute at the source.`,
    },
  };
}

const imageTypes = (attributes: DataSetAttributes): string[] =>
  (attributes.strings("ImageType") ?? []).map((value) => value.toUpperCase());

/** Parallel planes that lie so many mm from the first along its normal. */
function stacked(
  { position: [x, y, z], orientation }: PlanePosition,
  offsets: readonly number[],
): Placed[] {
  const [a, b, c, d, e, f] = orientation;
  const normal = unit(cross([a, b, c], [d, e, f]));
  return offsets.map((offset) => ({
    plane: {
      position: [x + offset * normal[0], y + offset * normal[1], z + offset * normal[2]],
      orientation,
    },
  }));
}

/** Third values of Image Type in nuclear medicine (PS3.3 C.8.4.9.1.1). */
const NUCLEAR_KINDS = new Set([
  "STATIC",
  "DYNAMIC",
  "GATED",
  "WHOLE BODY",
  "TOMO",
  "GATED TOMO",
  "RECON TOMO",
  "RECON GATED TOMO",
]);

/** Of them those that hold slices; the others are projections. */
const RECONSTRUCTIONS = ["RECON TOMO", "RECON GATED TOMO"];
/** FrameIncrementPointer (PS3.3 C.7.6.6.1.1) to SliceVector. */
const SLICE_VECTOR = 0x00540080;
/** The same to the rotations and the angles of projections. */
const OF_PROJECTIONS = [0x00540050, 0x00540090];

/**
 * The slices of a reconstruction in nuclear medicine, and of whatever else numbers its slices in
 * SliceVector: derived images often lose the type. The first lies where the detector's item says
 * (PS3.3 C.8.4.11), or the image if no item does. The others follow along its normal, or against it
 * where SpacingBetweenSlices is negative (C.8.4.15), by their numbers in SliceVector (C.8.4.8).
 * Projections lie nowhere. Undefined for other images.
 */
function reconstructedSlices(
  attributes: DataSetAttributes,
  frames: number,
  warnings: Warning[],
): Placed[] | undefined {
  const kinds = imageTypes(attributes);
  const pointers = attributes.numbers("FrameIncrementPointer") ?? [];
  const isReconstruction = RECONSTRUCTIONS.some((kind) => kinds.includes(kind));
  const isNumbered = attributes.has("SliceVector") || pointers.includes(SLICE_VECTOR);
  const isNuclear = attributes.string("Modality") === "NM";
  const isProjected =
    pointers.some((pointer) => OF_PROJECTIONS.includes(pointer)) ||
    (!isReconstruction && NUCLEAR_KINDS.has(kinds[2] ?? ""));
  // A position at the top is not theirs: they lie nowhere in the patient
  if (isProjected && frames > 1 && (isNuclear || isNumbered))
    return Array.from({ length: frames }, () => ({}));
  const detectors = attributes.sequence("DetectorInformationSequence") ?? [];
  const stating = detectors.filter((detector) => detector.has("ImagePositionPatient"));
  if (!isReconstruction && !(isNumbered && frames > 1)) {
    if (isNuclear && stating.length > 0 && kinds.length > 0 && !NUCLEAR_KINDS.has(kinds[2] ?? ""))
      warn(
        warnings,
        "image_type_unknown",
        "ImageType names no kind of image of nuclear medicine (PS3.3 C.8.4.9.1.1): if it is a reconstruction, its slices " +
          "were not placed by DetectorInformationSequence.",
      );
    return undefined;
  }
  const [first = {}, ...others] = (stating.length > 0 ? stating : [attributes]).map((each) =>
    placedBy(each, each),
  );
  if (first.plane === undefined && first.fault === undefined) return undefined;
  const spacing = attributes.number("SpacingBetweenSlices") ?? 0;
  const numbers = attributes.numbers("SliceVector") ?? [];
  const agree = others.every((other) => JSON.stringify(other) === JSON.stringify(first));
  if (agree && first.plane !== undefined && frames === 1) return [first];
  // Frames of one slice are told apart by another attribute that the pointer names
  const isDoubled = pointers.length === 1 && new Set(numbers).size < numbers.length;
  // Slices count from 1 (C.8.4.8): by numbers from 0 all would lie one slice beside their place
  const areNumbers = numbers.length === frames && numbers.every((slice) => slice >= 1);
  const isTold = areNumbers && spacing !== 0 && !isDoubled;
  if (agree && first.plane !== undefined && isTold)
    return stacked(
      first.plane,
      numbers.map((slice) => (slice - 1) * spacing),
    );
  const fault = first.fault ?? {
    reason: "missing_geometry",
    message:
      "Expected one position and orientation (of DetectorInformationSequence, if it has them), SpacingBetweenSlices, and a " +
      `SliceVector of ${frames} values from 1 on, by which slices of nuclear medicine lie; one of them is absent or differs; ${NOWHERE}. ` +
      "Correct the object at the source.",
  };
  return Array.from({ length: frames }, () => ({ fault }));
}

/** Positions are decimal text that is rounded on its own in each attribute. */
const SAME_PLACE_MM = 0.01;
const SAME_DIRECTION = 1e-4;
const TRANSVERSE = [1, 0, 0, 0, 1, 0];

/**
 * The planes of a dose grid with several frames (PS3.3 C.8.8.3.2). GridFrameOffsetVector begins
 * with 0 and says how far each frame lies from the first along the cross product of row and column
 * direction; or it begins with the z of ImagePositionPatient, the frames are transverse
 * (1\0\0\0\1\0), and it holds the z of each frame. Undefined if there is none, or no plane to begin
 * at. Throws corrupt_image if it is neither of the two, or has not one value for each frame.
 */
function dosePlanes(
  attributes: DataSetAttributes,
  frames: number,
  plane: PlanePosition | undefined,
): Placed[] | undefined {
  const offsets = attributes.numbers("GridFrameOffsetVector");
  if (frames === 1 || offsets === undefined || plane === undefined) return undefined;
  if (offsets.length !== frames)
    throw errors.corrupt_image(
      `Expected GridFrameOffsetVector to have one value for each of the ${frames} frames, found ${offsets.length}. Correct the object at the source.`,
      { frames, offsets: offsets.length },
    );
  const { position, orientation } = plane;
  const [first = NaN] = offsets;
  const [x, y, z] = position;
  if (first === 0) return stacked(plane, offsets);
  const isTransverse = orientation.every(
    (cosine, i) => Math.abs(cosine - (TRANSVERSE[i] ?? NaN)) <= SAME_DIRECTION,
  );
  if (isTransverse && Math.abs(first - z) <= SAME_PLACE_MM)
    return offsets.map((offset) => ({ plane: { position: [x, y, offset], orientation } }));
  throw errors.corrupt_image(
    `Expected GridFrameOffsetVector to begin with 0, or in transverse frames with the z of ImagePositionPatient, ${z}; found ${first}. Correct the object at the source.`,
    { first, z, transverse: isTransverse },
  );
}
