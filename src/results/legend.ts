/** The legend's rows: what a model found and did not find, in words and numbers that do not say more than it did. */
import { labelsOf, type ModelOutput } from "../manifest.js";
import { labelColours, type Rgb } from "./palette.js";
import type { Finding, Measurement } from "./receipt.js";

export interface LegendRow {
  label: string;
  value: string;
  present: boolean;
  /** Colour on the overlay; undefined where the label is not drawn there. */
  colour: Rgb | undefined;
  /** Whether it is present or not is told by a score. */
  scored: boolean;
  /** A score and its threshold, both 0 to 1, for a small bar. */
  gauge: { score: number; threshold: number } | undefined;
}

export interface Legend {
  headline: string;
  present: boolean;
  rows: LegendRow[];
}

/**
 * Rows of one frame's findings: one a label, those that are present first, each group in the manifest's order; then
 * measurements that belong to no label.
 */
export function legendOf(
  outputs: readonly ModelOutput[],
  findings: readonly Finding[],
  measurements: readonly Measurement[],
): Legend {
  const colours = labelColours(outputs);
  const rows = outputs.flatMap((output, o) =>
    output.kind === "heatmap"
      ? [heatRow(output.label.label)]
      : labelsOf(output).flatMap(({ label }, i) => {
          const mine = findings.filter((f) => f.label === label && suits(output, f));
          return mine.length === 0 ? [] : [rowOf(output, label, mine, colours[o]?.[i])];
        }),
  );
  const judged = rows.filter((row) => row.value !== HEAT);
  const found = judged.filter((row) => row.present).length;
  const loose = measurements.filter((m) => m.label === undefined).map(measurementRow);
  return {
    headline: headlineOf(outputs, found, judged.length),
    present: found > 0,
    rows: [...rows.filter((row) => row.present), ...rows.filter((row) => !row.present), ...loose],
  };
}

function headlineOf(outputs: readonly ModelOutput[], found: number, all: number): string {
  if (all === 0) return "";
  const segmenting = outputs.some((output) => output.kind === "segmentation");
  const judged = outputs.some((output) => output.kind !== "segmentation" && output.kind !== "heatmap");
  if (found === 0) return judged ? "No finding at or above its threshold" : "No label found";
  const labels = `${found} of ${all} ${all === 1 ? "label" : "labels"}`;
  return segmenting ? `${labels} found` : `${labels} at or above threshold`;
}

/** Two outputs of a model may share a label: its findings are told apart by what they hold. */
function suits(output: ModelOutput, finding: Finding): boolean {
  if (output.kind === "segmentation") return finding.area !== undefined || finding.volume !== undefined;
  if (output.kind === "classification") return finding.box === undefined && finding.score !== undefined;
  const measured = finding.area !== undefined || finding.volume !== undefined;
  return !measured && (finding.box !== undefined || finding.score === undefined);
}

function rowOf(
  output: ModelOutput,
  label: string,
  findings: readonly Finding[],
  colour: Rgb | undefined,
): LegendRow {
  const present = findings.some((f) => f.present);
  const [first] = findings;
  const row = { label, present, colour, scored: output.kind !== "segmentation", gauge: undefined };
  if (first?.area !== undefined) return { ...row, value: areaText(first.area) };
  if (first?.volume !== undefined) return { ...row, value: volumeText(first.volume) };
  if (output.kind !== "classification") return { ...row, value: boxesText(findings) };
  const { score, threshold } = first ?? {};
  if (score === undefined || threshold === undefined) return { ...row, colour: undefined, value: "" };
  const within = score >= 0 && score <= 1 && threshold >= 0 && threshold <= 1;
  return {
    ...row,
    colour: undefined,
    value: scoreText(score, threshold, present),
    gauge: within ? { score, threshold } : undefined,
  };
}

const HEAT = "heat map, dark to light";
function heatRow(label: string): LegendRow {
  return { label, value: HEAT, present: true, colour: [250, 140, 40], scored: false, gauge: undefined };
}

function measurementRow(measurement: Measurement): LegendRow {
  const unit = unitText(measurement.unit.value);
  const value = `${Number(measurement.value.toPrecision(4))}${unit === "" ? "" : ` ${unit}`}`;
  return {
    label: measurement.name,
    value,
    present: true,
    colour: undefined,
    scored: false,
    gauge: undefined,
  };
}

/** "score 0.62, threshold 0.50", with as many digits as it takes not to show a score on the wrong side. */
export function scoreText(score: number, threshold: number, present: boolean): string {
  for (let digits = 2; digits < 8; digits++) {
    const [s, t] = [score.toFixed(digits), threshold.toFixed(digits)];
    if (Number(s) >= Number(t) === present) return `score ${s}, threshold ${t}`;
  }
  return `score ${score}, threshold ${threshold}`;
}

function areaText({ pixels, cm2 }: { pixels: number; cm2?: number | undefined }): string {
  const count = `${grouped(pixels)} px`;
  return cm2 === undefined ? count : `${digits(cm2)} cm²  ·  ${count}`;
}

function volumeText({ voxels, ml }: { voxels: number; ml: number }): string {
  return `${digits(ml)} mL  ·  ${grouped(voxels)} voxels`;
}

function digits(size: number): string {
  return size.toFixed(size >= 100 || size === 0 ? 1 : size >= 1 ? 2 : 3);
}

function boxesText(findings: readonly Finding[]): string {
  const found = findings.filter((f) => f.present);
  const threshold = findings.find((f) => f.threshold !== undefined)?.threshold;
  const limit = threshold === undefined ? "" : `threshold ${threshold.toFixed(2)}`;
  if (found.length === 0) {
    const best = Math.max(...findings.map((f) => f.score ?? -Infinity));
    if (threshold === undefined || best === -Infinity) return limit === "" ? "none" : `none, ${limit}`;
    return `none, ${scoreText(best, threshold, false)}`;
  }
  const scores = found.map((f) => f.score ?? NaN).filter((s) => !Number.isNaN(s));
  const [low, high] = [Math.min(...scores), Math.max(...scores)];
  const count = found.length === 1 ? "1 box" : `${found.length} boxes`;
  if (scores.length === 0) return count;
  if (threshold !== undefined && found.length === 1) return `${count}, ${scoreText(high, threshold, true)}`;
  const range =
    low.toFixed(2) === high.toFixed(2) ? low.toFixed(2) : `${low.toFixed(2)} to ${high.toFixed(2)}`;
  return [count, `scores ${range}`, limit].filter((part) => part !== "").join(", ");
}

function grouped(count: number): string {
  return String(count).replace(/\B(?=(\d{3})+$)/g, "\u202f");
}

/** UCUM code to what is read: cm2 to cm², annotations and the unity left out. */
function unitText(ucum: string): string {
  return ucum
    .replace(/\{[^}]*\}/g, "")
    .replace(/([a-z])2\b/gi, "$1²")
    .replace(/([a-z])3\b/gi, "$1³")
    .replace(/^1$/, "");
}
