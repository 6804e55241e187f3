/**
 * Text as outlines of the DejaVu fonts that are installed with Radserve, so that a picture is the same on every
 * machine, whichever fonts it has.
 */
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import opentype, { type Font, type Glyph } from "opentype.js";

export type Face = "regular" | "bold";

export interface Style {
  /** Pixels of the em square. */
  size: number;
  face: Face;
}

const FILES: Record<Face, string> = { regular: "DejaVuSans.ttf", bold: "DejaVuSans-Bold.ttf" };
const ELLIPSIS = "…";

interface LoadedFace {
  font: Font;
  glyphs: Map<string, Glyph>;
}
const faces = new Map<Face, LoadedFace>();

function load(face: Face): LoadedFace {
  let loaded = faces.get(face);
  if (loaded === undefined) {
    const require = createRequire(import.meta.url);
    const bytes = readFileSync(require.resolve(`dejavu-fonts-ttf/ttf/${FILES[face]}`));
    const buffer = bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength);
    loaded = { font: opentype.parse(buffer, { lowMemory: true }), glyphs: new Map() };
    faces.set(face, loaded);
  }
  return loaded;
}

function glyphsOf(text: string, face: Face): Glyph[] {
  const { font, glyphs } = load(face);
  return Array.from(text.replace(/\s/g, " "), (character) => {
    let glyph = glyphs.get(character);
    if (glyph === undefined) {
      glyph = font.charToGlyph(character);
      glyphs.set(character, glyph);
    }
    return glyph;
  });
}

/** Advance width in pixels. */
export function textWidth(text: string, { size, face }: Style): number {
  const { font } = load(face);
  const units = glyphsOf(text, face).reduce((sum, glyph) => sum + glyph.advanceWidth, 0);
  return (units * size) / font.unitsPerEm;
}

/** Lines of text that were drawn before, least recently first: most of a picture's text stands on every picture. */
const drawn = new Map<string, string>();
const MOST_DRAWN = 500;

/** SVG path data of a line of text whose baseline begins at (0, 0). */
export function textPath(text: string, { size, face }: Style): string {
  const key = `${face} ${size} ${text}`;
  const known = drawn.get(key);
  drawn.delete(key);
  const data = known ?? outlines(text, { size, face });
  drawn.set(key, data);
  for (const [oldest] of drawn) {
    if (drawn.size <= MOST_DRAWN) break;
    drawn.delete(oldest);
  }
  return data;
}

function outlines(text: string, { size, face }: Style): string {
  const { font } = load(face);
  let pen = 0;
  let data = "";
  for (const glyph of glyphsOf(text, face)) {
    data += glyph.getPath(pen, 0, size).toPathData(2);
    pen += (glyph.advanceWidth * size) / font.unitsPerEm;
  }
  return data;
}

/** The text, shortened with an ellipsis where it is wider than `width` pixels. */
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
