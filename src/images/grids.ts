/** How the voxels of two volumes of one frame of reference lie to each other. */
import type { VolumeGeometry } from "./image.js";
import { dot, type Vector } from "./vectors.js";

/** A volume without its pixels. */
export interface VolumeGrid {
  geometry: VolumeGeometry;
  slices: number;
  rows: number;
  columns: number;
}

/**
 * Positions are decimal text that scanners round; less than this is no distance, unless it is more
 * than this part of a voxel.
 */
const ROUNDING_MM = 0.01;
const ROUNDING_PART = 0.1;
/** Places along each axis at which it is asked whether another volume reaches there. */
const PROBES = 24;

/** Where a voxel lies in the patient, in mm. */
function placeOf({ geometry }: VolumeGrid, [slice, row, column]: Vector): Vector {
  const { origin, sliceDirection, rowDirection, columnDirection } = geometry;
  const { sliceSpacing, rowSpacing, columnSpacing } = geometry;
  const along = (axis: 0 | 1 | 2) =>
    origin[axis] +
    slice * sliceSpacing * sliceDirection[axis] +
    row * rowSpacing * rowDirection[axis] +
    column * columnSpacing * columnDirection[axis];
  return [along(0), along(1), along(2)];
}

/** Whether a place lies in a volume, which reaches half a voxel beyond its outermost centres. */
function holds({ geometry, slices, rows, columns }: VolumeGrid, place: Vector): boolean {
  const { origin, sliceDirection, rowDirection, columnDirection } = geometry;
  const from: Vector = [place[0] - origin[0], place[1] - origin[1], place[2] - origin[2]];
  const within = (direction: Vector, spacing: number, side: number) => {
    const index = dot(from, direction) / spacing;
    return index >= -0.5 && index <= side - 0.5;
  };
  return (
    within(sliceDirection, geometry.sliceSpacing, slices) &&
    within(rowDirection, geometry.rowSpacing, rows) &&
    within(columnDirection, geometry.columnSpacing, columns)
  );
}

/** Whether voxels of the same index lie at the same place, to the rounding of positions. */
export function sameGrid(a: VolumeGrid, b: VolumeGrid): boolean {
  if (a.slices !== b.slices || a.rows !== b.rows || a.columns !== b.columns) return false;
  const { sliceSpacing, rowSpacing, columnSpacing } = a.geometry;
  const most = Math.min(
    ROUNDING_MM,
    ROUNDING_PART * Math.min(sliceSpacing, rowSpacing, columnSpacing),
  );
  const ends = (side: number) => [0, side - 1];
  return ends(a.slices).every((slice) =>
    ends(a.rows).every((row) =>
      ends(a.columns).every((column) => {
        const [first, second] = [
          placeOf(a, [slice, row, column]),
          placeOf(b, [slice, row, column]),
        ];
        return first.every((at, axis) => Math.abs(at - (second[axis] ?? NaN)) <= most);
      }),
    ),
  );
}

/** Which part of a grid another volume covers, 0 to 1, by places that are spread evenly over it. */
export function coverage(grid: VolumeGrid, other: VolumeGrid): number {
  const probes = (side: number) => {
    const count = Math.min(side, PROBES);
    return Array.from({ length: count }, (_, i) => ((i + 0.5) * side) / count - 0.5);
  };
  let [inside, all] = [0, 0];
  for (const slice of probes(grid.slices))
    for (const row of probes(grid.rows))
      for (const column of probes(grid.columns)) {
        all += 1;
        if (holds(other, placeOf(grid, [slice, row, column]))) inside += 1;
      }
  return inside / all;
}
