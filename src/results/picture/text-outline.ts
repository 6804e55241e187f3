/**
 * Text as outlines of the DejaVu fonts that are installed with Radserve, so that a picture is the same on every
 * machine, whichever fonts it has.
 */
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import opentype, { type Font, type Glyph } from "opentype.js";
import { Kept } from "../../base/bounded-cache.js";
import type { Box } from "./box.js";

type Face = "regular" | "bold";

export interface Style {
  /** Pixels of the em square. */
  size: number;
  face: Face;
}

const FILES: Record<Face, string> = { regular: "DejaVuSans.ttf", bold: "DejaVuSans-Bold.ttf" };
const ELLIPSIS = "…";

const fonts = new Map<Face, Font>();

function fontOf(face: Face): Font {
  let font = fonts.get(face);
  if (font === undefined) {
    const require = createRequire(import.meta.url);
    const bytes = readFileSync(require.resolve(`dejavu-fonts-ttf/ttf/${FILES[face]}`));
    const buffer = bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength);
    font = opentype.parse(buffer, { lowMemory: true });
    fonts.set(face, font);
  }
  return font;
}

function glyphsOf(text: string, font: Font): Glyph[] {
  return Array.from(text.replace(/\s/g, " "), (character) => font.charToGlyph(character));
}

/** Advance width in pixels. */
export function textWidth(text: string, { size, face }: Style): number {
  const font = fontOf(face);
  const units = glyphsOf(text, font).reduce((sum, glyph) => sum + glyph.advanceWidth, 0);
  return (units * size) / font.unitsPerEm;
}

/** A line of text as it is drawn, its baseline beginning at (0, 0). */
interface Outline {
  /** SVG path data; empty if there is nothing to see. */
  data: string;
  /** Nothing of it lies outside. */
  box: Box;
}

const MOST_OUTLINE_CHARACTERS = 1 << 20;
/** Lines of text that were drawn before: most of a picture's text stands on every picture. */
const drawn = new Kept<Outline>(MOST_OUTLINE_CHARACTERS, ({ data }, key) => key.length + data.length);

export function textOutline(text: string, { size, face }: Style): Outline {
  return drawn.get(`${face} ${size} ${text}`, () => {
    const data = outlines(text, { size, face });
    return { data, box: boxOf(data) };
  });
}

/** The box of all points of a path, whose coordinates are absolute; its curves lie between their control points. */
function boxOf(data: string): Box {
  const numbers = data.match(/-?[\d.]+/g)?.map(Number) ?? [];
  let [left, top, right, bottom] = [Infinity, Infinity, -Infinity, -Infinity];
  for (let i = 0; i + 1 < numbers.length; i += 2) {
    const [x, y] = [numbers[i] ?? 0, numbers[i + 1] ?? 0];
    left = Math.min(left, x);
    right = Math.max(right, x);
    top = Math.min(top, y);
    bottom = Math.max(bottom, y);
  }
  return { x: left, y: top, width: right - left, height: bottom - top };
}

function outlines(text: string, { size, face }: Style): string {
  const font = fontOf(face);
  let pen = 0;
  let data = "";
  for (const glyph of glyphsOf(text, font)) {
    data += glyph.getPath(pen, 0, size).toPathData(2);
    pen += (glyph.advanceWidth * size) / font.unitsPerEm;
  }
  return data;
}

/** The text, shortened with an ellipsis if it is wider than `width` pixels. */
export function fitText(text: string, width: number, style: Style): string {
  if (textWidth(text, style) <= width) return text;
  const characters = Array.from(text);
  while (characters.length > 0 && textWidth(characters.join("").trimEnd() + ELLIPSIS, style) > width)
    characters.pop();
  return characters.join("").trimEnd() + ELLIPSIS;
}

/** The text in lines of at most `width` pixels, broken between words, and within a word that is wider alone. */
export function wrapText(text: string, width: number, style: Style): string[] {
  const lines: string[] = [];
  let line = "";
  for (const word of text.split(/\s+/).filter((w) => w !== "")) {
    const longer = line === "" ? word : `${line} ${word}`;
    if (textWidth(longer, style) <= width) {
      line = longer;
      continue;
    }
    if (line !== "") lines.push(line);
    line = word;
    while (textWidth(line, style) > width && line.length > 1) {
      const part = widestPart(line, width, style);
      lines.push(part);
      line = line.slice(part.length);
    }
  }
  if (line !== "") lines.push(line);
  return lines;
}

function widestPart(word: string, width: number, style: Style): string {
  const characters = Array.from(word);
  while (characters.length > 1 && textWidth(characters.join(""), style) > width) characters.pop();
  return characters.join("");
}
