/** Boxes in volumes: from a graph that lists them, or from the maps of one with anchors (MONAI's RetinaNet). */
import { z } from "zod";
import { text } from "../texts.js";
import { OF_BOXES, toBoxes } from "./detection.js";
import { labels, maxBoxes, normalised, onInput, score } from "./fields.js";
import { isFault, outputTensor, tensorText, type Fault, type GraphSide } from "./graph-fit.js";
import type { Kind, NativeFields, Report } from "./kind.js";

const AXES = ["depth", "height", "width"] as const;
const PARTS = ["min", "max", "centre", "size"] as const;
type Axis = (typeof AXES)[number];

const COLUMNS = AXES.flatMap((axis) => PARTS.map((part) => `${axis}_${part}` as const));
/** What two numbers of a box along an axis are together. */
const FORMS = { edges: ["min", "max"], centre: ["centre", "size"], start: ["min", "size"] } as const;

const listed = z
  .strictObject({
    kind: z.literal("listed"),
    tensor: text.describe("[1, boxes, 6], or without the 1"),
    columns: z
      .array(z.enum(COLUMNS))
      .length(6)
      .describe(
        "What the six numbers of a box are, in their order: along each axis of the input tensor min and max, or centre and size, or min and size. Boxes xyzxyz of a graph whose tensor is [1, channels, x, y, z] are depth_min height_min width_min depth_max height_max width_max",
      ),
    normalised,
    scores: z.strictObject({ tensor: text, activation: z.enum(["none", "sigmoid", "softmax"]) }),
    classes: z
      .strictObject({ tensor: text, first: z.int().min(0).describe("Number of the first label") })
      .optional()
      .describe("Without it, scores hold one column a label"),
  })
  .describe("The graph ends in boxes, in voxels of its input; it cannot know where these lie in the patient");

const anchors = z
  .strictObject({
    kind: z.literal("anchors"),
    levels: z
      .array(
        z.strictObject({
          scores: text.describe("[1, anchors * labels, depth, height, width]"),
          boxes: text.describe("[1, anchors * 6, depth, height, width]"),
          anchors: z
            .array(z.array(z.number().min(1)).length(3))
            .min(1)
            .max(64)
            .describe(
              "Sides of each anchor along depth, height and width, in voxels of the input tensor (MONAI: base_anchor_shapes times the level's feature_map_scales); half a side is rounded to whole voxels, halves to even",
            ),
        }),
      )
      .min(1)
      .max(16),
    activation: z.enum(["none", "sigmoid"]).describe("Of the scores"),
    coder: z
      .array(z.number().positive())
      .length(6)
      .describe("By what the network's numbers are divided (weights of the BoxCoder; MONAI: 1 1 1 1 1 1)"),
  })
  .describe(
    "The graph gives scores and moves of anchors on maps of several levels, as MONAI's RetinaNet does; a map's place lies in the middle of the voxels that it stands for, cut off to a whole one",
  );

const schema = z
  .strictObject({
    kind: z.literal("volume_detection"),
    input: onInput,
    boxes: z.discriminatedUnion("kind", [listed, anchors]),
    counted_from: z
      .enum(["edges", "centres"])
      .describe(
        "edges: 0 is the outer edge of the input tensor's first voxel; centres: 0 is its middle (MONAI, whose boxes go through the affine matrix of the image; nnDetection)",
      ),
    candidates: z
      .strictObject({
        least_score: score.describe("Boxes below it are not looked at, unless a label's threshold is lower"),
        least_size: z
          .number()
          .min(0)
          .describe("Voxels; a box goes that is thinner where image and window end (MONAI: 1)"),
        most: z.int().min(1).max(100_000).describe("Of each level, or list, the best so many are looked at"),
      })
      .describe(
        "MONAI: score_thresh, topk_candidates_per_level; nnDetection: model_score_thresh, model_topk",
      ),
    nms: z
      .discriminatedUnion("kind", [
        z.strictObject({ kind: z.literal("none") }),
        z.strictObject({
          kind: z.literal("greedy"),
          iou: score.describe("A box goes if it shares more than this with a better one that stays"),
          per_class: z.boolean().describe("Among the boxes of each label, instead of among all"),
        }),
      ])
      .describe("Non-maximum suppression of what one run of the graph gives, over a window or the volume"),
    windows: z
      .discriminatedUnion("kind", [
        z.strictObject({ kind: z.literal("nms"), iou: score, per_class: z.boolean() }),
        z.strictObject({ kind: z.literal("weighted"), iou: score }),
      ])
      .optional()
      .describe(
        "With tiling, how boxes of different windows are merged. nms: the best stays, greedily; weighted: those of a label that share more than iou with its best become one in their weighted mean, whose score falls where windows that see it found nothing (nnDetection's weighted box clustering)",
      ),
    max_boxes: maxBoxes,
    measurements: z
      .array(z.enum(["volume", "longest_side"]))
      .describe("Of each box: its volume in mL, and its longest side in mm"),
    labels,
  })
  .describe(
    "Boxes in volumes, given back in pixels and slices of the source and in millimetres of the patient",
  );
export type VolumeDetection = z.infer<typeof schema>;

