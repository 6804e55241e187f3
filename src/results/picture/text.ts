/**
 * Text in the DejaVu fonts that are installed with Radserve, so that a picture is the same on every
 * machine, whichever fonts it has: how wide it is, how it breaks, and the glyphs that it is drawn
 * with.
 */
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import type opentype from "opentype.js";
import type { Font, Glyph, PathCommand } from "opentype.js";
import { fillOutline } from "../../addon/picture.js";

type Face = "regular" | "bold";

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

function faceOf(face: Face): LoadedFace {
  let loaded = faces.get(face);
  if (loaded === undefined) {
    const require = createRequire(import.meta.url);
    // Loaded at the first drawing: an import would load it at the start of each thread
    const library = require("opentype.js") as typeof opentype;
    const bytes = readFileSync(require.resolve(`dejavu-fonts-ttf/ttf/${FILES[face]}`));
    const buffer = bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength);
    loaded = { font: library.parse(buffer, { lowMemory: true }), glyphs: new Map() };
    faces.set(face, loaded);
  }
  return loaded;
}

/** Every kind of white space is a space. */
function glyphOf({ font, glyphs }: LoadedFace, character: string): Glyph {
  let glyph = glyphs.get(character);
  if (glyph === undefined) {
    glyph = font.charToGlyph(/\s/.test(character) ? " " : character);
    glyphs.set(character, glyph);
  }
  return glyph;
}

/** Advance width in pixels. */
export function textWidth(text: string, { size, face }: Style): number {
  const loaded = faceOf(face);
  let units = 0;
  for (const character of text) units += glyphOf(loaded, character).advanceWidth;
  return (units * size) / loaded.font.unitsPerEm;
}

/** A glyph in pixels: where its coverage lies in the atlas, and where its box lies from the pen. */
export interface AtlasGlyph {
  place: number;
  left: number;
  top: number;
  width: number;
  height: number;
}

/** Glyphs stand at quarters of a pixel along the line, so that their distances look even. */
const STEPS = 4;
/** Pictures of a few sizes need a quarter of this. */
const MOST_ATLAS_BYTES = 1 << 21;
const FIRST_ATLAS_BYTES = 1 << 16;

/** The glyphs that a thread has drawn, filled once each. */
class Atlas {
  #bytes = new Uint8Array(FIRST_ATLAS_BYTES);
  #filled = 0;
  /** By face and size, and then by character, a map for each step. */
  #glyphs = new Map<string, StyleGlyphs>();

  get bytes(): Uint8Array {
    return this.#bytes.subarray(0, this.#filled);
  }

  /** Forgets all glyphs if they are many. Places that were given before hold no longer. */
  trim(): void {
    if (this.#filled < MOST_ATLAS_BYTES) return;
    this.#filled = 0;
    this.#glyphs = new Map();
  }

  /**
   * @returns gives a glyph by its character, and the quarters of a pixel that the pen stands right
   * of a whole one
   */
  glyphsOf(style: Style): (character: string, step: number) => AtlasGlyph {
    const key = `${style.face} ${style.size}`;
    const steps: StyleGlyphs =
      this.#glyphs.get(key) ?? Array.from({ length: STEPS }, () => new Map<string, AtlasGlyph>());
    this.#glyphs.set(key, steps);
    return (character, step) => {
      const ofStep = steps[step];
      const known = ofStep?.get(character) ?? this.#fill(character, style, step / STEPS);
      ofStep?.set(character, known);
      return known;
    };
  }

  #fill(character: string, { size, face }: Style, right: number): AtlasGlyph {
    const segments = segmentsOf(glyphOf(faceOf(face), character).getPath(right, 0, size).commands);
    const box = boxOf(segments);
    const place = this.#filled;
    if (box.width * box.height === 0) return { place, ...box };
    const coverage = fillOutline(segments, box);
    if (place + coverage.length > this.#bytes.length) {
      const larger = new Uint8Array(2 * (place + coverage.length));
      larger.set(this.bytes);
      this.#bytes = larger;
    }
    this.#bytes.set(coverage, place);
    this.#filled += coverage.length;
    return { place, ...box };
  }
}

