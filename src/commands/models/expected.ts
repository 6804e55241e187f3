/**
 * Compares a model's output with that of another program for the same image, for `models try
 * --expect`.
 */
import { isDeepStrictEqual } from "node:util";
import type { Tensor } from "../../base/tensor.js";
import type { InferResult, SegmentationOutput } from "../../engine/types.js";
import { errors } from "../../base/errors.js";
import {
  compareTensors,
  toNumbers,
  type Comparison,
  type Tolerance,
} from "../../models/compare.js";

type Plain = Pick<Tensor, "dtype" | "shape" | "data">;

/** Two best scores that differ by no more than this are a tie: rounding decides between them. */
const TIE = 1e-5;

/**
 * Whole numbers of the source's shape are labels, floats with the channels before it probabilities,
 * and everything else is held against the first output tensor. numpy and nibabel make float64 of
 * what they are not told the type of: its values count.
 */
export function compareExpected(
  expected: Plain,
  result: Pick<InferResult, "outputs" | "tensors">,
  tolerance: Tolerance,
): Comparison & { what: string } {
  const segmentation = result.outputs.find(
    (output): output is SegmentationOutput => output.kind === "segmentation",
  );
  const probabilities = result.tensors?.probabilities[0];
  if (segmentation !== undefined && isLabels(expected, segmentation))
    return {
      what: "labels",
      ...compareLabels(expected, segmentation, onGridOf(segmentation, probabilities)),
    };
  if (probabilities !== undefined && isDeepStrictEqual(expected.shape, probabilities.shape))
    return {
      what: "probabilities",
      ...compareTensors(expected, probabilities, tolerance, "any_float"),
    };
  const output = result.tensors?.outputs[0];
  if (output === undefined) throw errors.internal("The engine gave no tensors to show.");
  return { what: output.name, ...compareTensors(expected, output, tolerance, "any_float") };
}

function isLabels(
  expected: Plain,
  { slices, rows, columns, overlapping }: SegmentationOutput,
): boolean {
  if (overlapping) return false;
  // Of a single image other programs have a slice
  const { dtype, shape } = expected;
  const isOne = slices === undefined && shape.length === 2;
  return (
    isDeepStrictEqual(shape, isOne ? [rows, columns] : [slices ?? 1, rows, columns]) &&
    (!dtype.startsWith("float") || toNumbers(expected).every(Number.isInteger))
  );
}

/** Probabilities of the whole source; undefined where they are those of a part. */
function onGridOf(
  { mask }: SegmentationOutput,
  probabilities: Tensor | undefined,
): Tensor | undefined {
  const [channels = 0, ...sides] = probabilities?.shape ?? [];
  return channels > 0 && sides.reduce((a, b) => a * b, 1) === mask.length
    ? probabilities
    : undefined;
}

/** Labels are equal but for ties: voxels whose two best scores are the same up to rounding. */
function compareLabels(
  expected: Plain,
  { mask, counts }: SegmentationOutput,
  scores: Tensor | undefined,
): Comparison {
  const want = toNumbers(expected);
  const best = scores === undefined ? undefined : margins(scores);
  let different = 0;
  let ties = 0;
  const wanted = counts.map(() => 0);
  const both = counts.map(() => 0);
  want.forEach((label, i) => {
    if (label > 0) wanted[label - 1] = (wanted[label - 1] ?? 0) + 1;
    if (label === mask[i]) {
      if (label > 0) both[label - 1] = (both[label - 1] ?? 0) + 1;
      return;
    }
    different++;
    if ((best?.[i] ?? Infinity) <= TIE) ties++;
  });
  const dice = wanted.map((count, i) => {
    const sum = count + (counts[i] ?? 0);
    const found = `${i + 1}: ${counts[i] ?? 0} of ${count}, Dice ${sum === 0 ? "-" : ((2 * (both[i] ?? 0)) / sum).toFixed(6)}`;
    return `\n    label ${found}`;
  });
  return {
    equal: different === ties,
    maxAbsolute: different === ties ? 0 : 1,
    outside: different - ties,
    text: `${different} of ${want.length} voxels have another label, ${ties} of them ties (two best scores within ${TIE})${dice.join("")}`,
  };
}

/** By how much the best channel of each voxel exceeds the second best. */
function margins({ shape, data }: Tensor): Float32Array {
  const [channels = 0] = shape;
  const values = new Float32Array(data.buffer, data.byteOffset, data.byteLength / 4);
  const voxels = values.length / channels;
  const margin = new Float32Array(voxels).fill(Infinity);
  if (channels < 2) return margin;
  for (let i = 0; i < voxels; i++) {
    let [first, second] = [-Infinity, -Infinity];
    for (let c = 0; c < channels; c++) {
      const value = values[c * voxels + i] ?? NaN;
      if (value > first) [first, second] = [value, first];
      else if (value > second) second = value;
    }
    margin[i] = first - second;
  }
  return margin;
}
