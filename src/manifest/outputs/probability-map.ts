/** Boxes round the regions of a map, as networks that find text give one. */
import { z } from "zod";
import { text } from "../texts.js";
import { label, maxBoxes, onInput, score } from "./fields.js";
import { mapFaults } from "./graph-fit.js";
import { labelNames, type Kind } from "./kind.js";
import { mapCover } from "./map-cover.js";

const schema = z
  .strictObject({
    kind: z.literal("probability_map"),
    tensor: text,
    input: onInput,
    activation: z.enum(["none", "sigmoid"]),
    threshold: score.describe("Pixels at or above it belong to a region"),
    minimum_area: z.number().min(0).describe("In pixels of the map"),
    unclip: z
      .number()
      .min(0)
      .describe(
        "Boxes grow by area * unclip / perimeter on each side (Liao et al. 2020, section 3.4); 0: not at all",
      ),
    max_boxes: maxBoxes,
    label,
    ...mapCover,
  })
  .describe(
    "Regions of a map become boxes; the label's threshold applies to the mean probability of the region",
  );
export type ProbabilityMap = z.infer<typeof schema>;

export const probabilityMap: Kind<ProbabilityMap> & { schema: typeof schema } = {
  schema,
  ofVolumes: false,
  placed: true,
  laidBack: true,
  canBeEmpty: true,
  blends: true,
  hasMean: true,
  labels: (output) => [output.label],
  names: (output) => labelNames([output.label], true),
  needsThresholds: () => true,
  hasUnitScores: () => true,
  graphFaults: (output, graph) => mapFaults(output, 1, "tensor", graph),
};
