/** A drawing of text, lines and boxes over a picture: a list of numbers, which the addon draws. */
import type { Rgb } from "../colour.js";
import { placedGlyphs, textWidth, type Style } from "./text.js";

/** As native/picture/drawing.h numbers them. */
const OPERATION = { clip: 0, unclip: 1, rectangle: 2, line: 3, glyphs: 4 } as const;

/** A rectangle of picture pixels, x to the right and y down. */
export interface Rectangle {
  x: number;
  y: number;
  width: number;
  height: number;
}

interface ShapeStyle {
  colour: Rgb;
  /** Width of its border, which is drawn alone; 0 fills the shape. */
  stroke?: number;
  opacity?: number;
  radius?: number;
}

const packed = ([r, g, b]: Rgb): number => r * 65536 + g * 256 + b;

export class Drawing {
  readonly #list: number[] = [];

  /**
   * A line of text on the baseline y; `align` says which end of it lies at x. Returns its width.
   */
  text(
    text: string,
    x: number,
    y: number,
    style: Style & { colour: Rgb; align?: "left" | "right" | "centre" },
  ): number {
    const width = textWidth(text, style);
    const start =
      style.align === "right" ? x - width : style.align === "centre" ? x - width / 2 : x;
    const placed = placedGlyphs(text, start, Math.round(y), style);
    this.#list.push(OPERATION.glyphs, packed(style.colour), placed.length);
    for (const { glyph, x: left, y: top } of placed)
      this.#list.push(glyph.place, glyph.width, glyph.height, left, top);
    return width;
  }

  rectangle(
    { x, y, width, height }: Rectangle,
    { colour, stroke = 0, opacity = 1, radius = 0 }: ShapeStyle,
  ): void {
    this.#list.push(
      OPERATION.rectangle,
      x,
      y,
      width,
      height,
      radius,
      stroke,
      packed(colour),
      opacity,
    );
  }

  circle(x: number, y: number, radius: number, style: ShapeStyle): void {
    const box = { x: x - radius, y: y - radius, width: 2 * radius, height: 2 * radius };
    this.rectangle(box, { ...style, radius });
  }

  line(
    x0: number,
    y0: number,
    x1: number,
    y1: number,
    width: number,
    { colour, opacity = 1 }: ShapeStyle,
  ): void {
    this.#list.push(OPERATION.line, x0, y0, x1, y1, width, packed(colour), opacity);
  }

  /** Everything that is drawn from here to `unclip` shows inside the box only. */
  clip({ x, y, width, height }: Rectangle): void {
    this.#list.push(OPERATION.clip, x, y, width, height);
  }

  unclip(): void {
    this.#list.push(OPERATION.unclip);
  }

  /** The shapes that the addon draws, with the glyphs of the atlas. */
  list(): Float64Array {
    return Float64Array.from(this.#list);
  }
}
