/** Numbers with a unit. */
import type { Regression } from "../../manifest/outputs/regression.js";
import { finite, frameOf, invalid } from "./finding.js";
import type { Given, ResultKind } from "./kind.js";

export const regression: ResultKind<Regression, Given<"regression">> = {
  gives: "regression",
  summary: ({ values }) => `values ${Array.from(values, (value) => value.toFixed(4)).join(", ")}`,
  judgedBy: "score",
  interpret: ({ values }, _, { values: given }, part) => {
    if (given.length !== values.length) throw invalid(`${values.length} values`, `${given.length}`);
    const measurements = values.map(({ name, code, unit }, i) => ({
      name,
      ...(code === undefined ? {} : { code }),
      ...frameOf(part),
      value: finite(given[i]),
      unit,
    }));
    return { measurements };
  },
  isOf: () => false,
};
