/** Volumes for tests of the engine. */
import type { Plane } from "../../src/engine/types.js";
import type { VolumeGeometry } from "../../src/images/image.js";
import { plane } from "./tiny-models.js";

type Vector = [number, number, number];

/** Directions of the patient's sides in DICOM's coordinates (PS3.3 C.7.6.2.1.1). */
const SIDES: Record<string, Vector> = {
  L: [1, 0, 0],
  R: [-1, 0, 0],
  P: [0, 1, 0],
  A: [0, -1, 0],
  S: [0, 0, 1],
  I: [0, 0, -1],
};

/** Slices, rows and columns that grow to the sides that three letters name, in that order. */
export function geometryOf(letters: string, spacing: Vector = [1, 1, 1]): VolumeGeometry {
  const direction = (i: number): Vector => SIDES[letters[i] ?? ""] ?? [0, 0, 0];
  return {
    origin: [-12.5, 30, 7],
    sliceDirection: direction(0),
    rowDirection: direction(1),
    columnDirection: direction(2),
    sliceSpacing: spacing[0],
    rowSpacing: spacing[1],
    columnSpacing: spacing[2],
  };
}

/**
 * Voxels in slices x rows x columns order as planes of unsigned 16-bit samples, rescaled by
 * `slope`.
 */
export function slicesOf(voxels: Uint16Array, [slices, rows, columns]: Vector, slope = 1): Plane[] {
  return Array.from({ length: slices }, (_, k) => {
    const made = plane(rows, columns);
    made.format.signed = false;
    const bytes = new Uint8Array(voxels.buffer, voxels.byteOffset, voxels.byteLength);
    made.data = bytes.subarray(k * rows * columns * 2, (k + 1) * rows * columns * 2);
    made.interpretation.modality = { kind: "rescale", slope, intercept: 0 };
    return made;
  });
}

/** The values of a cube that was scanned `from` letters, in the order of a scan `to` letters. */
export function turn<T extends Uint8Array | Uint16Array>(
  values: T,
  side: number,
  from: string,
  to: string,
): T {
  const out = values.slice() as T;
  const stride = [side * side, side, 1];
  const axis = (letter: string) => ["LR", "PA", "SI"].findIndex((pair) => pair.includes(letter));
  const steps = Array.from(to, (letter) => {
    const at = Array.from(from).findIndex((other) => axis(other) === axis(letter));
    const along = stride[at] ?? 0;
    return from[at] === letter ? { first: 0, along } : { first: (side - 1) * along, along: -along };
  });
  const first = steps.reduce((sum, s) => sum + s.first, 0);
  const [a = 0, b = 0, d = 0] = steps.map((s) => s.along);
  let i = 0;
  for (let k = 0; k < side; k++)
    for (let r = 0; r < side; r++)
      for (let c = 0; c < side; c++) out[i++] = values[first + k * a + r * b + c * d] ?? 0;
  return out;
}
