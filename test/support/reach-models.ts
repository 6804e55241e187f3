/**
 * Models with several inputs and several steps, for tests against references that Python made
 * (test/reference). The graphs are stored beside the references, because the references were
 * computed with these very files.
 */
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { int, ints, onnxModel, type ModelDescription } from "../../scripts/lib/onnx-model.js";
import { sha256 } from "../../src/files/durable-files.js";
import type { ImageInput, Manifest } from "../../src/manifest/manifest.js";
import type { Label } from "../../src/manifest/outputs/fields.js";
import type { ModelOutput } from "../../src/manifest/outputs/outputs.js";
import { sct, TISSUE } from "./model-parts.js";
import { ABOUT } from "./test-models.js";

/** Folder of a reference: its script, its files and the graphs. */
export const reference = (name: string): string => resolve("test/reference", name);

/** Weights that differ from each other, small and the same everywhere. */
const weights = (count: number, scale: number): number[] =>
  Array.from({ length: count }, (_, i) =>
    Math.fround(scale * (((i * 7 + Math.floor(i / 9) * 4) % 9) / 4 - 1)),
  );

const ROWS = 12;
const COLUMNS = 16;
/** Three windows of three slices. */
const CT_CHANNELS = 9;
/** F, M; months; weight; tube voltage. */
const NUMBERS = 5;

const EFFUSION_SCORES: ModelOutput = {
  kind: "classification",
  tensor: "scores",
  activation: "sigmoid",
  calibration: { kind: "none" },
  labels: [
    { label: "Effusion", code: sct("60046008", "Pleural effusion"), threshold: 0.5 },
    { label: "Pneumothorax", code: sct("36118008", "Pneumothorax"), threshold: 0.5 },
  ],
};

/**
 * Marks two labels from windows of neighbouring slices and two attributes, and scores the slice by
 * all inputs.
 */
const severalGraph: ModelDescription = {
  name: "several",
  inputs: [
    // The order of the graph is not that of the manifest.
    { name: "clinical", dtype: "float32", shape: ["n", NUMBERS] },
    { name: "ct", dtype: "float32", shape: ["n", CT_CHANNELS, ROWS, COLUMNS] },
    { name: "coarse", dtype: "float32", shape: ["n", 3, ROWS / 2, COLUMNS / 2] },
    { name: "plain", dtype: "float32", shape: ["n", 1, ROWS, COLUMNS] },
  ],
  outputs: [
    { name: "mask", dtype: "float32", shape: ["n", 2, ROWS, COLUMNS] },
    { name: "scores", dtype: "float32", shape: ["n", 2] },
  ],
  initializers: [
    {
      name: "mix",
      dtype: "float32",
      shape: [2, CT_CHANNELS, 1, 1],
      // Of the slice before, the slice and the slice after: lung, brain and bone window.
      data: [0, 0.5, -2, -3.5, 1, 6, 0, -0.5, 2, 0.25, 0.5, 0, 3, -1, -4, 0.25, -0.5, 0],
    },
    { name: "persons", dtype: "float32", shape: [NUMBERS, 2], data: weights(2 * NUMBERS, 0.25) },
    { name: "zeros", dtype: "float32", shape: [2], data: [0, 0] },
    { name: "sides", dtype: "int64", shape: [2], data: [2, 3] },
    {
      name: "votes",
      dtype: "float32",
      shape: [4 + NUMBERS, 2],
      data: weights(2 * (4 + NUMBERS), 1),
    },
  ],
  nodes: [
    { op: "Conv", inputs: ["ct", "mix"], outputs: ["mixed"] },
    { op: "Gemm", inputs: ["clinical", "persons", "zeros"], outputs: ["row"] },
    { op: "Unsqueeze", inputs: ["row", "sides"], outputs: ["bias"] },
    { op: "Add", inputs: ["mixed", "bias"], outputs: ["mask"] },
    { op: "GlobalAveragePool", inputs: ["coarse"], outputs: ["means"] },
    { op: "GlobalMaxPool", inputs: ["plain"], outputs: ["most"] },
    { op: "Concat", inputs: ["means", "most"], outputs: ["pooled"], attributes: { axis: int(1) } },
    { op: "Squeeze", inputs: ["pooled", "sides"], outputs: ["features"] },
    {
      op: "Concat",
      inputs: ["features", "clinical"],
      outputs: ["all"],
      attributes: { axis: int(1) },
    },
    { op: "Gemm", inputs: ["all", "votes", "zeros"], outputs: ["scores"] },
  ],
};

