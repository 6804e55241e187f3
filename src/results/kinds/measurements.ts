/**
 * Statistics and forms of segments, by the definitions of IBSI (Zwanenburg et al. 2020, reference
 * manual sections 3.1, 3.3 and 3.4). Statistics are of the values of the source's own pixels,
 * before any preparation.
 */
import { isDeepStrictEqual } from "node:util";
import {
  countSegments,
  MOST_LONG_WORDS,
  type SegmentCounts,
  type SegmentedImage,
} from "../../addon/segments.js";
import type { Plane } from "../../engine/types.js";
import type { Interpretation, Warning } from "../../images/image.js";
import { modalityValue, paddingRange, valueReader } from "../../images/stored-values.js";
import type { FORMS, STATISTICS, Segmentation } from "../../manifest/outputs/segmentation.js";
import { dcm, own, sct, type Code } from "../../manifest/texts.js";
import type { Measurement } from "../receipt/receipt.js";
import { frameOf, type FindingScope } from "./finding.js";
import type { OutputOfKind } from "./kind.js";
import { surfaceArea } from "./surface.js";

type Statistic = (typeof STATISTICS)[number];
type MeasureForm = (typeof FORMS)[number];

const ibsi = (value: string, meaning: string): Code => ({ value, scheme: "IBSI", meaning });
export const ucum = (value: string, meaning: string): Code => ({ value, scheme: "UCUM", meaning });
const percentile = (number: number): Code => own(`percentile-${number}`, `${number}th percentile`);

export const NO_UNITS = ucum("1", "no units");
export const MILLIMETER = ucum("mm", "millimeter");
const SQUARE_MILLIMETER = ucum("mm2", "square millimeter");

/** Distinct values, ascending, and how often each is there. */
interface ValueDistribution {
  values: Float64Array;
  counts: Float64Array;
  total: number;
  mean: number;
  /** Central moments, from the second on. */
  moments: [second: number, third: number, fourth: number];
}

function distributed(values: Float64Array, counts: Float64Array, total: number): ValueDistribution {
  const [only] = values;
  // Rounding would make another mean of equal values, and a skewness of that
  if (only !== undefined && only === values.at(-1))
    return { values, counts, total, mean: only, moments: [0, 0, 0] };
  let mean = 0;
  for (const [i, value] of values.entries()) mean += ((counts[i] ?? 0) * value) / total;
  const moments: ValueDistribution["moments"] = [0, 0, 0];
  for (const [i, value] of values.entries()) {
    const square = (value - mean) ** 2;
    const part = ((counts[i] ?? 0) * square) / total;
    moments[0] += part;
    moments[1] += part * (value - mean);
    moments[2] += part * square;
  }
  return { values, counts, total, mean, moments };
}

const sd = ({ moments }: ValueDistribution): number => Math.sqrt(moments[0]);
/** The mean of the squares. */
const square = ({ mean, moments }: ValueDistribution): number => moments[0] + mean ** 2;
const least = ({ values }: ValueDistribution): number => values[0] ?? NaN;
const most = ({ values }: ValueDistribution): number => values.at(-1) ?? NaN;

/** Between the two values whose ranks are nearest, as numpy does by itself. */
function quantile({ values, counts, total }: ValueDistribution, part: number): number {
  const rank = part * (total - 1);
  let passed = 0;
  let at = 0;
  while (passed + (counts[at] ?? Infinity) <= Math.floor(rank)) passed += counts[at++] ?? 0;
  const low = values[at] ?? NaN;
  const high = passed + (counts[at] ?? 0) > Math.floor(rank) + 1 ? low : (values[at + 1] ?? low);
  return low + (high - low) * (rank - Math.floor(rank));
}

/** The part of the values in each bin; bins begin at multiples of their width. */
function binned({ values, counts, total }: ValueDistribution, width: number): number[] {
  const bins = new Map<number, number>();
  for (const [i, value] of values.entries()) {
    const bin = Math.floor(value / width);
    bins.set(bin, (bins.get(bin) ?? 0) + (counts[i] ?? 0) / total);
  }
  return [...bins.values()];
}

/** A moment in standard deviations; 0 where all values are equal, as IBSI defines it. */
const standardised = ({ moments }: ValueDistribution, index: 1 | 2): number =>
  moments[0] === 0 ? 0 : moments[index] / moments[0] ** (1 + index / 2);

interface StatisticRow {
  name: string;
  /** The statistic of the quantity, or, without a quantity, what the value is. */
  code: Code;
  unit: "value" | "square" | "none";
  of: (d: ValueDistribution, binWidth: number) => number;
}

