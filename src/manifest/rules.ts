/** The rules of the model manifest over more than one field, and the schema of fields and rules together. */
import { z } from "zod";
import {
  findsBoxes,
  isFractional,
  isVolume,
  labelsOf,
  manifestFields,
  mayOverlap,
  type ImageInput,
  type Manifest,
  type ModelOutput,
} from "./manifest.js";
import { columnMistakes } from "./detection-table.js";
import { checkRange } from "./value-range.js";

/** Outputs that volumes can have. */
const VOLUME_KINDS: readonly ModelOutput["kind"][] = ["segmentation", "classification", "regression"];

/** Reports a mistake at a path of the manifest. */
type Report = (path: (string | number)[], message: string) => void;

/** The rules over more than one field, apart from the schema so that they can be run beside other mistakes. */
export function manifestCrossChecks(m: Manifest, issue: Report): void {
  m.outputs.forEach((output, o) =>
    checkOutput(output, m.stage === "final", (path, message) => issue(["outputs", o, ...path], message)),
  );
  m.inputs.forEach((input, i) =>
    checkInput(input, m.accepts.dimensions, (path, message) => issue(["inputs", i, ...path], message)),
  );
  if (m.inputs.some(isVolume))
    m.outputs.forEach(({ kind }, o) => {
      if (!VOLUME_KINDS.includes(kind))
        issue(["outputs", o, "kind"], `Expected ${VOLUME_KINDS.join(", ")} for volumes, found ${kind}`);
    });
  const types = new Set(m.outputs.flatMap((o) => (o.kind === "segmentation" ? [isFractional(o)] : [])));
  if (types.size > 1) issue(["outputs"], "Expected one segment_type: all segments are in one SEG object");
  if (m.stage === "final" && m.canary === undefined)
    issue(["canary"], "Required in stage final: `radserve models canary` makes one");
  if (m.stage === "draft" && m.results.outputs.some((k) => k !== "json" && k !== "png"))
    issue(["results", "outputs"], "A draft writes json and png only");
  // These come last, because they look into objects that may be missing beside other mistakes.
  m.outputs.forEach((output, o) => {
    const at: Report = (path, message) => issue(["outputs", o, ...path], message);
    checkThresholds(output, at);
    checkDecoding(output, at);
  });
  if (
    m.accepts.formats.includes("dicom") &&
    m.accepts.modality === undefined &&
    m.accepts.sop_class === undefined
  )
    issue(
      ["accepts", "modality"],
      'Expected the modalities or the SOP classes that the model was made for, for example ["CT"] (or sop_class): without either it would take every DICOM image, a dose or a map too',
    );
  m.inputs.forEach((input, i) =>
    checkRange(input, (path, message) => issue(["inputs", i, ...path], message)),
  );
}

function checkThresholds(output: ModelOutput, issue: Report): void {
  labelsOf(output).forEach(({ threshold }, i) => {
    const mistake = threshold === undefined ? undefined : thresholdMistake(output, threshold);
    if (mistake !== undefined)
      issue([...("labels" in output ? ["labels", i] : ["label"]), "threshold"], mistake);
  });
}

function checkOutput(output: ModelOutput, final: boolean, issue: Report): void {
  const several = "labels" in output;
  const found = several ? output.labels : "label" in output ? [output.label] : [];
  const scored =
    output.kind === "classification" ||
    findsBoxes(output) ||
    (output.kind === "segmentation" && mayOverlap(output.activation));
  const names = new Set<string>();
  found.forEach((l, i) => {
    const at = several ? ["labels", i] : ["label"];
    if (names.has(l.label)) issue([...at, "label"], `The label "${l.label}" is there twice`);
    // Beside other mistakes a label may have no name.
    if (l.label) names.add(l.label);
    if (final && l.code === undefined) issue([...at, "code"], "Required in stage final");
    if (final && output.kind === "segmentation" && l.category === undefined)
      issue([...at, "category"], "Required in stage final");
    if (scored && l.threshold === undefined)
      issue(
        [...at, "threshold"],
        "Expected a number, the score from which on it is present: nothing is guessed",
      );
  });
  if (output.kind === "segmentation")
    output.postprocess.forEach((s, i) =>
      s.labels.forEach((l, j) => {
        const known = [...names].join(", ");
        if (!names.has(l))
          issue(["postprocess", i, "labels", j], `No label is called "${l}"; labels are ${known}`);
      }),
    );
  if (output.kind === "segmentation" && output.segment_type === "fractional") checkFractional(output, issue);
  if (output.kind === "regression" && final)
    output.values.forEach((v, i) => {
      if (v.code === undefined) issue(["values", i, "code"], "Required in stage final");
    });
}

const isSquashed = (activation: string) => activation === "sigmoid" || activation === "softmax";

/** Whether all scores of an output lie from 0 to 1. */
function hasUnitScores(output: ModelOutput): boolean {
  switch (output.kind) {
    case "classification":
      return isSquashed(output.activation) || output.calibration.kind !== "none";
    case "detection":
      return isSquashed(output.scores.activation);
    case "segmentation":
      return mayOverlap(output.activation);
    default:
      return output.kind === "detection_table" || output.kind === "probability_map";
  }
}

