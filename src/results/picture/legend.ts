/** The legend's rows: what a model found and did not find, in words and numbers that do not say more than it did. */
import { rangeOf } from "../../base/range.js";
import { labelsOf, type ModelOutput } from "../../manifest/outputs/outputs.js";
import { type Range, type Rgb, labelColours } from "./colour.js";
import type { Finding, Measurement } from "../receipt/receipt.js";

export interface LegendRow {
  label: string;
  value: string;
  present: boolean;
  /** Colour on the overlay; undefined if the label is not drawn there. */
  colour: Rgb | undefined;
  /** Drawn as an outline alone, and not also as a tint. */
  hollow: boolean;
  /** Whether it is present or not is told by a score. */
  scored: boolean;
  /** A score and its threshold, both 0 to 1, for a small bar. */
  gauge: { score: number; threshold: number } | undefined;
  /** The values at the ends of a heat map's colours. */
  ramp?: Range;
}

/** What the findings are about. */
export interface Scope {
  frames: number;
  /** What one is called: frame, slice. */
  called: string;
  /** Values of the heat maps that are shown. */
  heat: Range;
}

/** A row of something that is not judged as present or absent. */
const UNJUDGED = {
  value: "",
  present: true,
  colour: undefined,
  hollow: false,
  scored: false,
  gauge: undefined,
};

export interface Legend {
  headline: string;
  present: boolean;
  rows: LegendRow[];
}

/**
 * Rows of the findings: one a label, those that are present first, each group in the manifest's order; then
 * measurements that belong to no label. A row over several frames tells the largest value and in how many it was found.
 */
