/** The goals of bench peers, for CT slices, and what a run found beside each. */
import { median } from "../lib/statistics.js";
import type { Table } from "./report.js";
import type { Turn } from "./turns.js";

/** Radserve's images/s over another's, at so many requests at once. */
const RATES = [
  { outputs: "json", peer: "script", atLeast: () => 1 },
  { outputs: "json", peer: "same", atLeast: () => 1.25 },
  { outputs: "all", peer: "script", atLeast: (at: number) => (at === 1 ? 2.5 : 3) },
];
/** Milliseconds of processor time an image. */
const CPU_MS: Record<string, number> = { json: 4, all: 25 };
/** Radserve's peak over the script's. */
const PEAKS: Record<string, number> = { json: 1, all: 0.5 };

interface Found {
  goal: string;
  at: number | "";
  wanted: string;
  found: number;
  met: boolean;
}

/** Ratios are the medians of the rounds' own ratios, because the machine changes between rounds. */
export function ratio(
  turns: readonly Turn[],
  peer: string,
  at: number,
  of: "images_per_second" | "peak_mib",
): number {
  const here = turns.filter(({ concurrency }) => concurrency === at);
  const ratios = here
    .filter((turn) => turn.peer === peer)
    .flatMap((theirs) => {
      const own = here.find((turn) => turn.peer === "radserve" && turn.round === theirs.round);
      return own === undefined ? [] : [own[of] / theirs[of]];
    });
  return median(ratios);
}

/** A row for each goal that the turns say something about. */
export function goalsOf(all: readonly Turn[]): Found[] {
  const rows: Found[] = [];
  for (const outputs of ["json", "all"]) {
    const turns = all.filter((turn) => turn.work === "ct" && turn.outputs === outputs);
    const own = turns.filter(({ peer }) => peer === "radserve");
    for (const at of new Set(own.map(({ concurrency }) => concurrency))) {
      const add = (goal: string, bound: number, found: number, least: boolean) => {
        if (Number.isNaN(found)) return;
        const met = least ? found >= bound : found <= bound;
        const wanted = `at ${least ? "least" : "most"} ${bound}`;
        rows.push({
          goal: `${outputs}: ${goal}`,
          at,
          wanted,
          found: Number(found.toFixed(2)),
          met,
        });
      };
      for (const { outputs: of, peer, atLeast } of RATES)
        if (of === outputs)
          add(
            `images/s, of those of ${peer === "same" ? "the script with the same promises" : "the script"}`,
            atLeast(at),
            ratio(turns, peer, at, "images_per_second"),
            true,
          );
      const cpu = median(
        own.filter(({ concurrency }) => concurrency === at).map(({ cpu_ms }) => cpu_ms),
      );
      add("CPU ms an image", CPU_MS[outputs]!, cpu, false);
      add(
        "peak memory, of the script's",
        PEAKS[outputs]!,
        ratio(turns, "script", at, "peak_mib"),
        false,
      );
    }
  }
  return rows;
}

/** For the page: what was missed is bold. */
export function goalTable(rows: readonly Found[]): Table {
  return {
    title: "CT slices against their goals; a goal that was missed is bold",
    head: ["goal", "at once", "wanted", "found"],
    rows: rows.map(({ goal, at, wanted, found, met }) => {
      const text = found.toFixed(2);
      return [goal, String(at), wanted, met ? text : `**${text}**`];
    }),
  };
}
