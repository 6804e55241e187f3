/**
 * The last week of each model, version and scanner against the weeks before it, and what is marked
 * as a change.
 */
import { benjaminiHochberg, fisher, mannWhitney, mcNemar } from "./statistics.js";
import type { DriftLine, Pair, Week, Weeks } from "./weeks.js";

/**
 * With fewer studies on either side nothing is tested: the normal approximation does not hold, and
 * little would be seen.
 */
export const FEWEST_STUDIES = 20;
/** Expected share of false marks among all marks. */
export const FALSE_MARKS = 0.05;

export interface DriftChange {
  model: string;
  version: string;
  shadow: boolean;
  scanner: string;
  /** score, found, refused, failed or caveat. */
  measure: string;
  label?: string;
  /** Median, or share from 0 to 1, in the weeks before, and in the last week. */
  before: number;
  now: number;
  studies_before: number;
  studies_now: number;
  test: "Mann-Whitney" | "Fisher";
  /** The probability that a score of the last week is above one of before. */
  above?: number;
  p: number;
  /** Adjusted for all comparisons. */
  q: number;
  marked: boolean;
}

export interface WeekFacts {
  monday: string;
  studies: number;
  refused: number;
  failed: number;
  caveats: number;
  /**
   * Median over the studies, of the image that took longest; not tested, because a busy node is
   * slow too.
   */
  work_ms: number | null;
  labels: { label: string; found: number; median_score: number | null }[];
}

export interface Drift {
  receipts: number;
  /** Receipts that are not trusted, of which nothing is counted. */
  untrusted: number;
  tested: number;
  changes: DriftChange[];
  lines: { model: string; version: string; shadow: boolean; scanner: string; weeks: WeekFacts[] }[];
  shadow: (Pair & { p: number; q: number; marked: boolean })[];
}

type Untold = Omit<DriftChange, "q" | "marked">;

/**
 * @param last the Monday of the week that is compared; without it the last one that there are
 * receipts of
 */
export function driftOf(weeks: Weeks, last?: string): Drift {
  const lines = [...weeks.lines].sort(([a], [b]) => (a < b ? -1 : 1)).map(([, line]) => line);
  const week =
    last ??
    lines
      .flatMap((line) => [...line.weeks.keys()])
      .reduce((latest, one) => (one > latest ? one : latest), "");
  const tested = lines.flatMap((line) => changesOf(line, week));
  const adjusted = benjaminiHochberg(tested.map(({ p }) => p));
  const changes = tested.map((one, i) => ({ ...one, ...verdictOf(adjusted[i]) }));
  const pairs = [...weeks.pairs.values()].filter(
    ({ onlyShadow, onlyActive }) => onlyShadow + onlyActive > 0,
  );
  const ofPairs = pairs.map(({ onlyShadow, onlyActive }) => mcNemar(onlyShadow, onlyActive));
  const pairsAdjusted = benjaminiHochberg(ofPairs);
  return {
    receipts: weeks.receipts,
    untrusted: weeks.untrusted,
    tested: tested.length,
    changes: changes.sort((a, b) => a.q - b.q),
    lines: lines.map(({ weeks: byMonday, model, version, shadow, scanner }) => ({
      model,
      version,
      shadow,
      scanner,
      weeks: [...byMonday.values()].sort((a, b) => (a.monday < b.monday ? -1 : 1)).map(factsOf),
    })),
    shadow: [...weeks.pairs.values()].map((pair) => {
      const at = pairs.indexOf(pair);
      return { ...pair, p: ofPairs[at] ?? 1, ...verdictOf(pairsAdjusted[at]) };
    }),
  };
}

const verdictOf = (q = 1) => ({ q, marked: q <= FALSE_MARKS });

type DriftStudy = Week["studies"] extends Map<string, infer Facts> ? Facts : never;

