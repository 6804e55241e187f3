/** Masks of labels, for an image or a volume. */
import { z } from "zod";
import { text } from "../texts.js";
import { isDetectionTable, type DetectionTable } from "./detection-table.js";
import { activated, ignored, labels, onInput } from "./fields.js";
import { mapFaults, type AnyOutput } from "./graph-fit.js";
import { columnsOf, labelNames, type Around, type Kind, type Report } from "./kind.js";
import { mapCover } from "./map-cover.js";

const MASK_STEP_MEANING =
  "Regions (4-connected; 6-connected in volumes) that touch the image border or Pixel Padding " +
  "become background. In volumes the border is that of each slice; the first and last slice " +
  "are none";
const CONNECTED_BY_MEANING =
  "edges (where absent): 4 neighbours, 6 in volumes; corners: 8, 26 in volumes (MONAI's " +
  "KeepLargestConnectedComponent)";

const maskStep = z.discriminatedUnion("step", [
  z
    .strictObject({ step: z.literal("drop_border_connected"), labels: z.array(z.string()).min(1) })
    .describe(MASK_STEP_MEANING),
  z.strictObject({
    step: z.literal("largest_component"),
    labels: z.array(z.string()).min(1),
    connected_by: z.enum(["edges", "corners"]).optional().describe(CONNECTED_BY_MEANING),
  }),
  z.strictObject({
    step: z.literal("minimum_area"),
    labels: z.array(z.string()).min(1),
    pixels: z.int().min(1).describe("Pixels; for volumes, voxels"),
  }),
  z
    .strictObject({ step: z.literal("fill_holes"), labels: z.array(z.string()).min(1) })
    .describe(
      "In volumes of several slices a hole is closed on all sides; a cavity that is open at the first or last slice is not a hole",
    ),
]);

/** Of the values of a segment's pixels, in HU, SUV or another unit that is known. */
export const STATISTICS = [
  ...([
    "mean",
    "sd",
    "minimum",
    "maximum",
    "median",
    "p5",
    "p10",
    "p25",
    "p75",
    "p90",
    "p95",
  ] as const),
  ...(["iqr", "range", "skewness", "kurtosis", "energy", "rms", "entropy", "uniformity"] as const),
] as const;
/** Of a segment's form, in mm and mm2. */
export const FORMS = ["diameter_in_plane", "diameter_3d", "surface"] as const;

const ACTIVATION_MEANING =
  "sigmoid: one channel a label, thresholds, may overlap; none: the same, of a tensor that " +
  "holds probabilities already; softmax and argmax: channel 0 is background, then one a label; " +
  "label_map: the tensor holds label indices; prototypes: the tensor holds prototypes [1, K, " +
  "height, width], of which the boxes of a detection table are masks";
const BOXES_MEANING =
  "With prototypes: the tensor of the detection_table whose boxes have the coefficients. A " +
  "label's mask is the union of those of its boxes: sigmoid of the coefficients times the " +
  "prototypes at or above the label's threshold, within the box";
const MEASUREMENTS_MEANING =
  "Of each label's final mask, on the source's grid. Statistics are of the values before any " +
  "preparation, in the unit that the model's values have, as IBSI defines them; percentiles " +
  "are interpolated, kurtosis is that beyond a normal distribution's. Forms: the longest " +
  "distance in a slice and in all (mm), and the surface (mm2), by marching cubes; the latter " +
  "two of volumes. What cannot be measured has a warning";
const BIN_WIDTH_MEANING =
  "For entropy and uniformity, which need it: the width of the histogram's bins in the unit of " +
  "the values; bins begin at its multiples";
const SEGMENT_TYPE_MEANING =
  "Form of the SEG object: binary (default), the mask; fractional, the probability of each " +
  "pixel in steps of 1/255, for outputs that are probabilities (activation sigmoid, softmax or " +
  "none) and have no postprocess";
const SEGMENT_GRID_MEANING =
  "For volumes, the grid of the SEG object: source (default): the frames of the source, to " +
  "which the output is resampled before thresholds; model: the grid of the output's tensor. " +
  "Findings, measurements and pictures are of the source's grid in both";

const schema = z.strictObject({
  kind: z.literal("segmentation"),
  tensor: text,
  input: onInput,
  activation: z
    .enum(["none", "sigmoid", "softmax", "argmax", "label_map", "prototypes"])
    .describe(ACTIVATION_MEANING),
  boxes: text.optional().describe(BOXES_MEANING),
  activated,
  labels: labels.describe("Label index 1 is the first; 0 is background"),
  ignored,
  postprocess: z.array(maskStep),
  measurements: z
    .array(z.enum(["area", "volume", ...FORMS, ...STATISTICS]))
    .describe(MEASUREMENTS_MEANING),
  bin_width: z.number().positive().optional().describe(BIN_WIDTH_MEANING),
  segment_type: z.enum(["binary", "fractional"]).optional().describe(SEGMENT_TYPE_MEANING),
  segment_grid: z.enum(["source", "model"]).optional().describe(SEGMENT_GRID_MEANING),
  ...mapCover,
});
export type Segmentation = z.infer<typeof schema>;

