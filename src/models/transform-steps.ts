/**
 * The ordered steps from stored values to a model's tensor, in words and numbers, for the receipt,
 * for `inspect` and for `models try`. The engine carries the steps out; this file says which they
 * are, and with what parameters.
 */
import type { Preparation } from "../engine/types.js";
import type {
  Image,
  Interpretation,
  LookupTable,
  ModalityTransform,
  PixelFormat,
  TransformStep,
  VoiTransform,
} from "../images/image.js";
import { tensorSteps } from "../manifest/image-input.js";
import { isImageInput, partsOf, type ImageInput, type Manifest } from "../manifest/manifest.js";
import type { Heatmap } from "../manifest/outputs/heatmap.js";
import { kindOf, labelsOf, type ModelOutput } from "../manifest/outputs/outputs.js";
import { partsOfModel, roleOf } from "../manifest/roles.js";
import { attributeSteps } from "./attribute-numbers.js";
import { meantBy } from "./input-values.js";
import { isRegridded, roleFacts, type Filled } from "./roles.js";

/**
 * The steps from stored values to what they mean: padding, colour, Modality LUT or rescale (PS3.3
 * C.7.5.1.1.2, C.7.6.3, C.11.1).
 */
function interpretationSteps(format: PixelFormat, interpretation: Interpretation): TransformStep[] {
  const steps: TransformStep[] = [];
  if (interpretation.padding !== undefined)
    steps.push({ step: "pixel_padding", ...interpretation.padding });
  const { palette } = interpretation;
  if (palette !== undefined)
    steps.push({ step: "palette_to_rgb", ...shape({ ...palette, entries: palette.red }) });
  else if (format.photometricInterpretation.startsWith("YBR"))
    steps.push({ step: "ybr_to_rgb", from: format.photometricInterpretation });
  return [...steps, ...modalityStep(interpretation.modality, interpretation.units)];
}

function modalityStep(modality: ModalityTransform, units: string | undefined): TransformStep[] {
  const unit = units === undefined ? {} : { units };
  switch (modality.kind) {
    case "identity":
      return [];
    case "rescale":
      return [{ step: "rescale", slope: modality.slope, intercept: modality.intercept, ...unit }];
    case "lut":
      return [{ step: "modality_lut", ...shape(modality.lut), ...unit }];
  }
}

function shape({ firstMapped, entries, bits }: LookupTable): Record<string, number> {
  return { first_mapped: firstMapped, entries: entries.length, bits };
}

/** One window or VOI LUT (PS3.3 C.11.2). */
function voiStep(voi: VoiTransform): TransformStep {
  if (voi.kind === "lut") return { step: "voi_lut", ...shape(voi.lut) };
  const { center, width, explanation } = voi;
  return {
    step: "window",
    function: voi.function,
    center,
    width,
    ...(explanation === undefined ? {} : { explanation }),
  };
}

function valueSteps(
  format: PixelFormat,
  interpretation: Interpretation,
  input: ImageInput,
  observed: Preparation["observed"],
): TransformStep[] {
  const colour = format.samplesPerPixel > 1 || interpretation.palette !== undefined;
  const { values } = input;
  switch (values.kind) {
    case "stored":
    case "modality":
    case "real_world":
      return [];
    case "suv_bw": {
      const { suv } = interpretation;
      return suv !== undefined && "factor" in suv
        ? [{ step: "suv_bw", multiply: suv.factor, units: "g/ml" }]
        : [];
    }
    case "window":
      return [
        {
          step: "window",
          function: values.function,
          center: values.center,
          width: values.width,
          to: [0, 1],
        },
      ];
    case "windows":
      return [{ step: "windows", windows: values.windows, to: [0, 1] }];
    case "full_range":
      return [{ step: colour ? "divide_by_full_range" : "full_range", to: [0, 1] }];
    case "voi": {
      if (colour) return [{ step: "divide_by_full_range", to: [0, 1] }];
      const voi = interpretation.voi[values.index];
      if (voi !== undefined) return [{ ...voiStep(voi), index: values.index, to: [0, 1] }];
      const from =
        observed === undefined ? {} : { from_low: observed.low, from_high: observed.high };
      return [{ step: values.if_absent, ...from, to: [0, 1] }];
    }
  }
}