type StyleGlyphs = Map<string, AtlasGlyph>[];

export const atlas = new Atlas();

/** Lines that a curve of a glyph is drawn with: at the sizes of a picture none is seen. */
const CURVE_LINES = 8;

/** x0, y0, x1, y1 of each line of closed outlines; a curve in a TrueType font is quadratic. */
function segmentsOf(commands: readonly PathCommand[]): Float32Array {
  const lines: number[] = [];
  let [startX, startY, x, y] = [0, 0, 0, 0];
  const lineTo = (toX: number, toY: number): void => {
    lines.push(x, y, toX, toY);
    [x, y] = [toX, toY];
  };
  for (const command of commands) {
    if (command.type === "Z") lineTo(startX, startY);
    else if (command.type === "L") lineTo(command.x, command.y);
    else if (command.type === "M") {
      [x, y] = [command.x, command.y];
      [startX, startY] = [x, y];
    } else if (command.type === "Q") {
      const [fromX, fromY] = [x, y];
      for (let i = 1; i <= CURVE_LINES; i++) {
        const t = i / CURVE_LINES;
        const [a, b, c] = [(1 - t) ** 2, 2 * t * (1 - t), t ** 2];
        lineTo(
          a * fromX + b * command.x1 + c * command.x,
          a * fromY + b * command.y1 + c * command.y,
        );
      }
    } else throw new Error("The fonts have no cubic curves");
  }
  return Float32Array.from(lines);
}

/** The whole pixels that hold all lines; empty if there are none. */
function boxOf(segments: Float32Array): Omit<AtlasGlyph, "place"> {
  if (segments.length === 0) return { left: 0, top: 0, width: 0, height: 0 };
  let [left, top, right, bottom] = [Infinity, Infinity, -Infinity, -Infinity];
  for (let i = 0; i + 1 < segments.length; i += 2) {
    const [x, y] = [segments[i] ?? 0, segments[i + 1] ?? 0];
    left = Math.min(left, x);
    right = Math.max(right, x);
    top = Math.min(top, y);
    bottom = Math.max(bottom, y);
  }
  const [x, y] = [Math.floor(left), Math.floor(top)];
  return { left: x, top: y, width: Math.ceil(right) - x, height: Math.ceil(bottom) - y };
}

export interface PlacedGlyph {
  glyph: AtlasGlyph;
  /** The box's upper left corner, in whole pixels. */
  x: number;
  y: number;
}

/**
 * The glyphs of a line of text, in the atlas.
 * @param x where the pen begins
 * @param y the baseline, a whole pixel, so that stems are equally sharp from line to line
 */
export function placedGlyphs(text: string, x: number, y: number, style: Style): PlacedGlyph[] {
  const loaded = faceOf(style.face);
  const placed: PlacedGlyph[] = [];
  const glyphAt = atlas.glyphsOf(style);
  let pen = x;
  for (const character of text) {
    const quarters = Math.round(pen * STEPS);
    const whole = Math.floor(quarters / STEPS);
    const glyph = glyphAt(character, quarters - whole * STEPS);
    if (glyph.width > 0) placed.push({ glyph, x: whole + glyph.left, y: y + glyph.top });
    pen += (glyphOf(loaded, character).advanceWidth * style.size) / loaded.font.unitsPerEm;
  }
  return placed;
}

/** The text, shortened with an ellipsis if it is wider than `width` pixels. */
export function fitText(text: string, width: number, style: Style): string {
  if (textWidth(text, style) <= width) return text;
  const characters = Array.from(text);
  while (
    characters.length > 0 &&
    textWidth(characters.join("").trimEnd() + ELLIPSIS, style) > width
  )
    characters.pop();
  return characters.join("").trimEnd() + ELLIPSIS;
}

/**
 * The text in lines of at most `width` pixels, broken between words, and within a word that is
 * wider alone.
 */
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
