/** Test models beyond those of object-models.ts: whole series, probabilities, heat maps, measured values. */
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { int, onnxModel, type ModelDescription } from "../../scripts/lib/onnx-model.js";
import type { Engine } from "../../src/engine/types.js";
import {
  labelsOf,
  type Code,
  type ImageInput,
  type Manifest,
  type ModelOutput,
} from "../../src/manifest/manifest.js";
import type { ModelEntry } from "../../src/models/entry.js";
import { sha256 } from "../../src/files/durable-files.js";
import { manifestOf } from "./object-models.js";

const sct = (value: string, meaning: string): Code => ({ value, scheme: "SCT", meaning });
const TISSUE = sct("85756007", "Tissue");
const BRIGHT = { label: "bright", code: sct("3138006", "Bone"), category: TISSUE, threshold: 0.6 };
const DARK = { label: "dark", code: sct("55603005", "Fat"), category: TISSUE, threshold: 0.55 };

const [segmenterInput] = manifestOf("segmenter").inputs;
const sourceSize: ImageInput = segmenterInput!;
/** Sides that divide no picture of the tests, so that every pixel is resampled. */
export const SMALL = { rows: 13, columns: 9 };
const smallSize: ImageInput = {
  ...sourceSize,
  size: { kind: "fixed", height: SMALL.rows, width: SMALL.columns },
  fit: "stretch",
  interpolation: "area",
};
const volumeSize: ImageInput = {
  ...sourceSize,
  layout: "NCDHW",
  values: { kind: "window", center: 40, width: 400, function: "LINEAR" },
  colour_source: "refuse",
};

const flat = ["n", 1, "h", "w"] as const;
const deep = ["n", 1, "d", "h", "w"] as const;
const scalar = (name: string, value: number) =>
  ({ name, dtype: "float32", shape: [1], data: [value] }) as const;

/** x, and 1 - x. */
const inverse = (name: string, shape: readonly (string | number)[]): ModelDescription => ({
  name,
  inputs: [{ name: "x", dtype: "float32", shape: [...shape] }],
  outputs: [{ name: "y", dtype: "float32", shape: [shape[0]!, 2, ...shape.slice(2)] }],
  initializers: [scalar("one", 1)],
  nodes: [
    { op: "Sub", inputs: ["one", "x"], outputs: ["inverse"] },
    { op: "Concat", inputs: ["x", "inverse"], outputs: ["y"], attributes: { axis: int(1) } },
  ],
});

/** 0, 1, 2 by brightness. */
const thirds = (name: string, shape: readonly (string | number)[]): ModelDescription => ({
  name,
  inputs: [{ name: "x", dtype: "float32", shape: [...shape] }],
  outputs: [{ name: "y", dtype: "uint8", shape: [...shape] }],
  initializers: [scalar("three", 3), scalar("zero", 0), scalar("two", 2)],
  nodes: [
    { op: "Mul", inputs: ["x", "three"], outputs: ["m"] },
    { op: "Max", inputs: ["m", "zero"], outputs: ["low"] },
    { op: "Min", inputs: ["low", "two"], outputs: ["high"] },
    { op: "Cast", inputs: ["high"], outputs: ["y"], attributes: { to: int(2) } },
  ],
});

const segmentation = (more: Partial<Extract<ModelOutput, { kind: "segmentation" }>>): ModelOutput => ({
  kind: "segmentation",
  tensor: "y",
  activation: "label_map",
  postprocess: [],
  measurements: ["area"],
  labels: [
    { label: "grey", code: sct("87784001", "Soft tissue"), category: TISSUE },
    { ...BRIGHT, finding_site: sct("39607008", "Lung") },
  ],
  ...more,
});

interface Part {
  graph: ModelDescription;
  input: ImageInput;
  outputs: ModelOutput[];
}

const PARTS = {
  /** Label maps of 13 x 9, brought back to the source. */
  small: { graph: thirds("small", flat), input: smallSize, outputs: [segmentation({})] },
  /** Probabilities of 13 x 9, brought back to the source. */
  fractional: {
    graph: inverse("fractional", flat),
    input: smallSize,
    outputs: [segmentation({ activation: "none", segment_type: "fractional", labels: [BRIGHT, DARK] })],
  },
  volume: {
    graph: thirds("volume", deep),
    input: volumeSize,
    outputs: [segmentation({ measurements: ["volume"] })],
  },
  "volume-fractional": {
    graph: inverse("volume-fractional", deep),
    input: volumeSize,
    outputs: [
      segmentation({
        activation: "none",
        segment_type: "fractional",
        labels: [BRIGHT, DARK],
        measurements: ["volume"],
      }),
    ],
  },
  heatmap: {
    graph: {
      name: "heatmap",
      inputs: [{ name: "x", dtype: "float32", shape: [...flat] }],
      outputs: [{ name: "y", dtype: "float32", shape: [...flat] }],
      nodes: [{ op: "Identity", inputs: ["x"], outputs: ["y"] }],
    },
    input: smallSize,
    outputs: [
      {
        kind: "heatmap",
        tensor: "y",
        activation: "none",
        label: { label: "Saliency", code: sct("60046008", "Pleural effusion") },
      },
    ],
  },
  regression: {
    graph: {
      name: "regression",
      inputs: [{ name: "x", dtype: "float32", shape: [...flat] }],
      outputs: [{ name: "y", dtype: "float32", shape: ["n", 1] }],
      nodes: [
        { op: "GlobalAveragePool", inputs: ["x"], outputs: ["mean"] },
        { op: "Flatten", inputs: ["mean"], outputs: ["y"] },
      ],
    },
    input: smallSize,
    outputs: [
      {
        kind: "regression",
        tensor: "y",
        values: [
          {
            name: "Length",
            code: sct("410668003", "Length"),
            unit: { value: "mm", scheme: "UCUM", meaning: "millimeter" },
            multiply: 10,
            add: 1,
          },
        ],
      },
    ],
  },
} satisfies Record<string, Part>;
export type SpecialModel = keyof typeof PARTS;
export const SPECIAL_MODELS = Object.keys(PARTS) as SpecialModel[];

/** Loads a model as the server would hold it. */
export async function loadSpecialModel(
  engine: Engine,
  folder: string,
  name: SpecialModel,
  change: (manifest: Manifest) => void = () => undefined,
): Promise<ModelEntry> {
  const { graph, input, outputs }: Part = PARTS[name];
  const segments = outputs.some(({ kind }) => kind === "segmentation");
  const manifest: Manifest = structuredClone({
    ...manifestOf("segmenter"),
    name: `test-${name}`,
    inputs: [input],
    outputs,
    results: { outputs: ["json", "png", "sr", ...(segments ? (["seg"] as const) : []), "sc"] },
  });
  if (input.layout === "NCDHW") manifest.accepts = { formats: ["dicom"], dimensions: "series" };
  change(manifest);
  const bytes = onnxModel(graph);
  const modelPath = join(folder, `${name}.onnx`);
  writeFileSync(modelPath, bytes);
  const { version, inputs, batching } = manifest;
  const { id } = await engine.load({
    ...{ modelPath, name: manifest.name, version, inputs, outputs: manifest.outputs, batching },
    provider: "cpu",
  });
  return {
    name: manifest.name,
    version,
    sha256: sha256(Buffer.concat([bytes, Buffer.from(JSON.stringify(manifest))])),
    manifest,
    site: { thresholds: {} },
    thresholds: manifest.outputs.map((output) => labelsOf(output).map(({ threshold }) => threshold ?? NaN)),
    state: "ready",
    nativeId: id,
    provider: "cpu",
  };
}
