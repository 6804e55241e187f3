/** A map that is shown over the picture, and finds nothing by itself. */
import { z } from "zod";
import { text } from "../texts.js";
import { label, onInput } from "./fields.js";
import { mapFaults } from "./graph-fit.js";
import type { Kind } from "./kind.js";

const schema = z.strictObject({
  kind: z.literal("heatmap"),
  tensor: text,
  input: onInput,
  activation: z.enum(["none", "sigmoid"]),
  label,
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
  graphFaults: (output, graph) => mapFaults(output.tensor, 1, "tensor", graph),
};
