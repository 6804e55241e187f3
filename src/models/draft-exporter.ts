/**
 * Carries the notes that an exporter wrote into a graph into a draft: Ultralytics names the task,
 * the size and the labels.
 */
import type { GraphInfo } from "../engine/types.js";
import type { TensorInfo } from "../base/tensor.js";
import { namedText } from "../manifest/outputs/graph-fit.js";
import type { Concept } from "./codes.js";
import { relabelOutput, type NewLabel } from "./draft-like.js";

type Draft = Record<string, unknown>;

/**
 * How many boxes and which overlap Ultralytics' own predictor allows when nobody says otherwise.
 */
const MAX_BOXES = 300;
const OVERLAP = 0.7;

interface Exported {
  draft: Draft;
  /**
   * Where the draft has something from, and what a person has to know before the rest is filled in.
   */
  source: string[];
  /** Why labels have no code. */
  notes: string[];
}

/**
 * Fills a draft with what Ultralytics' exporter (YOLOv5u to YOLO26, from 8.0 on) wrote into
 * `metadata_props`. A draft of a graph from elsewhere comes back as it was; where the tensors are
 * not those of the task, the outputs stay open, with the labels. Which images the model takes, how
 * DICOM values become 0 to 1, and from which score on a label is present stays open: no metadata
 * says that.
 */
export function draftByExporter(
  draft: Draft,
  graph: GraphInfo,
  concepts: readonly Concept[],
): Exported {
  const unchanged = { draft, source: [], notes: [] };
  const { metadata } = graph;
  const labels = namesOf(metadata["names"] ?? "").map((name): NewLabel => ({ name }));
  const task = metadata["task"] ?? "";
  if (metadata["author"] !== "Ultralytics") return unchanged;
  if (labels.length === 0 || !TASKS.includes(task))
    return {
      ...unchanged,
      source: [
        `What Ultralytics wrote into the graph was not used: ${labels.length === 0 ? "its names do not count from 0" : `the task "${task}" is not one of ${TASKS.join(", ")}`}.`,
      ],
    };
  const stretched = isRtDetr(metadata);
  const known = stretched
    ? boxesOfRtDetr(graph.outputs, labels.length)
    : outputsOf(task, graph.outputs, labels.length, metadata);
  const outputs = known ?? withRoomForLabels(draft["outputs"] as Draft[]);
  const notes = outputs
    .filter((output) => "labels" in output)
    .flatMap((output) => relabelOutput(output, labels, concepts));
  const [input] = draft["inputs"] as Draft[];
  const classifies = task === "classify";
  const sides = sidesOf(metadata["imgsz"] ?? "");
  const filled = {
    ...input,
    ...(sides === undefined ? {} : { size: { kind: "fixed", height: sides[0], width: sides[1] } }),
    // PIL shrinks what is classified, OpenCV makes its letterbox
    ...(classifies ? cutTo(sides) : stretched ? STRETCHED : LETTERBOX),
    ...(input?.["channels"] === null ? { channels: "rgb" } : {}),
  };
  return {
    draft: { ...draft, inputs: [filled], outputs },
    source: [
      `Size, fit, channels${known === undefined ? "" : ", outputs"} and labels are what Ultralytics ${metadata["version"] ?? ""} wrote into the graph (task ${task}).`,
      ...(known === undefined
        ? [
            `What the outputs mean is left open: with ${labels.length} labels the task ${task} does not give ${graph.outputs.map(namedText).join(" and ")}.`,
          ]
        : []),
      "The network was trained on values from 0 to 1. For photographs that is: values stored, normalisation scale with multiply 1/255, background 114. For DICOM take the values on which it was trained, mostly a window or voi, with the normalisation none and the background 0.447.",
      ...(classifies || known === undefined || stretched
        ? []
        : [
            `Overlap ${OVERLAP} and ${MAX_BOXES} boxes are what its own predictor takes. From which score on a label is present, you decide.`,
          ]),
    ],
    notes: [...new Set(notes)],
  };
}

/** RT-DETR, whose boxes and pictures are others than those of YOLO under the same task. */
const isRtDetr = ({ head, description = "" }: GraphInfo["metadata"]): boolean =>
  head === "RTDETRDecoder" || /\brt-?detr/i.test(description);

/**
 * Boxes of RT-DETR, in parts of the tensor's sides: one score and a class each, or before 8.4 the
 * scores of all labels. With two labels both have six columns, and nothing is guessed.
 */
function boxesOfRtDetr([first]: readonly TensorInfo[], labels: number): Draft[] | undefined {
  const columns = first?.shape.length === 3 ? first.shape[2] : undefined;
  const scored = columns === 4 + labels;
  const chosen = columns === 6;
  if (first === undefined || scored === chosen) return undefined;
  return [
    {
      kind: "detection_table",
      tensor: first.name,
      axes: "boxes_columns",
      columns: ["cx", "cy", "w", "h", ...(scored ? ["class_scores"] : ["score", "class"])],
      normalised: true,
      scores: { activation: "none", ...(scored ? { labels_per_box: "one" } : {}) },
      ...(scored ? {} : { classes: { first: 0 } }),
      nms: { kind: "none" },
      max_boxes: MAX_BOXES,
      // relabelOutput takes from it that labels have thresholds.
      labels: [{ threshold: null }],
    },
  ];
}

const TASKS = ["classify", "detect", "segment", "obb"];

/** Outputs whose meaning is open, the first with labels. */
const withRoomForLabels = ([first, ...others]: readonly Draft[]): Draft[] =>
  first === undefined ? [] : [{ ...first, labels: [] }, ...others];

