/**
 * Says what the engine gave in the words of the manifest: findings and measurements of a receipt. A score counts as
 * present at or above its threshold; a label that was looked for and not found is a finding too, `present: false`.
 */
import type { EngineOutput } from "../../engine/types.js";
import { RadserveError } from "../../base/errors.js";
import type { Region, Spacing, VolumeGeometry, Warning } from "../../images/image.js";
import type { Label } from "../../manifest/outputs/fields.js";
import { findsBoxes, labelsOf, type ModelOutput } from "../../manifest/outputs/outputs.js";
import { mayOverlap } from "../../manifest/outputs/segmentation.js";
import type { Code } from "../../manifest/texts.js";
import type { Finding, Measurement } from "./receipt.js";
import { scalesOfLabels } from "./regions.js";

/** What one model said about one frame, or about a volume. */
export interface FrameResult {
  /** Number of the frame, from 1; undefined for a source of one frame. */
  frame?: number | undefined;
  outputs: readonly EngineOutput[];
  spacing: Spacing | undefined;
  /** Where parts of the frame have scales of their own. */
  regions?: readonly Region[] | undefined;
  /** How a whole series lies; counts are then of voxels. */
  volume?: VolumeGeometry | undefined;
}

export interface Interpreted {
  findings: Finding[];
  measurements: Measurement[];
  warnings: Warning[];
}

/** The concept that PS3.16 uses for areas of regions. */
const AREA: Code = { value: "42798000", scheme: "SCT", meaning: "Area" };
const SQUARE_CENTIMETER: Code = { value: "cm2", scheme: "UCUM", meaning: "square centimeter" };
const SQUARE_MM_PER_SQUARE_CM = 100;
/** The concept that PS3.16 uses for volumes of regions. */
const VOLUME: Code = { value: "118565006", scheme: "SCT", meaning: "Volume" };
const MILLILITER: Code = { value: "mL", scheme: "UCUM", meaning: "milliliter" };
export const CUBIC_MM_PER_ML = 1000;

/**
 * Findings and measurements of one frame or of a volume, in the order of outputs and labels.
 * @param outputs the manifest's outputs; those of `result` lie in the same order
 * @param thresholds for each output those of its labels in order, site.json applied; NaN for a label without one
 * @throws RadserveError output_invalid if the engine's outputs are not those of the manifest, or are not numbers
 */
export function interpret(
  outputs: readonly ModelOutput[],
  thresholds: readonly (readonly number[])[],
  result: FrameResult,
): Interpreted {
  if (result.outputs.length !== outputs.length)
    throw invalid(`${outputs.length} outputs`, `${result.outputs.length}`);
  const all = result.outputs.flatMap((given, i) => {
    const output = outputs[i];
    return output === undefined ? [] : [interpretOutput(output, thresholds[i] ?? [], given, result)];
  });
  return {
    findings: all.flatMap(({ findings }) => findings),
    measurements: all.flatMap(({ measurements }) => measurements),
    warnings: all.flatMap(({ warnings }) => warnings),
  };
}

type Part = Pick<FrameResult, "frame" | "spacing" | "regions" | "volume">;

function interpretOutput(
  output: ModelOutput,
  thresholds: readonly number[],
  given: EngineOutput,
  part: Part,
): Interpreted {
  const none: Interpreted = { findings: [], measurements: [], warnings: [] };
  if (output.kind === "classification" && given.kind === "classification")
    return { ...none, findings: classified(output.labels, thresholds, given.scores, part) };
  if (output.kind === "segmentation" && given.kind === "segmentation")
    return segmented(output, thresholds, given, part);
  if (output.kind === "regression" && given.kind === "regression")
    return { ...none, measurements: measured(output.values, given.values, part) };
  if (findsBoxes(output) && given.kind === "boxes")
    return { ...none, findings: located(labelsOf(output), thresholds, given.boxes, part) };
  if (output.kind === "heatmap" && given.kind === "heatmap") return none;
  throw invalid(`an output of kind ${output.kind}`, given.kind);
}

