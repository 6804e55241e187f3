/** Scores of labels. */
import type { Classification } from "../../manifest/outputs/classification.js";
import { finite, invalid, isPresent, named, thresholdOf } from "./finding.js";
import { highest, partOf, scoreText } from "./legend-row.js";
import type { Given, ResultKind } from "./kind.js";

export const classification: ResultKind<Classification, Given<"classification">> = {
  gives: "classification",
  judgedBy: "score",
  interpret: ({ labels }, thresholds, { scores }, part) => {
    if (scores.length !== labels.length) throw invalid(`${labels.length} scores`, `${scores.length}`);
    const findings = labels.map((label, i) => {
      const score = finite(scores[i]);
      const threshold = thresholdOf(label, thresholds[i]);
      return { ...named(label, part), score, threshold, present: isPresent(score, threshold) };
    });
    return { findings };
  },
  isOf: ({ box, score, area, volume }) =>
    box === undefined && score !== undefined && area === undefined && volume === undefined,
  row: (label, findings, _, scope) => {
    const present = findings.some((f) => f.present);
    const row = { label, present, colour: undefined, hollow: true, scored: true, gauge: undefined };
    const best = highest(findings, (f) => f.score ?? -Infinity);
    const { score, threshold } = best ?? {};
    if (score === undefined || threshold === undefined) return { ...row, value: "" };
    const within = score >= 0 && score <= 1 && threshold >= 0 && threshold <= 1;
    const value = scoreText(score, threshold, present);
    return {
      ...row,
      value: scope.frames === 1 ? value : `highest ${value}${partOf(best, findings, scope)}`,
      gauge: within ? { score, threshold } : undefined,
    };
  },
};
