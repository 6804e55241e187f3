/**
 * A model for radiographs to measure with: a small convolutional network, so that inference costs
 * what it may cost.
 */
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { ints, onnxModel, type Node, type TensorValue } from "../../scripts/lib/onnx-model.js";
import { createEngine } from "../../src/engine/engine.js";
import type { Manifest } from "../../src/manifest/manifest.js";
import { encodeNpy } from "../../src/engine/npy.js";
import { sha256 } from "../../src/files/durable-files.js";

const SIDE = 512;
const CHANNELS = 16;
const LAYERS = 5;

/**
 * Averages in every layer: what comes out is the picture, smoothed; some 2.4 thousand million
 * multiplications.
 */
function graph(): Uint8Array {
  const initializers: TensorValue[] = [];
  const nodes: Node[] = [];
  for (let layer = 0; layer < LAYERS; layer++) {
    const inputs = layer === 0 ? 1 : CHANNELS;
    const outputs = layer === LAYERS - 1 ? 1 : CHANNELS;
    const weights = new Array<number>(outputs * inputs * 9).fill(1 / (inputs * 9));
    initializers.push({
      name: `w${layer}`,
      dtype: "float32",
      shape: [outputs, inputs, 3, 3],
      data: weights,
    });
    nodes.push({
      op: "Conv",
      inputs: [layer === 0 ? "x" : `h${layer - 1}`, `w${layer}`],
      outputs: [layer === LAYERS - 1 ? "y" : `h${layer}`],
      attributes: { pads: ints([1, 1, 1, 1]) },
    });
  }
  const shape = ["n", 1, SIDE, SIDE];
  return onnxModel({
    name: "bench-dx",
    inputs: [{ name: "x", dtype: "float32", shape }],
    outputs: [{ name: "y", dtype: "float32", shape }],
    nodes,
    initializers,
  });
}

function manifestOf(hashes: { graph: string; input: string; expected: string }): Manifest {
  const code = { value: "80891009", scheme: "SCT", meaning: "Heart" };
  return {
    name: "bench-dx",
    version: "1.0.0",
    manufacturer: "Radserve benches",
    description: "A convolutional network that smooths; to measure with.",
    intended_use: "None.",
    regulatory: "Not for diagnostic use. To measure with.",
    stage: "final",
    release: "active",
    required: true,
    files: [{ path: "model.onnx", sha256: hashes.graph }],
    accepts: { formats: ["dicom"], modality: ["DX"], dimensions: "2d" },
    inputs: [
      {
        tensor: "x",
        dtype: "float32",
        layout: "NCHW",
        size: { kind: "fixed", height: SIDE, width: SIDE },
        fit: "stretch",
        interpolation: "area",
        values: { kind: "voi", index: 0, if_absent: "min_max" },
        monochrome1: "invert",
        channels: "grayscale",
        colour_source: "refuse",
        normalisation: { kind: "none" },
        background: 0,
      },
    ],
    outputs: [
      {
        kind: "segmentation",
        tensor: "y",
        activation: "none",
        postprocess: [],
        measurements: [],
        labels: [
          {
            label: "bright",
            code,
            category: { value: "123037004", scheme: "SCT", meaning: "Anatomical Structure" },
            threshold: 0.5,
          },
        ],
      },
    ],
    batching: { max: 8 },
    execution: { providers: ["cuda", "cpu"], precision: "float32" },
    canary: {
      input: { path: "x.npy", sha256: hashes.input },
      expected: [{ tensor: "y", file: { path: "y.npy", sha256: hashes.expected } }],
      tolerance: [
        { provider: "cpu", precision: "float32", absolute: 1e-4, relative: 1e-4 },
        { provider: "cuda", precision: "float32", absolute: 1e-3, relative: 1e-3 },
      ],
    },
    results: { outputs: ["json", "png", "sr", "seg", "sc"] },
  };
}

/** Makes the model's folder in `directory`; its canary is what this machine's CPU computes. */
export async function writeBenchModel(directory: string): Promise<void> {
  const folder = join(directory, "bench-dx");
  mkdirSync(folder, { recursive: true });
  const model = graph();
  writeFileSync(join(folder, "model.onnx"), model);
  const shape = [1, 1, SIDE, SIDE];
  const values = Float32Array.from({ length: SIDE * SIDE }, (_, i) => (i % SIDE) / SIDE);
  const input = { dtype: "float32" as const, shape, data: new Uint8Array(values.buffer) };
  const draft = manifestOf({ graph: sha256(model), input: "", expected: "" });
  const engine = createEngine({ provider: "cpu" });
  const { name, version, inputs, outputs, batching } = draft;
  const modelPath = join(folder, "model.onnx");
  const { id } = await engine.load({
    modelPath,
    name,
    version,
    inputs,
    outputs,
    provider: "cpu",
    batching,
  });
  const [output] = await engine.runTensors(id, [{ name: "x", ...input }]);
  await engine.close();
  const files = { "x.npy": encodeNpy(input), "y.npy": encodeNpy(output!) };
  for (const [file, bytes] of Object.entries(files)) writeFileSync(join(folder, file), bytes);
  const hashes = {
    graph: sha256(model),
    input: sha256(files["x.npy"]),
    expected: sha256(files["y.npy"]),
  };
  writeFileSync(join(folder, "model.json"), JSON.stringify(manifestOf(hashes), null, 2));
}
