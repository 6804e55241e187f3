/** Scores of labels. */
import type { Classification } from "../../manifest/outputs/classification.js";
import { finite, invalid, isPresent, named, thresholdOf } from "./finding.js";
import { scoreRow } from "./legend-row.js";
import type { Given, ResultKind } from "./kind.js";

export const classification: ResultKind<Classification, Given<"classification">> = {
  gives: "classification",
  summary: ({ scores }) => `scores ${Array.from(scores, (score) => score.toFixed(4)).join(", ")}`,
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
  row: (label, findings, _, scope) => scoreRow(label, findings, scope),
};