export const plainInput: ImageInput = {
  tensor: "x",
  dtype: "float32",
  layout: "NCHW",
  size: { kind: "fixed", height: ROWS, width: COLUMNS },
  fit: "stretch",
  interpolation: "area",
  values: { kind: "modality" },
  monochrome1: "refuse",
  channels: "grayscale",
  colour_source: "refuse",
  normalisation: { kind: "none" },
  background: -1000,
};

type Parts = Pick<Manifest, "name" | "inputs" | "outputs" | "accepts"> & Partial<Manifest>;

export const reachManifest = (parts: Parts): Manifest => ({
  version: "1.0.0",
  ...ABOUT,
  files: [],
  batching: { max: 4 },
  execution: { providers: ["cpu"], precision: "float32" },
  results: { outputs: ["json", "png", "sr", "seg"] },
  ...parts,
});

export const BRIGHT_PART = {
  label: "bright",
  code: sct("3138006", "Bone"),
  category: TISSUE,
  threshold: 0.5,
};
export const SOFT_PART = {
  label: "soft",
  code: sct("87784001", "Soft tissue"),
  category: TISSUE,
  threshold: 0.5,
};

const several: Manifest = reachManifest({
  name: "several",
  accepts: { formats: ["dicom"], modality: ["CT"], dimensions: "2d_frames" },
  inputs: [
    {
      ...plainInput,
      tensor: "ct",
      values: {
        kind: "windows",
        windows: [
          { center: -600, width: 1500, function: "LINEAR" },
          { center: 40, width: 80, function: "LINEAR_EXACT" },
          { center: 300, width: 1500, function: "SIGMOID" },
        ],
      },
      channels: "windows",
      background: 0,
      neighbours: { before: 1, after: 1, edges: "repeat" },
    },
    {
      ...plainInput,
      tensor: "coarse",
      size: { kind: "fixed", height: ROWS / 2, width: COLUMNS / 2 },
      neighbours: { before: 0, after: 2, edges: "background" },
      normalisation: { kind: "percentile", over: "image", low: 5, high: 95, to: [0, 1] },
    },
    {
      ...plainInput,
      tensor: "plain",
      values: { kind: "stored" },
      monochrome1: "as_stored",
      normalisation: { kind: "z_score", over: "image" },
    },
    {
      kind: "attributes",
      tensor: "clinical",
      dtype: "float32",
      layout: "NC",
      values: [
        {
          tag: "PatientSex",
          encoding: "one_hot",
          values: ["F", "M"],
          if_absent: { kind: "default", numbers: [0.5, 0.5] },
        },
        {
          tag: "PatientAge",
          encoding: "age",
          unit: "months",
          multiply: 1 / 1200,
          add: 0,
          if_absent: { kind: "refuse" },
        },
        {
          tag: "PatientWeight",
          encoding: "number",
          multiply: 0.01,
          add: -0.5,
          if_absent: { kind: "default", numbers: [0.25] },
        },
        { tag: "KVP", encoding: "number", multiply: 0.01, add: 0, if_absent: { kind: "refuse" } },
      ],
    },
  ],
  outputs: [
    {
      kind: "segmentation",
      tensor: "mask",
      input: "ct",
      activation: "sigmoid",
      labels: [BRIGHT_PART, SOFT_PART],
      postprocess: [],
      measurements: ["area"],
    },
    EFFUSION_SCORES,
  ],
});

const SIDE = 64;
/**
 * cx, cy, w, h in pixels of the tensor, a score for each of two labels, four coefficients; a column
 * for each box.
 */
const BOXES = [
  [20, 28, 24, 20, 0.9, 0.1, 3, -1, 0.5, 0],
  // Hidden by the first.
  [21, 28, 24, 20, 0.8, 0.1, 3, 3, 3, 3],
  [33, 33, 22, 26, 0.7, 0.2, -0.5, 2.5, 0.25, -1],
  [46, 36, 20, 30, 0.2, 0.85, 0, 0.5, -2, 3],
  // In what letterbox adds below the image.
  [10, 60, 10, 6, 0.1, 0.8, 3, 3, 3, 3],
  // Below its threshold.
  [40, 20, 16, 16, 0.1, 0.3, 3, 3, 3, 3],
] as const;

