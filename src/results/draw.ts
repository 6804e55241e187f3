/** A drawing of text, lines and boxes over a picture, as SVG; text is outlines, so no font of the machine is used. */
import { textPath, textWidth, type Style } from "./text.js";

export interface Box {
  x: number;
  y: number;
  width: number;
  height: number;
}

interface ShapeStyle {
  fill?: string;
  stroke?: string;
  strokeWidth?: number;
  opacity?: number;
  radius?: number;
}

const number = (value: number): string => String(Math.round(value * 100) / 100);

export class Drawing {
  readonly #parts: string[] = [];

  /** A line of text on the baseline y; `align` says which end of it lies at x. Returns its width. */
  text(
    text: string,
    x: number,
    y: number,
    style: Style & { fill: string; align?: "left" | "right" | "centre" },
  ): number {
    const width = textWidth(text, style);
    const left = style.align === "right" ? x - width : style.align === "centre" ? x - width / 2 : x;
    const data = textPath(text, style);
    // Whole pixels keep stems equally sharp from line to line.
    const place = `translate(${Math.round(left)} ${Math.round(y)})`;
    if (data !== "") this.#parts.push(`<path transform="${place}" d="${data}" fill="${style.fill}"/>`);
    return width;
  }

  rectangle({ x, y, width, height }: Box, style: ShapeStyle): void {
    const corner = style.radius === undefined ? "" : ` rx="${number(style.radius)}"`;
    this.#parts.push(
      `<rect x="${number(x)}" y="${number(y)}" width="${number(width)}" height="${number(height)}"${corner}${attributes(style)}/>`,
    );
  }

  circle(x: number, y: number, radius: number, style: ShapeStyle): void {
    this.#parts.push(
      `<circle cx="${number(x)}" cy="${number(y)}" r="${number(radius)}"${attributes(style)}/>`,
    );
  }

  /** What is drawn from here to `unclip` shows inside the box only. */
  clip({ x, y, width, height }: Box): void {
    this.#parts.push(
      `<svg x="${number(x)}" y="${number(y)}" width="${number(width)}" height="${number(height)}" ` +
        `viewBox="${number(x)} ${number(y)} ${number(width)} ${number(height)}">`,
    );
  }

  unclip(): void {
    this.#parts.push("</svg>");
  }

  svg(width: number, height: number): string {
    return (
      `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" ` +
      `viewBox="0 0 ${width} ${height}">${this.#parts.join("")}</svg>`
    );
  }
}

function attributes(style: ShapeStyle): string {
  return (
    ` fill="${style.fill ?? "none"}"` +
    (style.stroke === undefined
      ? ""
      : ` stroke="${style.stroke}" stroke-width="${number(style.strokeWidth ?? 1)}"`) +
    (style.opacity === undefined ? "" : ` opacity="${number(style.opacity)}"`)
  );
}

export function overlaps(a: Box, b: Box): boolean {
  return a.x < b.x + b.width && b.x < a.x + a.width && a.y < b.y + b.height && b.y < a.y + a.height;
}
