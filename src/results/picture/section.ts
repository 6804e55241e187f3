/**
 * Planes across the slices of a volume, as readers hang them: coronal and sagittal ones of axial
 * slices, and so on. They run along the axes of the source, so that each of their pixels is one
 * voxel.
 */
import type { PixelFormat, PlanePosition, Volume, VolumeGeometry } from "../../images/image.js";
import { cross, dot, type Vector } from "../../images/vectors.js";
import type { Crossing } from "../findings/volume-outputs.js";
import { isOblique } from "../findings/edges.js";

type Index = "slice" | "row" | "column";

/** One side of a section: the index of voxels that changes along it. */
export interface SectionSide {
  along: Index;
  count: number;
  /** Distance between voxel centres, mm. */
  spacing: number;
  /** The index falls from left to right, or from top to bottom. */
  reversed: boolean;
}

export interface Section {
  /**
   * axial, coronal or sagittal; with "oblique" before it if its normal is turned by more than 20
   * degrees.
   */
  name: string;
  /** From left to right, and from top to bottom. */
  across: SectionSide;
  down: SectionSide;
  /** The row or the column that all its voxels have. */
  fixed: { index: Index; at: number };
  /** Where the section lies, as if it were an image: PS3.3 C.7.6.2.1.1. */
  plane: PlanePosition;
}

/**
 * By the patient's axis that the normal runs along: which way the right and the lower edge of a
 * plane look.
 */
const HANGINGS = [
  { name: "sagittal", order: 2, right: [0, 1, 0], down: [0, 0, -1] },
  { name: "coronal", order: 1, right: [1, 0, 0], down: [0, 0, -1] },
  { name: "axial", order: 0, right: [1, 0, 0], down: [0, 1, 0] },
] as const satisfies { name: string; order: number; right: Vector; down: Vector }[];

/** The sections along a row and along a column, axial before coronal before sagittal. */
export function sectionsAt(
  { geometry, frames }: Volume,
  format: Pick<PixelFormat, "rows" | "columns">,
  { row, column }: Crossing,
): Section[] {
  const counts = { slice: frames.length, row: format.rows, column: format.columns };
  return [
    sectionOf(geometry, counts, { index: "row", at: row }, "column"),
    sectionOf(geometry, counts, { index: "column", at: column }, "row"),
  ]
    .sort((a, b) => a.order - b.order)
    .map(({ section }) => section);
}

function sectionOf(
  geometry: VolumeGeometry,
  counts: Record<Index, number>,
  fixed: Section["fixed"],
  other: Index,
): { section: Section; order: number } {
  const normal = directionOf(geometry, fixed.index);
  const { name, order, right, down } = HANGINGS[longest(normal)];
  const upright = (index: Index) => dot(directionOf(geometry, index), down);
  const [vertical, horizontal] =
    Math.abs(upright("slice")) >= Math.abs(upright(other))
      ? (["slice", other] as const)
      : ([other, "slice"] as const);
  const side = (along: Index, wanted: Readonly<Vector>): SectionSide => ({
    along,
    count: counts[along],
    spacing: spacingOf(geometry, along),
    reversed: dot(directionOf(geometry, along), wanted) < 0,
  });
  const [across, downwards] = [side(horizontal, right), side(vertical, down)];
  const section = {
    name: isOblique(normal) ? `oblique ${name}` : name,
    across,
    down: downwards,
    fixed,
    plane: planeOf(geometry, fixed, [across, downwards]),
  };
  return { section, order };
}

function planeOf(
  geometry: VolumeGeometry,
  fixed: Section["fixed"],
  [across, down]: readonly [SectionSide, SectionSide],
): PlanePosition {
  const moved = [
    { along: fixed.index, steps: fixed.at },
    ...[across, down].map(({ along, count, reversed }) => ({
      along,
      steps: reversed ? count - 1 : 0,
    })),
  ];
  const at = (axis: 0 | 1 | 2) =>
    moved.reduce(
      (sum, { along, steps }) =>
        sum + steps * spacingOf(geometry, along) * directionOf(geometry, along)[axis],
      geometry.origin[axis],
    );
  return {
    position: [at(0), at(1), at(2)],
    orientation: [...seen(geometry, across), ...seen(geometry, down)],
  };
}

/** The direction in which a side is seen. */
function seen(geometry: VolumeGeometry, { along, reversed }: SectionSide): Vector {
  const [x, y, z] = directionOf(geometry, along);
  // Adding 0 makes -0, which no text tells from 0, into 0
  return reversed ? [-x + 0, -y + 0, -z + 0] : [x, y, z];
}

const directionOf = (geometry: VolumeGeometry, index: Index): Vector =>
  geometry[`${index}Direction`];

const spacingOf = (geometry: VolumeGeometry, index: Index): number => geometry[`${index}Spacing`];

/** The axis of the patient that a direction runs along most; the first of equals. */
function longest(direction: Readonly<Vector>): 0 | 1 | 2 {
  const [x, y, z] = direction.map(Math.abs) as Vector;
  return x >= y && x >= z ? 0 : y >= z ? 1 : 2;
}

/**
 * For the check of a section: which voxel lies under a pixel of it, by the patient's coordinates
 * alone. The three directions of a volume may be off right angles by what rounding of direction
 * cosines does.
 * @returns slice, row and column, from 0, for a pixel's column and row in the section
 */
export function voxelUnder(
  { origin, sliceDirection, rowDirection, columnDirection, ...spacings }: VolumeGeometry,
  { plane: { position, orientation }, across, down }: Section,
): (x: number, y: number) => Vector {
  const [a, b, c, d, e, f] = orientation;
  const volume = dot(sliceDirection, cross(rowDirection, columnDirection));
  const stepsOf = (normal: Readonly<Vector>, spacing: number) => {
    const per = (v: Readonly<Vector>) => dot(v, normal) / (volume * spacing);
    const [x, y, z] = position;
    return {
      first: per([x - origin[0], y - origin[1], z - origin[2]]),
      right: per([a, b, c]) * across.spacing,
      down: per([d, e, f]) * down.spacing,
    };
  };
  const slice = stepsOf(cross(rowDirection, columnDirection), spacings.sliceSpacing);
  const row = stepsOf(cross(columnDirection, sliceDirection), spacings.rowSpacing);
  const column = stepsOf(cross(sliceDirection, rowDirection), spacings.columnSpacing);
  const at = (steps: typeof slice, x: number, y: number) =>
    Math.round(steps.first + x * steps.right + y * steps.down);
  return (x, y) => [at(slice, x, y), at(row, x, y), at(column, x, y)];
}
