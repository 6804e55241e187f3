/**
 * The last look at the picture before it is written: what was drawn over the image is read back from the PNG and held
 * against the mask, by coordinates alone. A mask that was drawn flipped, shifted or from another slice is caught.
 */
import sharp from "sharp";
import type { EngineOutput } from "../engine.js";
import { RadserveError } from "../errors.js";
import type { ModelOutput } from "../manifest.js";
import { labelColours } from "./palette.js";

export interface Rectangle {
  x: number;
  y: number;
  width: number;
  height: number;
}

/** The image alone, and the same with what the model marked, in pixels of the picture. */
export interface Panels {
  image: Rectangle;
  overlay: Rectangle;
}

/** A label of the image's own grey cannot be seen on it; colours nearer than this in every channel count as that. */
const ALIKE = 64;
/** Of the marked pixels that could be seen, how many have to be. */
const DRAWN = 0.9;

/**
 * Each pixel in which the panels differ has to lie within one pixel of the mask, and the mask has to be there.
 * Pictures with boxes or heat maps hold other marks as well and are not judged.
 * @param results for the frame that the picture shows, in the order of the manifest's outputs
 * @throws RadserveError output_invalid
 */
export async function checkPicture(
  png: Uint8Array,
  { image, overlay }: Panels,
  outputs: readonly ModelOutput[],
  results: readonly EngineOutput[],
): Promise<void> {
  if (results.some(({ kind }) => kind === "boxes" || kind === "heatmap")) return;
  const masks = results.filter((result) => result.kind === "segmentation");
  const [first] = masks;
  if (first === undefined) return;
  const { data, info } = await sharp(png).removeAlpha().raw().toBuffer({ resolveWithObject: true });
  const at = ({ x, y }: Rectangle, i: number) =>
    ((y + Math.floor(i / image.width)) * info.width + x + (i % image.width)) * 3;
  const expected = shrunk(masks, image.width, image.height);
  const colours = labelColours(outputs).flat();
  let [marked, drawn] = [0, 0];
  for (let i = 0; i < expected.length; i++) {
    const [plain, over] = [at(image, i), at(overlay, i)];
    const differs = [0, 1, 2].some((c) => data[plain + c] !== data[over + c]);
    if (differs && !isNear(expected, image.width, i)) throw wrong("lies beside the mask");
    if (expected[i] === 0) continue;
    const hidden = colours.some((rgb) =>
      rgb.every((value, c) => Math.abs(value - (data[plain + c] ?? 0)) < ALIKE),
    );
    if (hidden && !differs) continue;
    marked++;
    if (differs) drawn++;
  }
  if (drawn < DRAWN * marked) throw wrong("leaves parts of the mask out");
}

type Segmentation = Extract<EngineOutput, { kind: "segmentation" }>;

/** Panel pixels that cover a marked source pixel. */
function shrunk(masks: readonly Segmentation[], width: number, height: number): Uint8Array {
  const panel = new Uint8Array(width * height);
  for (const { mask, rows, columns } of masks)
    for (let i = 0; i < mask.length; i++) {
      if (mask[i] === 0) continue;
      const [x, y] = [i % columns, Math.floor(i / columns) % rows];
      const [x0, y0] = [Math.floor((x * width) / columns), Math.floor((y * height) / rows)];
      const x1 = Math.max(x0 + 1, Math.ceil(((x + 1) * width) / columns));
      const y1 = Math.max(y0 + 1, Math.ceil(((y + 1) * height) / rows));
      for (let row = y0; row < y1; row++)
        for (let column = x0; column < x1; column++) panel[row * width + column] = 1;
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