export const segmentation: Kind<Segmentation> & { schema: typeof schema } = {
  schema,
  ofVolumes: true,
  placed: true,
  laidBack: true,
  canBeEmpty: true,
  blends: true,
  hasMean: true,
  holdsLabels: ({ activation }) => activation === "label_map" || activation === "prototypes",
  noMeanAfterActivation: ({ activation }) =>
    activation === "argmax"
      ? 'With activation "argmax" nothing is activated; expected before_activation or softmax'
      : undefined,
  labels: (output) => output.labels,
  // Masks of boxes have the labels of their boxes
  names: ({ activation, labels: list }) => (activation === "prototypes" ? [] : labelNames(list)),
  needsThresholds: ({ activation }) => mayOverlap(activation),
  ignoresFrom: ({ activation }) =>
    activation === "label_map" || activation === "prototypes"
      ? undefined
      : mayOverlap(activation)
        ? 0
        : 1,
  hasUnitScores: ({ activation }) => mayOverlap(activation),
  check,
  checkWhole: checkPrototypes,
  graphFaults: (output, graph) =>
    mapFaults(
      output,
      channels(output, graph.outputs),
      "labels",
      graph,
      output.activation === "label_map",
    ),
  decoding: ({ activation, tensor, boxes }, thresholds) =>
    activation === "prototypes"
      ? [
          { step: "masks_by_prototypes", tensor, boxes, interpolation: "linear", of: "logits" },
          { step: "mask_thresholds", at_or_above: thresholds },
          { step: "within_box", pixels: "centres" },
          { step: "union", over: "boxes of a label" },
        ]
      : [],
};

export const isSegmentation = (output: AnyOutput): output is Segmentation =>
  output.kind === "segmentation";

/**
 * Whether a segmentation has one channel for each label, judged by thresholds, instead of one label
 * for each pixel.
 */
export function mayOverlap(activation: Segmentation["activation"]): boolean {
  return activation === "sigmoid" || activation === "none" || activation === "prototypes";
}

/** Whether the segments of an output are written as probabilities. */
export const isFractional = (output: AnyOutput): boolean =>
  isSegmentation(output) && output.segment_type === "fractional";

/** Whether the segments of an output are written in the grid of the model. */
export const isInModelGrid = (output: AnyOutput): boolean =>
  isSegmentation(output) && output.segment_grid === "model";

/** The detection table whose boxes have the masks of a segmentation by prototypes. */
export function tableOf(
  outputs: readonly AnyOutput[],
  output: AnyOutput,
): DetectionTable | undefined {
  if (!isSegmentation(output) || output.activation !== "prototypes") return undefined;
  return outputs.filter(isDetectionTable).find(({ tensor }) => tensor === output.boxes);
}

/** How many channels the map has. */
function channels(output: Segmentation, outputs: readonly AnyOutput[]): number {
  const coefficients = tableOf(outputs, output)?.mask_coefficients;
  if (coefficients !== undefined) return coefficients;
  if (output.activation === "label_map") return 1;
  return columnsOf(output) + (mayOverlap(output.activation) ? 0 : 1);
}

function check(output: Segmentation, { final }: Around, issue: Report): void {
  const names = output.labels.flatMap(({ label }) => label || []);
  output.labels.forEach(({ category }, i) => {
    if (final && category === undefined)
      issue(["labels", i, "category"], "Required in stage final");
  });
  output.postprocess.forEach((step, i) =>
    step.labels.forEach((name, j) => {
      if (!names.includes(name))
        issue(
          ["postprocess", i, "labels", j],
          `No label is called "${name}"; labels are ${[...new Set(names)].join(", ")}`,
        );
    }),
  );
  const binned = output.measurements.filter((name) => name === "entropy" || name === "uniformity");
  if (binned.length > 0 !== (output.bin_width !== undefined))
    issue(
      ["bin_width"],
      binned.length > 0 ? `Required for ${binned.join(", ")}` : "Only with entropy or uniformity",
    );
  if (output.segment_type === "fractional") checkFractional(output, issue);
  if (output.activated !== undefined && !["sigmoid", "softmax"].includes(output.activation))
    issue(["activated"], "Only with the activation sigmoid or softmax");
}

/**
 * Steps after the threshold change the mask and not the probabilities: the two would tell different
 * things.
 */
function checkFractional({ activation, postprocess }: Segmentation, issue: Report): void {
  if (activation === "prototypes")
    issue(
      ["segment_type"],
      "fractional gives one probability a pixel; masks of several boxes have more",
    );
  if (activation === "argmax" || activation === "label_map")
    issue(["segment_type"], `fractional needs probabilities; activation "${activation}" has none`);
  if (postprocess.length > 0)
    issue(
      ["segment_type"],
      "fractional gives the model's own probabilities: expected no postprocess",
    );
}

/** Masks by prototypes belong to the boxes of a table, label by label. */
function checkPrototypes(output: Segmentation, { outputs, volume }: Around, issue: Report): void {
  const by = output.activation === "prototypes";
  if (by !== (output.boxes !== undefined))
    issue(
      ["boxes"],
      by ? "Expected the tensor of a detection_table" : 'Only with activation "prototypes"',
    );
  if (!by) return;
  if (volume) issue(["activation"], "Volumes have no boxes; expected another");
  const table = tableOf(outputs, output);
  if (table?.mask_coefficients === undefined) {
    issue(["boxes"], "Expected the tensor of a detection_table with a column mask_coefficients");
    return;
  }
  if (table.input !== output.input) issue(["input"], "Expected the input of its detection_table");
  const names = (list: typeof output.labels) => list.map(({ label }) => label).join(", ");
  if (names(table.labels) !== names(output.labels))
    issue(
      ["labels"],
      `Expected the labels of its detection_table in their order: ${names(table.labels)}`,
    );
}