export const volumeDetection: Kind<VolumeDetection> & { schema: typeof schema } = {
  schema,
  ...OF_BOXES,
  ofVolumes: true,
  ofImages: false,
  mergesWindows: true,
  hasUnitScores: () => true,
  checkWhole: ({ boxes, windows }, { tiled }, issue) => {
    if (tiled !== (windows !== undefined))
      issue(
        ["windows"],
        tiled ? "Expected nms or weighted: boxes of several windows are merged" : "Only with tiling",
      );
    if (boxes.kind === "listed") checkListed(boxes, (path, message) => issue(["boxes", ...path], message));
  },
  graphFaults,
  native,
  decoding: ({ boxes, counted_from, candidates, nms, windows, max_boxes }, thresholds) => [
    { step: "boxes", ...boxes, counted_from },
    { step: "candidates", ...candidates },
    ...(nms.kind === "none" ? [] : [{ step: "nms", iou: nms.iou, per_class: nms.per_class }]),
    ...(windows === undefined ? [] : [{ step: "merge_windows", ...windows, by: windows.kind }]),
    ...toBoxes(thresholds, undefined, max_boxes),
  ],
};

type Listed = Extract<VolumeDetection["boxes"], { kind: "listed" }>;

/** Where the two numbers of a box along an axis stand, and what they are; undefined if they are not one of the forms. */
function columnsOf(columns: Listed["columns"], axis: Axis) {
  const at = (part: (typeof PARTS)[number]) => columns.indexOf(`${axis}_${part}`);
  const forms = Object.entries(FORMS).map(([form, [a, b]]) => ({ form, first: at(a), second: at(b) }));
  const count = columns.filter((column) => column.startsWith(axis)).length;
  return forms.find(({ first, second }) => count === 2 && first >= 0 && second >= 0);
}

function checkListed({ columns, scores, classes }: Listed, issue: Report): void {
  const missing = AXES.filter((axis) => columnsOf(columns, axis) === undefined);
  if (missing.length > 0)
    issue(
      ["columns"],
      `Expected of ${missing.join(" and ")} each min and max, or centre and size, or min and size`,
    );
  if (classes !== undefined && scores.activation === "softmax")
    issue(
      ["scores", "activation"],
      "Softmax goes over one score a label; with a classes tensor there is one score a box",
    );
}

function native({ boxes, counted_from, candidates, nms, windows, max_boxes }: VolumeDetection): NativeFields {
  const common = {
    ...candidates,
    max_boxes,
    normalised: boxes.kind === "listed" && boxes.normalised,
    centres: counted_from === "centres",
    ...(nms.kind === "none" ? {} : { iou: nms.iou, per_class: nms.per_class }),
    ...(windows === undefined
      ? {}
      : {
          ...{ windows_iou: windows.iou, weighted: windows.kind === "weighted" },
          windows_per_class: windows.kind === "weighted" || windows.per_class,
        }),
  };
  if (boxes.kind === "anchors") {
    const [first] = boxes.levels;
    const levels = boxes.levels.map((level) => ({ ...level, anchors: level.anchors.flat() }));
    const names = { tensor: first?.boxes ?? "", scores: first?.scores ?? "" };
    return { ...common, ...names, levels, activation: boxes.activation, coder: boxes.coder };
  }
  const { tensor, columns, scores, classes } = boxes;
  return {
    ...{ ...common, tensor, scores: scores.tensor, activation: scores.activation },
    columns: AXES.map((axis) => columnsOf(columns, axis) ?? { form: "edges", first: 0, second: 0 }),
    ...(classes === undefined ? {} : { classes: classes.tensor, first: classes.first }),
  };
}

/** Boxes and scores lie one after the other: in a tensor that runs the other way each score is another box's. */
function graphFaults({ boxes, labels: list }: VolumeDetection, { tensors }: GraphSide): Fault[] {
  const fault = (path: (string | number)[], name: string, axis: number, wanted: number, what: string) => {
    const info = outputTensor(name, tensors, ["boxes", ...path]);
    if (isFault(info)) return [info];
    const found = info.shape.at(axis) ?? -1;
    if (found < 0 || found === wanted) return [];
    const message = `Expected ${wanted} (${what}) in dimension ${axis < 0 ? "last" : axis + 1}, found ${found}: the graph's "${info.name}" is ${tensorText(info)}`;
    return [{ path: ["boxes", ...path], message }];
  };
  if (boxes.kind === "anchors")
    return boxes.levels.flatMap(({ scores, boxes: moves, anchors: own }, i) => [
      ...fault(["levels", i, "scores"], scores, 1, own.length * list.length, "anchors times labels"),
      ...fault(["levels", i, "boxes"], moves, 1, own.length * 6, "six numbers an anchor"),
    ]);
  const { tensor, scores, classes } = boxes;
  const columns = classes === undefined ? list.length : 1;
  return [
    ...fault(["tensor"], tensor, -1, 6, "the six numbers of a box"),
    // A tensor of one score a box may or may not have a dimension for it
    ...(columns === 1 ? [] : fault(["scores", "tensor"], scores.tensor, -1, columns, "a score a label")),
  ].concat(
    classes === undefined
      ? []
      : [outputTensor(classes.tensor, tensors, ["boxes", "classes", "tensor"], true)].filter(isFault),
  );
}