function changesOf(line: DriftLine, last: string): Untold[] {
  const now = [...(line.weeks.get(last)?.studies.values() ?? [])];
  const before = [...line.weeks.values()]
    .filter(({ monday }) => monday < last)
    .flatMap(({ studies }) => [...studies.values()]);
  const { model, version, shadow, scanner } = line;
  const whose = { model, version, shadow, scanner };
  const [ranBefore, ranNow] = [before, now].map((studies) => studies.filter(({ ran }) => ran));
  const labels = new Set(
    [...(ranBefore ?? []), ...(ranNow ?? [])].flatMap(({ found }) => [...found.keys()]),
  );
  const shares: [string, DriftStudy[], DriftStudy[], (study: DriftStudy) => boolean][] = [
    ["refused", before, now, ({ refused }) => refused],
    ["failed", before, now, ({ failed }) => failed],
    ["caveat", ranBefore ?? [], ranNow ?? [], ({ caveat }) => caveat],
  ];
  return [
    ...shares.flatMap(([measure, was, is, holds]) => share({ ...whose, measure }, was, is, holds)),
    ...[...labels]
      .sort()
      .flatMap((label) => [
        ...share(
          { ...whose, measure: "found", label },
          ranBefore ?? [],
          ranNow ?? [],
          ({ found }) => found.get(label) === true,
        ),
        ...scores({ ...whose, measure: "score", label }, ranBefore ?? [], ranNow ?? []),
      ]),
  ];
}

type ChangeOf = Pick<DriftChange, "model" | "version" | "shadow" | "scanner" | "measure" | "label">;

function share(
  whose: ChangeOf,
  was: DriftStudy[],
  is: DriftStudy[],
  holds: (study: DriftStudy) => boolean,
): Untold[] {
  if (Math.min(was.length, is.length) < FEWEST_STUDIES) return [];
  const [a, b] = [was, is].map((studies) => studies.filter(holds).length);
  const [hitsBefore, hitsNow] = [a ?? 0, b ?? 0];
  // Nothing to tell apart: such a comparison would only make the others harder to mark
  if (hitsBefore + hitsNow === 0 || hitsBefore + hitsNow === was.length + is.length) return [];
  return [
    {
      ...whose,
      before: hitsBefore / was.length,
      now: hitsNow / is.length,
      test: "Fisher",
      studies_before: was.length,
      studies_now: is.length,
      p: fisher(hitsBefore, was.length, hitsNow, is.length),
    },
  ];
}

function scores(whose: ChangeOf, was: DriftStudy[], is: DriftStudy[]): Untold[] {
  const { label = "" } = whose;
  const [before = [], now = []] = [was, is].map((studies) =>
    studies.flatMap(({ scores: known }) => known.get(label) ?? []),
  );
  if (Math.min(before.length, now.length) < FEWEST_STUDIES) return [];
  return [
    {
      ...whose,
      before: median(before) ?? 0,
      now: median(now) ?? 0,
      test: "Mann-Whitney",
      studies_before: before.length,
      studies_now: now.length,
      ...mannWhitney(before, now),
    },
  ];
}

function median(values: readonly number[]): number | undefined {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.floor((sorted.length - 1) / 2)];
}

function factsOf({ monday, studies }: Week): WeekFacts {
  const all = [...studies.values()];
  const ran = all.filter((study) => study.ran);
  const labels = [...new Set(ran.flatMap(({ found }) => [...found.keys()]))].sort();
  return {
    monday,
    studies: all.length,
    refused: all.filter(({ refused }) => refused).length,
    failed: all.filter(({ failed }) => failed).length,
    caveats: ran.filter(({ caveat }) => caveat).length,
    work_ms: median(ran.map(({ work }) => work)) ?? null,
    labels: labels.map((label) => ({
      label,
      found: ran.filter(({ found }) => found.get(label) === true).length,
      median_score: median(ran.flatMap(({ scores: known }) => known.get(label) ?? [])) ?? null,
    })),
  };
}
