/** What the test models are made of: codes, inputs and graphs. */
import { int, type ModelDescription } from "../../scripts/lib/onnx-model.js";
import type { ImageInput } from "../../src/manifest/manifest.js";
import type { ModelOutput } from "../../src/manifest/outputs/outputs.js";
import type { Resampling } from "../../src/manifest/resampling.js";
import type { Code } from "../../src/manifest/texts.js";

export const sct = (value: string, meaning: string): Code => ({ value, scheme: "SCT", meaning });
export const TISSUE = sct("85756007", "Tissue");
export const BRIGHT = {
  label: "bright",
  code: sct("3138006", "Bone"),
  category: TISSUE,
  threshold: 0.6,
};
export const DARK = {
  label: "dark",
  code: sct("55603005", "Fat"),
  category: TISSUE,
  threshold: 0.55,
};

export const sourceSize: ImageInput = {
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

/** The source stretched to a fixed size. */
export const stretched = (height: number, width: number): ImageInput => ({
  ...sourceSize,
  size: { kind: "fixed", height, width },
  fit: "stretch",
  interpolation: "area",
});

export const volumeSize: ImageInput = {
  ...sourceSize,
  layout: "NCDHW",
  values: { kind: "window", center: 40, width: 400, function: "LINEAR" },
  colour_source: "refuse",
};

/** To voxels of 1 mm, as MONAI's Spacingd does it by lines. */
export const firstVoxel: Resampling = {
  grid: "first_voxel",
  spacing_mm: [1, 1, 1],
  order: 1,
  order_back: 1,
  keep_range: false,
  clip: "after",
  crop: "none",
  activation: "before",
};

type Shape = readonly (string | number)[];
export const flat: Shape = ["n", 1, "h", "w"];
export const deep: Shape = ["n", 1, "d", "h", "w"];

/** A list of whole numbers, as operators take places and counts. */
export const ints64 = (name: string, data: readonly number[]) =>
  ({ name, dtype: "int64", shape: [data.length], data }) as const;

export const scalar = (name: string, value: number) =>
  ({ name, dtype: "float32", shape: [1], data: [value] }) as const;

/** The mean of each image, as one row. */
export const meanOf = (input: string, row: string) =>
  [
    { op: "GlobalAveragePool", inputs: [input], outputs: ["mean"] },
    { op: "Flatten", inputs: ["mean"], outputs: [row] },
  ] as const;

/**
 * A tensor [n, ...shape] that holds `data` for every image [n, 1, ...sides], as detection networks
 * are exported.
 */
export function constant(
  name: string,
  output: string,
  sides: Shape,
  shape: readonly number[],
  data: number[],
): ModelDescription {
  const isFlat = shape.length === 1;
  return {
    name,
    inputs: [{ name: "x", dtype: "float32", shape: ["n", 1, ...sides] }],
    outputs: [{ name: output, dtype: "float32", shape: ["n", ...shape] }],
    initializers: [
      { name: "head", dtype: "float32", shape: [1, ...shape], data },
      { name: "axes", dtype: "int64", shape: [1], data: [1] },
      scalar("nothing", 0),
    ],
    nodes: [
      ...meanOf("x", "row"),
      { op: "Mul", inputs: ["row", "nothing"], outputs: ["zeros"] },
      ...(isFlat
        ? []
        : [{ op: "Unsqueeze", inputs: ["zeros", "axes"], outputs: ["cube"] } as const]),
      { op: "Add", inputs: [isFlat ? "zeros" : "cube", "head"], outputs: [output] },
    ],
  };
}

/** y = x. */
export const same = (name: string): ModelDescription => ({
  name,
  inputs: [{ name: "x", dtype: "float32", shape: flat }],
  outputs: [{ name: "y", dtype: "float32", shape: flat }],
  nodes: [{ op: "Identity", inputs: ["x"], outputs: ["y"] }],
});

/** Two channels: x, and 1 - x. */
export const inverse = (name: string, shape: Shape): ModelDescription => ({
  name,
  inputs: [{ name: "x", dtype: "float32", shape }],
  outputs: [{ name: "y", dtype: "float32", shape: [shape[0]!, 2, ...shape.slice(2)] }],
  initializers: [scalar("one", 1)],
  nodes: [
    { op: "Sub", inputs: ["one", "x"], outputs: ["inverse"] },
    { op: "Concat", inputs: ["x", "inverse"], outputs: ["y"], attributes: { axis: int(1) } },
  ],
});

/** 0, 1 or 2 by brightness: below a third nothing, then two labels that exclude each other. */
export const thirds = (name: string, shape: Shape): ModelDescription => ({
  name,
  inputs: [{ name: "x", dtype: "float32", shape }],
  outputs: [{ name: "y", dtype: "uint8", shape }],
  initializers: [scalar("three", 3), scalar("zero", 0), scalar("two", 2)],
  nodes: [
    { op: "Mul", inputs: ["x", "three"], outputs: ["m"] },
    { op: "Max", inputs: ["m", "zero"], outputs: ["low"] },
    { op: "Min", inputs: ["low", "two"], outputs: ["high"] },
    { op: "Cast", inputs: ["high"], outputs: ["y"], attributes: { to: int(2) } },
  ],
});

type Segmentation = Extract<ModelOutput, { kind: "segmentation" }>;

/** A label map of two tissues, unless the parts say otherwise. */
export const segmentation = (parts: Partial<Segmentation> = {}): Segmentation => ({
  kind: "segmentation",
  tensor: "y",
  activation: "label_map",
  postprocess: [],
  measurements: ["area"],
  labels: [
    { label: "grey", code: sct("87784001", "Soft tissue"), category: TISSUE },
    {
      label: "bright",
      code: sct("3138006", "Bone"),
      category: TISSUE,
      threshold: 0.6,
      finding_site: sct("39607008", "Lung"),
    },
  ],
  ...parts,
});

export const saliency: ModelOutput = {
  kind: "heatmap",
  tensor: "y",
  activation: "none",
  label: { label: "Saliency", code: sct("60046008", "Pleural effusion") },
};

/** The mean of an image, called a length of 1 to 11 mm. */
export const lengthOf = (tensor: string): ModelOutput => ({
  kind: "regression",
  tensor,
  values: [
    {
      name: "Length",
      code: sct("410668003", "Length"),
      unit: { value: "mm", scheme: "UCUM", meaning: "millimeter" },
      multiply: 10,
      add: 1,
    },
  ],
});
