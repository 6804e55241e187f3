/**
 * Small models that take any DICOM image, one for each kind of output, with codes. What each of
 * them finds can be said from the brightness of the source.
 */
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { float, onnxModel, type ModelDescription } from "../../scripts/lib/onnx-model.js";
import type { Engine } from "../../src/engine/engine.js";
import { sha256 } from "../../src/files/durable-files.js";
import type { ImageInput, Manifest } from "../../src/manifest/manifest.js";
import { labelsOf, type ModelOutput } from "../../src/manifest/outputs/outputs.js";
import type { ModelEntry } from "../../src/models/entry.js";
import {
  BRIGHT,
  DARK,
  TISSUE,
  constant,
  deep,
  flat,
  inverse,
  lengthOf,
  meanOf,
  saliency,
  same,
  scalar,
  sct,
  segmentation,
  sourceSize,
  stretched,
  thirds,
  volumeSize,
} from "./model-parts.js";

interface Part {
  graph: ModelDescription;
  input: ImageInput;
  outputs: ModelOutput[];
}

/**
 * The sides of the models that bring their results back to the source; they divide no side of the
 * tests' pictures.
 */
export const SMALL = { rows: 13, columns: 9 };
const small = stretched(SMALL.rows, SMALL.columns);

/** Two labels that exclude each other, one of them with a side of the body. */
const segmenter: Part = {
  input: sourceSize,
  graph: thirds("segmenter", flat),
  outputs: [
    segmentation({
      labels: [
        {
          label: "grey",
          code: sct("87784001", "Soft tissue"),
          category: TISSUE,
          colour: [240, 228, 66],
        },
        {
          label: "white",
          code: sct("3138006", "Bone"),
          category: TISSUE,
          finding_site: sct("39607008", "Lung"),
          laterality: sct("7771000", "Left"),
        },
      ],
    }),
  ],
};

/** Two labels that may overlap. */
const overlapping: Part = {
  input: sourceSize,
  graph: inverse("overlapping", flat),
  outputs: [segmentation({ activation: "sigmoid", labels: [BRIGHT, DARK] })],
};

const classifier: Part = {
  input: stretched(32, 32),
  graph: {
    name: "classifier",
    inputs: [{ name: "x", dtype: "float32", shape: ["n", 1, 32, 32] }],
    outputs: [
      { name: "scores", dtype: "float32", shape: ["n", 2] },
      { name: "size", dtype: "float32", shape: ["n", 1] },
    ],
    initializers: [
      { name: "weights", dtype: "float32", shape: [1, 2], data: [0.001, 0.001] },
      { name: "bias", dtype: "float32", shape: [2], data: [3, -3] },
    ],
    nodes: [
      ...meanOf("x", "size"),
      {
        op: "Gemm",
        inputs: ["size", "weights", "bias"],
        outputs: ["scores"],
        attributes: { alpha: float(1) },
      },
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
    lengthOf("size"),
  ],
};

const NODULE = {
  label: "nodule",
  code: sct("27925004", "Nodule"),
  finding_site: sct("39607008", "Lung"),
  threshold: 0.5,
};
const MASS = { label: "mass", code: sct("4147007", "Mass"), threshold: 0.5 };

/** Two boxes on every image, one above its threshold, and a label that is never found. */
const detector: Part = {
  input: stretched(32, 32),
  graph: {
    name: "detector",
    inputs: [{ name: "x", dtype: "float32", shape: ["n", 1, 32, 32] }],
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
      ...meanOf("x", "row"),
      { op: "Mul", inputs: ["row", "nothing"], outputs: ["zeros"] },
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
      labels: [NODULE, MASS],
    },
  ],
};

/** The picture with its sides kept: a table's boxes come back through the margins. */
const letterboxed: ImageInput = { ...stretched(32, 32), fit: "letterbox" };

const table = (name: string, shape: [number, number], data: number[]) =>
  constant(name, "output0", [32, 32], shape, data);

/**
 * Of all three tables: a nodule from (8, 12) to (16, 20) of the tensor, and a mass from (20, 10) to
 * (28, 22).
 */
const HEADS = {
  /**
   * As YOLOv8: [1, 4 + classes, boxes]. The second box is the first a pixel further on, the fourth
   * scores too little.
   */
  columns: {
    input: letterboxed,
    graph: table(
      "columns",
      [6, 4],
      [
        12, 13, 24, 6, 16, 16, 16, 16, 8, 8, 8, 4, 8, 8, 12, 4, 0.9, 0.8, 0.1, 0.4, 0.2, 0.1, 0.7,
        0.1,
      ],
    ),
    outputs: [
      {
        kind: "detection_table",
        tensor: "output0",
        axes: "columns_boxes",
        columns: ["cx", "cy", "w", "h", "class_scores"],
        normalised: false,
        scores: { activation: "none", labels_per_box: "one" },
        nms: { kind: "greedy", iou: 0.45, per_class: true },
        max_boxes: 100,
        labels: [NODULE, MASS],
      },
    ],
  },
  /** As graphs that end in NMS: [1, boxes, 6], filled up with rows of nothing. */
  rows: {
    input: letterboxed,
    graph: table(
      "rows",
      [4, 6],
      [8, 12, 16, 20, 0.9, 0, 20, 10, 28, 22, 0.7, 1, 4, 14, 8, 18, 0.4, 0, 0, 0, 0, 0, 0, 0],
    ),
    outputs: [
      {
        kind: "detection_table",
        tensor: "output0",
        axes: "boxes_columns",
        columns: ["x1", "y1", "x2", "y2", "score", "class"],
        normalised: false,
        scores: { activation: "none" },
        classes: { first: 0 },
        nms: { kind: "none" },
        max_boxes: 100,
        labels: [NODULE, MASS],
      },
    ],
  },
  /**
   * As YOLOv5: [1, boxes, 5 + classes], from 0 to 1 of the sides, logits. The third is sure of its
   * class alone.
   */
  objectness: {
    input: letterboxed,
    graph: table(
      "objectness",
      [3, 7],
      [
        0.375, 0.5, 0.25, 0.25, 9, 3, -3, 0.75, 0.5, 0.25, 0.375, 9, -3, 2, 0.5, 0.5, 0.25, 0.25,
        -1, 9, -9,
      ],
    ),
    outputs: [
      {
        kind: "detection_table",
        tensor: "output0",
        axes: "boxes_columns",
        columns: ["cx", "cy", "w", "h", "objectness", "class_scores"],
        normalised: true,
        scores: { activation: "sigmoid", labels_per_box: "one" },
        objectness: { activation: "sigmoid" },
        nms: { kind: "greedy", iou: 0.45, per_class: true },
        max_boxes: 100,
        labels: [NODULE, MASS],
      },
    ],
  },
} satisfies Record<string, Part>;

