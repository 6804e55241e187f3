/**
 * Models of parts whose results can be checked by hand: each part marks voxels by their value, with
 * a normalisation of its own.
 */
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { onnxModel } from "../../scripts/lib/onnx-model.js";
import { sha256 } from "../../src/files/durable-files.js";
import type { Manifest, ModelPart } from "../../src/manifest/manifest.js";
import type { Label } from "../../src/manifest/outputs/fields.js";
import { endsInput, endsTiling, steps } from "./ends.js";
import { endlessGraph } from "./endless.js";
import { deep, sct, segmentation, TISSUE } from "./model-parts.js";
import { ABOUT } from "./test-models.js";

/**
 * Parts of the series of the reference `inputs`, whose values are -1000 to 1000: `soft` and `bone`
 * from values on, `bright` over both of them, `dense` over what is brightest.
 */
export const PARTS: { part: Omit<ModelPart, "graphs">; weights: number[]; biases: number[] }[] = [
  {
    part: {
      name: "tissue",
      labels: ["soft", "bone"],
      normalisation: { kind: "mean_std", mean: [0], std: [100] },
    },
    // From -50 and from 150 on
    weights: [0, 1, 3],
    biases: [0, 0.5, -2.5],
  },
  {
    part: {
      name: "bright",
      labels: ["bright"],
      clip: [-500, 400],
      normalisation: { kind: "mean_std", mean: [100], std: [10] },
    },
    // From 300 on
    weights: [0, 1],
    biases: [0, -20],
  },
  {
    part: { name: "dense", labels: ["dense"], tiling: { ...endsTiling, window: [4, 8, 8] } },
    // From 600 on, of values as they are
    weights: [0, 1],
    biases: [0, -600],
  },
];

const label = (name: string, code: string): Label => ({
  label: name,
  code: sct(code, name),
  category: TISSUE,
});

export const partsManifest = (name: string): Manifest => ({
  name,
  version: "1.0.0",
  ...ABOUT,
  stage: "draft",
  files: PARTS.map(({ part }) => ({ path: `${part.name}/model.onnx`, sha256: "" })),
  accepts: { formats: ["dicom"], modality: ["CT"], dimensions: "series" },
  inputs: [endsInput],
  outputs: [
    segmentation({
      activation: "softmax",
      labels: [
        label("soft", "87784001"),
        label("bone", "3138006"),
        label("bright", "272673000"),
        label("dense", "256617009"),
      ],
      measurements: ["volume"],
    }),
  ],
  tiling: endsTiling,
  parts: PARTS.map(({ part }) => ({ ...part, graphs: [`${part.name}/model.onnx`] })),
  batching: { max: 1 },
  execution: { providers: ["cpu"], precision: "float32" },
  results: { outputs: ["json", "png"] },
});

/** The graph of the last part, which does not end over a volume with a value above `limit`. */
export function endlessOver(limit: number): Uint8Array {
  const { weights, biases } = PARTS.at(-1)!;
  const x = { name: "x", dtype: "float32", shape: deep } as const;
  const { initializers = [], nodes } = endlessGraph(x, { ...x, name: "passed" }, limit);
  return onnxModel({
    name: "endless",
    inputs: [x],
    outputs: [{ name: "y", dtype: "float32", shape: ["n", 2, ...deep.slice(2)] }],
    initializers: [
      ...initializers,
      { name: "w", dtype: "float32", shape: [2, 1, 1, 1, 1], data: weights },
      { name: "b", dtype: "float32", shape: [2], data: biases },
    ],
    nodes: [...nodes, { op: "Conv", inputs: ["passed", "w", "b"], outputs: ["y"] }],
  });
}

/**
 * Writes the model's folder into a directory of models.
 * @param last in place of the last part's graph
 */
export function writePartsModel(
  directory: string,
  name: string,
  change: (manifest: Manifest) => unknown = () => 0,
  last?: Uint8Array,
): string {
  const folder = join(directory, name);
  const manifest = partsManifest(name);
  PARTS.forEach(({ part, weights, biases }, p) => {
    const isLast = p === PARTS.length - 1;
    const graph = (isLast ? last : undefined) ?? steps(part.name, weights, biases);
    mkdirSync(join(folder, part.name), { recursive: true });
    writeFileSync(join(folder, part.name, "model.onnx"), graph);
    manifest.files[p]!.sha256 = sha256(graph);
  });
  change(manifest);
  writeFileSync(join(folder, "model.json"), JSON.stringify(manifest));
  return folder;
}
