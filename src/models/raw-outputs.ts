/**
 * Whether the raw tensors of a graph are what the manifest takes them for, as far as their numbers
 * tell: what covers a part of the image, and what is activated already.
 */
import { ownValue } from "../base/own-value.js";
import { ELEMENT_TYPES, type Tensor } from "../base/tensor.js";
import type { Engine } from "../engine/engine.js";
import { elementCount } from "../engine/npy.js";
import type { GraphInfo, LoadedModel } from "../engine/types.js";
import { inputOf, isImageInput, type ImageInput, type Manifest } from "../manifest/manifest.js";
import { kindOf, type ModelOutput } from "../manifest/outputs/outputs.js";
import { firstRun, inputSides, zeroInput } from "./canary.js";
import { toNumbers } from "./compare.js";
import { pathText, type Problem } from "./explain.js";

/** Equal values differ by no more than this part of the largest. */
const ROUNDING = 1e-4;

/** A tensor as lines along one axis, of so many values that lie `step` apart. */
interface Lines {
  values: Float64Array;
  side: number;
  step: number;
}

const linesAlong = (tensor: Tensor, axis: number): Lines => ({
  values: toNumbers(tensor),
  side: tensor.shape[axis] ?? 0,
  step: elementCount(tensor.shape.slice(axis + 1)),
});

/** An axis along which an image can move. */
type Side = "D" | "H" | "W";
const SIDES = { W: "wide", H: "high", D: "deep" } as const;

/** The lines of a tensor along a side of the image; of a map, where it has the same axes. */
const linesOf = (tensor: Tensor, layout: ImageInput["layout"], side: Side): Lines | undefined =>
  tensor.shape.length === layout.length ? linesAlong(tensor, layout.indexOf(side)) : undefined;

/** The number of the line on which a value lies. */
const lineAt = (i: number, { side, step }: Lines): number =>
  Math.floor(i / (step * side)) * step + (i % step);

const placeOf = (i: number, { side, step }: Lines): number => Math.floor(i / step) % side;

/** Whether each value is the one that lay so many places before it in the other, where that is. */
function isMoved(from: Lines, to: Lines, by: number): boolean {
  const most = from.values.reduce((a, b) => Math.max(a, Math.abs(b)), 0);
  return to.values.every(
    (value, i) =>
      placeOf(i, to) < by ||
      Math.abs(value - (from.values[i - by * to.step] ?? NaN)) <= ROUNDING * most,
  );
}

/** So many different numbers noise has. */
const NOISE = 1021;

/** A number of noise, from 0 on, as an element of a type: as a part of 1, or as it is. */
const WRITERS: Record<ImageInput["dtype"], (view: DataView, at: number, value: number) => void> = {
  float32: (view, at, value) => view.setFloat32(at, value / NOISE, true),
  // Of 0 to 1 the bits, as a number, go from 0 to 15,360
  float16: (view, at, value) => view.setUint16(at, value * 15, true),
  uint8: (view, at, value) => view.setUint8(at, value % 251),
  int8: (view, at, value) => view.setInt8(at, value % 127),
  uint16: (view, at, value) => view.setUint16(at, value, true),
  int16: (view, at, value) => view.setInt16(at, value, true),
  int32: (view, at, value) => view.setInt32(at, value, true),
};

/** A made-up image whose neighbouring values all differ, moved so many pixels along a side. */
function movedNoise(zeros: Tensor, input: ImageInput, side: Side, by: number): Tensor {
  const lines = linesOf(zeros, input.layout, side);
  if (lines === undefined) return zeros;
  const data = new Uint8Array(zeros.data.length);
  const view = new DataView(data.buffer);
  const { bytes } = ELEMENT_TYPES[input.dtype];
  lines.values.forEach((_, i) => {
    const line = lineAt(i, lines);
    const place = placeOf(i, lines) + lines.side - by;
    const value = (line * 7919 + place * 104_729 + line * place * 31) % NOISE;
    WRITERS[input.dtype](view, i * bytes, value);
  });
  return { ...zeros, data };
}

/** Whether an output is a map of which the manifest does not say what it covers. */
const isUnsaid = (output: ModelOutput): output is ModelOutput & { tensor: string } =>
  "covers" in kindOf(output).schema.shape &&
  !("covers" in output && output.covers !== undefined) &&
  !("table" in output && output.table !== undefined);

/** Runs a graph on made-up images that are moved by a part of a side. */
type RunMoved = (side: Side, part: number) => Promise<(tensor: string) => Tensor | undefined>;

/**
 * The disagreements of a manifest with the numbers that its graph gives for made-up images.
 * Nothing is said of windows.
 */