/** The meaning of the tensors of a task; undefined where the graph has others. */
function outputsOf(
  task: string,
  tensors: readonly TensorInfo[],
  labels: number,
  metadata: GraphInfo["metadata"],
): Draft[] | undefined {
  const [first, second] = tensors;
  if (first === undefined) return undefined;
  // relabelOutput takes from it that labels have thresholds.
  const labelled = { labels: [{ threshold: null }] };
  if (task === "classify")
    return first.shape.length === 2 && [labels, -1].includes(first.shape[1] ?? 0)
      ? [
          {
            kind: "classification",
            tensor: first.name,
            // The export ends in a softmax
            activation: "none",
            calibration: { kind: "none" },
            ...labelled,
          },
        ]
      : undefined;
  const masks = task === "segment" ? masksOf(first, second, labels) : 0;
  if (first.shape.length !== 3 || masks < 0) return undefined;
  const turned = task === "obb";
  const more = turned ? ["angle"] : masks > 0 ? ["mask_coefficients"] : [];
  const extra = turned ? 1 : masks;
  const common = {
    normalised: false,
    max_boxes: MAX_BOXES,
    ...(masks > 0 ? { mask_coefficients: masks } : {}),
    ...(turned ? { angle: "radians_clockwise" } : {}),
    ...labelled,
  };
  const table = (): Draft | undefined => {
    const [, columns = -1, rows = -1] = first.shape;
    const scored = columns === 4 + labels + extra || (columns < 0 && rows !== 6 + extra);
    const chosen = rows === 6 + extra || (rows < 0 && columns < 0);
    // The graph could be either, and nothing is guessed unless the exporter says it
    const ends = scored && chosen ? endsInBoxes(metadata) : chosen;
    if (ends === undefined || !(scored || chosen)) return undefined;
    if (!ends)
      return {
        kind: "detection_table",
        tensor: first.name,
        axes: "columns_boxes",
        columns: ["cx", "cy", "w", "h", "class_scores", ...more],
        scores: { activation: "none", labels_per_box: "one" },
        nms: {
          kind: turned ? "fast" : "greedy",
          iou: OVERLAP,
          per_class: true,
          ...(turned ? { overlap: "probabilistic" } : {}),
        },
        ...common,
      };
    // Without overlapping boxes (YOLOv10, YOLO26), or with their suppression in the graph
    return {
      kind: "detection_table",
      tensor: first.name,
      axes: "boxes_columns",
      columns: [
        ...(turned ? ["cx", "cy", "w", "h"] : ["x1", "y1", "x2", "y2"]),
        "score",
        "class",
        ...more,
      ],
      scores: { activation: "none" },
      classes: { first: 0 },
      nms: { kind: "none" },
      ...common,
    };
  };
  const boxes = table();
  if (boxes === undefined || task !== "segment" || second === undefined) return boxes && [boxes];
  return [
    boxes,
    {
      kind: "segmentation",
      tensor: second.name,
      activation: "prototypes",
      boxes: first.name,
      postprocess: [],
      measurements: ["area"],
      labels: [{ threshold: null }],
    },
  ];
}

/**
 * Whether the graph ends in chosen boxes, as newer exporters say it; undefined where none does.
 * Both are texts of Python.
 */
function endsInBoxes(metadata: GraphInfo["metadata"]): boolean | undefined {
  const { end2end, args = "" } = metadata;
  if (end2end === "True" || /'nms': True/.test(args)) return true;
  return end2end === "False" ? false : undefined;
}

/** How many coefficients a box has for its mask; below 0 where nothing says it. */
function masksOf(boxes: TensorInfo, prototypes: TensorInfo | undefined, labels: number): number {
  const [, known = -1] = prototypes?.shape ?? [];
  const [, columns = -1] = boxes.shape;
  return known > 0 || prototypes === undefined || columns < 0 ? known : columns - 4 - labels;
}

/** `[height, width]` as Ultralytics writes it. */
function sidesOf(text: string): [height: number, width: number] | undefined {
  const [, height, width] = /^\[(\d+), (\d+)\]$/.exec(text) ?? [];
  return height === undefined || width === undefined ? undefined : [Number(height), Number(width)];
}

/** Ultralytics' LetterBox. */
const LETTERBOX: Draft = {
  fit: "letterbox",
  placement: { kind: "resize_then_pad", rounding: "half_even", offset: "half" },
  interpolation: "linear",
  antialias: false,
};

/** The same of RT-DETR, whose proportions it gives up. */
const STRETCHED: Draft = { fit: "stretch", interpolation: "linear", antialias: false };

/** Ultralytics' classify_transforms: torchvision's Resize and CenterCrop, or stretched. */
function cutTo(sides: readonly number[] = []): Draft {
  const [edge, other] = sides;
  if (edge !== other) return { fit: "stretch", interpolation: "linear" };
  if (edge === undefined) return { fit: "crop", interpolation: "linear" };
  const how = { kind: "resize_then_crop", rounding: "down", offset: "half_even" };
  return { fit: "crop", placement: { ...how, shortest_edge: edge }, interpolation: "linear" };
}

/**
 * The labels of a dictionary as Python prints it, `{0: 'nodule', 1: "Baker's cyst"}`; none if its
 * keys do not count from 0.
 */
function namesOf(text: string): string[] {
  const entry = /(\d+): (?:'((?:[^'\\]|\\.)*)'|"((?:[^"\\]|\\.)*)")(?:, |\}$)/y;
  const names: string[] = [];
  entry.lastIndex = 1;
  while (text.startsWith("{") && entry.lastIndex < text.length) {
    const [, key, single, double] = entry.exec(text) ?? [];
    if (key === undefined || Number(key) !== names.length) return [];
    names.push((single ?? double ?? "").replaceAll(/\\(.)/g, "$1"));
  }
  return names;
}
