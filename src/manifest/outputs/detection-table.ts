/**
 * The columns of a tensor that holds boxes, scores and classes in one table, as detection networks
 * are exported.
 */
import { z } from "zod";
import { text } from "../texts.js";
import { NO_PIXELS, OF_BOXES, toBoxes } from "./detection.js";
import { ignored, labels, maxBoxes, normalised, onInput, pixelsOf, score } from "./fields.js";
import {
  isFault,
  outputTensor,
  tensorText,
  type Fault,
  type AnyOutput,
  type GraphSide,
} from "./graph-fit.js";
import { columnsOf, SOFTMAX_OF_ONE, type Kind } from "./kind.js";

const ANGLES = [
  "radians_clockwise",
  "radians_counterclockwise",
  "degrees_clockwise",
  "degrees_counterclockwise",
] as const;

const OVERLAP_MEANING =
  "Required for rotated boxes. polygon: intersection over union of their outlines; " +
  "probabilistic: of Gaussian distributions instead of outlines (probiou of Ultralytics)";

const nmsFields = {
  per_class: z.boolean().describe("Among the boxes of each label, instead of among all"),
  overlap: z.enum(["polygon", "probabilistic"]).optional().describe(OVERLAP_MEANING),
};

const COLUMNS_MEANING =
  "What the tensor's columns are, in their order. The box: x1 y1 x2 y2 (edges), or x y w h (x " +
  "and y of the upper left corner), or cx cy w h (x and y of the centre). Then score (one a " +
  "box) with class (a number), or class_scores, which is one column for each label, in the " +
  "order of labels; objectness is multiplied with every score; mask_coefficients stands for as " +
  "many columns as the field of that name says; angle is how much a box cx cy w h is turned; " +
  "unused may be there more than once";
const LABELS_PER_BOX_MEANING =
  "With class_scores. one: a box is a finding of its best label; several: of every label whose " +
  "threshold it reaches";
const ANGLE_MEANING =
  "With a column angle: its unit, and the way in which a positive one turns the box's width " +
  "from the rows of the image, as seen. radians_clockwise: Ultralytics (OBB), MMRotate; " +
  "degrees_counterclockwise: Detectron2";
const IOU_MEANING =
  "A box goes if it shares more than this with a better one, whether that stays or not " +
  "(YOLACT; Ultralytics for turned boxes)";

const schema = z
  .strictObject({
    kind: z.literal("detection_table"),
    tensor: text,
    input: onInput,
    axes: z
      .enum(["boxes_columns", "columns_boxes"])
      .describe(
        "boxes_columns: [1, boxes, columns]; columns_boxes: [1, columns, boxes], as YOLOv8 is exported",
      ),
    columns: z
      .array(
        z.enum([
          ...(["x1", "y1", "x2", "y2", "x", "y", "w", "h", "cx", "cy"] as const),
          ...([
            "score",
            "class",
            "objectness",
            "class_scores",
            "mask_coefficients",
            "unused",
          ] as const),
          "angle",
        ]),
      )
      .min(5)
      .max(4096)
      .describe(COLUMNS_MEANING),
    normalised,
    pixels_of: pixelsOf,
    scores: z.strictObject({
      activation: z
        .enum(["none", "sigmoid", "softmax"])
        .describe(
          "none: they are probabilities already; anything else than 0 to 1 is an error then",
        ),
      labels_per_box: z.enum(["one", "several"]).optional().describe(LABELS_PER_BOX_MEANING),
    }),
    mask_coefficients: z
      .int()
      .min(1)
      .max(1024)
      .optional()
      .describe(
        "With a column mask_coefficients: the number of coefficients, one for each prototype",
      ),
    angle: z.enum(ANGLES).optional().describe(ANGLE_MEANING),
    objectness: z.strictObject({ activation: z.enum(["none", "sigmoid"]) }).optional(),
    classes: z
      .strictObject({ first: z.int().min(0).describe("Number of the first label") })
      .optional()
      .describe("With a column class"),
    nms: z
      .discriminatedUnion("kind", [
        z
          .strictObject({ kind: z.literal("none") })
          .describe("The graph has done it, or needs none"),
        z.strictObject({
          kind: z.literal("greedy"),
          iou: score.describe(
            "A box goes if it shares more than this with a better one that stays",
          ),
          ...nmsFields,
        }),
        z.strictObject({
          kind: z.literal("fast"),
          iou: score.describe(IOU_MEANING),
          ...nmsFields,
        }),
      ])
      .describe(
        "Non-maximum suppression, of what reaches its threshold; greedy is the same as torchvision.ops.nms",
      ),
    max_boxes: maxBoxes,
    labels,
    ignored,
  })
  .describe(
    "Boxes, scores and classes in the columns of one tensor, as detection networks are exported",
  );
export type DetectionTable = z.infer<typeof schema>;
export type Column = DetectionTable["columns"][number];

