/**
 * The ordered steps from stored values to a model's tensor, in words and numbers, for the receipt, for `inspect` and
 * for `models try`. The steps are carried out by the engine; here is said which, with the parameters that decide them.
 */
import type { Interpretation, ModalityTransform, PixelFormat, TransformStep, VoiTransform } from "./image.js";
import type { ImageInput } from "./manifest.js";

/** Stored values to what they mean: padding, colour, Modality LUT or rescale (PS3.3 C.7.5.1.1.2, C.7.6.3, C.11.1). */
function interpretationSteps(format: PixelFormat, interpretation: Interpretation): TransformStep[] {
  const steps: TransformStep[] = [];
  if (interpretation.padding !== undefined) steps.push({ step: "pixel_padding", ...interpretation.padding });
  if (format.photometricInterpretation === "PALETTE COLOR") steps.push({ step: "palette_to_rgb" });
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
      return [
        {
          step: "modality_lut",
          first_mapped: modality.lut.firstMapped,
          entries: modality.lut.entries.length,
          bits: modality.lut.bits,
          ...unit,
        },
      ];
  }
}

/** One window or VOI LUT (PS3.3 C.11.2). */
function voiStep(voi: VoiTransform): TransformStep {
  if (voi.kind === "lut")
    return {
      step: "voi_lut",
      first_mapped: voi.lut.firstMapped,
      entries: voi.lut.entries.length,
      bits: voi.lut.bits,
    };
  return { step: "window", function: voi.function, center: voi.center, width: voi.width };
}

function valueSteps(format: PixelFormat, interpretation: Interpretation, input: ImageInput): TransformStep[] {
  const colour = format.samplesPerPixel > 1 || interpretation.palette !== undefined;
  const { values } = input;
  switch (values.kind) {
    case "stored":
    case "modality":
      return [];
    case "window":
      return [
        { step: "window", function: values.function, center: values.center, width: values.width, to: [0, 1] },
      ];
    case "voi": {
      if (colour) return [{ step: "divide_by_full_range", to: [0, 1] }];
      const voi = interpretation.voi[values.index];
      if (voi !== undefined) return [{ ...voiStep(voi), index: values.index, to: [0, 1] }];
      return [{ step: values.if_absent, to: [0, 1] }];
    }
  }
}

/** All steps for one frame and one input tensor, in the order in which they are applied. */
function preparationSteps(
  format: PixelFormat,
  interpretation: Interpretation,
  input: ImageInput,
): TransformStep[] {
  const meaning = interpretationSteps(format, interpretation);
  const stored = input.values.kind === "stored";
  const steps = stored
    ? meaning.filter(({ step }) => step !== "rescale" && step !== "modality_lut")
    : meaning;
  steps.push(...valueSteps(format, interpretation, input));
  if (format.photometricInterpretation === "MONOCHROME1" && input.monochrome1 === "invert")
    steps.push({ step: "invert" });
  steps.push({
    step: "resample",
    fit: input.fit,
    interpolation: input.interpolation,
    size: input.size,
    background: input.background,
    ...(input.spacing_mm === undefined ? {} : { spacing_mm: input.spacing_mm }),
    ...(input.orientation === undefined ? {} : { orientation: input.orientation }),
  });
  if (input.clip !== undefined) steps.push({ step: "clip", to: input.clip });
  if (input.normalisation.kind !== "none") {
    const { kind, ...parameters } = input.normalisation;
    steps.push({ step: `normalise_${kind}`, ...parameters });
  }
  steps.push({
    step: "tensor",
    name: input.tensor,
    dtype: input.dtype,
    layout: input.layout,
    channels: input.channels,
  });
  return steps;
}

/**
 * The steps for all frames of an image: those of the first, where every frame has its own numbers (rescale, windows)
 * with the least and the greatest instead. Frames whose steps are others altogether are counted in a step of their own.
 */
export function frameSteps(
  format: PixelFormat,
  interpretations: readonly Interpretation[],
  input: ImageInput,
): TransformStep[] {
  const [first, ...others] = interpretations.map((each) => preparationSteps(format, each, input));
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
