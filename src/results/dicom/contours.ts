/**
 * Closed lines around the pixels of a mask. They run along the edges of pixels, so that a contour
 * encloses exactly the mask's pixels and its area is theirs. A hole is joined to the line around it
 * by a cut of no width, as PS3.3 C.8.8.6.3 says of closed planar contours (the keyhole technique):
 * every contour is one line that readers may fill by any rule.
 */

/**
 * x and y of one point after the other, in pixels: 0 is the left or upper edge of the first pixel.
 */
export type Contour = readonly number[];

/** A part of a plane of labels, one byte a pixel, and the label whose pixels are meant. */
export interface LabelPlane {
  labels: Uint8Array;
  /** Pixels from one row of the plane to the next. */
  stride: number;
  label: number;
  box: LabelBounds;
}

/** A rectangle of pixels; the last ones are outside. */
export interface LabelBounds {
  x0: number;
  y0: number;
  x1: number;
  y1: number;
}

/** The pixels in a box, counted from its corner. */
interface MaskPlane {
  rows: number;
  columns: number;
  isSet: (x: number, y: number) => boolean;
}

/**
 * A line along pixel edges, a vertex at every corner of a pixel that it passes, its pixels at its
 * right hand.
 */
interface Loop {
  /** Each vertex as y * (columns + 1) + x. */
  vertices: number[];
  isHole: boolean;
}

/** Steps to the right, down, to the left and up. */
const STEPS = [
  [1, 0],
  [0, 1],
  [-1, 0],
  [0, -1],
] as const;
/** From a vertex, the pixels ahead: at the right hand and at the left hand of each direction. */
const AHEAD = [
  { right: [0, 0], left: [0, -1] },
  { right: [-1, 0], left: [0, 0] },
  { right: [-1, -1], left: [-1, 0] },
  { right: [0, -1], left: [-1, -1] },
] as const;

/**
 * The contours of a label, one for each group of its pixels that share edges, in the order of their
 * first rows.
 * @returns points in pixels of the plane; pixels outside the box are not looked at
 */
export function contoursOf({ labels, stride, label, box }: LabelPlane): Contour[] {
  const [rows, columns] = [box.y1 - box.y0, box.x1 - box.x0];
  const isInside = (x: number, y: number) => x >= 0 && y >= 0 && x < columns && y < rows;
  const isSet = (x: number, y: number) =>
    isInside(x, y) && labels[(y + box.y0) * stride + x + box.x0] === label;
  const mask = { rows, columns, isSet };
  const loops = loopsOf(mask);
  const cuts = cutsOf(mask, loops);
  return loops
    .filter(({ isHole }) => !isHole)
    .map((loop) =>
      pointsOf(loop, cuts, columns + 1).map((at, i) => at + (i % 2 === 0 ? box.x0 : box.y0)),
    );
}

/** The box of every label from 1 on that a plane has, in one pass. */
export function boxesOf(
  labels: Uint8Array,
  rows: number,
  columns: number,
): Map<number, LabelBounds> {
  const boxes = new Map<number, LabelBounds>();
  for (let y = 0; y < rows; y++)
    for (let x = 0; x < columns; x++) {
      const label = labels[y * columns + x] ?? 0;
      if (label === 0) continue;
      const box = boxes.get(label);
      if (box === undefined) boxes.set(label, { x0: x, y0: y, x1: x + 1, y1: y + 1 });
      else {
        if (x < box.x0) box.x0 = x;
        if (x >= box.x1) box.x1 = x + 1;
        box.y1 = y + 1;
      }
    }
  return boxes;
}

function loopsOf(mask: MaskPlane): Loop[] {
  const stride = mask.columns + 1;
  const seen = new Uint8Array(mask.rows * mask.columns);
  const loops: Loop[] = [];
  for (let y = 0; y < mask.rows; y++)
    for (let x = 0; x < mask.columns; x++) {
      // Every loop runs to the right somewhere, along the upper edge of a pixel
      if (seen[y * mask.columns + x] !== 0 || !mask.isSet(x, y) || mask.isSet(x, y - 1)) continue;
      loops.push(follow(mask, x, y, seen, stride));
    }
  return loops;
}

/**
 * Follows the loop that begins along the upper edge of a pixel. Pixels that share no more than a
 * corner stay apart.
 */
