/**
 * The area of a surface by marching cubes (Lorensen and Cline 1987), as IBSI defines it (C0JK):
 * halfway between the centres of voxels within and voxels outside, so that the eight corners of a
 * cell decide all that lies within it. On a face whose inner corners lie across, the surface parts
 * them: it is closed everywhere.
 */

type Triple = readonly [number, number, number];

/**
 * In mm2.
 * @param cells how many there are of each pattern of corners, as SegmentCounts has them
 * @param step mm between the centres of columns, rows and slices
 */
export const surfaceArea = (cells: Float64Array, step: Triple): number =>
  cells.reduce(
    (sum, count, pattern) => (count === 0 ? sum : sum + count * areaIn(pattern, step)),
    0,
  );

/**
 * The corners of each face in turn; bit 0 of a corner is along columns, bit 1 along rows, bit 2
 * along slices.
 */
const FACES = [1, 2, 4].flatMap((axis) => {
  const [u = 0, v = 0] = [1, 2, 4].filter((other) => other !== axis);
  return [0, axis].map((side) => [side, side | u, side | u | v, side | v]);
});

/** The two corners of an edge, the lower one first, as one number. */
const edge = (a: number, b: number): number => Math.min(a, b) * 8 + Math.max(a, b);

function areaIn(pattern: number, step: Triple): number {
  const inside = (corner: number) => ((pattern >> corner) & 1) === 1;
  const ways = new Map<number, number[]>();
  const link = (from: number, to: number) => ways.set(from, [...(ways.get(from) ?? []), to]);
  for (const face of FACES)
    for (let i = 0; i < 4; i++) {
      const at = (k: number) => face[(i + k) % 4] ?? 0;
      if (inside(at(0)) || !inside(at(1))) continue;
      // Corners are within from the next one on; the line leads from the edge before them to the
      // edge behind them
      let end = 1;
      while (inside(at(end + 1))) end++;
      const [from, to] = [edge(at(0), at(1)), edge(at(end), at(end + 1))];
      link(from, to);
      link(to, from);
    }
  let area = 0;
  while (ways.size > 0) {
    const loop: number[] = [];
    let next = ways.keys().next().value;
    while (next !== undefined) {
      loop.push(next);
      const onward: number[] = ways.get(next) ?? [];
      ways.delete(next);
      next = onward.find((one) => ways.has(one));
    }
    area += areaWithin(loop, step);
  }
  return area;
}

function middleOf(one: number, step: Triple): Triple {
  const [a, b] = [one >> 3, one & 7];
  const along = (bit: number) => (((a >> bit) & 1) + ((b >> bit) & 1)) / 2;
  return [along(0) * step[0], along(1) * step[1], along(2) * step[2]];
}

const UNIT: Triple = [1, 1, 1];
const LEAST = 1e-9;

/**
 * Of the triangles between one point of a loop and the others. A loop that is not flat has the
 * point from which they are largest in a cell of equal sides, as the tables do that others use; of
 * several such the one from which they are least.
 */
function areaWithin(loop: readonly number[], step: Triple): number {
  const fans = loop.map((_, first) => [...loop.slice(first), ...loop.slice(0, first)]);
  const most = Math.max(...fans.map((fan) => fanArea(fan, UNIT)));
  const chosen = fans.filter((fan) => fanArea(fan, UNIT) > most - LEAST);
  return Math.min(...chosen.map((fan) => fanArea(fan, step)));
}

function fanArea(fan: readonly number[], step: Triple): number {
  const [apex = [0, 0, 0] as const, ...others] = fan.map((one) => middleOf(one, step));
  return others
    .slice(1)
    .reduce((sum, point, i) => sum + triangle(apex, others[i] ?? apex, point), 0);
}

function triangle(a: Triple, b: Triple, c: Triple): number {
  const [ux, uy, uz] = [b[0] - a[0], b[1] - a[1], b[2] - a[2]];
  const [vx, vy, vz] = [c[0] - a[0], c[1] - a[1], c[2] - a[2]];
  return Math.hypot(uy * vz - uz * vy, uz * vx - ux * vz, ux * vy - uy * vx) / 2;
}