export async function rawProblems(
  engine: Engine,
  loaded: LoadedModel,
  manifest: Manifest,
): Promise<Problem[]> {
  if (manifest.tiling !== undefined) return [];
  const run: RunMoved = async (side, part) => {
    const feeds = manifest.inputs.map((one) => {
      const zeros = zeroInput(one, manifest);
      if (!isImageInput(one)) return zeros;
      return movedNoise(zeros, one, side, Math.round(part * inputSides(one)[side]));
    });
    const given = await firstRun(engine, undefined, (limits) =>
      engine.runTensors(loaded.id, feeds, limits),
    );
    return (tensor) => given.find(({ name }) => name === tensor);
  };
  const still = await run("W", 0);
  // The mean of activated outputs adds up to 1, whatever the graphs give
  const isRaw = manifest.ensemble?.average !== "after_activation";
  const problems: Problem[] = [];
  for (const [o, output] of manifest.outputs.entries()) {
    const input = manifest.inputs[inputOf(manifest, output)];
    if (input === undefined || !isImageInput(input)) continue;
    if (isRaw) problems.push(...activatedTwice(output, o, input.layout, still));
    if (isUnsaid(output)) problems.push(...(await movingMap(output, o, input, run)));
  }
  return problems;
}

/** Numbers that add up to 1 differ from it by no more than this. */
const SUM_ROUNDING = 1e-3;

/** The activation that a manifest adds to an output, of which tensor, and where it says so. */
function activationOf(output: ModelOutput): { at: string[]; tensor: string; activation?: string } {
  const own = output as { tensor?: string; activation?: string };
  const scores = "scores" in output ? (output.scores as typeof own) : undefined;
  const { tensor = own.tensor ?? "", activation } = scores ?? own;
  const at = scores === undefined ? ["activation"] : ["scores", "activation"];
  return activation === undefined ? { at, tensor } : { at, tensor, activation };
}

/**
 * Scores that the graph has activated already, to which the manifest adds an activation. Whether
 * two softmaxes are over the same classes only numbers tell.
 */
export function activatedAgain({ outputs }: Manifest, { activations }: GraphInfo): Problem[] {
  return outputs.flatMap((output, o) => {
    const { at, tensor, activation = "" } = activationOf(output);
    const found = ownValue(activations, tensor);
    if (found === undefined || !["sigmoid", "softmax"].includes(activation)) return [];
    if (found === "softmax" && activation === "softmax") return [];
    const result =
      activation === "sigmoid" ? "makes every score 0.5 to 0.73" : "makes all scores alike";
    const isMap = output.kind === "segmentation" && activation === "softmax";
    const message = `"${tensor}" is a ${found} in the graph already: a ${activation} after it ${result}. Expected "${isMap ? "argmax" : "none"}"`;
    return [{ path: pathText(["outputs", o, ...at]), message }];
  });
}

/** Scores that add up to 1 without a softmax, which the manifest adds. */
function activatedTwice(
  output: ModelOutput,
  o: number,
  layout: ImageInput["layout"],
  given: (tensor: string) => Tensor | undefined,
): Problem[] {
  const { at, tensor, activation } = activationOf(output);
  const found = given(tensor);
  if (activation !== "softmax" || found === undefined) return [];
  const isMap = output.kind === "segmentation";
  const { shape } = found;
  const longer = shape.findLastIndex((side) => side > 1);
  const axis = isMap ? shape.length - layout.length + layout.indexOf("C") : longer;
  const classes = shape[axis] ?? 1;
  if (classes < 2) return [];
  const lines = linesAlong(found, axis);
  const { values } = lines;
  const sums = new Float64Array(values.length / classes);
  values.forEach((value, i) => {
    const line = lineAt(i, lines);
    sums[line] = (sums[line] ?? 0) + value;
  });
  const isSoftmax =
    values.every((value) => value >= 0) && sums.every((sum) => Math.abs(sum - 1) < SUM_ROUNDING);
  if (!isSoftmax) return [];
  const message = `"${tensor}" adds up to 1 over ${classes} classes before the softmax: the graph ends in one already. Expected "${isMap ? "argmax" : "none"}"`;
  return [{ path: pathText(["outputs", o, ...at]), message }];
}

/**
 * A map that covers a part of the tensor though the manifest does not say so. A map whose sides
 * are whole parts of the tensor's is stretched over it; convolutions without padding can have such
 * sides too. Then a map moves as many values as the image moves pixels, and not a part of them.
 * Nothing is known of graphs whose every value depends on the whole image.
 */
async function movingMap(
  { tensor }: { tensor: string },
  o: number,
  input: ImageInput,
  run: RunMoved,
): Promise<Problem[]> {
  const sides = inputSides(input);
  for (const side of ["W", "H", "D"] as const) {
    const linesIn = (map: Tensor | undefined) =>
      map === undefined || !input.layout.includes(side)
        ? undefined
        : linesOf(map, input.layout, side);
    const before = linesIn((await run(side, 0))(tensor));
    if (before === undefined) continue;
    const ratio = sides[side] / before.side;
    // A power of two, because pooling keeps its places over such a distance only
    const steps = 2 ** Math.floor(Math.log2(before.side / 2 / ratio));
    if (!Number.isInteger(ratio) || ratio < 2 || steps < 1) continue;
    const pixels = steps * ratio;
    const after = linesIn((await run(side, pixels / sides[side]))(tensor));
    if (after === undefined || after.side !== before.side) continue;
    if (!isMoved(before, after, pixels) || isMoved(before, after, steps)) continue;
    const message = `The map is ${before.side} ${SIDES[side]} and the tensor ${sides[side]}, but moves as many values as an image moves pixels: it covers a part of the tensor (convolutions without padding). Say which: "centre", or "start"`;
    return [{ path: pathText(["outputs", o, "covers"]), message }];
  }
  return [];
}
