/** Boxes, scores and classes in tensors of their own. */
import { z } from "zod";
import { text } from "../texts.js";
import {
  ignored,
  labels,
  maxBoxes,
  normalised,
  onInput,
  pixelsOf,
  score,
  type Label,
} from "./fields.js";
import { isFault, outputTensor, tensorText, type Fault, type GraphSide } from "./graph-fit.js";
import {
  columnsOf,
  labelNames,
  SOFTMAX_OF_ONE,
  type DecodingStep,
  type Kind,
  type Report,
} from "./kind.js";

export const classes = z
  .strictObject({ tensor: text, first: z.int().min(0).describe("Number of the first label") })
  .optional()
  .describe("Without it, scores hold one column a label");

const schema = z.strictObject({
  kind: z.literal("detection"),
  input: onInput,
  boxes: z.strictObject({
    tensor: text,
    format: z.enum(["xyxy", "xywh", "cxcywh", "yxyx"]),
    normalised,
    pixels_of: pixelsOf,
  }),
  scores: z.strictObject({ tensor: text, activation: z.enum(["none", "sigmoid", "softmax"]) }),
  classes,
  nms: z.strictObject({ iou: score, per_class: z.boolean() }).optional(),
  max_boxes: maxBoxes,
  labels,
  ignored,
});
export type Detection = z.infer<typeof schema>;

/** Why a unit of pixels does not go with numbers from 0 to 1. */
export const NO_PIXELS = "Only with normalised false: numbers from 0 to 1 are not pixels";

/** The traits of every kind whose network gives boxes with a score for each label. */
export const OF_BOXES = {
  ofVolumes: false,
  placed: true,
  laidBack: true,
  canBeEmpty: true,
  blends: false,
  hasMean: false,
  labels: (output: { labels: Label[] }) => output.labels,
  names: (output: { labels: Label[] }) => labelNames(output.labels),
  needsThresholds: () => true,
  ignoresFrom: () => 0,
};

export const detection: Kind<Detection> & { schema: typeof schema } = {
  schema,
  ...OF_BOXES,
  hasUnitScores: ({ scores }) => scores.activation !== "none",
  inSource: ({ boxes }) => boxes.pixels_of === "source",
  checkWhole: (output, _, issue) => {
    checkActivation(output, issue);
    if (output.boxes.pixels_of !== undefined && output.boxes.normalised)
      issue(["boxes", "pixels_of"], NO_PIXELS);
  },
  graphFaults: (output, graph) => listFaults(output, 4, graph),
  decoding: ({ boxes, scores, classes: kinds, ignored: none, nms, max_boxes }, thresholds) => [
    { step: "boxes", ...boxes },
    {
      step: "scores",
      ...scores,
      ...(kinds === undefined ? {} : { classes: kinds }),
      ...(none === undefined ? {} : { ignored: none }),
    },
    ...toBoxes(thresholds, nms, max_boxes),
  ],
};

/** What a list of boxes has, however many numbers a box has. */
interface List {
  boxes: { tensor: string };
  scores: { tensor?: string | undefined; activation: string };
  classes?: { tensor: string } | undefined;
  labels: readonly Label[];
  ignored?: readonly number[] | undefined;
}

export function checkActivation(list: List, issue: Report): void {
  const { classes: kinds, scores } = list;
  if (kinds !== undefined && scores.activation === "softmax")
    issue(
      ["scores", "activation"],
      "Softmax goes over one score a label; with a classes tensor there is one score a box",
    );
  else if (scores.activation === "softmax" && columnsOf(list) === 1)
    issue(["scores", "activation"], SOFTMAX_OF_ONE);
}

/** The steps from numbers of boxes to those that are found. */
export function toBoxes(
  thresholds: Readonly<Record<string, number>>,
  nms: { iou: number; per_class: boolean; kind?: "fast"; overlap?: string | undefined } | undefined,
  max_boxes: number,
): DecodingStep[] {
  return [
    { step: "thresholds", at_or_above: thresholds },
    ...(nms === undefined ? [] : [{ step: "nms", ...nms }]),
    { step: "to_source", counted_from: "edges" },
    { step: "best", max_boxes },
  ];
}

/**
 * Boxes and scores lie one after the other: in a tensor that runs the other way each score is
 * another box's.
 */
export function listFaults(output: List, numbers: number, { tensors }: GraphSide): Fault[] {
  const columns = output.classes === undefined ? columnsOf(output) : 1;
  const parts = [
    {
      part: "boxes",
      tensor: output.boxes.tensor,
      last: numbers,
      what: `the ${numbers} numbers of a box`,
    },
    // A tensor of one score a box may or may not have a dimension for it.
    {
      part: "scores",
      tensor: output.scores.tensor ?? "",
      last: columns === 1 ? undefined : columns,
      what: `a score for each of the ${columns} ${output.ignored === undefined ? "labels" : "labels and ignored classes"}`,
    },
    ...(output.classes === undefined
      ? []
      : [{ part: "classes", tensor: output.classes.tensor, last: undefined, what: "" }]),
  ];
  return parts.flatMap(({ part, tensor, last, what }) => {
    const path = [part, "tensor"];
    const info = outputTensor(tensor, tensors, path, part === "classes");
    if (isFault(info)) return [info];
    const found = info.shape.at(-1) ?? -1;
    if (last === undefined || found < 0 || found === last) return [];
    const message = `Expected ${what} in the last dimension, found ${found}: the graph's "${info.name}" is ${tensorText(info)}. Have the export split or transpose it`;
    return [{ path, message }];
  });
}
