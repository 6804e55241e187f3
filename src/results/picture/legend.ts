/**
 * The legend's rows: what a model found and did not find, in words and numbers that do not say more
 * than it did.
 */
import { rangeOf } from "../../base/range.js";
import { kindOf, labelsOf, type ModelOutput } from "../../manifest/outputs/outputs.js";
import { resultKindOf } from "../kinds/kinds.js";
import { UNJUDGED, type LegendRow, type LegendScope } from "../kinds/legend-row.js";
import { SLICES } from "../kinds/totals.js";
import type { Finding, Measurement } from "../receipt/receipt.js";
import { labelColours } from "../colour.js";

export interface Legend {
  headline: string;
  present: boolean;
  rows: LegendRow[];
}

/**
 * Rows of the findings: one a label, those that are present first, each group in the manifest's
 * order; then measurements that belong to no label. A row over several frames tells the largest
 * value and in how many it was found.
 */
export function legendOf(
  outputs: readonly ModelOutput[],
  findings: readonly Finding[],
  measurements: readonly Measurement[],
  scope: LegendScope,
): Legend {
  const colours = labelColours(outputs);
  const rows = outputs.flatMap((output, o) => {
    const { fixedRows, row, isOf } = resultKindOf(output);
    if (row === undefined) return fixedRows?.(output, scope) ?? [];
    return labelsOf(output).flatMap(({ label }, i) => {
      // Two outputs of a model may share a label: its findings are told apart by what they hold
      const mine = findings.filter((f) => f.label === label && isOf(f) && !isBareTotal(f));
      if (mine.length === 0) return [];
      const told = row(label, mine, colours[o]?.[i], scope);
      const more = told.present ? firstOf(measurements.filter((m) => m.label === label)) : [];
      return [
        { ...told, value: [told.value, ...more].filter((text) => text !== "").join("  ·  ") },
      ];
    });
  });
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
    headline: headlineOf(outputs, found, judged),
    present: found > 0,
    rows: [...rows.filter((row) => row.present), ...rows.filter((row) => !row.present), ...values],
  };
}

/** It says what the row makes of the frames itself. */
const isBareTotal = ({ over_frames: over, volume }: Finding): boolean =>
  over === "total" && volume === undefined;

const isScored = (output: ModelOutput): boolean => resultKindOf(output).judgedBy === "score";

function headlineOf(
  outputs: readonly ModelOutput[],
  found: number,
  rows: readonly LegendRow[],
): string {
  const all = rows.length;
  if (all === 0) return "";
  const judgedBy = outputs.map((output) => resultKindOf(output).judgedBy);
  if (found === 0)
    return judgedBy.includes("score") ? "No finding at or above its threshold" : "No label found";
  const labels = `${found} of ${all} ${all === 1 ? "label" : "labels"}`;
  const byThreshold = outputs.every(
    (output) =>
      labelsOf(output).length === 0 || kindOf(output).needsThresholds(output) || !isScored(output),
  );
  const byScore = byThreshold && !judgedBy.includes("mask") && rows.some(({ scored }) => scored);
  return byScore ? `${labels} at or above threshold` : `${labels} found`;
}

function measurementRow(
  name: string,
  all: readonly Measurement[],
  { called }: LegendScope,
): LegendRow {
  const over = all.length === 1 ? "" : `  ·  over ${all.length} ${called}s`;
  return { ...UNJUDGED, label: name, value: `${rangeText(all)}${over}` };
}

/** One value, or the range of those of several frames. */
export function rangeText(all: readonly Measurement[]): string {
  const unit = unitText(all[0]?.unit.value ?? "");
  const [least, most] = rangeOf(all.map(({ value }) => value)).map((value) =>
    Number(value.toPrecision(4)),
  );
  const range = least === most ? String(least) : `${least} to ${most}`;
  return `${range}${unit === "" || unit === "°" ? unit : ` ${unit}`}`;
}

/** So many measurements of a label stand in its row, beside its area or volume. */
const MOST_IN_ROW = 2;

/** The first measurements that a manifest asks of a label. */
function firstOf(all: readonly Measurement[]): string[] {
  const own = all.filter(
    ({ name, number }) => !["Area", "Volume", SLICES].includes(name) && number === undefined,
  );
  const names = [...new Set(own.map(({ name }) => name))].slice(0, MOST_IN_ROW);
  return names.map((name) => `${name} ${rangeText(own.filter((m) => m.name === name))}`);
}

/** UCUM code to what is read: cm2 to cm², annotations and the unity left out. */
function unitText(ucum: string): string {
  return ucum
    .replace("[hnsf'U]", "HU")
    .replace("{pixels}", "px")
    .replace(/^deg$/, "°")
    .replace(/^a$/, "years")
    .replace(/\{[^{}]*\}/g, "")
    .replace(/([a-z])2\b/gi, "$1²")
    .replace(/([a-z])3\b/gi, "$1³")
    .replace(/^1$/, "");
}
