/**
 * Which range an input's numbers have when they are stored in the tensor, and whether its type can
 * hold them: a range of 0 to 1 in whole numbers is a picture of one bit, which no canary shows,
 * because a canary begins at the tensor.
 */
import type { ImageInput } from "./manifest.js";

type Range = readonly [low: number, high: number];

/** Limits of the types of whole numbers. */
const WHOLE_NUMBERS: Partial<Record<ImageInput["dtype"], Range>> = {
  uint8: [0, 255],
  int8: [-128, 127],
  uint16: [0, 65_535],
  int16: [-32_768, 32_767],
  int32: [-(2 ** 31), 2 ** 31 - 1],
};

/**
 * A range that is not wider leaves at most three different whole numbers: -1 to 1 is no picture
 * either.
 */
const NARROWEST = 2;

/** Most pixels lie within one standard deviation of the mean. */
const DEVIATIONS = 1;

/** The fault of the values, the clip, the normalisation and the type of an input taken together. */
export function checkRange(
  input: ImageInput,
  issue: (path: string[], message: string) => void,
): void {
  const values = clipped(rangeOfValues(input.values.kind), input.clip);
  if (values !== undefined && values[0] >= values[1]) {
    if (input.clip !== undefined && input.clip[0] < input.clip[1])
      issue(
        ["clip"],
        `Values of kind "${input.values.kind}" lie from 0 to 1: this clip makes them all the same number. Expected limits within 0 to 1, or none`,
      );
    return;
  }
  const limits = WHOLE_NUMBERS[input.dtype];
  if (limits === undefined) return;
  const mistake = normalised(input.normalisation, values)
    .map((range) => mistakeIn(range, limits))
    .find((found) => found !== undefined);
  if (mistake !== undefined)
    issue(
      ["normalisation"],
      `${input.dtype} holds whole numbers from ${limits[0]} to ${limits[1]}, and normalisation "${input.normalisation.kind}" gives ${mistake}. ${fix(input)}`,
    );
}

/**
 * A note on an input whose type holds fewer numbers than its values can be, where the file alone
 * says which they are; undefined where there is none.
 */
export function openRange({ dtype, values, clip, normalisation }: ImageInput): string | undefined {
  const limits = WHOLE_NUMBERS[dtype];
  const range = clipped(rangeOfValues(values.kind), clip);
  if (limits === undefined || normalised(normalisation, range).length > 0) return undefined;
  return `${dtype} holds whole numbers from ${limits[0]} to ${limits[1]}, and values of kind "${values.kind}" are what the file has. What lies beyond is cut off, with the warning values_cut: a clip or a normalisation says what is meant`;
}

function mistakeIn([low, high]: Range, limits: Range): string | undefined {
  const shown = `${rounded(low)} to ${rounded(high)} here`;
  if (high - low <= NARROWEST) return `${shown}: hardly anything would be left of the image`;
  if (low < limits[0] - 1 || high > limits[1] + 1) return `${shown}: the rest would be cut off`;
  return undefined;
}

function fix({ dtype, values }: ImageInput): string {
  const unit = rangeOfValues(values.kind) !== undefined;
  const most = dtype === "int8" ? 127 : 255;
  const scale = unit
    ? `normalisation { "kind": "scale", "multiply": ${most}, "add": 0 } for 0 to ${most}`
    : `a normalisation that fills the range of ${dtype}`;
  return `Expected ${scale}, or dtype float32, as the model was trained`;
}

/** undefined where the file decides. */
function rangeOfValues(kind: ImageInput["values"]["kind"]): Range | undefined {
  return ["voi", "full_range", "window", "windows"].includes(kind) ? [0, 1] : undefined;
}

function clipped(range: Range | undefined, clip: ImageInput["clip"]): Range | undefined {
  if (clip === undefined || range === undefined) return clip ?? range;
  return [Math.max(range[0], clip[0]), Math.min(range[1], clip[1])];
}

/**
 * The range of each channel; none where the file decides. Of z_score, the part in which most pixels
 * lie.
 */
function normalised(
  normalisation: ImageInput["normalisation"],
  values: Range | undefined,
): Range[] {
  switch (normalisation.kind) {
    case "min_max":
    case "percentile":
      return [ordered(...normalisation.to)];
    case "z_score":
      return [[-DEVIATIONS, DEVIATIONS]];
    case "none":
      return values === undefined ? [] : [values];
    case "scale": {
      const { multiply, add } = normalisation;
      return values === undefined
        ? []
        : [ordered(values[0] * multiply + add, values[1] * multiply + add)];
    }
    case "mean_std": {
      const { mean, std } = normalisation;
      if (values === undefined) return [];
      return Array.from({ length: Math.max(mean.length, std.length) }, (_, c) => {
        const subtract = mean[c] ?? mean[0] ?? 0;
        const divide = std[c] ?? std[0] ?? 1;
        return [(values[0] - subtract) / divide, (values[1] - subtract) / divide];
      });
    }
  }
}

const ordered = (a: number, b: number): Range => (a <= b ? [a, b] : [b, a]);

const rounded = (value: number): number => Number(value.toPrecision(4));
