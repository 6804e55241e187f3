/** Stacks whose positions an archive rounded: which of their differences rounding explains. */
import { rangeOf } from "../../base/range.js";
import { dot, type Vector } from "../vectors.js";

/** Positions are rounded to this length; then no place is known better. */
export const COARSE_MM = 0.1;
/** The error of calculation with decimal numbers. */
const EXACT_MM = 1e-4;

/**
 * How far positions that were rounded may be from each other without a difference: along the
 * normal, and beside it by axis.
 */
export interface Rounding {
  along: number;
  beside: Vector;
}

/**
 * Undefined where positions are not steps of COARSE_MM from each other, or where that is so much of
 * the distance of two slices that one might be missing.
 */
export function roundingOf(
  positions: readonly Vector[],
  normal: Vector,
  sorted: readonly number[],
): Rounding | undefined {
  // An origin that is no multiple was added after the rounding
  const [origin] = positions;
  const isCoarse = (mm: number, axis: number) => {
    const steps = (mm - (origin?.[axis] ?? NaN)) / COARSE_MM;
    return Math.abs(steps - Math.round(steps)) * COARSE_MM < EXACT_MM;
  };
  const mean = ((sorted.at(-1) ?? NaN) - (sorted[0] ?? NaN)) / (sorted.length - 1);
  if (mean < COARSE_MM * 4 || !positions.every((position) => position.every(isCoarse)))
    return undefined;
  const all = Math.abs(normal[0]) + Math.abs(normal[1]) + Math.abs(normal[2]);
  const beside = normal.map((n) => COARSE_MM * (1 - n * n + Math.abs(n) * (all - Math.abs(n))));
  return { along: COARSE_MM * all, beside: beside as Vector };
}

/** Whether slices lie beside their normal by no more than rounding does. */
export function isBesideBy(
  { beside }: Rounding,
  positions: readonly Vector[],
  normal: Vector,
): boolean {
  return beside.every((width, axis) => {
    const off = positions.map(
      (position) => (position[axis] ?? NaN) - dot(position, normal) * (normal[axis] ?? NaN),
    );
    const [least, most] = rangeOf(off);
    return most - least <= width + EXACT_MM;
  });
}

/**
 * Whether places are those of an even line but for the rounding: whether some distance leaves a
 * width of no more than that when it is taken from them. The width is convex in the distance, so
 * that thirds find its least.
 * @param places which of the even slices each is
 * @param mean their distance by the first and the last
 */
export function isEvenBut(
  rounding: number,
  sorted: readonly number[],
  places: readonly number[],
  mean: number,
): boolean {
  const width = (distance: number) => {
    const [least, most] = rangeOf(sorted.map((place, i) => place - distance * (places[i] ?? NaN)));
    return most - least;
  };
  const reach = rounding / (places.at(-1) ?? NaN);
  let [low, high] = [mean - reach, mean + reach];
  for (let i = 0; i < 40; i++) {
    const [a, b] = [low + (high - low) / 3, high - (high - low) / 3];
    if (width(a) <= width(b)) high = b;
    else low = a;
  }
  return width((low + high) / 2) <= rounding + EXACT_MM;
}