function classified(
  labels: readonly Label[],
  thresholds: readonly number[],
  scores: Float32Array,
  part: Part,
): Finding[] {
  if (scores.length !== labels.length) throw invalid(`${labels.length} scores`, `${scores.length}`);
  return labels.map((label, i) => {
    const score = finite(scores[i]);
    const threshold = thresholdOf(label, thresholds[i]);
    return { ...named(label, part), score, threshold, present: isPresent(score, threshold) };
  });
}

function segmented(
  output: Extract<ModelOutput, { kind: "segmentation" }>,
  thresholds: readonly number[],
  given: Extract<EngineOutput, { kind: "segmentation" }>,
  part: Part,
): Interpreted {
  const { counts } = given;
  if (counts.length !== output.labels.length)
    throw invalid(`${output.labels.length} pixel counts`, `${counts.length}`);
  if (part.volume !== undefined) return inVolume(output, thresholds, counts, part, part.volume);
  const scales = labelScales(given, part);
  const findings: Finding[] = [];
  const measurements: Measurement[] = [];
  output.labels.forEach((label, i) => {
    const pixels = finite(counts[i]);
    const scale = scales[i];
    const known = typeof scale === "object";
    const cm2 = known ? pixels * ((scale.row * scale.column) / SQUARE_MM_PER_SQUARE_CM) : NaN;
    findings.push({
      ...named(label, part),
      ...thresholdOfPixels(output, label, thresholds[i]),
      present: pixels > 0,
      area: { pixels, ...(known ? { cm2 } : {}) },
    });
    if (known && output.measurements.includes("area"))
      measurements.push({
        name: "Area",
        code: AREA,
        label: label.label,
        ...frameOf(part),
        value: cm2,
        unit: SQUARE_CENTIMETER,
      });
  });
  const warnings = segmentationWarnings(output.measurements, part);
  output.labels.forEach(({ label }, i) => {
    const scale = scales[i];
    if (typeof scale === "string") warnings.push(partlyUnmeasured(label, scale));
  });
  return { findings, measurements, warnings };
}

/** For each label the scale of its pixels, or why they have none; undefined if the image has none. */
function labelScales(
  given: Extract<EngineOutput, { kind: "segmentation" }>,
  { spacing, regions }: Part,
): ReturnType<typeof scalesOfLabels> | (Spacing | undefined)[] {
  if (regions !== undefined) return scalesOfLabels(given, regions);
  return given.counts.map(() => (spacing?.patient === true ? spacing : undefined));
}

const UNMEASURED = {
  outside: (label: string) =>
    `Where "${label}" reaches beyond the regions of the ultrasound image that have a scale, its area is in pixels only.`,
  several: (label: string) =>
    `Where "${label}" lies in regions of the ultrasound image that have different scales, its area is in pixels only.`,
};

function partlyUnmeasured(label: string, why: keyof typeof UNMEASURED): Warning {
  return { code: "partly_unmeasured", message: UNMEASURED[why](label) };
}

/** A volume always has its spacing. It has no area: the areas of its slices are not added up. */
function inVolume(
  output: Extract<ModelOutput, { kind: "segmentation" }>,
  thresholds: readonly number[],
  counts: readonly number[],
  part: Part,
  { columnSpacing, rowSpacing, sliceSpacing }: VolumeGeometry,
): Interpreted {
  const voxel = columnSpacing * rowSpacing * sliceSpacing;
  const volumes = output.labels.map((label, i) => {
    const voxels = finite(counts[i]);
    const threshold = thresholdOfPixels(output, label, thresholds[i]);
    return { label, threshold, voxels, ml: finite((voxels * voxel) / CUBIC_MM_PER_ML) };
  });
  const findings = volumes.map(({ label, threshold, voxels, ml }): Finding => ({
    ...named(label, part),
    ...threshold,
    present: voxels > 0,
    volume: { voxels, ml },
  }));
  const measurements = volumes.map(({ label, ml }): Measurement => ({
    name: "Volume",
    code: VOLUME,
    label: label.label,
    value: ml,
    unit: MILLILITER,
  }));
  return {
    findings,
    measurements: output.measurements.includes("volume") ? measurements : [],
    warnings: output.measurements.includes("area")
      ? [
          {
            code: "area_not_measured",
            message: "An area is of a single image; of a series, volumes are given.",
          },
        ]
      : [],
  };
}

