/** Numbers with a unit. */
import type { Regression } from "../../manifest/outputs/regression.js";
import type { Code } from "../../manifest/texts.js";
import { finite, frameOf, invalid } from "./finding.js";
import type { OutputOfKind, ResultKind } from "./kind.js";

const STANDARD_DEVIATION: Code = {
  value: "386136009",
  scheme: "SCT",
  meaning: "Standard Deviation",
};
/** How far probabilities in float16 may be from 1 together. */
const ROUNDING = 0.01;

export const regression: ResultKind<Regression, OutputOfKind<"regression">> = {
  gives: "regression",
  summary: ({ values }) => `values ${Array.from(values, (value) => value.toFixed(4)).join(", ")}`,
  judgedBy: "score",
  interpret: ({ values }, _, { values: given }, part) => {
    const [first] = values;
    const expected = first?.bins?.length ?? values.length;
    if (given.length !== expected) throw invalid(`${expected} values`, `${given.length}`);
    const measurements = values.flatMap(({ name, code, unit, multiply, add, bins }, i) => {
      const told = (value: number) => ({
        ...(code && { code }),
        ...frameOf(part),
        value: finite(value),
        unit,
      });
      if (bins === undefined) return [{ name, ...told(given[i] ?? NaN) }];
      const { mean, sd } = distributed(bins, given);
      return [
        { name, ...told(mean * multiply + add) },
        { name: `${name}, SD`, ...told(sd * Math.abs(multiply)), derivation: STANDARD_DEVIATION },
      ];
    });
    return { measurements };
  },
  isOf: () => false,
};

/** @throws RadserveError output_invalid for scores that are no probabilities of the bins */
function distributed(bins: readonly number[], scores: Float32Array): { mean: number; sd: number } {
  const total = scores.reduce((sum, score) => sum + finite(score), 0);
  if (scores.some((score) => score < 0) || Math.abs(total - 1) > ROUNDING)
    throw invalid("scores of bins from 0 on that add up to 1", `${total} as their sum`);
  const expected = (of: (bin: number) => number) =>
    bins.reduce((sum, bin, i) => sum + (scores[i] ?? 0) * of(bin), 0) / total;
  const mean = expected((bin) => bin);
  return { mean, sd: Math.sqrt(expected((bin) => (bin - mean) ** 2)) };
}