/** Where the image lies in the tensor: enough to map points by hand. */
function placedStep(placement: Preparation["placement"]): Record<string, unknown> {
  if (placement === undefined) return {};
  const { top, left, height, width, sourceTop, sourceLeft, sourceHeight, sourceWidth } = placement;
  return {
    source_area: { top: sourceTop, left: sourceLeft, height: sourceHeight, width: sourceWidth },
    tensor_area: { top, left, height, width },
    scale: { rows: height / sourceHeight, columns: width / sourceWidth },
  };
}

function normaliseStep(
  { kind, ...parameters }: ImageInput["normalisation"],
  found: Preparation["found"],
): TransformStep[] {
  if (kind === "none") return [];
  const step = { step: `normalise_${kind}`, ...parameters };
  if (found === undefined) return [step];
  switch (kind) {
    case "min_max":
      return [{ ...step, found_min: found.min, found_max: found.max }];
    case "z_score":
      return [{ ...step, found_mean: found.mean, found_std: found.std }];
    case "percentile":
      return [{ ...step, found_low: found.low, found_high: found.high }];
    default:
      return [step];
  }
}

/** MONOCHROME1 is turned over, but never Hounsfield units. */
function invertStep(
  format: PixelFormat,
  units: string | undefined,
  input: ImageInput,
): TransformStep[] {
  const isHu = input.values.kind === "modality" && units === "HU";
  const inverted =
    format.photometricInterpretation === "MONOCHROME1" && input.monochrome1 === "invert";
  return inverted && !isHu ? [{ step: "invert" }] : [];
}

/**
 * The steps to the values that the input starts from: not all take the file's own modality
 * transform.
 */
function meaningSteps(
  format: PixelFormat,
  interpretation: Interpretation,
  { values }: ImageInput,
): TransformStep[] {
  const own = interpretationSteps(format, interpretation);
  const stored = own.filter(({ step }) => step !== "rescale" && step !== "modality_lut");
  if (values.kind === "stored") return stored;
  if (values.kind !== "real_world") return own;
  const { modality, units } = meantBy(values, interpretation);
  const mapped = modalityStep(modality, units).map((step) => ({
    ...step,
    step: "real_world_value",
  }));
  return [...stored, ...mapped];
}

/** All steps for one frame and one input tensor, in the order in which they are applied. */
function preparationSteps(
  format: PixelFormat,
  interpretation: Interpretation,
  input: ImageInput,
  facts: Preparation,
): TransformStep[] {
  const steps = meaningSteps(format, interpretation, input);
  steps.push(...valueSteps(format, interpretation, input, facts.observed));
  steps.push(...invertStep(format, interpretation.units, input));
  const normalise = normaliseStep(input.normalisation, facts.found);
  steps.push(...tensorSteps(input, placedStep(facts.placement), normalise));
  return steps;
}

/**
 * The steps from the first frame's stored values to the file's own display values, in order: every
 * window and VOI LUT that it offers, one of which a viewer applies.
 */
export function displaySteps(image: Image): TransformStep[] {
  const { format } = image;
  const interpretation = image.interpretation(0);
  return [
    ...image.transforms,
    ...interpretationSteps(format, interpretation),
    ...interpretation.voi.map((voi, index) => ({ ...voiStep(voi), index })),
    ...(format.photometricInterpretation === "MONOCHROME1" ? [{ step: "invert" }] : []),
  ];
}

/**
 * The steps to all tensors of a model, one after the other in the manifest's order; each ends with
 * `tensor`. Those of each role begin with `role`.
 */
export function modelSteps(
  manifest: Pick<Manifest, "inputs" | "tiling" | "accepts">,
  image: Image,
  facts: readonly Preparation[] = [],
  roles: readonly Filled[] = [],
): TransformStep[] {
  const parts = partsOfModel(manifest);
  let place = 0;
  return manifest.inputs.flatMap((input) => {
    if (!isImageInput(input)) return attributeSteps(input, image);
    const steps = parts.slice(place, place + partsOf(input).length).flatMap((part) => {
      const at = place++;
      const own = facts.map((fact) => (at === 0 ? fact : (fact.others?.[at - 1] ?? {})));
      const filled = roles.find(({ role }) => role === roleOf(part));
      if (filled === undefined)
        return frameSteps(image.format, interpretationsOf(image), part, own);
      const { format, frameCount } = filled.image;
      const [fact = {}] = own;
      const same = Array.from({ length: frameCount }, () => fact);
      const before = roleSteps(manifest, filled, roles);
      return [...before, ...frameSteps(format, interpretationsOf(filled.image), part, same)];
    });
    return manifest.tiling === undefined
      ? steps
      : [...steps, { step: "tiling", ...manifest.tiling }];
  });
}