function segmentationWarnings(asked: readonly string[], { spacing, regions }: Part): Warning[] {
  const warnings: Warning[] = [];
  if (spacing?.patient !== true && regions === undefined)
    warnings.push({
      code: "no_patient_spacing",
      message:
        spacing === undefined
          ? "The image does not say how large its pixels are; areas are in pixels only."
          : `The image gives ${spacing.source}, which is not known to be spacing in the patient; areas are in pixels only.`,
    });
  if (asked.includes("volume"))
    warnings.push({
      code: "volume_not_measured",
      message: "A volume needs a series of slices; of single frames, areas are given.",
    });
  return warnings;
}

function located(
  labels: readonly Label[],
  thresholds: readonly number[],
  boxes: Extract<EngineOutput, { kind: "boxes" }>["boxes"],
  part: Part,
): Finding[] {
  const found = boxes.map((box): Finding => {
    const label = labels[box.label];
    if (label === undefined) throw invalid(`label numbers below ${labels.length}`, `${box.label}`);
    const score = finite(box.score);
    const threshold = thresholdOf(label, thresholds[box.label]);
    const { x0, y0, x1, y1 } = box;
    const edges = { x0: finite(x0), y0: finite(y0), x1: finite(x1), y1: finite(y1) };
    return { ...named(label, part), score, threshold, present: isPresent(score, threshold), box: edges };
  });
  const missing = labels.flatMap((label, i): Finding[] =>
    boxes.some((box) => box.label === i)
      ? []
      : [{ ...named(label, part), threshold: thresholdOf(label, thresholds[i]), present: false }],
  );
  return [...found, ...missing];
}

function measured(
  values: Extract<ModelOutput, { kind: "regression" }>["values"],
  given: Float32Array,
  part: Part,
): Measurement[] {
  if (given.length !== values.length) throw invalid(`${values.length} values`, `${given.length}`);
  return values.map((value, i) => ({
    name: value.name,
    ...(value.code === undefined ? {} : { code: value.code }),
    ...frameOf(part),
    value: finite(given[i]),
    unit: value.unit,
  }));
}

/** Scores are float32: a score of 0.7 arrives as 0.69999999, so the threshold is rounded in the same way. */
function isPresent(score: number, threshold: number): boolean {
  return Math.fround(score) >= Math.fround(threshold);
}

function thresholdOf(label: Label, threshold: number | undefined): number {
  if (threshold === undefined || Number.isNaN(threshold))
    throw invalid(`a threshold for the label "${label.label}"`, "none");
  return threshold;
}

/** The threshold for the probability of each pixel; labels that exclude each other are decided without thresholds. */
function thresholdOfPixels(
  { activation }: Extract<ModelOutput, { kind: "segmentation" }>,
  label: Label,
  threshold: number | undefined,
): Pick<Finding, "threshold"> {
  return mayOverlap(activation) ? { threshold: thresholdOf(label, threshold) } : {};
}

function named(label: Label, part: Part): Pick<Finding, "label" | "code" | "frame"> {
  return {
    label: label.label,
    ...(label.code === undefined ? {} : { code: label.code }),
    ...frameOf(part),
  };
}

function frameOf(part: Part): { frame?: number } {
  return part.frame === undefined ? {} : { frame: part.frame };
}

function finite(value: number | undefined): number {
  if (value === undefined || !Number.isFinite(value)) throw invalid("finite numbers", String(value));
  return value;
}

function invalid(expected: string, found: string): RadserveError {
  return new RadserveError(
    "output_invalid",
    `Expected ${expected} from the model, but found ${found}. Check the manifest's outputs with "radserve models check".`,
  );
}
