/** A row of the legend, and the words that rows of several kinds share. */
import type { Finding } from "../receipt/receipt.js";
import type { ColourRange, Rgb } from "../colour.js";

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
  ramp?: ColourRange;
}

/** The images that the findings are about. */
export interface LegendScope {
  frames: number;
  /** The word for one of them: frame, slice. */
  called: string;
  /** Values of the heat maps that are shown. */
  heat: ColourRange;
}

/** A row of something that is not judged as present or absent. */
export const UNJUDGED = {
  value: "",
  present: true,
  colour: undefined,
  hollow: false,
  scored: false,
  gauge: undefined,
};

/** The first of those for which `size` is largest. */
export function highest(
  findings: readonly Finding[],
  size: (finding: Finding) => number,
): Finding | undefined {
  return findings.reduce<Finding | undefined>(
    (best, finding) => (best === undefined || size(finding) > size(best) ? finding : best),
    undefined,
  );
}

/** For several frames, the one on which a value was found, and how many have the label. */
export function partOf(
  one: Finding | undefined,
  findings: readonly Finding[],
  { frames, called }: LegendScope,
): string {
  if (one?.frame === undefined) return "";
  return ` (${called} ${one.frame})  ·  in ${framesWith(findings)} of ${frames}`;
}

export const framesWith = (findings: readonly Finding[]): number =>
  new Set(findings.filter((f) => f.present).flatMap((f) => f.frames ?? [f.frame])).size;

/**
 * "score 0.62, threshold 0.50", with as many digits as it takes not to show a score on the wrong
 * side.
 */
export function scoreText(score: number, threshold: number, present: boolean): string {
  for (let digits = 2; digits < 8; digits++) {
    const [s, t] = [score.toFixed(digits), threshold.toFixed(digits)];
    if (Number(s) >= Number(t) === present) return `score ${s}, threshold ${t}`;
  }
  return `score ${score}, threshold ${threshold}`;
}

const TOGETHER = { maximum: "highest", mean: "mean", noisy_or: "noisy-or", total: "" };

/**
 * The row of a label that has only a score: its highest score, or the score of all frames, with the
 * threshold, or with the distance to the second best.
 */
export function scoreRow(
  label: string,
  findings: readonly Finding[],
  scope: LegendScope,
): LegendRow {
  const frames = findings.filter((f) => f.over_frames === undefined);
  const whole = findings.find((f) => f.over_frames !== undefined);
  const present = whole?.present ?? frames.some((f) => f.present);
  const best = whole ?? highest(frames, (f) => f.score ?? -Infinity);
  const { score, threshold, margin, over_frames: over = "maximum" } = best ?? {};
  const row = { label, present, colour: undefined, hollow: true, scored: true, gauge: undefined };
  if (score === undefined) return { ...row, value: "" };
  const unjudged = `score ${score.toFixed(2)}${margin === undefined ? "" : `, ${margin.toFixed(2)} above the second`}`;
  const value = threshold === undefined ? unjudged : scoreText(score, threshold, present);
  const within =
    threshold !== undefined && score >= 0 && score <= 1 && threshold >= 0 && threshold <= 1;
  const part =
    whole === undefined
      ? partOf(best, frames, scope)
      : `  ·  in ${framesWith(frames)} of ${scope.frames}`;
  return {
    ...row,
    value: scope.frames === 1 ? value : `${TOGETHER[over]} ${value}${part}`,
    gauge: within ? { score, threshold } : undefined,
  };
}
