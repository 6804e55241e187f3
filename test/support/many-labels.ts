/**
 * A small network of many labels over volumes whose answer can be told voxel by voxel: the value is
 * the label.
 */
import { readFileSync, writeFileSync } from "node:fs";
import type { ModelDescription } from "../../scripts/lib/onnx-model.js";
import type { LoadOptions } from "../../src/engine/types.js";
import type { ImageInput } from "../../src/manifest/manifest.js";
import type { ModelOutput } from "../../src/manifest/outputs/outputs.js";
import type { Resampling } from "../../src/manifest/resampling.js";
import { input, loadOptions } from "./tiny-models.js";

/** Background and 104 labels, as networks of the whole body have. */
export const CLASSES = 105;

/** Channel c is 2cx - c^2: the highest is the one nearest to x. */
export const nearestLabel: ModelDescription = {
  name: "nearest-label",
  inputs: [{ name: "x", dtype: "float32", shape: ["n", 1, "d", "h", "w"] }],
  outputs: [{ name: "y", dtype: "float32", shape: ["n", CLASSES, "d", "h", "w"] }],
  initializers: [
    {
      name: "weights",
      dtype: "float32",
      shape: [CLASSES, 1, 1, 1, 1],
      data: Array.from({ length: CLASSES }, (_, c) => 2 * c),
    },
    {
      name: "bias",
      dtype: "float32",
      shape: [CLASSES],
      data: Array.from({ length: CLASSES }, (_, c) => -c * c),
    },
  ],
  nodes: [{ op: "Conv", inputs: ["x", "weights", "bias"], outputs: ["y"] }],
};

const labelled: ModelOutput = {
  kind: "segmentation",
  tensor: "y",
  activation: "argmax",
  labels: Array.from({ length: CLASSES - 1 }, (_, i) => ({ label: `label ${i + 1}` })),
  postprocess: [],
  measurements: [],
};

/**
 * nnU-Net's windows and resampling: cubes of `window` voxels, half of which the next one covers
 * too.
 */
export function manyLabels(
  file: string,
  window: number,
  spacing: Resampling["spacing_mm"],
): LoadOptions {
  const volume: ImageInput = {
    ...input,
    layout: "NCDHW",
    resampling: {
      grid: "edges",
      spacing_mm: spacing,
      order: 3,
      order_back: 1,
      separate_above: 3,
      keep_range: true,
      clip: "before",
      crop: "none",
      activation: "after",
    },
  };
  return loadOptions(file, {
    inputs: [volume],
    outputs: [labelled],
    tiling: {
      window: [window, window, window],
      overlap: 0.5,
      steps: "even",
      padding: 0,
      weights: { kind: "gaussian", sigma: 0.125, centre: "half", least: 1e-12 },
    },
  });
}

/**
 * The most memory that this process has had at once since `forgetPeak`, in bytes (proc(5), VmHWM).
 */
export function peakMemory(): number {
  return Number(/^VmHWM:\s+(\d+)/m.exec(readFileSync("/proc/self/status", "utf8"))?.[1]) * 1024;
}

/** From now on the peak counts; gives what is in memory now, in bytes. */
export function forgetPeak(): number {
  writeFileSync("/proc/self/clear_refs", "5");
  return peakMemory();
}
