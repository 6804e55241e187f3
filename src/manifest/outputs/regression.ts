/** Numbers with a unit for an image or a volume. */
import { z } from "zod";
import { code, text } from "../texts.js";
import { scoreFaults } from "./graph-fit.js";
import type { Kind } from "./kind.js";

const schema = z.strictObject({
  kind: z.literal("regression"),
  tensor: text,
  values: z
    .array(
      z.strictObject({
        name: text,
        code: code.optional(),
        unit: code.describe("UCUM, for example mm"),
        multiply: z.number(),
        add: z.number(),
      }),
    )
    .min(1),
});
export type Regression = z.infer<typeof schema>;

export const regression: Kind<Regression> & { schema: typeof schema } = {
  schema,
  ...{ ofVolumes: true, placed: false, laidBack: true, canBeEmpty: false },
  ...{ blends: false, hasMean: true },
  labels: () => [],
  names: ({ values }) => values.map(({ name }, i) => ({ what: "value", name, at: ["values", i, "name"] })),
  needsThresholds: () => false,
  hasUnitScores: () => false,
  check: ({ values }, { final }, issue) => {
    if (!final) return;
    values.forEach(({ code: given }, i) => {
      if (given === undefined) issue(["values", i, "code"], "Required in stage final");
    });
  },
  graphFaults: (output, graph) => scoreFaults(output.tensor, output.values.length, "values", graph),
  native: ({ tensor, values }) => ({
    tensor,
    activation: "none",
    multiply: values.map(({ multiply }) => multiply),
    add: values.map(({ add }) => add),
  }),
};
