/** Small models that take any DICOM image, one for each kind of output, with codes; for tests of result objects. */
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { float, int, onnxModel, type ModelDescription } from "../../scripts/lib/onnx-model.js";
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

const sct = (value: string, meaning: string): Code => ({ value, scheme: "SCT", meaning });
const ucum = (value: string, meaning: string): Code => ({ value, scheme: "UCUM", meaning });
const TISSUE = sct("85756007", "Tissue");

const sourceSize: ImageInput = {
  tensor: "x",
  dtype: "float32",
  layout: "NCHW",
  size: { kind: "source" },
  fit: "none",
  interpolation: "nearest",
  values: { kind: "voi", index: 0, if_absent: "min_max" },
  monochrome1: "invert",
  channels: "grayscale",
  colour_source: "accept",
  normalisation: { kind: "none" },
  background: 0,
};
const smallSize: ImageInput = {
  ...sourceSize,
  size: { kind: "fixed", height: 32, width: 32 },
  fit: "stretch",
  interpolation: "area",
};

const any = ["n", 1, "h", "w"] as const;
const input = { name: "x", dtype: "float32", shape: any } as const;
const scalar = (name: string, value: number) =>
  ({ name, dtype: "float32", shape: [1], data: [value] }) as const;

interface Part {
  graph: ModelDescription;
  input: ImageInput;
  outputs: ModelOutput[];
}

/** Labels by brightness: below a third nothing, then two labels that exclude each other. */
const segmenter: Part = {
  input: sourceSize,
  graph: {
    name: "segmenter",
    inputs: [input],
    outputs: [{ name: "y", dtype: "uint8", shape: any }],
    initializers: [scalar("three", 3), scalar("zero", 0), scalar("two", 2)],
    nodes: [
      { op: "Mul", inputs: ["x", "three"], outputs: ["m"] },
      { op: "Max", inputs: ["m", "zero"], outputs: ["low"] },
      { op: "Min", inputs: ["low", "two"], outputs: ["high"] },
      { op: "Cast", inputs: ["high"], outputs: ["y"], attributes: { to: int(2) } },
    ],
  },
  outputs: [
    {
      kind: "segmentation",
      tensor: "y",
      activation: "label_map",
      postprocess: [],
      measurements: ["area"],
      labels: [
        { label: "grey", code: sct("87784001", "Soft tissue"), category: TISSUE, colour: [240, 228, 66] },
        {
          label: "white",
          code: sct("3138006", "Bone"),
          category: TISSUE,
          finding_site: sct("39607008", "Lung"),
          laterality: sct("7771000", "Left"),
        },
      ],
    },
  ],
};

/** Two labels that may overlap. */
const overlapping: Part = {
  input: sourceSize,
  graph: {
    name: "overlapping",
    inputs: [input],
    outputs: [{ name: "y", dtype: "float32", shape: ["n", 2, "h", "w"] }],
    initializers: [scalar("one", 1)],
    nodes: [
      { op: "Sub", inputs: ["one", "x"], outputs: ["inverse"] },
      { op: "Concat", inputs: ["x", "inverse"], outputs: ["y"], attributes: { axis: int(1) } },
    ],
  },
  outputs: [
    {
      kind: "segmentation",
      tensor: "y",
      activation: "sigmoid",
      postprocess: [],
      measurements: ["area"],
      labels: [
        { label: "bright", code: sct("3138006", "Bone"), category: TISSUE, threshold: 0.6 },
        { label: "dark", code: sct("55603005", "Fat"), category: TISSUE, threshold: 0.55 },
      ],
    },
  ],
};

const pooled = { op: "GlobalAveragePool", inputs: ["x"], outputs: ["mean"] } as const;
const flat = { op: "Flatten", inputs: ["mean"], outputs: ["flat"] } as const;

const classifier: Part = {
  input: smallSize,
  graph: {
    name: "classifier",
    inputs: [{ ...input, shape: ["n", 1, 32, 32] }],
    outputs: [
      { name: "scores", dtype: "float32", shape: ["n", 2] },
      { name: "size", dtype: "float32", shape: ["n", 1] },
    ],
    initializers: [
      { name: "weights", dtype: "float32", shape: [1, 2], data: [0.001, 0.001] },
      { name: "bias", dtype: "float32", shape: [2], data: [3, -3] },
    ],
    nodes: [
      pooled,
      flat,
      {
        op: "Gemm",
        inputs: ["flat", "weights", "bias"],
        outputs: ["scores"],
        attributes: { alpha: float(1) },
      },
      { op: "Identity", inputs: ["flat"], outputs: ["size"] },
    ],
  },
  outputs: [
    {
      kind: "classification",
      tensor: "scores",
      activation: "sigmoid",
      calibration: { kind: "none" },
      labels: [
        {
          label: "Effusion",
          code: sct("60046008", "Pleural effusion"),
          finding_site: sct("3120008", "Pleural structure"),
          threshold: 0.5,
        },
        { label: "Pneumothorax", code: sct("36118008", "Pneumothorax"), threshold: 0.5 },
      ],
    },
    {
      kind: "regression",
      tensor: "size",
      values: [
        {
          name: "Length",
          code: sct("410668003", "Length"),
          unit: ucum("mm", "millimeter"),
          multiply: 10,
          add: 1,
        },
      ],
    },
  ],
};

