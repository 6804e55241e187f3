/** The places of named points, one for each label, as networks that find landmarks give them. */
import { z } from "zod";
import { code, text } from "../texts.js";
import { NO_PIXELS } from "./detection.js";
import { ignored, labels, normalised, onInput, pixelsOf, type Label } from "./fields.js";
import {
  isFault,
  mapFaults,
  outputTensor,
  unfit,
  type Fault,
  type GraphSide,
} from "./graph-fit.js";
import { columnsOf, labelNames, type Kind, type UniqueName, type Report } from "./kind.js";
import { mapCover } from "./map-cover.js";

const TABLE_MEANING =
  "The tensor is [1, labels, columns], or the same in one row. Without this field it holds " +
  "heatmaps [1, labels, height, width] over the input tensor, and a label's point is the " +
  "middle of the pixel with the highest value, the first of equal ones, which is its score";
const COUNTED_FROM_MEANING =
  "edges: 0 is the outer edge of the input tensor's first pixel, and its middle is 0.5; " +
  "centres: 0 is the middle of the first pixel, and of normalised ones 1 is that of the last";

const table = z
  .strictObject({
    columns: z
      .array(z.enum(["x", "y", "score", "unused"]))
      .min(2)
      .max(64)
      .describe("Meaning of the numbers of a label, in order; unused may stand more than once"),
    normalised,
    pixels_of: pixelsOf,
    counted_from: z.enum(["edges", "centres"]).describe(COUNTED_FROM_MEANING),
  })
  .describe(TABLE_MEANING);

const point = z.string().min(1).max(64);
const line = z.tuple([point, point]);
const corner = z.tuple([point, point, point]);
const lines = z.tuple([point, point, point, point]);
const named = {
  name: point.describe("Name of the measurement, unique in the model"),
  code: code.optional().describe("What is measured; required in stage final"),
};
const along = z
  .union([z.enum(["rows", "columns"]), line])
  .optional()
  .describe(
    "Distances are counted along the image's rows or columns, or the line through two points, instead of straight",
  );

const MEASURE_MEANING =
  "A number that is made of points. distance: between two, mm; line_distance: of the first " +
  "from the straight line through the other two, mm; angle: at the second, between the lines " +
  "to the first and the third, 0 to 180 degrees; line_angle: between the direction from the " +
  "first to the second and that from the third to the fourth, as the angle of Cobb, 0 to 180 " +
  "degrees; ratio: the distance of the first two by that of the other two, times 100 with " +
  "percent, and below 0 where they lie the other way round along a line. Distances are in " +
  "pixels, with a warning, where the image does not tell the size of its pixels in the " +
  "patient; all are in the patient's proportions where pixels are not square. If a point is " +
  "not there nothing is measured, which a warning says";

const measure = z
  .discriminatedUnion("type", [
    z.strictObject({ ...named, type: z.literal("distance"), points: line, along }),
    z.strictObject({ ...named, type: z.literal("line_distance"), points: corner }),
    z.strictObject({ ...named, type: z.literal("angle"), points: corner }),
    z.strictObject({ ...named, type: z.literal("line_angle"), points: lines }),
    z.strictObject({
      ...named,
      type: z.literal("ratio"),
      points: lines,
      along,
      percent: z.boolean(),
    }),
  ])
  .describe(MEASURE_MEANING);
export type Measure = z.infer<typeof measure>;

const schema = z.strictObject({
  kind: z.literal("keypoints"),
  tensor: text,
  input: onInput,
  table: table.optional(),
  ...mapCover,
  activation: z.enum(["none", "sigmoid"]).describe("Activation of the scores"),
  labels: labels.describe("One for each point; without a column score no label has a threshold"),
  ignored,
  measures: z.array(measure).min(1).max(255).optional(),
});
export type Keypoints = z.infer<typeof schema>;

/** Points of a table without a column for it have no score, and are always there. */
export const hasScores = ({ table }: Keypoints): boolean =>
  table === undefined || table.columns.includes("score");