/** Boxes and prototypes that are the same for every image: waves of different direction. */
const instancesGraph: ModelDescription = {
  name: "instances",
  inputs: [{ name: "x", dtype: "float32", shape: ["n", 1, SIDE, SIDE] }],
  outputs: [
    { name: "output0", dtype: "float32", shape: ["n", 10, BOXES.length] },
    { name: "output1", dtype: "float32", shape: ["n", 4, SIDE / 4, SIDE / 4] },
  ],
  initializers: [
    {
      name: "table",
      dtype: "float32",
      shape: [1, 10, BOXES.length],
      data: Array.from({ length: 10 }, (_, column) => BOXES.map((box) => box[column]!)).flat(),
    },
    {
      name: "prototypes",
      dtype: "float32",
      shape: [1, 4, SIDE / 4, SIDE / 4],
      data: Array.from({ length: 4 * 256 }, (_, i) => {
        const [k, y, x] = [Math.floor(i / 256), Math.floor(i / 16) % 16, i % 16];
        return Math.fround((((x * (k + 1) + y * (4 - k)) % 11) - 5) / 4);
      }),
    },
    { name: "nothing", dtype: "float32", shape: [1], data: [0] },
    { name: "side", dtype: "int64", shape: [1], data: [3] },
  ],
  nodes: [
    { op: "GlobalAveragePool", inputs: ["x"], outputs: ["mean"] },
    { op: "Mul", inputs: ["mean", "nothing"], outputs: ["zeros"] },
    { op: "Squeeze", inputs: ["zeros", "side"], outputs: ["cube"] },
    { op: "Add", inputs: ["cube", "table"], outputs: ["output0"] },
    { op: "Add", inputs: ["zeros", "prototypes"], outputs: ["output1"] },
  ],
};

const NODULE = { label: "nodule", code: sct("27925004", "Nodule") };
const MASS = { label: "mass", code: sct("4147007", "Mass") };
const LESION = sct("49755003", "Morphologically abnormal structure");

const instances: Manifest = reachManifest({
  name: "instances",
  accepts: { formats: ["dicom"], modality: ["CT", "CR", "DX"], dimensions: "2d" },
  inputs: [
    {
      ...plainInput,
      size: { kind: "fixed", height: SIDE, width: SIDE },
      fit: "letterbox",
      interpolation: "linear",
      monochrome1: "as_stored",
    },
  ],
  outputs: [
    {
      kind: "detection_table",
      tensor: "output0",
      axes: "columns_boxes",
      columns: ["cx", "cy", "w", "h", "class_scores", "mask_coefficients"],
      mask_coefficients: 4,
      normalised: false,
      scores: { activation: "none", labels_per_box: "one" },
      nms: { kind: "greedy", iou: 0.45, per_class: true },
      max_boxes: 100,
      labels: [
        { ...NODULE, threshold: 0.5 },
        { ...MASS, threshold: 0.5 },
      ],
    },
    {
      kind: "segmentation",
      tensor: "output1",
      activation: "prototypes",
      boxes: "output0",
      labels: [
        { ...NODULE, category: LESION, threshold: 0.5 },
        { ...MASS, category: LESION, threshold: 0.6 },
      ],
      postprocess: [],
      measurements: ["area"],
    },
  ],
});

const FOLD_CHANNELS = 3;

/**
 * One of three networks that see the same image: channels of background, bone and soft tissue, and
 * a score.
 */
const foldGraph = (fold: number): ModelDescription => ({
  name: `fold_${fold}`,
  inputs: [{ name: "x", dtype: "float32", shape: ["n", 1, ROWS, COLUMNS] }],
  outputs: [
    { name: "mask", dtype: "float32", shape: ["n", FOLD_CHANNELS, ROWS, COLUMNS] },
    { name: "scores", dtype: "float32", shape: ["n", 2] },
  ],
  initializers: [
    {
      name: "filter",
      dtype: "float32",
      shape: [FOLD_CHANNELS, 1, 3, 3],
      // Logits of one network are larger than those of the others, so that both means differ.
      data: weights(FOLD_CHANNELS * 9, 1 + 2 * fold).map(
        (value, i) => value * (i % (fold + 2) === 0 ? -1 : 1),
      ),
    },
    { name: "votes", dtype: "float32", shape: [FOLD_CHANNELS, 2], data: weights(6, 2 - fold) },
    { name: "zeros", dtype: "float32", shape: [2], data: [0, 0] },
    { name: "sides", dtype: "int64", shape: [2], data: [2, 3] },
  ],
  nodes: [
    {
      op: "Conv",
      inputs: ["x", "filter"],
      outputs: ["mask"],
      attributes: { pads: ints([1, 1, 1, 1]) },
    },
    { op: "GlobalAveragePool", inputs: ["mask"], outputs: ["means"] },
    { op: "Squeeze", inputs: ["means", "sides"], outputs: ["features"] },
    { op: "Gemm", inputs: ["features", "votes", "zeros"], outputs: ["scores"] },
  ],
});

