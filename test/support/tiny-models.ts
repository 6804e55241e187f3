/** Tiny models and planes for tests of the engine. */
import { writeFileSync } from "node:fs";
import path from "node:path";
import { onnxModel, type ModelDescription } from "../../scripts/lib/onnx-model.js";
import type { Engine } from "../../src/engine/engine.js";
import type { LoadOptions, Plane } from "../../src/engine/types.js";
import type { ImageInput } from "../../src/manifest/manifest.js";
import type { ModelOutput } from "../../src/manifest/outputs/outputs.js";
import { signedPlane } from "../../src/models/made-up-image.js";
import { endlessGraph, foldingGraph } from "./endless.js";
import { until } from "./until.js";

export function writeModel(folder: string, model: ModelDescription): string {
  const file = path.join(folder, `${model.name}.onnx`);
  writeFileSync(file, onnxModel(model));
  return file;
}

/** y = x, of any size. */
export const identity: ModelDescription = {
  name: "identity",
  inputs: [{ name: "x", dtype: "float32", shape: ["n", 1, "h", "w"] }],
  outputs: [{ name: "y", dtype: "float32", shape: ["n", 1, "h", "w"] }],
  nodes: [{ op: "Identity", inputs: ["x"], outputs: ["y"] }],
};

/** A tensor of one channel and of any size. */
export const anySize = (name: string) =>
  ({ name, dtype: "float32", shape: ["n", 1, "h", "w"] }) as const;

/** Its runs never end by themselves: somebody ends them. */
export const neverEnds: ModelDescription = {
  name: "never-ends",
  ...endlessGraph(anySize("x"), anySize("y")),
};

/** Loading it never ends by itself. */
export const neverLoaded: ModelDescription = {
  name: "never-loaded",
  ...foldingGraph(anySize("x"), anySize("y")),
};

export const input: ImageInput = {
  tensor: "x",
  dtype: "float32",
  layout: "NCHW",
  size: { kind: "source" },
  fit: "stretch",
  interpolation: "linear",
  values: { kind: "modality" },
  monochrome1: "invert",
  channels: "grayscale",
  colour_source: "refuse",
  normalisation: { kind: "none" },
  background: 0,
};

export const heatmap: ModelOutput = {
  kind: "heatmap",
  tensor: "y",
  activation: "none",
  label: { label: "value" },
};

export const loadOptions = (modelPath: string, more: Partial<LoadOptions> = {}): LoadOptions => ({
  modelPath,
  name: "test",
  version: "1",
  inputs: [input],
  outputs: [heatmap],
  provider: "cpu",
  batching: { max: 1 },
  ...more,
});

export const slowInput: ImageInput = { ...input, size: { kind: "fixed", height: 512, width: 512 } };

/** Samples as they are, 0 where none are given. */
export const plane = (rows: number, columns: number, samples?: readonly number[]): Plane =>
  signedPlane(rows, columns, samples ?? new Array<number>(rows * columns).fill(0));

/** Resolves once so many tasks of the engine run, each on a thread of it. */
export async function untilRunning(engine: Engine, tasks = 1): Promise<void> {
  await until(`${tasks} tasks run`, () => engine.stats().running >= tasks, setImmediate);
}

export const HEAVY_SIDE = 2048;

/**
 * Its 16 MiB of weights cost as much to read for one image as for many: batches pay, on a CPU too.
 */
export const heavy: ModelDescription = {
  name: "heavy",
  inputs: [{ name: "x", dtype: "float32", shape: ["n", 1, 1, HEAVY_SIDE] }],
  outputs: [{ name: "y", dtype: "float32", shape: ["n", 1, 1, HEAVY_SIDE] }],
  initializers: [
    {
      name: "w",
      dtype: "float32",
      shape: [HEAVY_SIDE, HEAVY_SIDE],
      data: Array.from({ length: HEAVY_SIDE ** 2 }, (_, i) => ((i * 7919) % 31) / 31),
    },
  ],
  nodes: [{ op: "MatMul", inputs: ["x", "w"], outputs: ["y"] }],
};