export const keypoints: Kind<Keypoints> & { schema: typeof schema } = {
  schema,
  ofVolumes: false,
  placed: true,
  laidBack: true,
  canBeEmpty: true,
  blends: false,
  hasMean: false,
  labels: (output) => output.labels,
  names: ({ labels: list, measures = [] }) => [
    ...labelNames(list),
    ...measures.map(({ name }, i): UniqueName => ({
      what: "value",
      name,
      at: ["measures", i, "name"],
    })),
  ],
  needsThresholds: hasScores,
  ignoresFrom: () => 0,
  inSource: ({ table: found }) => found?.pixels_of === "source",
  hasUnitScores: ({ activation }) => activation === "sigmoid",
  checkWhole: (output, { final }, issue) => {
    output.measures?.forEach((one, i) =>
      checkMeasure(one, output.labels, final, (path, message) =>
        issue(["measures", i, ...path], message),
      ),
    );
    if (output.table !== undefined) checkColumns(output.table.columns, issue);
    if (output.table?.pixels_of !== undefined && output.table.normalised)
      issue(["table", "pixels_of"], NO_PIXELS);
    if (output.table !== undefined && output.covers !== undefined)
      issue(["covers"], "Only of heatmaps: a table has no sides");
    if (hasScores(output)) return;
    if (output.activation !== "none")
      issue(["activation"], "Expected none: there is no column score");
    output.labels.forEach(({ threshold }, i) => {
      if (threshold !== undefined)
        issue(
          ["labels", i, "threshold"],
          "Only with a column score, which it would be compared with",
        );
    });
  },
  graphFaults: (output, graph) =>
    output.table === undefined
      ? mapFaults(output, columnsOf(output), "labels", graph)
      : tableFaults(output, output.table.columns.length, graph),
  decoding: ({ tensor, table: found, activation, measures }, thresholds) => [
    found === undefined ? { step: "heatmaps", tensor } : { step: "table", tensor, ...found },
    { step: "scores", activation },
    { step: "thresholds", at_or_above: thresholds },
    { step: "to_source", counted_from: "edges" },
    ...(measures === undefined ? [] : [{ step: "measures", of: measures }]),
  ],
};

function checkMeasure(one: Measure, list: readonly Label[], final: boolean, issue: Report): void {
  const labelled = list.map(({ label }) => label);
  const unknown = (name: string, path: (string | number)[]) => {
    if (!labelled.includes(name))
      issue(path, `No label is called "${name}"; labels are ${labelled.join(", ")}`);
  };
  one.points.forEach((name, i) => unknown(name, ["points", i]));
  const across = "along" in one && Array.isArray(one.along) ? one.along : [];
  across.forEach((name, i) => unknown(name, ["along", i]));
  const pairs =
    one.points.length === 4 ? [one.points.slice(0, 2), one.points.slice(2)] : [one.points];
  if ([...pairs, across].some((some) => new Set(some).size < some.length))
    issue(["points"], "Expected different points: a line from a point to itself has no direction");
  if (final && one.code === undefined) issue(["code"], "Required in stage final");
}

type Table = z.infer<typeof table>;

function checkColumns(columns: Table["columns"], issue: Report): void {
  for (const column of ["x", "y", "score"] as const) {
    const count = columns.filter((one) => one === column).length;
    if (count > 1) issue(["table", "columns"], `The column ${column} is there ${count} times`);
    if (count === 0 && column !== "score")
      issue(["table", "columns"], `Expected a column ${column}`);
  }
}

/** Read the other way round, the numbers of a label would be those of several. */
function tableFaults(output: Keypoints, columns: number, { tensors }: GraphSide): Fault[] {
  const info = outputTensor(output.tensor, tensors, ["tensor"]);
  if (isFault(info)) return [info];
  const points = columnsOf(output);
  const numbers = points * columns;
  const sides = info.shape.filter((side, i) => i > 0 || info.shape.length === 1 || side > 1);
  if (sides.some((side) => side < 0)) return [];
  const fits = sides.reduce((a, b) => a * b, 1) === numbers;
  if (fits && [columns, numbers].includes(sides.at(-1) ?? -1)) return [];
  return [unfit("table", `[1, ${points} labels, ${columns} columns]`, info)];
}
