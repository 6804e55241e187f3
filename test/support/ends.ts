/** Volumes that scipy resampled with ends aligned, held against the engine's (reference/ends). */
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { onnxModel } from "../../scripts/lib/onnx-model.js";
import { decodeNpy } from "../../src/engine/npy.js";
import type { Engine } from "../../src/engine/engine.js";
import type { ImageInput, Manifest } from "../../src/manifest/manifest.js";
import type { Resampling } from "../../src/manifest/resampling.js";
import { deep, segmentation } from "./model-parts.js";
import { input, loadOptions } from "./tiny-models.js";
import { geometryOf, slicesOf } from "./volumes.js";

/** As TotalSegmentator resamples. */
export const ends: Resampling = {
  grid: "ends",
  spacing_mm: [1.5, 1.5, 1.5],
  order: 1,
  order_back: 0,
  keep_range: false,
  clip: "after",
  crop: "nonzero",
  activation: "after",
};

export const endsInput: ImageInput = {
  ...input,
  layout: "NCDHW",
  size: { kind: "source" },
  fit: "stretch",
  interpolation: "spline",
  monochrome1: "refuse",
  orientation: "SAR",
  resampling: ends,
};

export const endsTiling: NonNullable<Manifest["tiling"]> = {
  window: [8, 8, 8],
  overlap: 0.5,
  steps: "even",
  weights: { kind: "constant" },
  padding: 0,
};

/** Logits of background and two classes, by the voxel alone: from 300 and from 800 on. */
export const steps = (name: string, weights = [0, 1, 2], biases = [0, -300, -1100]) =>
  onnxModel({
    name,
    inputs: [{ name: "x", dtype: "float32", shape: deep }],
    outputs: [{ name: "y", dtype: "float32", shape: ["n", weights.length, ...deep.slice(2)] }],
    initializers: [
      { name: "w", dtype: "float32", shape: [weights.length, 1, 1, 1, 1], data: weights },
      { name: "b", dtype: "float32", shape: [biases.length], data: biases },
    ],
    nodes: [{ op: "Conv", inputs: ["x", "w", "b"], outputs: ["y"] }],
  });

export interface EndsCase {
  letters: string;
  spacing: [number, number, number];
  slope: number;
}

/**
 * The tensor and the labels of each case of a folder that reference.py has filled, of the engine
 * and of scipy.
 */
export async function* comparedWithScipy(engine: Engine, folder: string, models: string) {
  const modelPath = join(models, "ends.onnx");
  writeFileSync(modelPath, steps("ends"));
  const { id } = await engine.load(
    loadOptions(modelPath, {
      inputs: [endsInput],
      outputs: [segmentation({ activation: "softmax" })],
      tiling: endsTiling,
    }),
  );
  const cases = JSON.parse(readFileSync(join(folder, "cases.json"), "utf8")) as EndsCase[];
  for (const [number, { letters, spacing, slope }] of cases.entries()) {
    const stored = (name: string) => decodeNpy(readFileSync(join(folder, `${number}-${name}.npy`)));
    const { shape, data } = stored("volume");
    const [slices = 0, rows = 0, columns = 0] = shape;
    const voxels = new Uint16Array(Uint8Array.from(data).buffer);
    const found = await engine.infer(id, slicesOf(voxels, [slices, rows, columns], slope), {
      geometry: geometryOf(letters, spacing),
      dump: true,
    });
    const [output] = found.outputs;
    if (output?.kind !== "segmentation") throw new Error("Expected a segmentation");
    yield {
      name: `${slices} x ${rows} x ${columns} ${letters} of ${spacing.join(", ")} mm`,
      tensor: {
        found: {
          shape: found.tensors!.inputs[0]!.shape.slice(2),
          data: found.tensors!.inputs[0]!.data,
        },
        expected: { shape: stored("tensor").shape, data: stored("tensor").data },
      },
      labels: { found: output.mask, expected: stored("labels").data },
      counts: output.counts,
    };
  }
}