const valued = (name: string, code: Code, of: StatisticRow["of"]): StatisticRow => ({
  name,
  code,
  unit: "value",
  of,
});
const pure = (name: string, code: Code, of: StatisticRow["of"]): StatisticRow => ({
  name,
  code,
  unit: "none",
  of,
});

/**
 * Codes of PS3.16 CID 7464, and of IBSI (CID 7478 and the reference manual) for what that does not
 * have.
 */
const ROWS: Record<Statistic, StatisticRow> = {
  mean: valued("Mean", sct("373098007", "Mean"), ({ mean }) => mean),
  sd: valued("SD", sct("386136009", "Standard Deviation"), sd),
  minimum: valued("Minimum", sct("255605001", "Minimum"), least),
  maximum: valued("Maximum", sct("56851009", "Maximum"), most),
  median: valued("Median", sct("373099004", "Median"), (d) => quantile(d, 0.5)),
  p5: valued("5th percentile", percentile(5), (d) => quantile(d, 0.05)),
  p10: valued("10th percentile", ibsi("QG58", "10th intensity percentile"), (d) =>
    quantile(d, 0.1),
  ),
  p25: valued("25th percentile", percentile(25), (d) => quantile(d, 0.25)),
  p75: valued("75th percentile", percentile(75), (d) => quantile(d, 0.75)),
  p90: valued("90th percentile", ibsi("8DWT", "90th intensity percentile"), (d) =>
    quantile(d, 0.9),
  ),
  p95: valued("95th percentile", percentile(95), (d) => quantile(d, 0.95)),
  iqr: valued(
    "Interquartile range",
    ibsi("SALO", "Intensity interquartile range"),
    (d) => quantile(d, 0.75) - quantile(d, 0.25),
  ),
  range: valued("Range", ibsi("2OJQ", "Intensity range"), (d) => most(d) - least(d)),
  skewness: pure("Skewness", dcm("126051", "Skewness"), (d) => standardised(d, 1)),
  kurtosis: pure("Excess kurtosis", ibsi("IPH6", "(Excess) intensity kurtosis"), (d) =>
    d.moments[0] === 0 ? 0 : standardised(d, 2) - 3,
  ),
  energy: {
    name: "Energy",
    code: ibsi("N8CA", "Intensity-based energy"),
    unit: "square",
    of: (d) => d.total * square(d),
  },
  rms: valued("Root mean square", ibsi("5ZWQ", "Root mean square intensity"), (d) =>
    Math.sqrt(square(d)),
  ),
  entropy: pure("Entropy", ibsi("TLU2", "Intensity Histogram Entropy"), (d, width) =>
    binned(d, width).reduce((all, part) => all - part * Math.log2(part), 0),
  ),
  uniformity: pure("Uniformity", ibsi("BJ5W", "Intensity Histogram Uniformity"), (d, width) =>
    binned(d, width).reduce((all, part) => all + part ** 2, 0),
  ),
};

/** These are of a histogram, and have concepts of their own. */
const BINNED: readonly Statistic[] = ["entropy", "uniformity"];

/** What values of a unit are of (PS3.16 CID 7469), and the unit in UCUM. */
interface Quantity {
  code: Code;
  unit: Code;
}

const QUANTITIES: Readonly<Record<string, Quantity>> = {
  HU: { code: dcm("112031", "Attenuation Coefficient"), unit: ucum("[hnsf'U]", "Hounsfield unit") },
  SUV: {
    code: dcm("126401", "SUVbw"),
    unit: ucum("{SUVbw}g/ml", "Standardized Uptake Value body weight"),
  },
  BQML: {
    code: dcm("110821", "Nuclear Medicine Tomographic Activity"),
    unit: ucum("Bq/ml", "Becquerels per milliliter"),
  },
  GY: { code: dcm("128513", "Absorbed Dose"), unit: ucum("Gy", "Gray") },
};
const DIFFUSION = dcm("113041", "Apparent Diffusion Coefficient");
const MAPPED = own("mapped-value", "Real world value");

/**
 * The quantity of a plane's values; undefined if the image does not say it, or only in words of its
 * own.
 */
function quantityOf({ units, suv, realWorld = [] }: Interpretation): Quantity | undefined {
  if (units === undefined) return undefined;
  if (realWorld.some((mapping) => mapping.units === units))
    return { code: /^[mu]m2\/s$/.test(units) ? DIFFUSION : MAPPED, unit: ucum(units, units) };
  const isSuv = units === "g/ml" || units === "GML";
  if (isSuv) return suv !== undefined && "factor" in suv ? QUANTITIES["SUV"] : undefined;
  return Object.hasOwn(QUANTITIES, units) ? QUANTITIES[units] : undefined;
}

