/**
 * `radserve drift`: how models do from week to week, from the receipts of output folders and never
 * from images.
 */
import { realpathSync } from "node:fs";
import { isDay } from "../../audit/folders.js";
import { ConfigError } from "../../base/errors.js";
import { count, counted, table } from "../../base/table.js";
import type { Config } from "../../config.js";
import { outermost } from "../../files/roots.js";
import { driftOf, FALSE_MARKS, FEWEST_STUDIES, type DriftChange, type Drift } from "./compare.js";
import { readReceipts } from "../../results/commit/read-receipts.js";
import { mondayOf, Weeks } from "./weeks.js";
import { leftOut, receiptFolders } from "../../commands/receipt-folders.js";
import { print, type ExitStatus, type JsonOption } from "../../commands/run.js";

export interface DriftCommand extends JsonOption {
  /** A day of the week to compare, YYYY-MM-DD. */
  week?: string;
}

/** @returns 1 if a change is marked */
export async function drift(
  config: Config,
  folders: readonly string[],
  { json = false, week }: DriftCommand,
): Promise<ExitStatus> {
  // A receipt counts once, however many of the folders it lies in
  const roots = outermost(receiptFolders(folders, config).map((folder) => realpathSync(folder)));
  if (week !== undefined && !isDay(week))
    throw new ConfigError(`--week: expected a day such as 2026-11-16; found "${week}".`);
  const weeks = new Weeks();
  for (const root of roots) await readReceipts(root, weeks, { unreadable: leftOut });
  const found = driftOf(weeks, week === undefined ? undefined : mondayOf(`${week}T00:00:00Z`));
  print(json ? JSON.stringify(found, null, 2) : driftText(found));
  return found.changes.some(({ marked }) => marked) || found.shadow.some(({ marked }) => marked)
    ? 1
    : 0;
}

const small = (p: number) => (p < 0.0001 ? "< 0.0001" : p.toFixed(4));
const modelText = ({ model, version, shadow }: Pick<DriftChange, "model" | "version" | "shadow">) =>
  `${model} ${version}${shadow ? " (shadow)" : ""}`;

function driftText(found: Drift): string {
  const { receipts, untrusted, tested, changes } = found;
  const marked = changes.filter((one) => one.marked);
  const parts = [
    `${counted(receipts, "receipt")}; ${counted(tested, "comparison")} of the last week with the weeks before, ${count(marked.length)} beyond chance`,
    ...(untrusted === 0
      ? []
      : [`${counted(untrusted, "receipt")} left out: not trusted (radserve adopt).`]),
    ...(tested === 0
      ? [
          `Nothing was compared: a comparison needs ${FEWEST_STUDIES} studies of one model and scanner, in the last week and before.`,
        ]
      : []),
    ...(marked.length === 0 ? [] : ["", changesTable(marked)]),
    ...found.lines.flatMap((line) => [
      "",
      `${modelText(line)} on ${line.scanner}`,
      weeksTable(line),
    ]),
    ...(found.shadow.length === 0
      ? []
      : ["", "Shadow against active, image by image", shadowTable(found)]),
    "",
    `Marked (*): adjusted p of at most ${FALSE_MARKS} (Benjamini-Hochberg). A study counts once. Times are not tested.`,
  ];
  return parts.join("\n");
}

function changesTable(changes: readonly DriftChange[]): string {
  const head = ["CHANGE", "MODEL", "SCANNER", "BEFORE", "NOW", "STUDIES", "TEST", "P", "ADJUSTED"];
  const rows = changes.map((one) => {
    const value = (n: number) =>
      one.measure === "score" ? n.toFixed(3) : `${(100 * n).toFixed(1)} %`;
    const what = one.label === undefined ? one.measure : `${one.measure} of ${one.label}`;
    return [
      `* ${what}`,
      modelText(one),
      one.scanner,
      value(one.before),
      value(one.now),
      `${one.studies_before}, ${one.studies_now}`,
      one.test,
      small(one.p),
      small(one.q),
    ];
  });
  return table([head, ...rows], [3, 4]);
}

function weeksTable({ weeks }: Drift["lines"][number]): string {
  const rows = weeks.map(({ monday, studies, refused, failed, caveats, work_ms, labels }) => [
    monday,
    String(studies),
    String(refused),
    String(failed),
    String(caveats),
    work_ms === null ? "" : `${Math.round(work_ms)} ms`,
    labels
      .map(({ label, found, median_score }) =>
        median_score === null
          ? `${label} ${found}`
          : `${label} ${found} (${median_score.toFixed(2)})`,
      )
      .join(", "),
  ]);
  const head = [
    "WEEK",
    "STUDIES",
    "REFUSED",
    "FAILED",
    "CAVEATS",
    "TIME",
    "FOUND IN STUDIES (MEDIAN SCORE)",
  ];
  return table([head, ...rows], [1, 2, 3, 4, 5]);
}

function shadowTable({ shadow }: Drift): string {
  const rows = shadow.map((pair) => [
    `${pair.marked ? "* " : "  "}${pair.label}`,
    pair.shadow,
    pair.active,
    String(pair.both),
    String(pair.neither),
    String(pair.onlyShadow),
    String(pair.onlyActive),
    small(pair.q),
  ]);
  const head = [
    "  LABEL",
    "SHADOW",
    "ACTIVE",
    "BOTH",
    "NEITHER",
    "ONLY SHADOW",
    "ONLY ACTIVE",
    "ADJUSTED P",
  ];
  return table([head, ...rows], [3, 4, 5, 6]);
}
