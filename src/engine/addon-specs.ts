/** Inputs and outputs of a manifest in the flat form that the addon reads: labels by index, thresholds as numbers. */
import { isFractional, labelsOf, type ImageInput, type ModelOutput } from "../manifest/manifest.js";

/** The addon reads manifest inputs as they are, but for values that become modality values before they cross. */
export type NativeInput = ImageInput;

type Classification = Extract<ModelOutput, { kind: "classification" }>;

export interface NativeOutput {
  kind: ModelOutput["kind"];
  tensor: string;
  activation: "none" | "sigmoid" | "softmax" | "argmax" | "label_map";
  /** Number of labels. */
  labels: number;
  /** One a label; NaN for a label without a threshold. */
  thresholds: number[];
  calibration?: Classification["calibration"];
  multiply?: number[];
  add?: number[];
  /** segmentation: probabilities beside the mask. */
  fractional?: boolean;
  steps?: { step: string; labels: number[]; pixels?: number }[];
  format?: "xyxy" | "xywh" | "cxcywh" | "yxyx";
  normalised?: boolean;
  scores?: string;
  classes?: string;
  first?: number;
  iou?: number;
  per_class?: boolean;
  max_boxes?: number;
  threshold?: number;
  minimum_area?: number;
  unclip?: number;
}

export function nativeInput(input: ImageInput): NativeInput {
  const { kind } = input.values;
  return kind === "real_world" || kind === "suv_bw" ? { ...input, values: { kind: "modality" } } : input;
}

export function nativeOutput(output: ModelOutput): NativeOutput {
  const labels = labelsOf(output);
  const common = {
    kind: output.kind,
    labels: labels.length,
    thresholds: labels.map((l) => l.threshold ?? NaN),
  };
  switch (output.kind) {
    case "classification":
      return {
        ...common,
        tensor: output.tensor,
        activation: output.activation,
        calibration: output.calibration,
      };
    case "regression":
      return {
        ...common,
        tensor: output.tensor,
        activation: "none",
        multiply: output.values.map((v) => v.multiply),
        add: output.values.map((v) => v.add),
      };
    case "segmentation": {
      const index = new Map(labels.map((l, i) => [l.label, i + 1]));
      const steps = output.postprocess.map((step) => ({
        ...step,
        labels: step.labels.flatMap((name) => index.get(name) ?? []),
      }));
      const fractional = isFractional(output);
      return { ...common, tensor: output.tensor, activation: output.activation, steps, fractional };
    }
    case "detection":
      return {
        ...common,
        tensor: output.boxes.tensor,
        format: output.boxes.format,
        normalised: output.boxes.normalised,
        scores: output.scores.tensor,
        activation: output.scores.activation,
        max_boxes: output.max_boxes,
        ...(output.classes === undefined
          ? {}
          : { classes: output.classes.tensor, first: output.classes.first }),
        ...(output.nms === undefined ? {} : { iou: output.nms.iou, per_class: output.nms.per_class }),
      };
    case "probability_map":
      return {
        ...common,
        tensor: output.tensor,
        activation: output.activation,
        threshold: output.threshold,
        minimum_area: output.minimum_area,
        unclip: output.unclip,
        max_boxes: output.max_boxes,
      };
    case "heatmap":
      return { ...common, tensor: output.tensor, activation: output.activation };
  }
}
