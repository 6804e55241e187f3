/**
 * Boxes in volumes: from a graph that lists them, or from the maps of one with anchors (MONAI's
 * RetinaNet).
 */
import { z } from "zod";
import { text } from "../texts.js";
import { checkActivation, classes, listFaults, OF_BOXES, toBoxes } from "./detection.js";
import { ignored, labels, maxBoxes, normalised, onInput, score } from "./fields.js";
import { isFault, outputTensor, unfit, type Fault, type GraphSide } from "./graph-fit.js";
import { columnsOf, type Kind, type Report } from "./kind.js";
import { isWholePart } from "./map-cover.js";

const AXES = ["depth", "height", "width"] as const;
const PARTS = ["min", "max", "centre", "size"] as const;

const COLUMNS_MEANING =
  "What the six numbers of a box are, in their order: along each axis of the input tensor min " +
  "and max, or centre and size. Boxes xyzxyz of a graph that takes [1, channels, x, y, z] are " +
  "depth_min height_min width_min depth_max height_max width_max";

const listed = z
  .strictObject({
    kind: z.literal("listed"),
    tensor: text.describe("[1, boxes, 6], or without the 1"),
    columns: z
      .array(z.enum(AXES.flatMap((axis) => PARTS.map((part) => `${axis}_${part}` as const))))
      .length(6)
      .describe(COLUMNS_MEANING),
    normalised,
  })
  .describe(
    "The graph ends in boxes, in voxels of its input; the graph does not know where these lie in the patient",
  );

const ANCHORS_MEANING =
  "The graph gives scores and moves of anchors on maps of several levels, as MONAI's RetinaNet " +
  "does";
const PLACES_MEANING =
  "Where the middle of an anchor lies among the voxels that a map's place stands for: at the " +
  "first along each axis (MONAI before 1.6), or in their middle, cut off to a whole one (1.6). It " +
  "is what the network was trained with";
const LEVELS_ANCHORS_MEANING =
  "Sides of each anchor along depth, height and width, in voxels of the input tensor (MONAI: " +
  "base_anchor_shapes times the level's feature_map_scales); half a side is rounded to whole " +
  "voxels, halves to even";

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
            .describe(LEVELS_ANCHORS_MEANING),
        }),
      )
      .min(1)
      .max(16),
    places: z.enum(["first_voxel", "middle"]).describe(PLACES_MEANING),
    coder: z
      .array(z.number().positive())
      .length(6)
      .describe("Divisors of the network's numbers (weights of the BoxCoder; MONAI: 1 1 1 1 1 1)"),
  })
  .describe(ANCHORS_MEANING);

const greedy = {
  iou: score.describe("A box goes if it shares more than this with a better one that stays"),
  per_class: z.boolean().describe("Among the boxes of each label, instead of among all"),
};

const COUNTED_FROM_MEANING =
  "edges: 0 is the outer edge of the input tensor's first voxel; centres: 0 is its middle " +
  "(MONAI, whose boxes go through the affine matrix of the image; nnDetection)";
const WINDOWS_MEANING =
  "With tiling, how boxes of different windows are merged. nms: the best stays, greedily; " +
  "weighted: those of a label that share more than iou with its best become one in their " +
  "weighted mean, whose score falls where windows that see it found nothing (nnDetection's " +
  "weighted box clustering)";

