/** The places of named points, one for each label, as networks that find landmarks give them. */
import { z } from "zod";
import { text } from "../texts.js";
import { labels, normalised, onInput } from "./fields.js";
import { isFault, mapFaults, outputTensor, unfit, type Fault, type GraphSide } from "./graph-fit.js";
import { labelNames, type Kind, type Report } from "./kind.js";

const table = z
  .strictObject({
    columns: z
      .array(z.enum(["x", "y", "score", "unused"]))
      .min(2)
      .max(64)
      .describe("What the numbers of a label are, in their order; unused may be there more than once"),
    normalised,
    counted_from: z
      .enum(["edges", "centres"])
      .describe(
        "edges: 0 is the outer edge of the input tensor's first pixel, and its middle is 0.5; centres: 0 is the middle of the first pixel, and of normalised ones 1 is that of the last",
      ),
  })
  .describe(
    "The tensor is [1, labels, columns], or the same in one row. Without this field it holds heatmaps [1, labels, height, width] over the input tensor, and a label's point is the middle of the pixel with the highest value, the first of equal ones, which is its score",
  );

const schema = z.strictObject({
  kind: z.literal("keypoints"),
  tensor: text,
  input: onInput,
  table: table.optional(),
  activation: z.enum(["none", "sigmoid"]).describe("Of the scores"),
  labels: labels.describe("One for each point; without a column score no label has a threshold"),
});
export type Keypoints = z.infer<typeof schema>;

/** Points of a table without a column for it have no score, and are always there. */
export const hasScores = ({ table }: Keypoints): boolean =>
  table === undefined || table.columns.includes("score");

export const keypoints: Kind<Keypoints> & { schema: typeof schema } = {
  schema,
  ...{ ofVolumes: false, placed: true, laidBack: true, canBeEmpty: true },
  ...{ blends: false, hasMean: false },
  labels: (output) => output.labels,
  names: (output) => labelNames(output.labels),
  needsThresholds: hasScores,
  hasUnitScores: ({ activation }) => activation === "sigmoid",
  checkWhole: (output, _, issue) => {
    if (output.table !== undefined) checkColumns(output.table.columns, issue);
    if (hasScores(output)) return;
    if (output.activation !== "none") issue(["activation"], "Expected none: there is no column score");
    output.labels.forEach(({ threshold }, i) => {
      if (threshold !== undefined)
        issue(["labels", i, "threshold"], "Only with a column score, which it would be compared with");
    });
  },
  graphFaults: (output, graph) =>
    output.table === undefined
      ? mapFaults(output.tensor, output.labels.length, "labels", graph)
      : tableFaults(output, output.table.columns.length, graph),
  native: ({ tensor, activation, table: found }) => ({
    ...{ tensor, activation },
    ...(found === undefined ? {} : { table: nativeTable(found) }),
  }),
  decoding: ({ tensor, table: found, activation }, thresholds) => [
    found === undefined ? { step: "heatmaps", tensor } : { step: "table", tensor, ...found },
    { step: "scores", activation },
    { step: "thresholds", at_or_above: thresholds },
    { step: "to_source", counted_from: "edges" },
  ],
};

type Table = z.infer<typeof table>;

function nativeTable({ columns, normalised: relative, counted_from }: Table) {
  const [x, y, score] = (["x", "y", "score"] as const).map((column) => columns.indexOf(column));
  return {
    ...{ columns: columns.length, x, y, normalised: relative, centres: counted_from === "centres" },
    ...(score === -1 ? {} : { score }),
  };
}

function checkColumns(columns: Table["columns"], issue: Report): void {
  for (const column of ["x", "y", "score"] as const) {
    const count = columns.filter((one) => one === column).length;
    if (count > 1) issue(["table", "columns"], `The column ${column} is there ${count} times`);
    if (count === 0 && column !== "score") issue(["table", "columns"], `Expected a column ${column}`);
  }
}

/** Read the other way round, the numbers of a label would be those of several. */
function tableFaults(output: Keypoints, columns: number, { tensors }: GraphSide): Fault[] {
  const info = outputTensor(output.tensor, tensors, ["tensor"]);
  if (isFault(info)) return [info];
  const numbers = output.labels.length * columns;
  const sides = info.shape.filter((side, i) => i > 0 || info.shape.length === 1 || side > 1);
  if (sides.some((side) => side < 0)) return [];
  const fits = sides.reduce((a, b) => a * b, 1) === numbers;
  if (fits && [columns, numbers].includes(sides.at(-1) ?? -1)) return [];
  return [unfit("table", `[1, ${output.labels.length} labels, ${columns} columns]`, info)];
}
