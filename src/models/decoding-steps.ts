/** The ordered steps from tensors to the boxes that are found, and to their masks, in words and numbers, for the receipt. */
import type { TransformStep } from "../images/image.js";
import { labelsOf, type Manifest, type ModelOutput } from "../manifest/manifest.js";

type Detection = Extract<ModelOutput, { kind: "detection" | "detection_table" }>;

/**
 * The steps of every output that holds detections, one output after the other.
 * @param thresholds for each output those of its labels in order, site.json applied
 */
export function decodingSteps(
  { outputs }: Manifest,
  thresholds: readonly (readonly number[])[],
): TransformStep[] {
  return outputs.flatMap((output, o) =>
    output.kind === "detection" || output.kind === "detection_table"
      ? detectionSteps(output, thresholds[o] ?? [])
      : output.kind === "segmentation" && output.activation === "prototypes"
        ? prototypeSteps(output, thresholds[o] ?? [])
        : [],
  );
}

function detectionSteps(output: Detection, thresholds: readonly number[]): TransformStep[] {
  const least = labelsOf(output).map(({ label }, i) => [label, thresholds[i]] as const);
  return [
    ...tensorSteps(output),
    { step: "thresholds", at_or_above: Object.fromEntries(least) },
    ...suppressionSteps(output),
    { step: "to_source", counted_from: "edges" },
    { step: "best", max_boxes: output.max_boxes },
  ];
}

function prototypeSteps(
  { tensor, boxes, labels }: Extract<ModelOutput, { kind: "segmentation" }>,
  thresholds: readonly number[],
): TransformStep[] {
  const least = labels.map(({ label }, i) => [label, thresholds[i]] as const);
  return [
    { step: "masks_by_prototypes", tensor, boxes, interpolation: "linear", of: "logits" },
    { step: "mask_thresholds", at_or_above: Object.fromEntries(least) },
    { step: "within_box", pixels: "centres" },
    { step: "union", over: "boxes of a label" },
  ];
}

function tensorSteps(output: Detection): TransformStep[] {
  if (output.kind === "detection") {
    const { boxes, scores, classes } = output;
    return [
      { step: "boxes", ...boxes },
      { step: "scores", ...scores, ...(classes === undefined ? {} : { classes }) },
    ];
  }
  const { tensor, axes, columns, normalised, scores, objectness, classes, mask_coefficients } = output;
  return [
    {
      step: "table",
      ...{ tensor, axes, columns, normalised },
      ...(mask_coefficients === undefined ? {} : { mask_coefficients }),
    },
    { step: "scores", ...scores, ...(classes === undefined ? {} : { classes }) },
    ...(objectness === undefined ? [] : [{ step: "multiply_objectness", ...objectness }]),
  ];
}

function suppressionSteps({ nms }: Detection): TransformStep[] {
  if (nms === undefined || ("kind" in nms && nms.kind === "none")) return [];
  return [{ step: "nms", iou: nms.iou, per_class: nms.per_class }];
}