const squared = ({ value: of, meaning }: Code): Code =>
  ucum(/[./]/.test(of) ? `(${of}).(${of})` : `${of}2`, `${meaning} squared`);

/** mm between the centres of rows, columns and slices; of a single frame there are no slices. */
export interface VoxelStep {
  row: number;
  column: number;
  slice?: number;
}

export interface MeasuredLabels {
  /** For each label, in the order in which the manifest asks for them. */
  measurements: Measurement[][];
  warnings: Warning[];
}

/**
 * Measures what a manifest asks of each label beside area and volume.
 * @param steps for each label, equal ones the same object; undefined where distances are not known
 */
export function measure(
  output: Segmentation,
  given: OutputOfKind<"segmentation">,
  part: FindingScope,
  steps: readonly (VoxelStep | undefined)[],
): MeasuredLabels {
  const asked = output.measurements.filter(
    (name): name is Statistic | MeasureForm => name in ROWS || isForm(name),
  );
  const measurements: Measurement[][] = output.labels.map(() => []);
  const warnings: Warning[] = [];
  if (asked.length === 0) return { measurements, warnings };
  const { planes = [], volume, flawed = false } = part;
  const quantity = quantityFor(asked, planes, warnings);
  const isWhole = volume !== undefined && !flawed;
  const unmeasured = asked.filter(
    (name) => !isWhole && (name === "diameter_3d" || name === "surface"),
  );
  if (unmeasured.length > 0)
    warnings.push(unformed(unmeasured, volume === undefined ? "single" : "flawed"));
  if (steps.includes(undefined) && asked.includes("diameter_in_plane"))
    warnings.push(unformed(["diameter_in_plane"], "unscaled"));
  const meanings = distinct(planes.map(({ interpretation }) => interpretation));
  const missing = output.labels.flatMap(({ label }, i) =>
    given.counts[i] === 0 ? `"${label}"` : [],
  );
  // Of frames each label by itself, so that it is said once
  for (const some of part.frame === undefined && missing.length > 0
    ? [missing.join(", ")]
    : missing)
    warnings.push(empty(some, asked, part));
  for (const step of new Set(steps)) {
    const spacing: SegmentedImage["spacing"] = [
      step?.column ?? 0,
      step?.row ?? 0,
      step?.slice ?? 0,
    ];
    const counted = countSegments({
      mask: given.mask,
      overlapping: given.overlapping,
      labels: output.labels.length,
      rows: given.rows,
      columns: given.columns,
      meanings: meanings.numbers,
      spacing,
      slices: planes.map(({ data }) => (quantity === undefined ? NO_VALUES : data)),
      wordBytes: (planes[0]?.format.bitsAllocated ?? 8) / 8,
      shape: step !== undefined && asked.some(isForm),
    });
    counted.forEach((counts, i) => {
      const label = output.labels[i]?.label ?? "";
      if (steps[i] !== step) return;
      if (given.counts[i] === 0) return;
      const values = quantity && distributionOf(counts, planes[0], meanings.each, label, warnings);
      const common = { label, ...frameOf(part) };
      measurements[i] = asked.flatMap((name): Measurement[] => {
        if (!isForm(name))
          return quantity && values
            ? [{ ...common, ...statisticOf(name, quantity, values, output.bin_width) }]
            : [];
        if (step === undefined || unmeasured.includes(name)) return [];
        const { of, ...row } = FORM_ROWS[name];
        return [{ ...common, ...row, value: of(counts, spacing) }];
      });
    });
  }
  return { measurements, warnings };
}

const NO_VALUES = new Uint8Array(0);

const isForm = (name: string): name is MeasureForm => name in FORM_ROWS;

interface FormRow {
  name: string;
  code: Code;
  unit: Code;
  of: (counts: SegmentCounts, spacing: SegmentedImage["spacing"]) => number;
}

const FORM_ROWS: Record<MeasureForm, FormRow> = {
  diameter_in_plane: {
    name: "Longest diameter in a slice",
    code: sct("103339001", "Long Axis"),
    unit: MILLIMETER,
    of: ({ inPlane }) => inPlane,
  },
  diameter_3d: {
    name: "Longest diameter",
    code: ibsi("L0JK", "Maximum 3D Diameter of a Mesh"),
    unit: MILLIMETER,
    of: ({ anywhere }) => anywhere,
  },
  surface: {
    name: "Surface",
    code: ibsi("C0JK", "Surface Area of Mesh"),
    unit: SQUARE_MILLIMETER,
    of: ({ cells }, spacing) => surfaceArea(cells, spacing),
  },
};

