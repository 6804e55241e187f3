/**
 * Sample images whose truth is known: a CT slice of ellipses with exact Hounsfield values, and an
 * ultrasound-like picture with identities burned into its pixels. Both are drawn here; no patient
 * was ever involved.
 */

/**
 * A small, fast, seeded generator (Mulberry32), so that the samples are the same bytes everywhere.
 */
function generator(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), state | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

interface Ellipse {
  /** Centre and half axes in millimetres from the middle of the picture; angle in degrees. */
  x: number;
  y: number;
  a: number;
  b: number;
  angle?: number;
  hu: number;
}

const FAT = -100;
const MUSCLE = 50;
const LUNG = -840;
const BONE = 480;

/** How much of a body of this half length is left at z. */
const atLevel = (z: number, half: number): number => Math.sqrt(Math.max(0, 1 - (z / half) ** 2));

/** A chest, z millimetres above the level of the heart, painted in this order. */
function chest(z: number): Ellipse[] {
  const [lung, heart] = [atLevel(z, 130), atLevel(z, 75)];
  const shapes: Ellipse[] = [
    { x: 0, y: 0, a: 172, b: 122, hu: FAT },
    { x: 0, y: 1, a: 157, b: 108, hu: MUSCLE },
    { x: -72, y: -4, a: 62 * lung, b: 82 * lung, angle: 6, hu: LUNG },
    { x: 72, y: -4, a: 62 * lung, b: 82 * lung, angle: -6, hu: LUNG },
    { x: 18, y: -22, a: 52 * heart, b: 44 * heart, angle: 28, hu: 40 },
    { x: 34, y: 44, a: 13, b: 13, hu: 45 },
    { x: 0, y: -92, a: 24, b: 7, hu: BONE - 160 },
    { x: 0, y: 68, a: 23, b: 19, hu: BONE - 140 },
    { x: 0, y: 68, a: 15, b: 12, hu: 260 },
    { x: 0, y: 92, a: 8, b: 8, hu: 30 },
    { x: 0, y: 104, a: 5, b: 9, hu: BONE },
    { x: -24, y: 84, a: 15, b: 5, angle: 30, hu: BONE },
    { x: 24, y: 84, a: 15, b: 5, angle: -30, hu: BONE },
  ];
  for (let k = 0; k < 7; k++) {
    const angle = (-62 + k * 22) * (Math.PI / 180);
    for (const side of [-1, 1]) {
      const x = side * 146 * Math.cos(angle);
      const y = 98 * Math.sin(angle);
      const tilt = (Math.atan2(98 * Math.cos(angle), -146 * Math.sin(angle)) * 180) / Math.PI;
      shapes.push({ x, y, a: 12, b: 4.5, angle: side > 0 ? tilt : 180 - tilt, hu: BONE });
    }
  }
  return shapes.concat(lungVessels(lung));
}

function lungVessels(lung: number): Ellipse[] {
  const random = generator(7);
  const vessels: Ellipse[] = [];
  while (vessels.length < 90) {
    const side = random() < 0.5 ? -1 : 1;
    const t = random() * 2 * Math.PI;
    const r = Math.sqrt(random());
    const x = side * 72 + 56 * lung * r * Math.cos(t);
    const y = -4 + 74 * lung * r * Math.sin(t);
    const size = 0.8 + 2.6 * (1 - r) * random();
    vessels.push({ x, y, a: size, b: size * (1 + 2 * random()), angle: random() * 180, hu: 35 });
  }
  return vessels;
}

function inside(e: Ellipse, x: number, y: number): boolean {
  const angle = ((e.angle ?? 0) * Math.PI) / 180;
  const dx = x - e.x;
  const dy = y - e.y;
  const u = (dx * Math.cos(angle) + dy * Math.sin(angle)) / e.a;
  const v = (-dx * Math.sin(angle) + dy * Math.cos(angle)) / e.b;
  return u * u + v * v <= 1;
}