const interpretationsOf = (image: Image): Interpretation[] =>
  Array.from({ length: image.frameCount }, (_, frame) => image.interpretation(frame));

/** Which image has the role, and that its modality values are taken to the grid of the first. */
function roleSteps(
  manifest: Pick<Manifest, "accepts">,
  filled: Filled,
  [leading]: readonly Filled[],
): TransformStep[] {
  const step = { step: "role", ...roleFacts([filled])[0] };
  if (leading === undefined || !isRegridded(manifest, leading.image, filled.image)) return [step];
  const to = { grid_of: leading.role, interpolation: "linear", outside: "background" };
  return [step, { step: "regrid", ...to }];
}

/**
 * The steps for all frames of an image: those of the first frame. Numbers that differ between
 * frames (rescale, windows) are given as the least and the greatest. Frames with other steps
 * altogether are counted in a step of their own.
 * @param facts what the engine found while it prepared each frame; nothing before it did
 */
export function frameSteps(
  format: PixelFormat,
  interpretations: readonly Interpretation[],
  input: ImageInput,
  facts: readonly Preparation[] = [],
): TransformStep[] {
  const [first, ...others] = interpretations.map((each, frame) =>
    preparationSteps(format, each, input, facts[frame] ?? {}),
  );
  if (first === undefined) return [];
  const names = (steps: TransformStep[]) =>
    JSON.stringify(steps.map((step) => Object.keys(step).concat(step.step)));
  const alike = others.filter((steps) => names(steps) === names(first));
  const merged = first.map((step, i) =>
    rangesOf(
      step,
      alike.map((steps) => steps[i] ?? step),
    ),
  );
  const different = others.length - alike.length;
  return different === 0 ? merged : [...merged, { step: "prepared_otherwise", frames: different }];
}

function rangesOf(first: TransformStep, others: readonly TransformStep[]): TransformStep {
  const all = [first, ...others];
  const varying = Object.keys(first).filter((key) => {
    const text = JSON.stringify(first[key]);
    return others.some((step) => JSON.stringify(step[key]) !== text);
  });
  if (varying.length === 0) return first;
  const ranges = varying.map((key) => {
    const numbers = all.map((step) => step[key]).filter((value) => typeof value === "number");
    const least = numbers.reduce((a, b) => Math.min(a, b), Infinity);
    const most = numbers.reduce((a, b) => Math.max(a, b), -Infinity);
    return [key, numbers.length === all.length ? { least, most } : "by frame"];
  });
  return { ...first, ...(Object.fromEntries(ranges) as Record<string, unknown>), by_frame: true };
}

/**
 * The steps of every output whose decoding has some, one output after the other.
 * @param thresholds for each output those of its labels in order, site.json applied
 */
export const decodingSteps = (
  { outputs }: Manifest,
  thresholds: readonly (readonly number[])[],
): TransformStep[] =>
  outputs.flatMap((output, o) => {
    const byLabel = labelsOf(output).map(
      ({ label }, i) => [label, thresholds[o]?.[i] ?? NaN] as const,
    );
    return [
      ...mapSteps(output),
      ...(kindOf(output).decoding?.(output, Object.fromEntries(byLabel)) ?? []),
    ];
  });

/** What the manifest says of a map beside its kind, where it says anything. */
function mapSteps(output: ModelOutput): TransformStep[] {
  const { tensor, covers, stride, activated } = output as Partial<Heatmap>;
  const said = Object.entries({ covers, stride, activated }).filter(
    ([, value]) => value !== undefined,
  );
  return said.length === 0 ? [] : [{ step: "map", tensor, ...Object.fromEntries(said) }];
}
