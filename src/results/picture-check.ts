/**
 * The last look at the picture before it is written: what was drawn over the image is read back from the PNG and held
 * against the mask, by coordinates alone. A mask that was drawn flipped, shifted or from another slice is caught.
 */
import sharp from "sharp";
import type { EngineOutput } from "../engine.js";
import { RadserveError } from "../errors.js";
import type { ModelOutput } from "../manifest.js";
import type { Rgb } from "./colour.js";
import { labelColours } from "./palette.js";

/** A panel on which a model's marks were drawn, in pixels of the picture. */
export interface MarkedPanel {
  x: number;
  y: number;
  width: number;
  height: number;
  /** The panel before it was drawn upon, RGB. */
  plain: Uint8Array;
  /** What the engine gave for its frame, in the order of the manifest's outputs. */
  results: readonly EngineOutput[];
}

/** A label of the image's own grey cannot be seen on it; colours nearer than this in every channel count as that. */
const ALIKE = 64;
/** Of the marked pixels that could be seen, how many have to be. */
const DRAWN = 0.9;

/**
 * Each pixel that was changed has to lie within one pixel of the mask, and the mask within one pixel of what was changed.
 * Panels with boxes or heat maps hold other marks as well and are not judged.
 * @throws RadserveError output_invalid
 */
export async function checkPicture(
  png: Uint8Array,
  panels: readonly MarkedPanel[],
  outputs: readonly ModelOutput[],
): Promise<void> {
  const judged = panels.filter(
    ({ results }) =>
      results.some(({ kind }) => kind === "segmentation") &&
      !results.some(({ kind }) => kind === "boxes" || kind === "heatmap"),
  );
  if (judged.length === 0) return;
  const { data, info } = await sharp(png).removeAlpha().raw().toBuffer({ resolveWithObject: true });
  const colours = labelColours(outputs).flat();
  for (const panel of judged) checkPanel(panel, colours, data, info.width);
}

function checkPanel(panel: MarkedPanel, colours: readonly Rgb[], picture: Uint8Array, across: number): void {
  const { x, y, width, height, plain, results } = panel;
  const expected = shrunk(results, width, height);
  const changed = expected.map((_, i) => {
    const [before, after] = [i * 3, ((y + Math.floor(i / width)) * across + x + (i % width)) * 3];
    return [0, 1, 2].some((c) => plain[before + c] !== picture[after + c]) ? 1 : 0;
  });
  let [marked, drawn] = [0, 0];
  for (let i = 0; i < expected.length; i++) {
    if (changed[i] === 1 && !isNear(expected, width, i)) throw wrong("lies beside the mask");
    if (expected[i] === 0) continue;
    const seen = isNear(changed, width, i);
    if (!seen && isAlike(colours, plain, i * 3)) continue;
    marked++;
    if (seen) drawn++;
  }
  if (drawn < DRAWN * marked) throw wrong("leaves parts of the mask out");
}

function isAlike(colours: readonly Rgb[], pixels: Uint8Array, at: number): boolean {
  return colours.some((rgb) => rgb.every((value, c) => Math.abs(value - (pixels[at + c] ?? 0)) < ALIKE));
}

/** Panel pixels that cover a marked source pixel. */
function shrunk(results: readonly EngineOutput[], width: number, height: number): Uint8Array {
  const panel = new Uint8Array(width * height);
  for (const result of results) {
    if (result.kind !== "segmentation") continue;
    const { mask, rows, columns } = result;
    for (let i = 0; i < mask.length; i++) {
      if (mask[i] === 0) continue;
      const [x, y] = [i % columns, Math.floor(i / columns) % rows];
      const [x0, y0] = [Math.floor((x * width) / columns), Math.floor((y * height) / rows)];
      const x1 = Math.max(x0 + 1, Math.ceil(((x + 1) * width) / columns));
      const y1 = Math.max(y0 + 1, Math.ceil(((y + 1) * height) / rows));
      for (let row = y0; row < y1; row++)
        for (let column = x0; column < x1; column++) panel[row * width + column] = 1;
    }
  }
  return panel;
}

/** Whether a pixel or one of its eight neighbours is set. */
function isNear(set: Uint8Array, width: number, i: number): boolean {
  const x = i % width;
  for (const row of [i - width, i, i + width])
    for (let column = Math.max(0, x - 1); column <= Math.min(width - 1, x + 1); column++)
      if (set[row - x + column] === 1) return true;
  return false;
}

function wrong(what: string): RadserveError {
  return new RadserveError(
    "output_invalid",
    `The overlay failed its check before it was written: what is drawn ${what}. Nothing of this model was written; please report this fault.`,
    { output: "png" },
  );
}