export interface CtPhantom {
  rows: number;
  columns: number;
  /** Millimetres, both ways. */
  spacing: number;
  /** Stored values: HU + 1024. */
  stored: Uint16Array;
  /** Square centimetres by tissue, counted while painting. */
  truth: { gas: number; fat: number; soft: number; bone: number };
}

/**
 * Noise is bounded (20 HU either way) and stays within each tissue's range, so that the areas are
 * exact.
 */
export function ctPhantom(size = 512, z = 0): CtPhantom {
  const spacing = 380 / size;
  const shapes = chest(z);
  const random = generator(42);
  const stored = new Uint16Array(size * size);
  const pixels = { gas: 0, fat: 0, soft: 0, bone: 0 };
  for (let row = 0; row < size; row++) {
    for (let column = 0; column < size; column++) {
      const x = (column + 0.5 - size / 2) * spacing;
      const y = (row + 0.5 - size / 2) * spacing;
      let hu: number | undefined;
      for (const shape of shapes) if (inside(shape, x, y)) hu = shape.hu;
      const noise = Math.round((random() + random() - 1) * 20);
      stored[row * size + column] = (hu ?? -1000) + noise + 1024;
      if (hu === undefined) continue;
      if (hu < -190) pixels.gas++;
      else if (hu < -30) pixels.fat++;
      else if (hu < 150) pixels.soft++;
      else pixels.bone++;
    }
  }
  const cm2 = (spacing * spacing) / 100;
  const truth = {
    gas: pixels.gas * cm2,
    fat: pixels.fat * cm2,
    soft: pixels.soft * cm2,
    bone: pixels.bone * cm2,
  };
  return { rows: size, columns: size, spacing, stored, truth };
}

export interface UltrasoundPhantom {
  rows: number;
  columns: number;
  /** Grey, 8 bits. */
  pixels: Uint8Array;
}

/** A sector with speckle, vessels and a bright capsule; text is drawn over it by the caller. */
export function ultrasoundPhantom(columns = 1024, rows = 768): UltrasoundPhantom {
  const random = generator(1234);
  const pixels = new Uint8Array(rows * columns);
  const apex = { x: columns / 2, y: 40 };
  const reach = rows - 90;
  const speckle = new Float32Array(rows * columns);
  for (let i = 0; i < speckle.length; i++)
    speckle[i] = Math.sqrt(-2 * Math.log(1 - random() * 0.999999));
  for (let row = 0; row < rows; row++) {
    for (let column = 0; column < columns; column++) {
      const dx = column - apex.x;
      const dy = row - apex.y;
      const depth = Math.hypot(dx, dy);
      const angle = Math.atan2(dx, dy);
      if (depth < 60 || depth > reach || Math.abs(angle) > 0.62) continue;
      const i = row * columns + column;
      const left = speckle[i - 1] ?? 1;
      const right = speckle[i + 1] ?? 1;
      const grain = (left + 2 * (speckle[i] ?? 1) + right) / 4;
      pixels[i] = Math.min(230, echo(depth / reach, angle) * grain);
    }
  }
  return { rows, columns, pixels };
}

/** Mean echo of a made-up abdomen: depth from 0 to 1, angle in radians. */
function echo(depth: number, angle: number): number {
  const gain = 92 * (1 - 0.45 * depth);
  if (((depth - 0.5) / 0.09) ** 2 + ((angle - 0.16) / 0.2) ** 2 < 1) return 6;
  if (((depth - 0.68) / 0.028) ** 2 + ((angle + 0.2) / 0.16) ** 2 < 1) return 9;
  if (Math.abs(depth - 0.3 - 0.05 * Math.cos(5 * angle)) < 0.012) return gain * 2;
  if (Math.abs(depth - 0.84 + 0.1 * angle * angle) < 0.014) return gain * 2.4;
  return depth < 0.29 ? gain * 0.65 : gain;
}