export const FOLDS = ["fold_0.onnx", "fold_1.onnx", "fold_2.onnx"];

const folds = (average: NonNullable<Manifest["ensemble"]>["average"]): Manifest =>
  reachManifest({
    name: `folds-${average.replace("_activation", "")}`,
    accepts: { formats: ["dicom"], modality: ["CT"], dimensions: "2d_frames" },
    ensemble: { graphs: FOLDS, average },
    inputs: [{ ...plainInput, normalisation: { kind: "scale", multiply: 0.002, add: 0.5 } }],
    outputs: [
      {
        kind: "segmentation",
        tensor: "mask",
        activation: "softmax",
        labels: [BRIGHT_PART, SOFT_PART].map(({ label, code, category }) => ({
          label,
          code,
          category,
        })),
        postprocess: [],
        measurements: ["area"],
      },
      EFFUSION_SCORES,
    ],
  });

/** Marks what is brighter than so many HU, in slices or in a volume. */
const finderGraph = (name: string, sides: (number | string)[], hu: number): ModelDescription => ({
  name,
  inputs: [{ name: "x", dtype: "float32", shape: ["n", 1, ...sides] }],
  outputs: [{ name: "mask", dtype: "float32", shape: ["n", 1, ...sides] }],
  initializers: [
    { name: "factor", dtype: "float32", shape: [1], data: [0.01] },
    { name: "offset", dtype: "float32", shape: [1], data: [-hu / 100] },
  ],
  nodes: [
    { op: "Mul", inputs: ["x", "factor"], outputs: ["scaled"] },
    { op: "Add", inputs: ["scaled", "offset"], outputs: ["mask"] },
  ],
});

/** Marks two labels in a volume. */
const deepGraph: ModelDescription = {
  name: "deep",
  inputs: [{ name: "x", dtype: "float32", shape: ["n", 1, "d", "h", "w"] }],
  outputs: [{ name: "mask", dtype: "float32", shape: ["n", 2, "d", "h", "w"] }],
  initializers: [
    {
      name: "filter",
      dtype: "float32",
      shape: [2, 1, 3, 3, 3],
      data: weights(54, 1.7).map((value, i) => value * (i % 4 === 0 ? -1 : 1)),
    },
  ],
  nodes: [
    {
      op: "Conv",
      inputs: ["x", "filter"],
      outputs: ["mask"],
      attributes: { pads: ints([1, 1, 1, 1, 1, 1]) },
    },
  ],
};

const marks = (labels: Label[]): ModelOutput => ({
  kind: "segmentation",
  tensor: "mask",
  activation: "sigmoid",
  labels,
  postprocess: [],
  measurements: [],
});

const volumeInput: ImageInput = {
  ...plainInput,
  layout: "NCDHW",
  size: { kind: "source" },
  interpolation: "linear",
};

/** Finds the region that the other looks at, in slices and in a volume. */
const finder: Manifest = reachManifest({
  name: "finder",
  accepts: { formats: ["dicom"], modality: ["CT"], dimensions: "2d_frames" },
  inputs: [plainInput],
  outputs: [marks([BRIGHT_PART])],
});
const deepFinder: Manifest = {
  ...finder,
  name: "finder-3d",
  accepts: { formats: ["dicom"], modality: ["CT"], dimensions: "series" },
  inputs: [volumeInput],
};