/** Two boxes on every image, one above its threshold, and a label that is never found. */
const detector: Part = {
  input: smallSize,
  graph: {
    name: "detector",
    inputs: [{ ...input, shape: ["n", 1, 32, 32] }],
    outputs: [
      { name: "boxes", dtype: "float32", shape: ["n", 2, 4] },
      { name: "scores", dtype: "float32", shape: ["n", 2, 2] },
    ],
    initializers: [
      { name: "places", dtype: "float32", shape: [1, 2, 4], data: [4, 8, 12, 20, 16, 16, 24, 30] },
      { name: "values", dtype: "float32", shape: [1, 2, 2], data: [0.9, 0.1, 0.3, 0.2] },
      { name: "axes", dtype: "int64", shape: [1], data: [1] },
      scalar("nothing", 0),
    ],
    nodes: [
      pooled,
      flat,
      { op: "Mul", inputs: ["flat", "nothing"], outputs: ["zeros"] },
      { op: "Unsqueeze", inputs: ["zeros", "axes"], outputs: ["cube"] },
      { op: "Add", inputs: ["cube", "places"], outputs: ["boxes"] },
      { op: "Add", inputs: ["cube", "values"], outputs: ["scores"] },
    ],
  },
  outputs: [
    {
      kind: "detection",
      boxes: { tensor: "boxes", format: "xyxy", normalised: false },
      scores: { tensor: "scores", activation: "none" },
      max_boxes: 10,
      labels: [
        {
          label: "nodule",
          code: sct("27925004", "Nodule"),
          finding_site: sct("39607008", "Lung"),
          threshold: 0.5,
        },
        { label: "mass", code: sct("4147007", "Mass"), threshold: 0.5 },
      ],
    },
  ],
};

/** Brightness itself, as a heat map. */
const heater: Part = {
  input: smallSize,
  graph: {
    name: "heater",
    inputs: [input],
    outputs: [{ name: "y", dtype: "float32", shape: any }],
    initializers: [],
    nodes: [{ op: "Identity", inputs: ["x"], outputs: ["y"] }],
  },
  outputs: [
    {
      kind: "heatmap",
      tensor: "y",
      activation: "none",
      label: { label: "Saliency", code: sct("60046008", "Pleural effusion") },
    },
  ],
};

/** Boxes round bright regions. */
const mapper: Part = {
  ...heater,
  graph: { ...heater.graph, name: "mapper" },
  outputs: [
    {
      kind: "probability_map",
      tensor: "y",
      activation: "none",
      threshold: 0.7,
      minimum_area: 1,
      unclip: 0,
      max_boxes: 50,
      label: { label: "bright region", code: sct("4147007", "Mass"), threshold: 0.5 },
    },
  ],
};

const PARTS = { segmenter, overlapping, classifier, detector, heater, mapper };
export type TestModel = keyof typeof PARTS;
export const TEST_MODELS = Object.keys(PARTS) as TestModel[];

export function manifestOf(name: TestModel): Manifest {
  const { outputs, input: prepared } = PARTS[name];
  const segments = outputs.some(({ kind }) => kind === "segmentation");
  return {
    name: `test-${name}`,
    version: "2.1.0",
    manufacturer: "Radserve tests",
    description: "A model for tests.",
    intended_use: "None.",
    regulatory: "Not for diagnostic use. For tests.",
    stage: "final",
    release: "active",
    required: false,
    files: [{ path: "model.onnx", sha256: "0".repeat(64) }],
    accepts: { formats: ["dicom", "png", "jpeg", "tiff"], dimensions: "2d_frames" },
    inputs: [prepared],
    outputs,
    batching: { max: 1 },
    execution: { providers: ["cpu"], precision: "float32" },
    results: { outputs: ["json", "png", "sr", ...(segments ? (["seg"] as const) : []), "sc"] },
  };
}

/** Loads a test model as the server would hold it. */
export async function loadTestModel(
  engine: Engine,
  folder: string,
  name: TestModel,
  change: (manifest: Manifest) => void = () => undefined,
): Promise<ModelEntry> {
  const bytes = onnxModel(PARTS[name].graph);
  const path = join(folder, `${name}.onnx`);
  writeFileSync(path, bytes);
  const manifest = manifestOf(name);
  change(manifest);
  const { version, inputs, outputs, batching } = manifest;
  const { id } = await engine.load({
    modelPath: path,
    name: manifest.name,
    version,
    inputs,
    outputs,
    provider: "cpu",
    batching,
  });
  const thresholds = outputs.map((output) => labelsOf(output).map(({ threshold }) => threshold ?? NaN));
  return {
    name: manifest.name,
    version,
    sha256: sha256(Buffer.concat([bytes, Buffer.from(JSON.stringify(manifest))])),
    manifest,
    site: { thresholds: {} },
    thresholds,
    state: "ready",
    nativeId: id,
    provider: "cpu",
  };
}
