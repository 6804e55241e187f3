/** What is laid over the pixels of a picture: masks, heat maps and drawings. */
import type { Box } from "./box.js";
import { type Rgb, heatColour } from "./colour.js";
import { type Picture, cover, type Cover } from "./pixels.js";

const TINT = 0.32;
/** Opacity of the outline, by INSIDE, EDGE and THIN: weaker on what is too thin for an inside, so that a vessel stays visible. */
const EDGES = [0, 0.9, 0.5] as const;
/** The least opacity of an outline, however little of the pixel is covered. */
const FAINTEST = 0.5;
const HEAT = 0.5;
/** Width of a stripe, in pixels along a row. */
const STRIPE = 4;

/** A mask of `rows` x `columns` label numbers (0: no label), and the colours of the labels 1, 2, ... */
interface Layer {
  mask: Uint8Array;
  colours: readonly Rgb[];
}

/**
 * Lays masks over a panel: tinted by the share of each pixel that they cover, outlined within their own pixels. The
 * tints of masks that overlap stand in stripes, because a mixture would be a colour that the legend does not have.
 */
export function layMasks(panel: Picture, layers: readonly Layer[], rows: number, columns: number): void {
  const { width, height } = panel;
  const reach = width >= 3 * columns ? 2 : 1;
  const marks = layers.map(({ mask, colours }): Mark => {
    const covered = cover(mask, rows, columns, width, height);
    return { ...covered, colours, outline: outlineOf(covered.label, width, height, reach) };
  });
  const stripes = marks.length > 1 ? stripesOf(marks, width * height) : undefined;
  for (const mark of marks) tint(panel, mark, stripes);
  for (const mark of marks) drawOutline(panel, mark);
}

/** For each pixel, the number of masks that cover it, and how many of those are already drawn. */
interface Stripes {
  depth: Uint16Array;
  seen: Uint16Array;
}

function stripesOf(marks: readonly Mark[], pixels: number): Stripes {
  const depth = new Uint16Array(pixels);
  for (const { label } of marks)
    for (let at = 0; at < pixels; at++) if (label[at] !== 0) depth[at] = (depth[at] ?? 0) + 1;
  return { depth, seen: new Uint16Array(pixels) };
}

interface Mark extends Cover {
  colours: readonly Rgb[];
  outline: Uint8Array;
}

/** @param stripes undefined if there is only one mask */
function tint(panel: Picture, { label, share, colours, outline }: Mark, stripes: Stripes | undefined): void {
  for (let y = 0, at = 0; y < panel.height; y++)
    for (let x = 0; x < panel.width; x++, at++) {
      const value = label[at] ?? 0;
      const colour = value === 0 ? undefined : colours[value - 1];
      if (colour === undefined) continue;
      if (stripes !== undefined) {
        const { depth, seen } = stripes;
        const rank = seen[at] ?? 0;
        seen[at] = rank + 1;
        if (Math.floor((x + y) / STRIPE) % (depth[at] ?? 1) !== rank) continue;
      }
      if (outline[at] !== INSIDE) continue;
      blend(panel, at, colour, share === undefined ? TINT : TINT * ((share[at] ?? 0) / 255));
    }
}

function drawOutline(panel: Picture, { label, share, colours, outline }: Mark): void {
  for (let at = 0; at < outline.length; at++) {
    const alpha = EDGES[outline[at] ?? INSIDE] ?? 0;
    const colour = alpha === 0 ? undefined : colours[(label[at] ?? 0) - 1];
    if (colour === undefined) continue;
    const part = share === undefined ? 1 : (share[at] ?? 0) / 255;
    blend(panel, at, colour, Math.max(alpha * part, FAINTEST));
  }
}

const INSIDE = 0;
const EDGE = 1;
const THIN = 2;

/** For each pixel of a region: INSIDE, EDGE, or THIN if no pixel near it is inside. */
function outlineOf(label: Uint8Array, width: number, height: number, reach: number): Uint8Array {
  const outline = new Uint8Array(width * height);
  for (let y = 0; y < height; y++)
    for (let x = 0; x < width; x++) {
      const at = y * width + x;
      if (label[at] !== 0 && isEdge(label, width, height, x, y, reach)) outline[at] = EDGE;
    }
  for (let y = 0; y < height; y++)
    for (let x = 0; x < width; x++) {
      const at = y * width + x;
      if (outline[at] === EDGE && !hasInside(label, outline, width, height, x, y, reach)) outline[at] = THIN;
    }
  return outline;
}