export const detectionTable: Kind<DetectionTable> & { schema: typeof schema } = {
  schema,
  ...OF_BOXES,
  hasUnitScores: () => true,
  inSource: ({ pixels_of: of }) => of === "source",
  checkWhole: (output, _, issue) => {
    for (const { path, message } of columnMistakes(output)) issue(path, message);
  },
  graphFaults,
  decoding: (output, thresholds) => {
    const { tensor, axes, columns, normalised: relative, scores, objectness, classes } = output;
    const { mask_coefficients, angle, max_boxes, pixels_of: of, ignored: none } = output;
    const { kind, ...nms } = output.nms;
    return [
      {
        step: "table",
        tensor,
        axes,
        columns,
        normalised: relative,
        ...(of === undefined ? {} : { pixels_of: of }),
        ...(mask_coefficients === undefined ? {} : { mask_coefficients }),
        ...(angle === undefined ? {} : { angle }),
      },
      {
        step: "scores",
        ...scores,
        ...(classes === undefined ? {} : { classes }),
        ...(none === undefined ? {} : { ignored: none }),
      },
      ...(objectness === undefined ? [] : [{ step: "multiply_objectness", ...objectness }]),
      ...toBoxes(
        thresholds,
        "iou" in nms ? { ...(kind === "fast" ? { kind } : {}), ...nms } : undefined,
        max_boxes,
      ),
    ];
  },
};

export const isDetectionTable = (output: AnyOutput): output is DetectionTable =>
  output.kind === "detection_table";

type BoxFormat = "xyxy" | "xywh" | "cxcywh";

/** The names of a box's four numbers, in the order of the format. */
const BOXES: Readonly<Record<BoxFormat, readonly Column[]>> = {
  xyxy: ["x1", "y1", "x2", "y2"],
  xywh: ["x", "y", "w", "h"],
  cxcywh: ["cx", "cy", "w", "h"],
};
const EVERY_BOX_COLUMN = new Set(Object.values(BOXES).flat());

type Columns = Pick<DetectionTable, "columns" | "labels" | "ignored" | "mask_coefficients">;

/** How many columns the tensor has. */
const sideOf = ({ columns, mask_coefficients = 1, ...scored }: Columns): number =>
  columns.reduce((sum, column) => {
    if (column === "class_scores") return sum + columnsOf(scored);
    return sum + (column === "mask_coefficients" ? mask_coefficients : 1);
  }, 0);

/** The one format whose four columns are there, without columns of another. */
function formatOf(columns: readonly Column[]): BoxFormat | undefined {
  const found = columns.filter((column) => EVERY_BOX_COLUMN.has(column));
  const formats = Object.keys(BOXES) as BoxFormat[];
  return formats.find(
    (format) => found.length === 4 && BOXES[format].every((column) => found.includes(column)),
  );
}

/** Faults of the columns of a table, and of the fields about them, by the field. */
function columnMistakes(output: DetectionTable): { path: string[]; message: string }[] {
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
  for (const [column, field, wanted] of [
    ["class", "classes", "the number of the first label"],
    ["objectness", "objectness", "its activation"],
    ["mask_coefficients", "mask_coefficients", "how many there are"],
    ["angle", "angle", `how it is counted: ${ANGLES.join(", ")}`],
  ] as const)
    expect(
      has(column) === (output[field] !== undefined),
      [field],
      has(column) ? `Expected ${wanted}` : `Only with a column ${column}`,
    );
  expect(output.pixels_of === undefined || !output.normalised, ["pixels_of"], NO_PIXELS);
  expect(!has("angle") || has("cx"), ["columns"], "A turned box is cx cy w h");
  expect(
    !has("angle") || !output.normalised,
    ["normalised"],
    "Expected false: the sides of a turned box lie along no side of the tensor",
  );
  expect(!has("angle") || !has("mask_coefficients"), ["columns"], "Turned boxes have no masks");
  expect(
    output.nms.kind === "none" || has("angle") === (output.nms.overlap !== undefined),
    ["nms", "overlap"],
    has("angle")
      ? "Expected polygon or probabilistic: boxes are turned"
      : "Only with a column angle",
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
  expect(
    scores.activation !== "softmax" || !has("class_scores") || columnsOf(output) > 1,
    ["scores", "activation"],
    SOFTMAX_OF_ONE,
  );
  return mistakes;
}

/** Read the other way round, the numbers of a table would be another box's. */
function graphFaults(output: DetectionTable, { tensors }: GraphSide): Fault[] {
  const info = outputTensor(output.tensor, tensors, ["tensor"]);
  if (isFault(info)) return [info];
  if (columnMistakes(output).length > 0) return [];
  const { shape } = info;
  const found = `found the graph's "${info.name}" as ${tensorText(info)}`;
  const columns = sideOf(output);
  const rows = output.axes === "boxes_columns";
  if ((shape.length !== 2 && shape.length !== 3) || (shape.length === 3 && (shape[0] ?? 0) > 1)) {
    const message = `Expected [1, ${rows ? `boxes, ${columns}` : `${columns}, boxes`}], ${found}`;
    return [{ path: ["tensor"], message }];
  }
  const [side = -1, other = -1] = [shape.at(rows ? -1 : -2), shape.at(rows ? -2 : -1)];
  if (side < 0 || side === columns) return [];
  const turned =
    other === columns
      ? `. Its other axis has ${columns}: is axes "${rows ? "columns_boxes" : "boxes_columns"}"?`
      : "";
  const message = `Expected ${columns} columns, with one for each of the ${columnsOf(output)} ${output.ignored === undefined ? "labels" : "labels and ignored classes"} in class_scores; ${found}${turned}`;
  return [{ path: ["columns"], message }];
}
