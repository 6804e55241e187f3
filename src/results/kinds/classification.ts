/** Scores of labels. */
import type { Classification } from "../../manifest/outputs/classification.js";
import type { Warning } from "../../images/image.js";
import type { Finding } from "../receipt/receipt.js";
import {
  finite,
  invalid,
  isPresent,
  labelFields,
  thresholdOf,
  type FindingScope,
} from "./finding.js";
import { scoreRow } from "./legend-row.js";
import type { OutputOfKind, ResultKind } from "./kind.js";

export const classification: ResultKind<Classification, OutputOfKind<"classification">> = {
  gives: "classification",
  summary: ({ scores }) => `scores ${Array.from(scores, (score) => score.toFixed(4)).join(", ")}`,
  judgedBy: "score",
  interpret: (output, thresholds, { scores }, part) => {
    const { length } = output.labels;
    if (scores.length !== length) throw invalid(`${length} scores`, `${scores.length}`);
    return judged(output, thresholds, [...scores], part);
  },
  isOf: ({ box, score, area, volume }) =>
    box === undefined && score !== undefined && area === undefined && volume === undefined,
  row: (label, findings, _, scope) => scoreRow(label, findings, scope),
  overFrames: (output, thresholds, findings) => {
    const { over_frames: over, labels } = output;
    if (over === undefined) return {};
    const scores = labels.map(({ label }) =>
      TOGETHER[over](findings.flatMap((one) => (one.label === label ? (one.score ?? []) : []))),
    );
    const { findings: whole, warnings } = judged(output, thresholds, scores, {
      spacing: undefined,
    });
    return { findings: whole.map((one) => ({ ...one, over_frames: over })), warnings };
  },
};

const TOGETHER: Record<
  NonNullable<Classification["over_frames"]>,
  (scores: readonly number[]) => number
> = {
  maximum: (scores) => scores.reduce((a, b) => Math.max(a, b), -Infinity),
  mean: (scores) => scores.reduce((a, b) => a + b, 0) / scores.length,
  noisy_or: (scores) => 1 - scores.reduce((left, score) => left * (1 - score), 1),
};

function judged(
  { labels, decision }: Classification,
  thresholds: readonly number[],
  scores: readonly number[],
  part: FindingScope,
): { findings: Finding[]; warnings: Warning[] } {
  const ranked = scores.map((score) => finite(score)).sort((a, b) => b - a);
  const [highest = NaN, second = NaN] = ranked;
  const winner = decision === "highest" ? scores.indexOf(highest) : -1;
  const findings = labels.map((label, i): Finding => {
    const score = finite(scores[i]);
    const told = { ...labelFields(label, part), score };
    if (decision === "highest")
      return {
        ...told,
        present: i === winner,
        ...(i === winner ? { margin: highest - second } : {}),
      };
    const threshold = thresholdOf(label, thresholds[i]);
    return { ...told, threshold, present: isPresent(score, threshold) };
  });
  const equals = labels.filter((_, i) => scores[i] === highest).map(({ label }) => `"${label}"`);
  const tied = decision === "highest" && equals.length > 1;
  return { findings, warnings: tied ? [tie(equals, part)] : [] };
}

const tie = (equals: readonly string[], { frame }: FindingScope): Warning => ({
  code: "classes_tied",
  message: `The highest score is that of ${equals.join(" and ")}${frame === undefined ? "" : ` on frame ${frame}`}; the first of them is said to be there.`,
});
