/**
 * Drawings in pixels. librsvg renders them, through sharp, and what it has rendered is kept piece by piece: of a model's
 * pictures all text is the same but a few numbers. Rendered somewhere else a piece has the same pixels, as pieces are moved
 * by whole pixels only.
 */
import sharp from "sharp";
import { svgOf, type Drawing, type Piece } from "./draw.js";
import { Kept } from "./kept.js";
import { layPixels, type Picture } from "./raster.js";

/** Four bytes a pixel, colours not multiplied by their opacity. */
type Rgba = Uint8Array;

const MOST_KEPT_BYTES = 1 << 22;
const kept = new Kept<Rgba>(MOST_KEPT_BYTES, (rgba, key) => 2 * key.length + rgba.length);

const keyOf = ({ width, height, content }: Piece): string => `${width} ${height} ${content}`;

/**
 * Lays a drawing over a picture. One with boxes is rendered whole: their places are the image's own, so that nothing of
 * them would be found again, and their lines can come out otherwise by a shade where they are moved.
 */
export async function layDrawing(picture: Picture, drawing: Drawing): Promise<void> {
  const { width, height } = picture;
  if (drawing.hasClipped) {
    layPixels(picture, await pixelsOf(drawing.svg(width, height)), { x: 0, y: 0, width, height });
    return;
  }
  const pieces = drawing.pieces();
  const pixels = new Map<string, Rgba>();
  const missing = new Map<string, Piece>();
  for (const piece of pieces) {
    const key = keyOf(piece);
    const known = kept.find(key);
    if (known === undefined) missing.set(key, piece);
    else pixels.set(key, known);
  }
  for (const sheet of sheetsOf([...missing.values()]))
    for (const [piece, rgba] of await rendered(sheet)) {
      const key = keyOf(piece);
      kept.keep(key, rgba);
      pixels.set(key, rgba);
    }
  for (const piece of pieces) layPixels(picture, pixels.get(keyOf(piece)) ?? new Uint8Array(0), piece);
}

/** One render costs some time, however little it holds; cairo's surfaces end at 32,767 pixels. */
const HIGHEST_SHEET = 8192;

/** Pieces in as few renders as can hold them one below the other. */
function sheetsOf(pieces: readonly Piece[]): Piece[][] {
  const sheets: Piece[][] = [];
  let height = Infinity;
  for (const piece of pieces) {
    if (height + piece.height > HIGHEST_SHEET) {
      sheets.push([]);
      height = 0;
    }
    sheets.at(-1)?.push(piece);
    height += piece.height;
  }
  return sheets;
}

async function rendered(sheet: readonly Piece[]): Promise<[Piece, Rgba][]> {
  const width = Math.max(...sheet.map((piece) => piece.width));
  let height = 0;
  const placed = sheet.map((piece) => {
    const top = height;
    height += piece.height;
    return { piece, top };
  });
  const groups = placed.map(({ piece, top }) => `<g transform="translate(0 ${top})">${piece.content}</g>`);
  const all = await pixelsOf(svgOf(width, height, groups.join("")));
  return placed.map(({ piece, top }) => {
    const rgba = new Uint8Array(4 * piece.width * piece.height);
    for (let y = 0; y < piece.height; y++) {
      const from = 4 * (top + y) * width;
      rgba.set(all.subarray(from, from + 4 * piece.width), 4 * y * piece.width);
    }
    return [piece, rgba];
  });
}

function pixelsOf(svg: string): Promise<Rgba> {
  return sharp(Buffer.from(svg)).ensureAlpha().raw().toBuffer();
}
