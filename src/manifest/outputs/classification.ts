/** Scores of labels for an image or a volume. */
import { z } from "zod";
import { text } from "../texts.js";
import { labels } from "./fields.js";
import { scoreFaults } from "./graph-fit.js";
import { labelNames, type Kind } from "./kind.js";

const calibration = z.discriminatedUnion("kind", [
  z.strictObject({ kind: z.literal("none") }),
  z.strictObject({ kind: z.literal("temperature"), temperature: z.number().positive() }),
  z.strictObject({ kind: z.literal("platt"), a: z.number(), b: z.number() }),
  z.strictObject({
    kind: z.literal("isotonic"),
    x: z.array(z.number()).min(2),
    y: z.array(z.number().min(0).max(1)).min(2),
  }),
]);

const schema = z.strictObject({
  kind: z.literal("classification"),
  tensor: text,
  activation: z
    .enum(["none", "sigmoid", "softmax"])
    .describe(
      "softmax: over the classes, which lie along the last side of the tensor that is longer than one; [1, 25, 3] holds 25 times three classes",
    ),
  calibration,
  labels,
});
export type Classification = z.infer<typeof schema>;

export const classification: Kind<Classification> & { schema: typeof schema } = {
  schema,
  ...{ ofVolumes: true, placed: false, laidBack: true, canBeEmpty: false },
  ...{ blends: false, hasMean: true },
  noMeanAfterActivation: (output) =>
    output.calibration.kind === "temperature"
      ? "Calibration by temperature divides logits; expected before_activation"
      : undefined,
  labels: (output) => output.labels,
  names: (output) => labelNames(output.labels),
  needsThresholds: () => true,
  hasUnitScores: ({ activation, calibration: { kind } }) => activation !== "none" || kind !== "none",
  givesProbabilities: (output) => output.calibration.kind !== "none",
  checkWhole: ({ activation, calibration: curve }, _, issue) => {
    if (curve.kind === "temperature" && activation === "none")
      issue(
        ["calibration"],
        "Calibration by temperature divides logits: it needs the activation sigmoid or softmax",
      );
    if (curve.kind !== "isotonic") return;
    const { x, y } = curve;
    const rising = x.every((value, i) => i === 0 || value > (x[i - 1] ?? -Infinity));
    if (x.length !== y.length || !rising)
      issue(["calibration"], "Isotonic calibration needs rising x and as many y");
  },
  graphFaults: (output, graph) => scoreFaults(output.tensor, output.labels.length, "labels", graph),
  native: ({ tensor, activation, calibration: curve }) => ({ tensor, activation, calibration: curve }),
};
