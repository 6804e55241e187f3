/** Numbers with a unit for an image or a volume. */
import { z } from "zod";
import { code, text } from "../texts.js";
import { ignored } from "./fields.js";
import { scoreFaults } from "./graph-fit.js";
import type { Kind } from "./kind.js";

const BINS_MEANING =
  "The tensor holds a score for each of these values (ages, for example): the result is their " +
  "mean, weighted by the scores, and their standard deviation is given with it. For an output " +
  "with one value";

const schema = z.strictObject({
  kind: z.literal("regression"),
  tensor: text,
  activation: z
    .enum(["none", "softmax"])
    .optional()
    .describe("Activation of the scores of bins; none (default): they add up to 1 already"),
  ignored,
  values: z
    .array(
      z.strictObject({
        name: text,
        code: code.optional(),
        unit: code.describe("UCUM, for example mm"),
        multiply: z.number(),
        add: z.number(),
        bins: z.array(z.number()).min(2).max(4096).optional().describe(BINS_MEANING),
      }),
    )
    .min(1),
});
export type Regression = z.infer<typeof schema>;

export const regression: Kind<Regression> & { schema: typeof schema } = {
  schema,
  ofVolumes: true,
  placed: false,
  laidBack: true,
  canBeEmpty: false,
  blends: false,
  hasMean: true,
  labels: () => [],
  names: ({ values }) =>
    values.map(({ name }, i) => ({ what: "value", name, at: ["values", i, "name"] })),
  // Scores of bins are of one value
  ignoresFrom: ({ values }) => (values.some(({ bins }) => bins !== undefined) ? undefined : 0),
  needsThresholds: () => false,
  hasUnitScores: () => false,
  check: ({ values }, { final }, issue) => {
    if (!final) return;
    values.forEach(({ code: given }, i) => {
      if (given === undefined) issue(["values", i, "code"], "Required in stage final");
    });
  },
  checkWhole: ({ values, activation }, _, issue) => {
    const binned = values.filter(({ bins }) => bins !== undefined).length;
    if (binned > 0 && values.length > 1)
      issue(["values"], "Bins are of one value: expected an output for each");
    if (binned === 0 && activation === "softmax") issue(["activation"], "Only with bins");
  },
  graphFaults: (output, graph) =>
    scoreFaults(
      output.tensor,
      output.values[0]?.bins?.length ?? output.values.length + (output.ignored?.length ?? 0),
      "values",
      graph,
    ),
};