export function legendOf(
  outputs: readonly ModelOutput[],
  findings: readonly Finding[],
  measurements: readonly Measurement[],
  scope: Scope,
): Legend {
  const colours = labelColours(outputs);
  const rows = outputs.flatMap((output, o) =>
    output.kind === "heatmap"
      ? [{ ...UNJUDGED, label: output.label.label, ramp: scope.heat }]
      : labelsOf(output).flatMap(({ label }, i) => {
          const mine = findings.filter((f) => f.label === label && suits(output, f));
          return mine.length === 0 ? [] : [rowOf(output, label, mine, colours[o]?.[i], scope)];
        }),
  );
  const judged = rows.filter((row) => row.ramp === undefined);
  const found = judged.filter((row) => row.present).length;
  const loose = measurements.filter((m) => m.label === undefined);
  const names = [...new Set(loose.map(({ name }) => name))];
  const values = names.map((name) =>
    measurementRow(
      name,
      loose.filter((m) => m.name === name),
      scope,
    ),
  );
  return {
    headline: headlineOf(outputs, found, judged.length),
    present: found > 0,
    rows: [...rows.filter((row) => row.present), ...rows.filter((row) => !row.present), ...values],
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
  scope: Scope,
): LegendRow {
  const present = findings.some((f) => f.present);
  const segmented = output.kind === "segmentation";
  const row = { label, present, colour, hollow: !segmented, scored: !segmented, gauge: undefined };
  // Frames may differ in the size of their pixels
  const measured = findings.every((f) => f.area?.cm2 !== undefined);
  const largest = highest(findings, (f) => (measured ? f.area?.cm2 : f.area?.pixels) ?? -1);
  if (largest?.area !== undefined) return { ...row, value: areasText(largest, findings, scope) };
  if (largest?.volume !== undefined) return { ...row, value: volumeText(largest.volume) };
  if (output.kind !== "classification") return { ...row, value: boxesText(findings, scope) };
  const best = highest(findings, (f) => f.score ?? -Infinity);
  const { score, threshold } = best ?? {};
  if (score === undefined || threshold === undefined) return { ...row, colour: undefined, value: "" };
  const within = score >= 0 && score <= 1 && threshold >= 0 && threshold <= 1;
  const value = scoreText(score, threshold, present);
  return {
    ...row,
    colour: undefined,
    value: scope.frames === 1 ? value : `highest ${value}${partOf(best, findings, scope)}`,
    gauge: within ? { score, threshold } : undefined,
  };
}

/** The first of those for which `size` is largest. */
function highest(findings: readonly Finding[], size: (finding: Finding) => number): Finding | undefined {
  return findings.reduce<Finding | undefined>(
    (best, finding) => (best === undefined || size(finding) > size(best) ? finding : best),
    undefined,
  );
}

/** For several frames, the one on which a value was found, and how many have the label. */
function partOf(one: Finding | undefined, findings: readonly Finding[], { frames, called }: Scope): string {
  if (one?.frame === undefined) return "";
  return ` (${called} ${one.frame})  ·  in ${framesWith(findings)} of ${frames}`;
}

const framesWith = (findings: readonly Finding[]): number =>
  new Set(findings.filter((f) => f.present).map((f) => f.frame)).size;

/** One value, or the range of those of several frames. */
function measurementRow(name: string, all: readonly Measurement[], { called }: Scope): LegendRow {
  const unit = unitText(all[0]?.unit.value ?? "");
  const [least, most] = rangeOf(all.map(({ value }) => value)).map((value) => Number(value.toPrecision(4)));
  const range = least === most ? String(least) : `${least} to ${most}`;
  const over = all.length === 1 ? "" : `  ·  over ${all.length} ${called}s`;
  return { ...UNJUDGED, label: name, value: `${range}${unit === "" ? "" : ` ${unit}`}${over}` };
}

/** "score 0.62, threshold 0.50", with as many digits as it takes not to show a score on the wrong side. */
export function scoreText(score: number, threshold: number, present: boolean): string {
  for (let digits = 2; digits < 8; digits++) {
    const [s, t] = [score.toFixed(digits), threshold.toFixed(digits)];
    if (Number(s) >= Number(t) === present) return `score ${s}, threshold ${t}`;
  }
  return `score ${score}, threshold ${threshold}`;
}

function areasText(largest: Finding, findings: readonly Finding[], scope: Scope): string {
  const { area = { pixels: 0 } } = largest;
  if (scope.frames === 1 || area.pixels === 0) return areaText(area);
  const size = area.cm2 === undefined ? `${grouped(area.pixels)} px` : `${digits(area.cm2)} cm²`;
  return `up to ${size}${partOf(largest, findings, scope)}`;
}

function areaText({ pixels, cm2 }: { pixels: number; cm2?: number | undefined }): string {
  const count = `${grouped(pixels)} px`;
  return cm2 === undefined ? count : `${digits(cm2)} cm²  ·  ${count}`;
}

function volumeText({ voxels, ml }: { voxels: number; ml: number }): string {
  return `${digits(ml)} mL  ·  ${grouped(voxels)} ${voxels === 1 ? "voxel" : "voxels"}`;
}

function digits(size: number): string {
  return size.toFixed(size >= 100 || size === 0 ? 1 : size >= 1 ? 2 : 3);
}

function boxesText(findings: readonly Finding[], { frames, called }: Scope): string {
  const found = findings.filter((f) => f.present);
  const threshold = findings.find((f) => f.threshold !== undefined)?.threshold;
  const limit = threshold === undefined ? "" : `threshold ${threshold.toFixed(2)}`;
  if (found.length === 0) {
    const best = highest(findings, (f) => f.score ?? -Infinity)?.score ?? -Infinity;
    if (threshold === undefined || best === -Infinity) return limit === "" ? "none" : `none, ${limit}`;
    return `none, ${scoreText(best, threshold, false)}`;
  }
  const scores = found.map((f) => f.score ?? NaN).filter((s) => !Number.isNaN(s));
  const [low, high] = rangeOf(scores);
  const boxes = found.length === 1 ? "1 box" : `${found.length} boxes`;
  const where = frames === 1 ? "" : ` in ${framesWith(found)} of ${frames} ${called}s`;
  const count = `${boxes}${where}`;
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
