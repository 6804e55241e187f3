/** The table and the chart of a run of bench peers, as they stand in docs/benchmarks.md. */
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { root } from "../lib/server.js";
import { median } from "../lib/statistics.js";
import type { Turn } from "./turns.js";

export interface Row {
  work: string;
  outputs: string;
  peer: string;
  concurrency: number;
  rate: { median: number; least: number; most: number };
  cpuMs: number;
  mib: number;
  p50: number;
  p99: number;
}

/** Medians over the rounds, in the order in which the turns came. */
export function rowsOf(turns: readonly Turn[]): Row[] {
  const groups = new Map<string, Turn[]>();
  for (const turn of turns) {
    const name = JSON.stringify([turn.work, turn.outputs, turn.concurrency, turn.peer]);
    groups.set(name, [...(groups.get(name) ?? []), turn]);
  }
  return [...groups.values()].flatMap((of) => {
    const [first] = of;
    if (first === undefined) return [];
    const { work, outputs, peer, concurrency } = first;
    const rates = of.map((turn) => turn.images_per_second);
    return [
      {
        work,
        outputs,
        peer,
        concurrency,
        rate: { median: median(rates), least: Math.min(...rates), most: Math.max(...rates) },
        cpuMs: median(of.map((turn) => turn.cpu_ms)),
        mib: median(of.map((turn) => turn.peak_mib)),
        p50: median(of.map((turn) => turn.p50_ms)),
        p99: median(of.map((turn) => turn.p99_ms)),
      },
    ];
  });
}

const short = (value: number): string => (value < 100 ? value.toFixed(1) : value.toFixed(0));

export interface Table {
  title: string;
  head: readonly string[];
  rows: readonly (readonly string[])[];
}

export function markdown({ title, head, rows }: Table): string {
  const line = (cells: readonly string[]) => `| ${cells.join(" | ")} |`;
  return [`**${title}**`, "", line(head), line(head.map(() => "---")), ...rows.map(line)].join(
    "\n",
  );
}

function mainTable(rows: readonly Row[], titles: Titles): Table {
  return {
    title: "All turns",
    head: [
      "work, outputs",
      "at once",
      "who",
      "images/s: median (least to most)",
      "CPU ms an image",
      "peak MiB",
      "p50, p99 ms",
    ],
    rows: rows.map(({ work, outputs, concurrency, peer, rate, cpuMs, mib, p50, p99 }) => [
      `${titles.works[work] ?? work}; ${outputs}`,
      String(concurrency),
      titles.peers[peer] ?? peer,
      `${short(rate.median)} (${short(rate.least)} to ${short(rate.most)})`,
      short(cpuMs),
      mib.toFixed(0),
      `${short(p50)}, ${short(p99)}`,
    ]),
  };
}

const WIDTH = 860;
const LABEL = 330;
const BAR = 16;
/** Colours that people tell apart who do not tell red from green (Okabe and Ito). */
const COLOURS = [
  "#0072b2",
  "#e69f00",
  "#009e73",
  "#cc79a7",
  "#56b4e9",
  "#d55e00",
  "#f0e442",
  "#999999",
];

const escaped = (text: string): string =>
  text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

/**
 * A bar for each row, as long as its median is to the most of its group; a thin line from the least
 * to the most.
 */
export function chart(rows: readonly Row[], titles: Titles): string {
  const peers = [...new Set(rows.map(({ peer }) => peer))];
  const groups = [...new Set(rows.map(({ work, outputs }) => JSON.stringify([work, outputs])))];
  const parts: string[] = [];
  let y = 20;
  const text = (x: number, at: number, words: string, more = "") =>
    parts.push(`<text x="${x}" y="${at}" ${more}>${escaped(words)}</text>`);
  for (const group of groups) {
    const of = rows.filter(({ work, outputs }) => JSON.stringify([work, outputs]) === group);
    const [{ work, outputs }] = of as [Row];
    text(10, y, `${titles.works[work] ?? work}; ${outputs}: images/s`, 'font-weight="bold"');
    y += 10;
    const most = Math.max(...of.map(({ rate }) => rate.most));
    const scale = (WIDTH - LABEL - 70) / most;
    for (const { peer, concurrency, rate } of of) {
      const length = rate.median * scale;
      text(10, y + 12, `${titles.peers[peer] ?? peer}, ${concurrency} at once`);
      parts.push(
        `<rect x="${LABEL}" y="${y}" width="${length.toFixed(1)}" height="${BAR - 3}" fill="${COLOURS[peers.indexOf(peer) % COLOURS.length] ?? ""}"/>`,
        `<path d="M${(LABEL + rate.least * scale).toFixed(1)} ${y + 6.5}H${(LABEL + rate.most * scale).toFixed(1)}" stroke="#000"/>`,
      );
      text(Math.round(LABEL + Math.max(length, rate.most * scale) + 6), y + 12, short(rate.median));
      y += BAR;
    }
    y += 26;
  }
  return (
    `<svg xmlns="http://www.w3.org/2000/svg" width="${WIDTH}" height="${y}" font-family="sans-serif" font-size="12">\n` +
    `<rect width="100%" height="100%" fill="#fff"/>\n${parts.join("\n")}\n</svg>\n`
  );
}

/** How works and contenders are called for people. */
export interface Titles {
  works: Readonly<Record<string, string>>;
  peers: Readonly<Record<string, string>>;
}

const BEGIN = "<!-- what npm run bench -- peers wrote -->";
const END = "<!-- its end -->";

/** What a run found, for the page. */
export interface Report {
  /** What was run, and on what; a paragraph each. */
  said: readonly string[];
  turns: readonly Turn[];
  /** Before and after the table of all turns. */
  goals?: Table;
}

/** The page with the report in place of that of the run before. */
export function withReport(page: string, { said, turns, goals }: Report, titles: Titles): string {
  const [from, to] = [page.indexOf(BEGIN), page.indexOf(END)];
  if (from < 0 || to < from)
    throw new Error(`The page has no place for the table: ${BEGIN} ... ${END}`);
  const tables = [...(goals === undefined ? [] : [goals]), mainTable(rowsOf(turns), titles)];
  const parts = [...said, "![images a second](benchmarks.svg)", ...tables.map(markdown)];
  return `${page.slice(0, from)}${BEGIN}\n\n${parts.join("\n\n")}\n\n${page.slice(to)}`;
}

/** Puts tables and chart into docs/benchmarks.md and docs/benchmarks.svg. */
export function writeReport(report: Report, titles: Titles): void {
  const page = join(root, "docs/benchmarks.md");
  const text = withReport(readFileSync(page, "utf8"), report, titles);
  // Beside the limit, a network without files, HTTP and results, all other bars would be dots
  const rows = rowsOf(report.turns).filter(({ peer }) => peer !== "raw");
  writeFileSync(join(root, "docs/benchmarks.svg"), chart(rows, titles));
  writeFileSync(page, text);
}