/** A statistic of the quantity, or one that has a concept of its own. */
function statisticOf(
  name: Statistic,
  quantity: Quantity,
  values: ValueDistribution,
  binWidth = NaN,
) {
  const { code, unit, of, name: text } = ROWS[name];
  const units = { value: quantity.unit, square: squared(quantity.unit), none: NO_UNITS };
  const concept = BINNED.includes(name) ? { code } : { code: quantity.code, derivation: code };
  return { name: text, ...concept, value: of(values, binWidth), unit: units[unit] };
}

/** The quantity that all planes are of, if statistics are asked for; a warning if there is none. */
function quantityFor(
  asked: readonly string[],
  planes: readonly Plane[],
  warnings: Warning[],
): Quantity | undefined {
  const statistics = asked.filter((name) => !isForm(name));
  if (statistics.length === 0) return undefined;
  const [first, ...others] = planes.map(({ interpretation }) => interpretation);
  const found = first && quantityOf(first);
  const colour = planes.some(({ format }) => format.samplesPerPixel !== 1);
  const mixed = others.some(({ units }) => units !== first?.units);
  if (found !== undefined && !colour && !mixed) return found;
  const why = colour
    ? "the image is in colour"
    : mixed
      ? "the units of the slices differ"
      : first?.units === undefined
        ? "the image does not say in which unit its values are"
        : `the image's values are in "${first.units}", and ${Object.keys(QUANTITIES).join(", ")} are known`;
  const message = `Not measured of segments, because ${why}: ${statistics.join(", ")}.`;
  warnings.push({ code: "values_not_measured", message });
  return undefined;
}

const UNFORMED = {
  single: "that needs a series of slices",
  flawed: "the slices do not follow each other straight and without gaps",
  unscaled:
    "the size of the pixels in the patient is not known, or not the same for all of the segment",
};

const unformed = (asked: readonly string[], why: keyof typeof UNFORMED): Warning => ({
  code: "form_not_measured",
  message: `Not measured of segments, because ${UNFORMED[why]}: ${asked.join(", ")}.`,
});

function empty(labels: string, asked: readonly string[], { frame }: FindingScope): Warning {
  const where = frame === undefined ? "" : " on some frames";
  return {
    code: "segment_empty",
    message: `There are no pixels${where} of which to measure ${asked.join(", ")}: ${labels}.`,
  };
}

/** Neighbouring slices whose stored values mean the same share one number. */
function distinct(all: readonly Interpretation[]): { numbers: number[]; each: Interpretation[] } {
  const each: Interpretation[] = [];
  const meaning = ({ modality, padding }: Interpretation) => [modality, padding];
  const numbers = all.map((one) => {
    const last = each.at(-1);
    if (last === undefined || !isDeepStrictEqual(meaning(last), meaning(one))) each.push(one);
    return each.length - 1;
  });
  return { numbers, each };
}

/**
 * The values of a label's pixels; undefined, with a warning, if there are none that can be
 * measured.
 */
function distributionOf(
  { words }: SegmentCounts,
  plane: Plane | undefined,
  meanings: readonly Interpretation[],
  label: string,
  warnings: Warning[],
): ValueDistribution | undefined {
  if (plane === undefined || words.length === 0) {
    const message = `The values of "${label}" are not measured: the image's stored values have more than 16 bits, and the model's labels more than ${MOST_LONG_WORDS} pixels.`;
    warnings.push({ code: "values_not_measured", message });
    return undefined;
  }
  const found = new Map<number, number>();
  const many = plane.format.bitsAllocated > 16;
  const each = new Float64Array(
    many ? words.reduce((all, { counts }) => all + counts.reduce(sum, 0), 0) : 0,
  );
  let [total, left] = [0, 0];
  for (const { meaning, words: stored, counts } of words) {
    const { modality, padding } = meanings[meaning] ?? {};
    if (modality === undefined) continue;
    const read = valueReader(stored, plane.format);
    const [low, high] = paddingRange(padding);
    counts.forEach((count, i) => {
      const word = read(i);
      const value = modalityValue(modality, word);
      if ((word >= low && word <= high) || !Number.isFinite(value)) {
        left += count;
        return;
      }
      // A map of very many values takes far longer than sorting them
      if (many) each.fill(value, total, total + count);
      else found.set(value, (found.get(value) ?? 0) + count);
      total += count;
    });
  }
  if (left > 0)
    warnings.push({
      code: "pixels_not_measured",
      message: `Pixels of "${label}" that are Pixel Padding or no numbers are left out of its statistics: ${left}.`,
    });
  if (total === 0) return undefined;
  const values = (many ? each.subarray(0, total) : Float64Array.from(found.keys())).sort();
  return distributed(
    values,
    values.map((one) => (many ? 1 : (found.get(one) ?? 0))),
    total,
  );
}

const sum = (a: number, b: number): number => a + b;