function hasInside(
  label: Uint8Array,
  outline: Uint8Array,
  width: number,
  height: number,
  x: number,
  y: number,
  reach: number,
): boolean {
  const own = label[y * width + x];
  for (let v = Math.max(0, y - reach); v <= Math.min(height - 1, y + reach); v++)
    for (let u = Math.max(0, x - reach); u <= Math.min(width - 1, x + reach); u++)
      if (label[v * width + u] === own && outline[v * width + u] === INSIDE) return true;
  return false;
}

/**
 * Whether a lower label, or none, lies within `reach` pixels to a side: each border is drawn once, on the side of the
 * higher label. The panel's own border is no edge.
 */
function isEdge(
  label: Uint8Array,
  width: number,
  height: number,
  x: number,
  y: number,
  reach: number,
): boolean {
  const at = y * width + x;
  const own = label[at] ?? 0;
  for (let d = 1; d <= reach; d++) {
    if (x >= d && (label[at - d] ?? 0) < own) return true;
    if (x + d < width && (label[at + d] ?? 0) < own) return true;
    if (y >= d && (label[at - d * width] ?? 0) < own) return true;
    if (y + d < height && (label[at + d * width] ?? 0) < own) return true;
  }
  return false;
}

export interface Range {
  low: number;
  high: number;
}

/** Range of heat maps' values: 0 to 1, or wider if they leave it. */
export function heatRange(maps: readonly Float32Array[]): Range {
  let [low, high] = [0, 1];
  for (const values of maps)
    for (const value of values) {
      if (value < low) low = value;
      if (value > high) high = value;
    }
  return { low, high };
}

/** Lays a heat map over a panel, more opaque the higher the value. */
export function layHeat(
  panel: Picture,
  values: Float32Array,
  rows: number,
  columns: number,
  { low, high }: Range,
): void {
  const { width, height } = panel;
  for (let y = 0; y < height; y++)
    for (let x = 0; x < width; x++) {
      const sx = Math.min(columns - 1, Math.floor(((x + 0.5) * columns) / width));
      const sy = Math.min(rows - 1, Math.floor(((y + 0.5) * rows) / height));
      const value = ((values[sy * columns + sx] ?? low) - low) / (high - low);
      blend(panel, y * width + x, heatColour(value), HEAT * value);
    }
}

function blend({ rgb }: Picture, at: number, colour: Rgb, alpha: number): void {
  for (let c = 0; c < 3; c++) {
    const under = rgb[at * 3 + c] ?? 0;
    // Cutting off rounds as Math.round does: no value is negative
    rgb[at * 3 + c] = under + ((colour[c] ?? 0) - under) * alpha + 0.5;
  }
}

/**
 * Lays pixels over a picture; what lies beside it is left out. In single precision and cut off, as libvips composes: by
 * hand, because that goes over every pixel of the picture in floating point, and most of a drawing is empty.
 * @param rgba four bytes a pixel, colours not multiplied by their opacity
 * @param box where the pixels lie, in whole pixels of the picture
 */
export function layPixels({ width, height, rgb }: Picture, rgba: Uint8Array, box: Box): void {
  if (rgba.length !== 4 * box.width * box.height) throw new Error("Expected pixels of the box's size");
  const f = Math.fround;
  const [left, right] = [Math.max(0, -box.x), Math.min(box.width, width - box.x)];
  const [top, bottom] = [Math.max(0, -box.y), Math.min(box.height, height - box.y)];
  for (let y = top; y < bottom; y++) {
    let from = 4 * (y * box.width + left) + 3;
    let to = 3 * ((box.y + y) * width + box.x + left);
    for (let x = left; x < right; x++, from += 4, to += 3) {
      const alpha = f((rgba[from] ?? 0) / 255);
      if (alpha === 0) continue;
      const rest = f(1 - alpha);
      const whole = f(alpha + rest);
      for (let c = 0; c < 3; c++) {
        const over = f(f((rgba[from - 3 + c] ?? 0) / 255) * alpha);
        const under = f(rest * f((rgb[to + c] ?? 0) / 255));
        rgb[to + c] = Math.min(255, f(f(f(over + under) / whole) * 255));
      }
    }
  }
}
