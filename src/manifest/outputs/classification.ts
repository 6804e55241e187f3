/** Scores of labels for an image or a volume. */
import { z } from "zod";
import { text } from "../texts.js";
import { ignored, labels } from "./fields.js";
import { scoreFaults, unfit, type Fault, type GraphSide } from "./graph-fit.js";
import { columnsOf, labelNames, SOFTMAX_OF_ONE, type Kind } from "./kind.js";

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

const ACTIVATION_MEANING =
  "softmax: over the classes, which lie along the last side of the tensor that is longer than " +
  "one; [1, 25, 3] holds 25 times three classes";
const DECISION_MEANING =
  "thresholds (where absent): each label is present at or above its own; highest: of labels " +
  "that exclude each other the one with the highest score is present, with its margin to the " +
  "second, and no label has a threshold";
const OVER_FRAMES_MEANING =
  "For a multi-frame image, or a series taken slice by slice: one more finding for each label, " +
  "from its scores over all frames: their maximum, their mean, or noisy_or (1 minus the " +
  "product of 1 minus each probability, as if frames were independent)";

const schema = z.strictObject({
  kind: z.literal("classification"),
  tensor: text,
  activation: z.enum(["none", "sigmoid", "softmax"]).describe(ACTIVATION_MEANING),
  calibration,
  labels,
  ignored,
  decision: z.enum(["thresholds", "highest"]).optional().describe(DECISION_MEANING),
  over_frames: z.enum(["maximum", "mean", "noisy_or"]).optional().describe(OVER_FRAMES_MEANING),
});
export type Classification = z.infer<typeof schema>;

export const classification: Kind<Classification> & { schema: typeof schema } = {
  schema,
  ofVolumes: true,
  placed: false,
  laidBack: true,
  canBeEmpty: false,
  blends: false,
  hasMean: true,
  ignoresFrom: () => 0,
  noMeanAfterActivation: (output) =>
    output.calibration.kind === "temperature"
      ? "Calibration by temperature divides logits; expected before_activation"
      : undefined,
  labels: (output) => output.labels,
  names: (output) => labelNames(output.labels),
  needsThresholds: ({ decision }) => decision !== "highest",
  hasUnitScores: ({ activation, calibration: { kind } }) =>
    activation !== "none" || kind !== "none",
  givesProbabilities: (output) => output.calibration.kind !== "none",
  checkWhole: (output, { volume }, issue) => {
    const { activation, calibration: curve, labels: list, decision, over_frames: over } = output;
    if (decision === "highest") {
      if (list.length < 2) issue(["labels"], "The highest of labels needs two or more");
      if (output.ignored !== undefined)
        issue(
          ["ignored"],
          "Expected none with decision highest: where a class that is not a label has the highest score, no label may be there. Give each label a threshold",
        );
      list.forEach(({ threshold }, i) => {
        if (threshold !== undefined)
          issue(["labels", i, "threshold"], "Expected none: the highest score decides");
      });
    }
    if (activation === "softmax" && columnsOf(output) === 1) issue(["activation"], SOFTMAX_OF_ONE);
    if (over !== undefined && volume) issue(["over_frames"], "A volume has one score already");
    if (over === "noisy_or" && !classification.hasUnitScores(output))
      issue(
        ["over_frames"],
        "noisy_or is of probabilities: expected an activation or a calibration",
      );
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
  graphFaults: (output, graph) => [
    ...scoreFaults(output.tensor, columnsOf(output), "labels", graph),
    ...groupFaults(output, graph),
  ],
};

/** The highest of all scores decides nothing where they are of several groups. */
function groupFaults(
  { tensor, decision, labels: list }: Classification,
  graph: GraphSide,
): Fault[] {
  const info = graph.tensors.find(({ name }) => name === tensor);
  const classes = info?.shape.findLast((side) => side !== 1) ?? -1;
  if (info === undefined || decision !== "highest" || classes < 0 || classes === list.length)
    return [];
  return [
    unfit("decision", `one group of ${list.length} scores, of which the highest decides`, info),
  ];
}
