/** Vectors in the patient's coordinates, in mm (PS3.3 C.7.6.2). */
import type { PlanePosition } from "./image.js";

export type Vector = [number, number, number];

export function dot(a: Readonly<Vector>, b: Readonly<Vector>): number {
  return a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
}

export const length = (v: Readonly<Vector>): number => Math.sqrt(dot(v, v));

/** Adding 0 makes -0, which no text tells from 0, into 0. */
export function cross(a: Readonly<Vector>, b: Readonly<Vector>): Vector {
  return [
    a[1] * b[2] - a[2] * b[1] + 0,
    a[2] * b[0] - a[0] * b[2] + 0,
    a[0] * b[1] - a[1] * b[0] + 0,
  ];
}

export function unit(v: Readonly<Vector>): Vector {
  const size = length(v);
  return [v[0] / size + 0, v[1] / size + 0, v[2] / size + 0];
}

/**
 * Where a plane lies along its own normal: the projection of ImagePositionPatient on it (PS3.3
 * C.7.6.2.1.1).
 */
export function alongNormal({ position, orientation: [a, b, c, d, e, f] }: PlanePosition): number {
  return dot(position, cross([a, b, c], [d, e, f]));
}
