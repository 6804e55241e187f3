/** A map that is shown over the picture, and finds nothing by itself. */
import { z } from "zod";
import { text } from "../texts.js";
import { activated, label, onInput } from "./fields.js";
import { mapFaults } from "./graph-fit.js";
import type { Kind } from "./kind.js";
import { mapCover } from "./map-cover.js";

const schema = z.strictObject({
  kind: z.literal("heatmap"),
  tensor: text,
  input: onInput,
  activation: z.enum(["none", "sigmoid"]),
  activated,
  label,
  ...mapCover,
});
export type Heatmap = z.infer<typeof schema>;

export const heatmap: Kind<Heatmap> & { schema: typeof schema } = {
  schema,
  ofVolumes: false,
  placed: true,
  laidBack: false,
  canBeEmpty: false,
  blends: true,
  hasMean: true,
  labels: (output) => [output.label],
  names: () => [],
  needsThresholds: () => false,
  hasUnitScores: () => false,
  checkWhole: (output, _, issue) => {
    if (output.activated !== undefined && output.activation === "none")
      issue(["activated"], "Only with the activation sigmoid");
  },
  graphFaults: (output, graph) => mapFaults(output, 1, "tensor", graph),
};
