import t from "tap";
import type { EngineOutput } from "../../../src/engine/types.js";
import {
  fullestCrossing,
  markedPixels,
  sliceOutputs,
} from "../../../src/results/findings/volume-outputs.js";

/** Three slices of 1 x 2 pixels. */
const exclusive: EngineOutput = {
  kind: "segmentation",
  tensor: "m",
  slices: 3,
  rows: 1,
  columns: 2,
  overlapping: false,
  mask: Uint8Array.of(0, 1, 2, 2, 1, 1),
  counts: [3, 2],
};
/** Two labels, each with its three slices. */
const overlapping: EngineOutput = {
  ...exclusive,
  overlapping: true,
  mask: Uint8Array.of(0, 0, 1, 0, 1, 1, 0, 1, 0, 0, 1, 1),
  counts: [3, 3],
};
const scores: EngineOutput = { kind: "classification", tensor: "p", scores: Float32Array.of(0.5) };

t.test("the marked pixels of each slice", (t) => {
  t.same(markedPixels([exclusive], 3).slices, [1, 2, 2]);
  t.same(markedPixels([overlapping], 3).slices, [1, 1, 4], "over all labels");
  t.same(markedPixels([exclusive, overlapping, scores], 3).slices, [2, 3, 6], "over all outputs");
  t.same(markedPixels([scores], 3).slices, [0, 0, 0]);
  t.end();
});

t.test("outputs of one slice", (t) => {
  const [first, second, third] = sliceOutputs([exclusive, overlapping, scores], 2);
  t.match(first, { mask: Uint8Array.of(1, 1), rows: 1, columns: 2, slices: undefined });
  t.match(second, { mask: Uint8Array.of(1, 1, 1, 1), overlapping: true });
  t.match(sliceOutputs([overlapping], 0), [{ mask: Uint8Array.of(0, 0, 0, 1), slices: undefined }]);
  t.equal(third, scores);
  t.end();
});

t.test("the row with most marked, and of its columns the fullest", (t) => {
  const volume = (mask: number[][][]): EngineOutput => ({
    kind: "segmentation",
    tensor: "m",
    overlapping: false,
    counts: [1],
    slices: mask.length,
    rows: mask[0]!.length,
    columns: mask[0]![0]!.length,
    mask: Uint8Array.from(mask.flat(2)),
  });
  const crossing = (...outputs: EngineOutput[]) =>
    fullestCrossing(outputs, markedPixels(outputs, 2));
  const one = volume([
    [
      [1, 0, 0, 1],
      [0, 1, 1, 0],
      [0, 0, 0, 0],
    ],
    [
      [1, 0, 0, 0],
      [0, 0, 1, 0],
      [0, 0, 1, 0],
    ],
  ]);
  t.same(markedPixels([one], 2).rows, [3, 3, 1]);
  t.same(crossing(one), { row: 0, column: 0 }, "of two equal rows the first");
  const block = volume([
    [
      [1, 1, 1],
      [1, 1, 1],
      [1, 1, 1],
    ],
    [
      [1, 1, 1],
      [1, 1, 1],
      [1, 1, 1],
    ],
  ]);
  t.same(crossing(block), { row: 1, column: 1 }, "of more equals the middle one");
  const two = volume([
    [
      [0, 0, 0, 0],
      [0, 0, 0, 5],
      [0, 0, 2, 2],
    ],
    [
      [0, 0, 0, 0],
      [0, 0, 0, 0],
      [0, 0, 0, 3],
    ],
  ]);
  t.same(crossing(one, two), { row: 1, column: 2 }, "over all outputs");
  t.equal(crossing(scores), undefined);
  t.equal(crossing(volume([[[0]], [[0]]])), undefined, "where nothing is marked");
  t.end();
});
