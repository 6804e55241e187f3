/**
 * Which region of an ultrasound image a label lies in, and so which scale its area has (PS3.3
 * C.8.5.5).
 */
import type { UltrasoundRegion } from "../../images/image.js";
import type { OutputOfKind, SourcePoint } from "./kind.js";

type RegionScale = NonNullable<UltrasoundRegion["scale"]>;

/** In the map: no region, or one without a scale; regions of one priority and different scales. */
const NOWHERE = 0;
const DISPUTED = 1;
const FIRST = 2;

/**
 * For each label the scale that all of its pixels have; `outside` if some lie beyond the regions
 * that have a scale, else `several` if they have different ones, or lie where regions of one
 * priority and different scales overlap. A label without pixels has the first scale.
 */
export function scalesOfLabels(
  { mask, rows, columns, overlapping, counts }: OutputOfKind<"segmentation">,
  regions: readonly UltrasoundRegion[],
): (RegionScale | "outside" | "several")[] {
  const scales = distinctScales(regions);
  const map = scaleMap(regions, scales, rows, columns);
  const labels = counts.map(() => ({ outside: false, several: false, found: NOWHERE }));
  for (let i = 0; i < mask.length; i++) {
    const value = mask[i] ?? 0;
    const label =
      value === 0 ? undefined : labels[overlapping ? Math.floor(i / map.length) : value - 1];
    if (label === undefined) continue;
    const place = map[i % map.length] ?? NOWHERE;
    if (place === NOWHERE) label.outside = true;
    else if (place === DISPUTED || (label.found !== NOWHERE && label.found !== place))
      label.several = true;
    else label.found = place;
  }
  return labels.map(({ outside, several, found }) => {
    const scale = scales[Math.max(found, FIRST) - FIRST];
    return outside || scale === undefined ? "outside" : several ? "several" : scale;
  });
}

/**
 * The one scale of all points, each by the regions of the highest priority that it lies in;
 * undefined if there is none.
 */
export function scaleOfPoints(
  points: readonly SourcePoint[],
  regions: readonly UltrasoundRegion[],
): RegionScale | undefined {
  const scales = points.map(({ x, y }) => {
    const around = regions.filter(
      ({ x0, y0, x1, y1 }) => x >= x0 && x <= x1 + 1 && y >= y0 && y <= y1 + 1,
    );
    const high = around.filter(({ highPriority }) => highPriority);
    const counting = high.length > 0 ? high : around;
    const found = distinctScales(counting);
    return found.length === 1 && counting.every(({ scale }) => scale !== undefined)
      ? found[0]
      : undefined;
  });
  const [first] = scales;
  const isOne = scales.every(
    (scale) => scale?.row === first?.row && scale?.column === first?.column,
  );
  return isOne ? first : undefined;
}

function distinctScales(regions: readonly UltrasoundRegion[]): RegionScale[] {
  const found = regions.flatMap(({ scale }) => scale ?? []);
  return [...new Map(found.map((scale) => [`${scale.row} ${scale.column}`, scale])).values()];
}

/**
 * For each pixel the number of its scale. A region of high priority covers those of low priority
 * (C.8.5.5.1.3).
 */
function scaleMap(
  regions: readonly UltrasoundRegion[],
  scales: readonly RegionScale[],
  rows: number,
  columns: number,
): Uint32Array {
  const map = new Uint32Array(rows * columns);
  const unscaled = FIRST + scales.length;
  for (const highPriority of [false, true]) {
    const painted = new Uint32Array(map.length);
    for (const region of regions) {
      if (region.highPriority !== highPriority) continue;
      const index = scales.findIndex(
        ({ row, column }) => row === region.scale?.row && column === region.scale.column,
      );
      const number = index < 0 ? unscaled : FIRST + index;
      eachPixel(region, rows, columns, (at) => {
        painted[at] = painted[at] === NOWHERE || painted[at] === number ? number : DISPUTED;
      });
    }
    painted.forEach((number, at) => {
      if (number !== NOWHERE) map[at] = number === unscaled ? NOWHERE : number;
    });
  }
  return map;
}

function eachPixel(
  { x0, y0, x1, y1 }: UltrasoundRegion,
  rows: number,
  columns: number,
  visit: (at: number) => void,
): void {
  for (let y = Math.max(0, y0); y <= Math.min(rows - 1, y1); y++)
    for (let x = Math.max(0, x0); x <= Math.min(columns - 1, x1); x++) visit(y * columns + x);
}
