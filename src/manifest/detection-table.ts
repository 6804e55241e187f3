/** The columns of a tensor that holds boxes, scores and classes in one table, as detection networks are exported. */
import type { ModelOutput } from "./manifest.js";

export type DetectionTable = Extract<ModelOutput, { kind: "detection_table" }>;
export type Column = DetectionTable["columns"][number];
type BoxFormat = "xyxy" | "xywh" | "cxcywh";

/** The names of a box's four numbers, in the order of the format. */
const BOXES: Readonly<Record<BoxFormat, readonly Column[]>> = {
  xyxy: ["x1", "y1", "x2", "y2"],
  xywh: ["x", "y", "w", "h"],
  cxcywh: ["cx", "cy", "w", "h"],
};
const EVERY_BOX_COLUMN = new Set(Object.values(BOXES).flat());

/** Where everything stands in the tensor: numbers of columns, from 0. */
export interface TableLayout {
  format: BoxFormat;
  /** The box's numbers, in the order of the format. */
  box: number[];
  /** The one score, or the first of one score a label. */
  score: number;
  scoreALabel: boolean;
  classColumn?: number;
  objectness?: number;
  /** The first of the mask coefficients. */
  coefficients?: number;
  /** How many columns the tensor has. */
  columns: number;
}

type Columns = Pick<DetectionTable, "columns" | "labels" | "mask_coefficients">;

/** @throws RangeError for columns that `columnMistakes` refuses */
export function tableLayout({ columns, labels, mask_coefficients = 1 }: Columns): TableLayout {
  const starts = new Map<Column, number>();
  let count = 0;
  for (const column of columns) {
    starts.set(column, count);
    count +=
      column === "class_scores" ? labels.length : column === "mask_coefficients" ? mask_coefficients : 1;
  }
  const format = formatOf(columns);
  const score = starts.get("class_scores") ?? starts.get("score");
  if (format === undefined || score === undefined)
    throw new RangeError("Expected the columns of a box and of its scores.");
  const [classColumn, objectness] = [starts.get("class"), starts.get("objectness")];
  const coefficients = starts.get("mask_coefficients");
  return {
    format,
    box: BOXES[format].map((column) => starts.get(column) ?? -1),
    score,
    scoreALabel: starts.has("class_scores"),
    ...(classColumn === undefined ? {} : { classColumn }),
    ...(objectness === undefined ? {} : { objectness }),
    ...(coefficients === undefined ? {} : { coefficients }),
    columns: count,
  };
}

/** The one format whose four columns are there, without columns of another. */
function formatOf(columns: readonly Column[]): BoxFormat | undefined {
  const found = columns.filter((column) => EVERY_BOX_COLUMN.has(column));
  const formats = Object.keys(BOXES) as BoxFormat[];
  return formats.find(
    (format) => found.length === 4 && BOXES[format].every((column) => found.includes(column)),
  );
}

/** What is wrong with the columns of a table, and with what is said of them, by the field. */
export function columnMistakes(output: DetectionTable): { path: string[]; message: string }[] {
  const { columns, labels, scores } = output;
  const has = (column: Column) => columns.includes(column);
  const mistakes: { path: string[]; message: string }[] = [];
  const expect = (good: boolean, path: string[], message: string) => {
    if (!good) mistakes.push({ path, message });
  };
  const twice = columns.find((column, i) => column !== "unused" && columns.indexOf(column) !== i);
  expect(twice === undefined, ["columns"], `The column ${twice} is there twice`);
  expect(
    formatOf(columns) !== undefined,
    ["columns"],
    `Expected the four columns of one box format: ${Object.values(BOXES)
      .map((names) => names.join(" "))
      .join(", or ")}`,
  );
  expect(
    has("score") !== has("class_scores"),
    ["columns"],
    "Expected either score (one a box) or class_scores (one a label)",
  );
  expect(
    !has("class") || has("score"),
    ["columns"],
    "class names the label of the one score; class_scores have one for each label already",
  );
  expect(
    !has("score") || has("class") || labels.length === 1,
    ["columns"],
    `Expected a column class: one score a box does not tell which of the ${labels.length} labels it is`,
  );
  expect(
    has("class") === (output.classes !== undefined),
    ["classes"],
    has("class") ? "Expected the number of the first label" : "Only with a column class",
  );
  expect(
    has("objectness") === (output.objectness !== undefined),
    ["objectness"],
    has("objectness") ? "Expected its activation" : "Only with a column objectness",
  );
  expect(
    has("mask_coefficients") === (output.mask_coefficients !== undefined),
    ["mask_coefficients"],
    has("mask_coefficients") ? "Expected how many there are" : "Only with a column mask_coefficients",
  );
  expect(
    has("class_scores") === (scores.labels_per_box !== undefined),
    ["scores", "labels_per_box"],
    has("class_scores")
      ? "Expected one (a box is its best label's) or several (every label's whose threshold it reaches)"
      : "Only with class_scores",
  );
  expect(
    scores.activation !== "softmax" || has("class_scores"),
    ["scores", "activation"],
    "Softmax goes over one score a label; here there is one score a box",
  );
  return mistakes;
}