const schema = z
  .strictObject({
    kind: z.literal("volume_detection"),
    input: onInput,
    boxes: z.discriminatedUnion("kind", [listed, anchors]),
    scores: z.strictObject({
      tensor: text.optional().describe("Tensor of listed boxes; levels name their own"),
      activation: z.enum(["none", "sigmoid", "softmax"]),
    }),
    classes,
    counted_from: z.enum(["edges", "centres"]).describe(COUNTED_FROM_MEANING),
    candidates: z
      .strictObject({
        least_score: score.describe(
          "Boxes below it are dropped, unless a label's threshold is lower",
        ),
        least_size: z
          .number()
          .min(0)
          .describe(
            "Voxels; a box that is thinner, cut off where image and window end, is dropped (MONAI: 1)",
          ),
        most: z
          .int()
          .min(1)
          .max(100_000)
          .describe("Number of the best boxes of each level, or list, that are considered"),
      })
      .describe(
        "MONAI: score_thresh, topk_candidates_per_level; nnDetection: model_score_thresh, model_topk",
      ),
    nms: z
      .discriminatedUnion("kind", [
        z.strictObject({ kind: z.literal("none") }),
        z.strictObject({ kind: z.literal("greedy"), ...greedy }),
      ])
      .describe(
        "Non-maximum suppression of what one run of the graph gives, over a window or the volume",
      ),
    windows: z
      .discriminatedUnion("kind", [
        z.strictObject({ kind: z.literal("nms"), ...greedy }),
        z.strictObject({ kind: z.literal("weighted"), iou: score }),
      ])
      .optional()
      .describe(WINDOWS_MEANING),
    max_boxes: maxBoxes,
    labels,
    ignored,
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
  checkWhole: (output, { tiled }, issue) => {
    const { boxes, scores, windows } = output;
    if (tiled !== (windows !== undefined))
      issue(
        ["windows"],
        tiled
          ? "Expected nms or weighted: boxes of several windows are merged"
          : "Only with tiling",
      );
    if (boxes.kind === "listed") checkColumns(boxes.columns, issue);
    if ((boxes.kind === "listed") !== (scores.tensor !== undefined))
      issue(
        ["scores", "tensor"],
        boxes.kind === "listed" ? "Expected its name" : "Only with listed boxes",
      );
    if (
      boxes.kind === "anchors" &&
      (output.classes !== undefined || scores.activation === "softmax")
    )
      issue(
        ["boxes", "kind"],
        "Anchors have a score for each label by itself: no classes, and no softmax",
      );
    checkActivation({ ...output, boxes: { tensor: "" } }, issue);
  },
  graphFaults: (output, graph) =>
    output.boxes.kind === "listed"
      ? listFaults({ ...output, boxes: output.boxes }, 6, graph)
      : levelFaults(output.boxes.levels, columnsOf(output), graph),
  decoding: (output, thresholds) => {
    const { boxes, scores, counted_from, candidates, nms, windows, max_boxes } = output;
    return [
      { step: "boxes", ...boxes, counted_from },
      {
        step: "scores",
        ...scores,
        ...(output.classes === undefined ? {} : { classes: output.classes }),
        ...(output.ignored === undefined ? {} : { ignored: output.ignored }),
      },
      { step: "candidates", ...candidates },
      ...(nms.kind === "none" ? [] : [{ step: "nms", iou: nms.iou, per_class: nms.per_class }]),
      ...(windows === undefined ? [] : [{ step: "merge_windows", ...windows }]),
      ...toBoxes(thresholds, undefined, max_boxes),
    ];
  },
};

type Anchors = Extract<VolumeDetection["boxes"], { kind: "anchors" }>;
type Columns = Extract<VolumeDetection["boxes"], { kind: "listed" }>["columns"];

function checkColumns(columns: Columns, issue: Report): void {
  const isWhole = (axis: (typeof AXES)[number]) => {
    const parts = columns.flatMap((column) =>
      column.startsWith(axis) ? column.slice(axis.length + 1) : [],
    );
    return ["max min", "centre size"].includes(parts.toSorted().join(" "));
  };
  const missing = AXES.filter((axis) => !isWhole(axis));
  if (missing.length > 0)
    issue(
      ["boxes", "columns"],
      `Expected of ${missing.join(" and ")} each min and max, or centre and size`,
    );
}

/** A map of other anchors, or of other labels, would give each box another's score. */
function levelFaults(
  levels: Anchors["levels"],
  count: number,
  { tensors, sides }: GraphSide,
): Fault[] {
  return levels.flatMap((level, i) =>
    (["scores", "boxes"] as const).flatMap((part) => {
      const path = ["boxes", "levels", i, part];
      const info = outputTensor(level[part], tensors, path);
      if (isFault(info)) return [info];
      const wanted = level.anchors.length * (part === "boxes" ? 6 : count);
      const found = info.shape[1] ?? -1;
      const isMap = info.shape.length === 5 && (found < 0 || found === wanted);
      const own = info.shape.slice(2);
      if (isMap && isWholePart(own, sides)) return [];
      if (isMap)
        return [
          {
            path,
            message: `Expected sides that are whole parts of what the graph is given, ${sides.join(" x ")}, so that anchors have a place; found ${own.join(" x ")}`,
          },
        ];
      return [{ ...unfit("", `[1, ${wanted}, depth, height, width]`, info), path }];
    }),
  );
}
