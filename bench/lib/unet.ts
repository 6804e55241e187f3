/**
 * A model folder with a 3D U-Net of nnU-Net's size and random weights, which labels a CT series.
 */
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { sha256 } from "../../src/files/durable-files.js";
import type { Provider } from "../../src/manifest/providers.js";
import { shipped } from "../../test/support/manifests.js";
import { unet3d } from "./models.js";

/** Slices, rows and columns that the network sees at a time. */
export const UNET_WINDOW: readonly [number, number, number] = [64, 128, 128];

/** A draft with ct-tissue's labels, decided by the network, that may run on these providers. */
export function writeUnet(folder: string, providers: readonly Provider[]): void {
  mkdirSync(folder, { recursive: true });
  const base = shipped("ct-tissue");
  const [output] = base.outputs;
  if (output?.kind !== "segmentation") throw new Error("Expected ct-tissue to segment");
  const graph = unet3d(output.labels.length + 1);
  writeFileSync(join(folder, "model.onnx"), graph);
  const { canary: _, ...rest } = base;
  const manifest = {
    ...rest,
    name: "unet",
    stage: "draft",
    release: "active",
    required: true,
    files: [{ path: "model.onnx", sha256: sha256(graph) }],
    accepts: { ...base.accepts, dimensions: "series" },
    envelope: [],
    inputs: [
      {
        ...base.inputs[0],
        tensor: "x",
        layout: "NCDHW",
        orientation: "LPS",
        interpolation: "linear",
        normalisation: { kind: "z_score", over: "volume" },
      },
    ],
    outputs: [
      {
        ...output,
        tensor: "y",
        activation: "argmax",
        postprocess: [],
        measurements: ["volume"],
      },
    ],
    tiling: {
      window: UNET_WINDOW,
      overlap: 0.5,
      steps: "even",
      padding: 0,
      weights: { kind: "gaussian", sigma: 0.125, centre: "half", least: 1e-12 },
    },
    batching: { max: 1 },
    execution: { providers, precision: "float32" },
    results: { outputs: ["json"] },
  };
  writeFileSync(join(folder, "model.json"), JSON.stringify(manifest));
}