/** Boxes round bright regions. */
const mapper: Part = {
  input: stretched(32, 32),
  graph: same("mapper"),
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

const regression: Part = {
  input: small,
  graph: {
    name: "regression",
    inputs: [{ name: "x", dtype: "float32", shape: flat }],
    outputs: [{ name: "y", dtype: "float32", shape: ["n", 1] }],
    nodes: meanOf("x", "y"),
  },
  outputs: [lengthOf("y")],
};

const fractions = segmentation({
  activation: "none",
  segment_type: "fractional",
  labels: [BRIGHT, DARK],
});

const PARTS = {
  segmenter,
  overlapping,
  classifier,
  detector,
  ...HEADS,
  mapper,
  regression,
  /** Brightness itself, in two sizes. */
  heater: { input: stretched(32, 32), graph: same("heater"), outputs: [saliency] },
  heatmap: { input: small, graph: same("heatmap"), outputs: [saliency] },
  small: { input: small, graph: thirds("small", flat), outputs: [segmentation()] },
  fractional: { input: small, graph: inverse("fractional", flat), outputs: [fractions] },
  volume: {
    input: volumeSize,
    graph: thirds("volume", deep),
    outputs: [segmentation({ measurements: ["volume"] })],
  },
  "volume-fractional": {
    input: volumeSize,
    graph: inverse("volume-fractional", deep),
    outputs: [{ ...fractions, measurements: ["volume"] }],
  },
} satisfies Record<string, Part>;
export type TestModel = keyof typeof PARTS;
export const TEST_MODELS = Object.keys(PARTS) as TestModel[];

/** What the manifests of all test models say of themselves. */
export const ABOUT = {
  manufacturer: "Radserve tests",
  description: "A model for tests.",
  intended_use: "None.",
  regulatory: "Not for diagnostic use. For tests.",
  stage: "final",
  release: "active",
  required: false,
} as const;

export function manifestOf(name: TestModel): Manifest {
  const { outputs, input }: Part = structuredClone(PARTS[name]);
  const segments = outputs.some(({ kind }) => kind === "segmentation");
  return {
    name: `test-${name}`,
    version: "2.1.0",
    ...ABOUT,
    files: [{ path: "model.onnx", sha256: "0".repeat(64) }],
    accepts:
      input.layout === "NCDHW"
        ? { formats: ["dicom"], dimensions: "series" }
        : { formats: ["dicom", "png", "jpeg", "tiff"], dimensions: "2d_frames" },
    inputs: [input],
    outputs,
    batching: { max: 1 },
    execution: { providers: ["cpu"], precision: "float32" },
    results: { outputs: ["json", "png", "sr", ...(segments ? (["seg"] as const) : []), "sc"] },
  };
}

/** The graph of a test model as a file. */
export const graphOf = (name: TestModel): Uint8Array => onnxModel(PARTS[name].graph);

/**
 * Writes the folder of a test model, test-NAME, without a canary: `modelsCanary` makes one. Gives
 * its path.
 */
export function writeTestModel(models: string, name: TestModel): string {
  const manifest = manifestOf(name);
  const folder = join(models, manifest.name);
  mkdirSync(folder);
  const graph = graphOf(name);
  writeFileSync(join(folder, "model.onnx"), graph);
  manifest.files = [{ path: "model.onnx", sha256: sha256(graph) }];
  manifest.accepts.modality = ["CR", "DX"];
  writeFileSync(join(folder, "model.json"), JSON.stringify(manifest));
  return folder;
}

/** Loads a test model as the server would hold it. */
export async function loadTestModel(
  engine: Engine,
  folder: string,
  name: TestModel,
  change: (manifest: Manifest) => void = () => undefined,
): Promise<ModelEntry> {
  const bytes = graphOf(name);
  const modelPath = join(folder, `${name}.onnx`);
  writeFileSync(modelPath, bytes);
  const manifest = manifestOf(name);
  change(manifest);
  const { version, inputs, outputs, batching, tiling } = manifest;
  const { id } = await engine.load({
    modelPath,
    name: manifest.name,
    version,
    inputs,
    outputs,
    batching,
    tiling,
    provider: "cpu",
  });
  return {
    name: manifest.name,
    version,
    sha256: sha256(Buffer.concat([bytes, Buffer.from(JSON.stringify(manifest))])),
    manifest,
    site: { thresholds: {} },
    thresholds: outputs.map((output) => labelsOf(output).map(({ threshold }) => threshold ?? NaN)),
    state: "ready",
    nativeId: id,
    provider: "cpu",
  };
}
