/** Where the patient's left, front and head are on an image. */
import { isQuadruped } from "../../images/dicom/species.js";
import type { Attributes, PlanePosition } from "../../images/image.js";

/**
 * Which part of the patient lies towards each edge of the image: L, R, A, P, H, F, or two of them.
 */
export interface EdgeLabels {
  left: string;
  right: string;
  top: string;
  bottom: string;
}

const OPPOSITE: Record<string, string> = { L: "R", R: "L", A: "P", P: "A", H: "F", F: "H" };
/**
 * Cosine of 70 degrees: a second letter is shown if the image is turned by more than 20 degrees.
 */
const OBLIQUE = 0.342;

/**
 * Letters for the image's edges, from its plane (PS3.3 C.7.6.2.1.1) or else Patient Orientation
 * (PS3.3 C.7.6.1.1.1: direction of the rows, then of the columns). Undefined if neither says it, or
 * if it is not a biped's.
 */
export function edgesOf(
  plane: PlanePosition | undefined,
  patientOrientation?: readonly string[],
): EdgeLabels | undefined {
  let [right, bottom] = [patientOrientation?.[0], patientOrientation?.[1]];
  if (plane !== undefined) {
    const [a, b, c, d, e, f] = plane.orientation;
    [right, bottom] = [letters([a, b, c]), letters([d, e, f])];
  }
  const [left, top] = [opposite(right), opposite(bottom)];
  if (right === undefined || bottom === undefined || left === undefined || top === undefined)
    return undefined;
  // Rows and columns of one axis are a mistake
  if (right.charAt(0) === bottom.charAt(0) || right.charAt(0) === top.charAt(0)) return undefined;
  return { left, right, top, bottom };
}

/** The same of an image's plane; undefined of a quadruped, whose sides have other names. */
export function sidesOf(
  plane: PlanePosition | undefined,
  attributes: Attributes | undefined,
): EdgeLabels | undefined {
  if (attributes !== undefined && isQuadruped(attributes)) return undefined;
  return edgesOf(plane, attributes?.strings("PatientOrientation"));
}

/** Whether a direction is turned away from the patient's nearest axis by more than 20 degrees. */
export function isOblique(direction: readonly [number, number, number]): boolean {
  return direction.filter((value) => Math.abs(value) > OBLIQUE).length > 1;
}

/** Patient coordinates grow to the left, the back (posterior) and the head. */
function letters(direction: readonly [number, number, number]): string {
  const names = [
    ["L", "R"],
    ["P", "A"],
    ["H", "F"],
  ] as const;
  return direction
    .map((value, axis) => ({ size: Math.abs(value), name: names[axis]?.[value > 0 ? 0 : 1] ?? "" }))
    .filter(({ size }) => size > OBLIQUE)
    .sort((a, b) => b.size - a.size)
    .slice(0, 2)
    .map(({ name }) => name)
    .join("");
}

function opposite(side: string | undefined): string | undefined {
  if (side === undefined || side === "") return undefined;
  const turned = Array.from(side, (letter) => OPPOSITE[letter]);
  return turned.includes(undefined) ? undefined : turned.join("");
}
