/**
 * A drawing of text, lines and boxes over a picture, as SVG; text is outlines, so no font of the machine is used.
 * librsvg renders it, through sharp, and what it has rendered is kept piece by piece: of a model's pictures all text is
 * the same but a few numbers. Each piece is rendered by itself, in its own place's pixels, so that it comes out the same
 * whatever was drawn before.
 */
import { grown, overlaps, pixelBox, union, type Box } from "./box.js";
import { textOutline, textWidth, type Style } from "./text-outline.js";
import sharp from "sharp";
import { Kept } from "../../base/bounded-cache.js";
import { layPixels } from "./blend.js";
import type { Picture } from "./pixels.js";

interface ShapeStyle {
  fill?: string;
  stroke?: string;
  strokeWidth?: number;
  opacity?: number;
  radius?: number;
}

const rounded = (value: number): number => Math.round(value * 100) / 100;

interface Part {
  /** The only area in which the part shows, in whole pixels. */
  box: Box;
  /** The part's SVG, moved by whole pixels. */
  svg: (right: number, down: number) => string;
}

/** Parts of a drawing that lie over each other; two pieces share no pixel. */
export interface Piece extends Box {
  /** SVG whose origin is the piece's upper left corner: equal contents of equal size are equal pixels. */
  content: string;
}

export class Drawing {
  readonly #parts: Part[] = [];
  /** The parts drawn since `clip`, which show inside its box only. */
  #clipped: { box: Box; parts: Part[] } | undefined;
  /** Whether anything was drawn inside a box only. */
  hasClipped = false;

  /** A line of text on the baseline y; `align` says which end of it lies at x. Returns its width. */
  text(
    text: string,
    x: number,
    y: number,
    style: Style & { fill: string; align?: "left" | "right" | "centre" },
  ): number {
    const width = textWidth(text, style);
    const start = style.align === "right" ? x - width : style.align === "centre" ? x - width / 2 : x;
    const { data, box } = textOutline(text, style);
    // Whole pixels keep stems equally sharp from line to line.
    const [left, base] = [Math.round(start), Math.round(y)];
    if (data !== "")
      this.#add({ ...box, x: left + box.x, y: base + box.y }, (right, down) => {
        const place = `translate(${left + right} ${base + down})`;
        return `<path transform="${place}" d="${data}" fill="${style.fill}"/>`;
      });
    return width;
  }

  rectangle(box: Box, style: ShapeStyle): void {
    const corner = style.radius === undefined ? "" : ` rx="${rounded(style.radius)}"`;
    this.#add(grown(box, strokeOf(style) / 2), (right, down) => {
      return `<rect ${placed(box, right, down)}${corner}${attributes(style)}/>`;
    });
  }

  circle(x: number, y: number, radius: number, style: ShapeStyle): void {
    const box = grown({ x, y, width: 0, height: 0 }, radius + strokeOf(style) / 2);
    this.#add(box, (right, down) => {
      const centre = `cx="${moved(x, right)}" cy="${moved(y, down)}"`;
      return `<circle ${centre} r="${rounded(radius)}"${attributes(style)}/>`;
    });
  }

  /** What is drawn from here to `unclip` shows inside the box only. */
  clip(box: Box): void {
    this.#clipped = { box, parts: [] };
    this.hasClipped = true;
  }

  unclip(): void {
    if (this.#clipped === undefined) return;
    const { box, parts } = this.#clipped;
    this.#clipped = undefined;
    this.#add(box, (right, down) => {
      const view = `${moved(box.x, right)} ${moved(box.y, down)} ${rounded(box.width)} ${rounded(box.height)}`;
      const inner = parts.map(({ svg }) => svg(right, down)).join("");
      return `<svg ${placed(box, right, down)} viewBox="${view}">${inner}</svg>`;
    });
  }

  /** The whole drawing. */
  svg(width: number, height: number): string {
    return svgOf(width, height, this.#parts.map(({ svg }) => svg(0, 0)).join(""));
  }

  #add(box: Box, svg: Part["svg"]): void {
    (this.#clipped?.parts ?? this.#parts).push({ box: pixelBox(box), svg });
  }

  /** The drawing in pieces that can be rendered each by itself, in any order. */
  pieces(): Piece[] {
    let groups: { box: Box; parts: Part[] }[] = [];
    for (const part of this.#parts) {
      const group = { box: part.box, parts: [part] };
      for (let touched = groups; touched.length > 0;) {
        touched = groups.filter(({ box }) => overlaps(box, group.box));
        groups = groups.filter((other) => !touched.includes(other));
        for (const { box, parts } of touched) {
          group.box = union(group.box, box);
          group.parts.push(...parts);
        }
      }
      groups.push(group);
    }
    const order = new Map(this.#parts.map((part, i) => [part, i]));
    return groups.map(({ box, parts }) => {
      parts.sort((a, b) => (order.get(a) ?? 0) - (order.get(b) ?? 0));
      return { ...box, content: parts.map(({ svg }) => svg(-box.x, -box.y)).join("") };
    });
  }
}

export function svgOf(width: number, height: number, content: string): string {
  const size = `width="${width}" height="${height}" viewBox="0 0 ${width} ${height}"`;
  return `<svg xmlns="http://www.w3.org/2000/svg" ${size}>${content}</svg>`;
}

const moved = (value: number, by: number): number => rounded(rounded(value) + by);

function placed({ x, y, width, height }: Box, right: number, down: number): string {
  return `x="${moved(x, right)}" y="${moved(y, down)}" width="${rounded(width)}" height="${rounded(height)}"`;
}

function strokeOf({ stroke, strokeWidth }: ShapeStyle): number {
  return stroke === undefined ? 0 : (strokeWidth ?? 1);
}

function attributes(style: ShapeStyle): string {
  return (
    ` fill="${style.fill ?? "none"}"` +
    (style.stroke === undefined
      ? ""
      : ` stroke="${style.stroke}" stroke-width="${rounded(style.strokeWidth ?? 1)}"`) +
    (style.opacity === undefined ? "" : ` opacity="${rounded(style.opacity)}"`)
  );
}

/** Four bytes a pixel, colours not multiplied by their opacity. */
type Rgba = Uint8Array;

const MOST_KEPT_BYTES = 1 << 22;
const kept = new Kept<Rgba>(MOST_KEPT_BYTES, (rgba, key) => 2 * key.length + rgba.length);

/**
 * Lays a drawing over a picture. One with boxes is rendered whole: their places are the image's own, so that nothing of
 * them would be found again.
 */
export async function layDrawing(picture: Picture, drawing: Drawing): Promise<void> {
  const { width, height } = picture;
  if (drawing.hasClipped) {
    layPixels(picture, await pixelsOf(drawing.svg(width, height)), { x: 0, y: 0, width, height });
    return;
  }
  const pieces = await Promise.all(
    drawing.pieces().map(async (piece) => ({ piece, rgba: await rendered(piece) })),
  );
  for (const { piece, rgba } of pieces) layPixels(picture, rgba, piece);
}

async function rendered({ width, height, content }: Piece): Promise<Rgba> {
  const key = `${width} ${height} ${content}`;
  const known = kept.find(key);
  if (known !== undefined) return known;
  const rgba = await pixelsOf(svgOf(width, height, content));
  kept.keep(key, rgba);
  return rgba;
}

function pixelsOf(svg: string): Promise<Rgba> {
  return sharp(Buffer.from(svg)).ensureAlpha().raw().toBuffer();
}