function follow(
  mask: MaskPlane,
  startX: number,
  startY: number,
  seen: Uint8Array,
  stride: number,
): Loop {
  const vertices: number[] = [];
  let [x, y, direction, doubledArea] = [startX, startY, 0, 0];
  do {
    vertices.push(y * stride + x);
    if (direction === 0) seen[y * mask.columns + x] = 1;
    const [stepX, stepY] = STEPS[direction] ?? STEPS[0];
    doubledArea += x * stepY - y * stepX;
    x += stepX;
    y += stepY;
    const { right, left } = AHEAD[direction] ?? AHEAD[0];
    if (!mask.isSet(x + right[0], y + right[1])) direction = (direction + 1) % 4;
    else if (mask.isSet(x + left[0], y + left[1])) direction = (direction + 3) % 4;
  } while (x !== startX || y !== startY || direction !== 0);
  return { vertices, isHole: doubledArea < 0 };
}

/**
 * Where a hole is joined: the vertex on the other loop, and the hole's vertices from the cut on.
 */
type Cuts = ReadonlyMap<number, readonly number[]>;

/**
 * A cut runs from the leftmost vertex of a hole to the left, through pixels of the mask, to the
 * first vertex of another loop. That loop reaches further to the left, so that the cuts of all
 * holes end at a loop that is no hole.
 */
function cutsOf(mask: MaskPlane, loops: readonly Loop[]): Cuts {
  const stride = mask.columns + 1;
  const cuts = new Map<number, number[]>();
  for (const { vertices, isHole } of loops) {
    if (!isHole) continue;
    const first = leftmost(vertices, stride);
    const [x, y] = [(vertices[first] ?? 0) % stride, Math.floor((vertices[first] ?? 0) / stride)];
    let end = x - 1;
    while (mask.isSet(end - 1, y) && mask.isSet(end - 1, y - 1)) end--;
    cuts.set(y * stride + end, [...vertices.slice(first), ...vertices.slice(0, first)]);
  }
  return cuts;
}

/** The index of the vertex that lies furthest to the left, and of those the uppermost. */
function leftmost(vertices: readonly number[], stride: number): number {
  let best = 0;
  for (const [index, vertex] of vertices.entries()) {
    const [now, before] = [vertex % stride, (vertices[best] ?? 0) % stride];
    if (now < before || (now === before && vertex < (vertices[best] ?? 0))) best = index;
  }
  return best;
}

/** The points of a loop with its holes: only those where the line turns. */
function pointsOf(loop: Loop, cuts: Cuts, stride: number): number[] {
  const points: number[] = [];
  let [lastStep, last] = [0, -1];
  const emit = (vertex: number) => {
    const step = Math.sign(vertex - last) * (Math.abs(vertex - last) >= stride ? stride : 1);
    if (last >= 0 && step === lastStep) points.length -= 2;
    points.push(vertex % stride, Math.floor(vertex / stride));
    [lastStep, last] = [last < 0 ? 0 : step, vertex];
  };
  // Holes can be joined to holes in any number, so that calls within calls could go too deep
  const open: { vertices: readonly number[]; next: number; from: number | undefined }[] = [
    { vertices: loop.vertices, next: 0, from: undefined },
  ];
  for (let line = open.at(-1); line !== undefined; line = open.at(-1)) {
    const vertex = line.vertices[line.next++];
    if (vertex !== undefined) {
      emit(vertex);
      const hole = cuts.get(vertex);
      if (hole !== undefined) open.push({ vertices: hole, next: 0, from: vertex });
      continue;
    }
    open.pop();
    if (line.from === undefined) continue;
    emit(line.vertices[0] ?? 0);
    emit(line.from);
  }
  // The line is closed without its first point at the end
  emit(loop.vertices[0] ?? 0);
  return points.slice(0, -2);
}

/**
 * Fills contours by the even-odd rule, into one byte a pixel.
 * @param contours their points lie on corners of pixels
 */
export function filled(contours: readonly Contour[], rows: number, columns: number): Uint8Array {
  const flips = new Uint8Array(rows * (columns + 1));
  for (const points of contours)
    for (let i = 0; i < points.length; i += 2) {
      const next = (i + 2) % points.length;
      const [x, y0, y1] = [points[i] ?? 0, points[i + 1] ?? 0, points[next + 1] ?? 0];
      for (let y = Math.min(y0, y1); y < Math.max(y0, y1); y++) {
        const at = y * (columns + 1) + x;
        flips[at] = (flips[at] ?? 0) ^ 1;
      }
    }
  const mask = new Uint8Array(rows * columns);
  for (let y = 0; y < rows; y++)
    for (let x = 0, inside = 0; x < columns; x++)
      mask[y * columns + x] = inside ^= flips[y * (columns + 1) + x] ?? 0;
  return mask;
}