const looker: Manifest = {
  ...folds("before_activation"),
  name: "looker",
  ensemble: undefined,
  region: { model: "finder", label: "bright", margin_mm: 2, when_empty: "whole" },
  inputs: [
    {
      ...plainInput,
      interpolation: "linear",
      normalisation: { kind: "scale", multiply: 0.002, add: 0.5 },
    },
  ],
};
const deepLooker: Manifest = {
  ...deepFinder,
  name: "looker-3d",
  region: { model: "finder-3d", label: "bright", margin_mm: 2, when_empty: "negative" },
  inputs: [{ ...volumeInput, normalisation: { kind: "scale", multiply: 0.001, add: 0.37 } }],
  outputs: [marks([BRIGHT_PART, SOFT_PART])],
};

/** Marks two labels in three series of one brain, and scores them together. */
const togetherGraph: ModelDescription = {
  name: "together",
  inputs: [{ name: "scans", dtype: "float32", shape: ["n", 3, "d", "h", "w"] }],
  outputs: [
    { name: "mask", dtype: "float32", shape: ["n", 2, "d", "h", "w"] },
    { name: "scores", dtype: "float32", shape: ["n", 2] },
  ],
  initializers: [
    {
      name: "filter",
      dtype: "float32",
      shape: [2, 3, 3, 3, 3],
      data: weights(162, 0.6).map((value, i) => value * (i % 5 === 0 ? -1.5 : 1)),
    },
    { name: "votes", dtype: "float32", shape: [2, 2], data: [1.5, -1, 0.5, 2] },
    { name: "zeros", dtype: "float32", shape: [2], data: [0, 0] },
    { name: "sides", dtype: "int64", shape: [3], data: [2, 3, 4] },
  ],
  nodes: [
    {
      op: "Conv",
      inputs: ["scans", "filter"],
      outputs: ["mask"],
      attributes: { pads: ints([1, 1, 1, 1, 1, 1]) },
    },
    { op: "GlobalAveragePool", inputs: ["mask"], outputs: ["means"] },
    { op: "Squeeze", inputs: ["means", "sides"], outputs: ["features"] },
    { op: "Gemm", inputs: ["features", "votes", "zeros"], outputs: ["scores"] },
  ],
};

/** FLAIR, T1 and T2 as the channels of one tensor; each has a normalisation, T2 one of its own. */
const together: Manifest = reachManifest({
  name: "together",
  accepts: { formats: ["dicom"], modality: ["MR"], dimensions: "series" },
  roles: [
    { role: "flair", rules: [{ tag: "SeriesDescription", contains: ["flair"] }] },
    {
      role: "t1",
      rules: [{ tag: "SeriesDescription", contains: ["t1"], not_contains: ["flair"] }],
    },
    {
      role: "t2",
      rules: [
        { tag: "SeriesDescription", contains: ["T2"], not_contains: ["FLAIR"] },
        { tag: "EchoTime", min: 60 },
      ],
    },
  ],
  inputs: [
    {
      ...volumeInput,
      tensor: "scans",
      background: 0,
      normalisation: { kind: "z_score", over: "volume" },
      roles: [
        { role: "flair" },
        { role: "t1" },
        { role: "t2", normalisation: { kind: "min_max", over: "volume", to: [0, 1] } },
      ],
    },
  ],
  outputs: [
    { ...marks([BRIGHT_PART, SOFT_PART]), measurements: ["volume"] } as ModelOutput,
    EFFUSION_SCORES,
  ],
});

const VIEWS = ["rcc", "lcc", "rmlo", "lmlo"] as const;

/** Scores each side by the four views of a mammography. */
const viewsGraph: ModelDescription = {
  name: "views",
  inputs: VIEWS.map((name) => ({ name, dtype: "float32", shape: ["n", 1, ROWS, COLUMNS] })),
  outputs: [{ name: "cancer", dtype: "float32", shape: ["n", 2] }],
  initializers: [
    { name: "votes", dtype: "float32", shape: [8, 2], data: weights(16, 4) },
    { name: "zeros", dtype: "float32", shape: [2], data: [0, 0] },
    { name: "sides", dtype: "int64", shape: [2], data: [2, 3] },
  ],
  nodes: [
    ...VIEWS.flatMap((name) => [
      { op: "GlobalAveragePool", inputs: [name], outputs: [`${name}_mean`] },
      { op: "GlobalMaxPool", inputs: [name], outputs: [`${name}_most`] },
    ]),
    {
      op: "Concat",
      inputs: VIEWS.flatMap((name) => [`${name}_mean`, `${name}_most`]),
      outputs: ["pooled"],
      attributes: { axis: int(1) },
    },
    { op: "Squeeze", inputs: ["pooled", "sides"], outputs: ["features"] },
    { op: "Gemm", inputs: ["features", "votes", "zeros"], outputs: ["cancer"] },
  ],
};