/** What is wrong with a threshold that would decide for every image alike; undefined where nothing is. */
export function thresholdMistake(output: ModelOutput, threshold: number): string | undefined {
  if (!hasUnitScores(output) || (threshold >= 0 && threshold <= 1)) return undefined;
  return `Expected 0 to 1, where the scores of this output lie; found ${threshold}, with which it would ${threshold > 1 ? "never" : "always"} be present`;
}

/** Steps after the threshold change the mask and not the probabilities: the two would tell different things. */
function checkFractional(
  { activation, postprocess }: Extract<ModelOutput, { kind: "segmentation" }>,
  issue: Report,
): void {
  if (activation === "argmax" || activation === "label_map")
    issue(["segment_type"], `fractional needs probabilities; activation "${activation}" has none`);
  if (postprocess.length > 0)
    issue(["segment_type"], "fractional gives the model's own probabilities: expected no postprocess");
}

/** What the steps after the graph ask of each other. */
function checkDecoding(output: ModelOutput, issue: Report): void {
  if (output.kind === "classification") {
    const { calibration, activation } = output;
    if (calibration.kind === "temperature" && activation === "none")
      issue(
        ["calibration"],
        "Calibration by temperature divides logits: it needs the activation sigmoid or softmax",
      );
    if (calibration.kind === "isotonic") {
      const { x, y } = calibration;
      const rising = x.every((value, i) => i === 0 || value > (x[i - 1] ?? -Infinity));
      if (x.length !== y.length || !rising)
        issue(["calibration"], "Isotonic calibration needs rising x and as many y");
    }
  }
  if (output.kind === "detection_table")
    for (const { path, message } of columnMistakes(output)) issue(path, message);
  if (output.kind === "detection" && output.classes !== undefined && output.scores.activation === "softmax")
    issue(
      ["scores", "activation"],
      "Softmax goes over one score a label; with a classes tensor there is one score a box",
    );
}

function checkInput(input: ImageInput, dimensions: string, issue: Report): void {
  const volume = isVolume(input);
  if (volume !== (dimensions === "series"))
    issue(["layout"], `Layout ${input.layout} does not go with accepts.dimensions "${dimensions}"`);
  if (input.size.kind === "fixed" && volume !== (input.size.depth !== undefined))
    issue(["size", "depth"], volume ? "Required for volumes" : "Only for volumes");
  if (input.fit === "none" && input.size.kind === "fixed" && !volume)
    issue(["fit"], 'fit "none" needs size "source" or "multiple_of"');
  if (volume) checkVolume(input, issue);
  if (["real_world", "suv_bw"].includes(input.values.kind)) {
    if (input.monochrome1 === "invert")
      issue(["monochrome1"], "Physical values are never inverted; expected as_stored or refuse");
    if (input.channels === "grayscale" && input.colour_source !== "refuse")
      issue(["colour_source"], "Colour has no physical values; expected refuse");
  }
  for (const key of ["spacing_mm", "orientation"] as const)
    if (!volume && input[key] !== undefined) issue([key], "Only for volumes");
  if ("over" in input.normalisation && (input.normalisation.over === "volume") !== volume)
    issue(["normalisation", "over"], `Expected "${volume ? "volume" : "image"}" for layout ${input.layout}`);
  const channels = input.channels === "grayscale" ? 1 : 3;
  if (input.normalisation.kind === "mean_std")
    for (const key of ["mean", "std"] as const) {
      const given: unknown = input.normalisation[key];
      if (Array.isArray(given) && given.length !== 1 && given.length !== channels)
        issue(
          ["normalisation", key],
          `Expected ${channels === 1 ? "1 number" : `1 or ${channels} numbers`} for ${input.channels}, found ${given.length}`,
        );
    }
  if (input.normalisation.kind === "percentile" && input.normalisation.low >= input.normalisation.high)
    issue(["normalisation", "low"], "Expected less than high");
  if (input.clip !== undefined && input.clip[0] >= input.clip[1])
    issue(["clip"], "Expected the lower limit first");
}

function checkVolume(input: ImageInput, issue: Report): void {
  if (input.interpolation === "cubic")
    issue(["interpolation"], "Expected linear, area or nearest for volumes; cubic is not offered");
  if (input.spacing_mm !== undefined && input.fit === "stretch")
    issue(["fit"], "stretch gives voxels another size than spacing_mm; expected letterbox, crop or none");
  if (input.values.kind === "voi" && input.values.if_absent !== "refuse")
    issue(["values", "if_absent"], "Expected refuse for volumes; the others give each slice its own range");
}

export const manifestSchema = manifestFields.superRefine((m, context) =>
  manifestCrossChecks(m, (path, message) => context.addIssue({ code: "custom", path, message })),
);

/**
 * JSON Schema 2020-12 of model.json, for editors and for other programs. Rules over several fields are not in it;
 * `radserve models check` has them all.
 */
export function modelJsonSchema(): Record<string, unknown> {
  const { $schema, ...schema } = z.toJSONSchema(manifestSchema, { io: "input" });
  return {
    $schema,
    title: "Radserve model manifest",
    description: "models/<name>/model.json; `radserve models check` explains every mistake.",
    ...schema,
  };
}
