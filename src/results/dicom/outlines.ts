/**
 * Where findings lie, as coordinates of the report: in the pixels of a frame (PS3.3 C.18.6), or in
 * the patient (C.18.9).
 */
import type { VolumeGeometry } from "../../images/image.js";
import type { Vector } from "../../images/vectors.js";
import { inPatient } from "../kinds/boxes.js";
import type { SourcePoint } from "../kinds/kind.js";
import type { Finding } from "../receipt/receipt.js";

/** Rows and columns of a frame. */
interface FrameSize {
  rows: number;
  columns: number;
}

/** Corners of a box, or a point alone; undefined for findings that are neither. */
export function outlineOf(
  { box, corners, point }: Pick<Finding, "box" | "corners" | "point">,
  size: FrameSize,
): SourcePoint[] | undefined {
  if (point !== undefined) return [point];
  if (box === undefined) return undefined;
  const { x0, y0, x1, y1 } = box;
  const outline =
    corners === undefined
      ? [
          { x: x0, y: y0 },
          { x: x1, y: y0 },
          { x: x1, y: y1 },
          { x: x0, y: y1 },
        ]
      : withinFrame(corners, size);
  return [...outline, ...outline.slice(0, 1)];
}

/**
 * The part of a convex outline, or of a line, within the frame: coordinates end there (PS3.3
 * C.18.6.1.2).
 */
export function withinFrame(
  points: readonly SourcePoint[],
  { rows, columns }: FrameSize,
): SourcePoint[] {
  const inside = [
    ({ x }: SourcePoint) => x,
    ({ y }: SourcePoint) => y,
    ({ x }: SourcePoint) => columns - x,
    ({ y }: SourcePoint) => rows - y,
  ];
  return inside.reduce<SourcePoint[]>(
    (left, from) =>
      left.flatMap((a, i) => {
        const b = left[(i + 1) % left.length] ?? a;
        const [at, next] = [from(a), from(b)];
        const kept = at >= 0 ? [a] : [];
        if (at >= 0 === next >= 0) return kept;
        const part = at / (at - next);
        return [...kept, { x: a.x + part * (b.x - a.x), y: a.y + part * (b.y - a.y) }];
      }),
    [...points],
  );
}

/** Corners of the six faces of a box from 0 to 1, each in turn. */
const FACES = [0, 1, 2].flatMap((axis) =>
  [0, 1].map((end) =>
    [
      [0, 0],
      [1, 0],
      [1, 1],
      [0, 1],
    ].map((corner) => corner.toSpliced(axis, 0, end)),
  ),
);

/** The six faces of a box in a volume, in the patient's millimetres. */
export function facesOf(box: Finding["box"], geometry: VolumeGeometry): Vector[][] {
  if (box?.z0 === undefined || box.z1 === undefined)
    throw new Error("A box in a volume has slices");
  const [low, high] = [
    [box.x0, box.y0, box.z0],
    [box.x1, box.y1, box.z1],
  ];
  return FACES.map((face) =>
    face.map((corner) => {
      const [x = 0, y = 0, z = 0] = corner.map((end, axis) => (end === 0 ? low : high)[axis] ?? 0);
      return inPatient(geometry, x, y, z);
    }),
  );
}