const LEFT = sct("7771000", "Left");
const RIGHT = sct("24028007", "Right");
const BREAST = sct("76752008", "Breast");
const CANCER = sct("254837009", "Malignant tumor of breast");

const views: Manifest = reachManifest({
  name: "views",
  accepts: { formats: ["dicom"], modality: ["MG"], dimensions: "2d" },
  roles: VIEWS.map((role) => ({
    role,
    rules: [
      { tag: "ImageLaterality", in: [role.startsWith("r") ? "R" : "L"] },
      { tag: "ViewPosition", in: [role.slice(1).toUpperCase()] },
    ],
  })),
  inputs: VIEWS.map((role) => ({
    ...plainInput,
    tensor: role,
    normalisation: { kind: "scale" as const, multiply: 1 / 4095, add: 0 },
    background: 0,
    roles: [{ role }],
  })),
  outputs: [
    {
      kind: "classification",
      tensor: "cancer",
      activation: "sigmoid",
      calibration: { kind: "none" },
      labels: [
        { label: "left", code: CANCER, finding_site: BREAST, laterality: LEFT, threshold: 0.5 },
        { label: "right", code: CANCER, finding_site: BREAST, laterality: RIGHT, threshold: 0.5 },
      ],
    },
  ],
});

interface ReachModel {
  manifest: Manifest;
  /** The reference that the graphs are stored with, and their descriptions. */
  folder: string;
  graphs: ModelDescription[];
}

const MODELS: Record<string, ReachModel> = {
  several: { manifest: several, folder: "inputs", graphs: [severalGraph] },
  instances: { manifest: instances, folder: "prototypes", graphs: [instancesGraph] },
  finder: {
    manifest: finder,
    folder: "cascade",
    graphs: [finderGraph("finder", [ROWS, COLUMNS], 230)],
  },
  looker: { manifest: looker, folder: "ensemble", graphs: [foldGraph(0)] },
  "finder-3d": {
    manifest: deepFinder,
    folder: "cascade",
    graphs: [finderGraph("finder_3d", ["d", "h", "w"], 430)],
  },
  "looker-3d": { manifest: deepLooker, folder: "cascade", graphs: [deepGraph] },
  together: { manifest: together, folder: "roles", graphs: [togetherGraph] },
  views: { manifest: views, folder: "roles", graphs: [viewsGraph] },
  "folds-before": {
    manifest: folds("before_activation"),
    folder: "ensemble",
    graphs: [0, 1, 2].map(foldGraph),
  },
  "folds-after": {
    manifest: folds("after_activation"),
    folder: "ensemble",
    graphs: [0, 1, 2].map(foldGraph),
  },
};

/** Writes the folder of a model, without a canary. Gives its path. */
export function writeReachModel(
  models: string,
  name: string,
  change: (manifest: Manifest) => void = () => undefined,
): string {
  const { manifest: whole, folder: stored, graphs } = MODELS[name]!;
  const manifest = structuredClone(whole);
  const files = graphs.map((graph) => ({
    path: graphs.length === 1 ? "model.onnx" : `${graph.name}.onnx`,
    bytes: readFileSync(join(reference(stored), `${graph.name}.onnx`)),
  }));
  manifest.files = files.map(({ path, bytes }) => ({ path, sha256: sha256(bytes) }));
  change(manifest);
  const folder = join(models, manifest.name);
  mkdirSync(folder, { recursive: true });
  for (const { path, bytes } of files) writeFileSync(join(folder, path), bytes);
  writeFileSync(join(folder, "model.json"), JSON.stringify(manifest));
  return folder;
}

/** Each stored graph, and the bytes that its description gives. */
export const storedGraphs = (): { path: string; bytes: Uint8Array }[] =>
  Object.values(MODELS).flatMap(({ folder, graphs }) =>
    graphs.map((graph) => ({
      path: join(reference(folder), `${graph.name}.onnx`),
      bytes: onnxModel(graph),
    })),
  );

if (process.argv[1] === import.meta.filename)
  for (const { path, bytes } of storedGraphs()) {
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(path, bytes);
  }
