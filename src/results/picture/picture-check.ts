/**
 * The last look at the picture before it is written: what was drawn over the image is read back from the PNG and
 * compared with the mask, by coordinates alone. A mask that was drawn flipped, shifted or from another slice is caught.
 */
import type { EngineOutput } from "../../engine/types.js";
import { RadserveError } from "../../base/errors.js";
import type { ModelOutput } from "../../manifest/manifest.js";
import { type Rgb, labelColours } from "./colour.js";
import type { Picture } from "./pixels.js";

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
/** The share of the marked pixels that could be seen which has to be seen. */
const DRAWN = 0.9;

/**
 * Each pixel that was changed has to lie within one pixel of the mask, and the mask within one pixel of what was changed.
 * Panels with boxes or heat maps hold other marks as well and are not judged.
 * @param read gives what was written, read back; called if a panel is judged
 * @throws RadserveError output_invalid
 */
export async function checkPicture(
  read: () => Promise<Picture>,
  panels: readonly MarkedPanel[],
  outputs: readonly ModelOutput[],
): Promise<void> {
  const judged = panels.filter(
    ({ results }) =>
      results.some(({ kind }) => kind === "segmentation") &&
      !results.some(({ kind }) => kind === "boxes" || kind === "heatmap"),
  );
  if (judged.length === 0) return;
  const picture = await read();
  const colours = labelColours(outputs).flat();
  for (const panel of judged) checkPanel(panel, colours, picture);
}

function checkPanel(panel: MarkedPanel, colours: readonly Rgb[], picture: Picture): void {
  const { width, height, plain, results } = panel;
  const expected = shrunk(results, width, height);
  const changed = changedPixels(panel, picture);
  let [marked, drawn] = [0, 0];
  for (let i = 0; i < expected.length; i++) {
    const [inMask, isChanged] = [expected[i] === 1, changed[i] === 1];
    if (isChanged && !inMask && !isNear(expected, width, i)) throw wrong("lies beside the mask");
    if (!inMask) continue;
    const seen = isChanged || isNear(changed, width, i);
    if (!seen && isAlike(colours, plain, i * 3)) continue;
    marked++;
    if (seen) drawn++;
  }
  if (drawn < DRAWN * marked) throw wrong("leaves parts of the mask out");
}

/** Panel pixels that are other than before. */
function changedPixels({ x, y, width, height, plain }: MarkedPanel, picture: Picture): Uint8Array {
  const { rgb } = picture;
  const changed = new Uint8Array(width * height);
  for (let row = 0, i = 0; row < height; row++) {
    let after = ((y + row) * picture.width + x) * 3;
    for (let column = 0; column < width; column++, i++, after += 3) {
      const before = i * 3;
      const same =
        plain[before] === rgb[after] &&
        plain[before + 1] === rgb[after + 1] &&
        plain[before + 2] === rgb[after + 2];
      if (!same) changed[i] = 1;
    }
  }
  return changed;
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
    const [xs, ys] = [coveredBy(columns, width), coveredBy(rows, height)];
    for (let i = 0, row = 0; i < mask.length; row = (row + 1) % rows) {
      const [y0 = 0, y1 = 0] = [ys.from[row], ys.to[row]];
      for (const end = i + columns; i < end;) {
        if (mask[i] === 0) {
          i++;
          continue;
        }
        // What neighbours cover leaves no gap between them
        const first = columns - (end - i);
        while (i < end && mask[i] !== 0) i++;
        const x0 = xs.from[first] ?? 0;
        const x1 = xs.to[columns - (end - i) - 1] ?? 0;
        for (let y = y0; y < y1; y++) panel.fill(1, y * width + x0, y * width + x1);
      }
    }
  }
  return panel;
}

/** Where each of `source` pixels begins and ends among `target` pixels; at least one each. */
function coveredBy(source: number, target: number): { from: Uint32Array; to: Uint32Array } {
  const from = Uint32Array.from({ length: source }, (_, i) => Math.floor((i * target) / source));
  const to = from.map((begin, i) => Math.max(begin + 1, Math.ceil(((i + 1) * target) / source)));
  return { from, to };
}

/** Whether a pixel or one of its eight neighbours is set. */
function isNear(set: Uint8Array, width: number, i: number): boolean {
  const x = i % width;
  const [first, last] = [x === 0 ? i : i - 1, x === width - 1 ? i : i + 1];
  for (let row = -width; row <= width; row += width)
    for (let at = first + row; at <= last + row; at++) if (set[at] === 1) return true;
  return false;
}

function wrong(what: string): RadserveError {
  return new RadserveError(
    "output_invalid",
    `The overlay failed its check before it was written: what is drawn ${what}. Nothing of this model was written; please report this fault.`,
    { output: "png" },
  );
}
