/**
 * Drawings in pixels. librsvg renders them, through sharp, and what it has rendered is kept piece by piece: of a model's
 * pictures all text is the same but a few numbers. Each piece is rendered by itself, in its own place's pixels, so that
 * it comes out the same whatever was drawn before.
 */
import sharp from "sharp";
import { svgOf, type Drawing, type Piece } from "./drawing.js";
import { Kept } from "../../base/bounded-cache.js";
import { layPixels } from "./blend.js";
import type { Picture } from "./pixels.js";

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
