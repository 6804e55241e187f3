/** Where the labels of a segmentation lie, by which the guard of the sides asks the image. */
import t from "tap";
import type { EngineOutput } from "../../../src/engine/types.js";
import { kindOfGiven } from "../../../src/results/kinds/kinds.js";

const [slices, rows, columns] = [2, 3, 4];
const length = slices * rows * columns;

function segmentation(mask: Uint8Array, labels: number, overlapping: boolean): EngineOutput {
  const counts = Array.from({ length: labels }, () => 0);
  return { kind: "segmentation", tensor: "y", slices, rows, columns, overlapping, mask, counts };
}
const middles = (output: EngineOutput) => kindOfGiven(output).middles?.(output);

t.test("the middle of each label, of none where nothing is marked", (t) => {
  const mask = new Uint8Array(length);
  // The first label: column 1 of both slices; the third: a pixel in each slice
  for (let line = 0; line < slices * rows; line++) mask[line * columns + 1] = 1;
  mask[2 * columns + 3] = 3;
  mask[rows * columns + 2] = 3;
  t.strictSame(middles(segmentation(mask, 3, false)), [
    { x: 1.5, y: 1.5 },
    undefined,
    { x: 3, y: 1.5 },
  ]);
  t.end();
});

t.test("labels that may overlap have a volume each", (t) => {
  const mask = new Uint8Array(3 * length);
  mask[length - 1] = 1;
  for (const at of [0, 1, rows * columns]) mask[2 * length + at] = 1;
  t.strictSame(middles(segmentation(mask, 3, true)), [
    { x: 3.5, y: 2.5 },
    undefined,
    { x: 1 / 3 + 0.5, y: 0.5 },
  ]);
  t.end();
});
