/**
 * A bundle of MONAI whose network finds boxes in volumes: RetinaNetDetector over anchors, as
 * lung_nodule_ct_detection has it. What the detector does with the network's maps stands in the
 * file as calls, which are not run: those that are known here are read for their numbers.
 */
import { z } from "zod";
import type { GraphInfo } from "../../engine/types.js";
import { isComponent, shown, type BundleConfig } from "./bundle-config.js";
import type { Gaps } from "./gaps.js";

const numbers = z.array(z.number().positive());
const shapes = z.array(numbers.length(3)).min(1);

/** The numbers of the detector, by the names of MONAI's own arguments. */
interface Detector {
  scales: number[];
  shapes: number[][];
  classes: number;
  divisible: number[];
  score_thresh: number;
  topk_candidates_per_level: number;
  nms_thresh: number;
  detections_per_img: number;
}

/** Whether the bundle makes a network that finds boxes. */
export function findsBoxes(config: BundleConfig): boolean {
  const { detector } = config.root;
  return isComponent(detector) && /Detector"$/.test(shown(detector["_target_"]));
}

/** Arguments of set_box_selector_parameters that are taken over. */
const SELECTION =
  /^(?:score_thresh|topk_candidates_per_level|nms_thresh|detections_per_img)=[\d.e-]+$/;
/** The one that may only say its default. */
const WITH_SIGMOID = "apply_sigmoid=True";
/** Calls of the detector that are known: what is not a number changes no box. */
const CALLS = [
  /^\$@detector\.set_target_keys\([\w=', ]*\)$/,
  /^\$@detector\.set_box_selector_parameters\(([^()]*)\)$/,
  /^\$@detector\.set_sliding_window_inferer\(roi_size=@\w+,overlap=[\d.]+,sw_batch_size=\d+,mode='constant',device='\w+'\)$/,
];
/** The parts around the detector, with their classes and, where others change boxes, arguments. */
const PARTS: [part: string, target: RegExp, known?: readonly string[]][] = [
  [
    "detector",
    /^(monai\.apps\.detection\.\S*)?RetinaNetDetector$/,
    ["network", "anchor_generator", "debug", "spatial_dims", "num_classes", "size_divisible"],
  ],
  [
    "anchor_generator",
    /^(monai\.apps\.detection\.\S*)?AnchorGeneratorWithAnchorShape$/,
    ["feature_map_scales", "base_anchor_shapes"],
  ],
  ["inferer", /^scripts\.detection_inferer\.RetinaNetInferer$/],
  ["evaluator", /^scripts\.evaluator\.DetectionEvaluator$/],
];
/** They take boxes to the patient's millimetres, as it is done here for every box. */
const POSTPROCESSING = [
  "ClipBoxToImaged",
  "AffineBoxToWorldCoordinated",
  "ConvertBoxModed",
  "DeleteItemsd",
];

/** The numbers of the detector; undefined with a gap for what is not known. */
function detectorOf(config: BundleConfig, gaps: Gaps): Detector | undefined {
  const before = gaps.all.length;
  const refuse = (field: string, message: string): void => {
    gaps.refuse(`${config.placeOf(config.root, field.split(".")[0])}: ${field}`, message);
  };
  const parts = new Map(
    PARTS.map(([name, target, known]) => {
      const part = config.root[name];
      const component = isComponent(part) ? part : undefined;
      const found = component?.["_target_"];
      if (typeof found !== "string" || !target.test(found))
        refuse(name, `It is not known, found ${shown(found)}`);
      for (const field of Object.keys(component ?? {}))
        if (!field.startsWith("_") && known?.includes(field) === false)
          refuse(
            `${name}.${field}`,
            `Expected MONAI's default, found ${shown(component?.[field])}`,
          );
      return [name, component] as const;
    }),
  );
  const taken = <T>(part: string, field: string, schema: z.ZodType<T>): T | undefined => {
    const value = config.resolve(parts.get(part)?.[field]);
    const parsed = schema.safeParse(value);
    if (parsed.success) return parsed.data;
    refuse(`${part}.${field}`, `Expected numbers of three axes, found ${shown(value)}`);
    return undefined;
  };
  const numbersOfCalls: Record<string, number> = {};
  let selections = 0;
  const calls = config.root["detector_ops"];
  for (const call of Array.isArray(calls) ? (calls as unknown[]) : []) {
    const text = typeof call === "string" ? call.replaceAll(/\s+/g, "") : "";
    const found = CALLS.map((known) => known.exec(text)).find((match) => match !== null);
    if (found === undefined) refuse("detector_ops", `This call is not known: ${shown(call)}`);
    if (found?.[1] === undefined) continue;
    if (++selections > 1)
      refuse("detector_ops", "Expected one call of set_box_selector_parameters");
    for (const argument of found[1]
      .split(",")
      .filter((one) => one !== "" && one !== WITH_SIGMOID)) {
      const [name = "", value] = argument.split("=");
      if (SELECTION.test(argument)) numbersOfCalls[name] = Number(value);
      else refuse("detector_ops", `This argument is not known: ${argument}`);
    }
  }
  const steps = (config.root["postprocessing"] as { transforms?: unknown } | undefined)?.transforms;
  for (const step of Array.isArray(steps) ? (steps as unknown[]) : [undefined]) {
    const name = isComponent(step) ? step["_target_"] : undefined;
    if (typeof name !== "string" || !POSTPROCESSING.includes(name))
      refuse("postprocessing", `It is not known, found ${shown(name)}`);
  }
  const scales = taken("anchor_generator", "feature_map_scales", numbers.min(1));
  const base = taken("anchor_generator", "base_anchor_shapes", shapes);
  const classes = taken("detector", "num_classes", z.int().positive());
  const divisible = taken("detector", "size_divisible", numbers.length(3));
  if (gaps.all.length > before || scales === undefined || base === undefined) return undefined;
  // What is not set has RetinaNetDetector's own numbers
  const defaults = {
    score_thresh: 0.05,
    topk_candidates_per_level: 1000,
    nms_thresh: 0.5,
    detections_per_img: 300,
  };
  return {
    scales,
    shapes: base,
    classes: classes ?? 1,
    divisible: divisible ?? [1, 1, 1],
    ...defaults,
    ...numbersOfCalls,
  };
}

/**
 * Where the anchors of a network lie that was trained with a version of MONAI: 1.6 moved them by
 * half a stride.
 */
function placesIn(version: string | undefined, gaps: Gaps): "first_voxel" | "middle" {
  const [, major, minor] = /^(\d+)\.(\d+)/.exec(version ?? "") ?? [];
  if (major === undefined) {
    gaps.refuse(
      "metadata.json: monai_version",
      `Expected the version of MONAI that the network was trained with: 1.6 moved anchors by half a stride; found ${version ?? "none"}`,
    );
    return "middle";
  }
  const isOld = Number(major) < 1 || (Number(major) === 1 && Number(minor) < 6);
  gaps.note(
    "metadata.json: monai_version",
    `boxes.places is ${isOld ? "first_voxel" : "middle"}, as with MONAI ${shown(version)}: look whether the network was trained ${isOld ? "before" : "with"} 1.6, which moved anchors by half a stride`,
  );
  return isOld ? "first_voxel" : "middle";
}

/**
 * The output of such a network, whose graph gives the maps of scores and of boxes of each level, as
 * RetinaNet with use_list_output does, and the multiples of the tensor's sides.
 */
export function boxesOf(
  config: BundleConfig,
  graph: GraphInfo,
  { version, names }: { version: string | undefined; names: Record<string, string> | undefined },
  gaps: Gaps,
): { output: Record<string, unknown>; multipleOf: number[] } {
  const detector = detectorOf(config, gaps);
  if (detector === undefined) return { output: {}, multipleOf: [1, 1, 1] };
  const { scales, shapes: base, classes } = detector;
  const anchors = base.length;
  const withChannels = (channels: number) =>
    graph.outputs.filter(({ shape }) => shape.length === 5 && shape[1] === channels);
  const [scores, boxes] = [withChannels(anchors * classes), withChannels(anchors * 6)];
  if (scores.length !== scales.length || boxes.length !== scales.length)
    gaps.refuse(
      "the graph",
      `Expected ${scales.length} maps of ${anchors * classes} scores and ${scales.length} of ${anchors * 6} numbers of boxes, as RetinaNet gives them with use_list_output; found ${graph.outputs.map(({ name, shape }) => `${name} [${shape.join(", ")}]`).join(", ")}. Export the network alone so`,
    );
  const window = config.resolve(config.root["infer_patch_size"]);
  gaps.note(
    `${config.placeOf(config.root, "detector_ops")}: detector_ops`,
    `Volumes that have as many voxels as infer_patch_size (${shown(window)}) MONAI looks at in windows, whose maps it blends; here the network is given each volume whole`,
  );
  return {
    multipleOf: detector.divisible,
    output: {
      kind: "volume_detection",
      boxes: {
        kind: "anchors",
        levels: scales.map((scale, level) => ({
          scores: scores[level]?.name,
          boxes: boxes[level]?.name,
          anchors: base.map((shape) => shape.map((side) => side * scale)),
        })),
        places: placesIn(version, gaps),
        coder: [1, 1, 1, 1, 1, 1],
      },
      scores: { activation: "sigmoid" },
      counted_from: "centres",
      candidates: {
        least_score: detector.score_thresh,
        least_size: 1,
        most: detector.topk_candidates_per_level,
      },
      nms: { kind: "greedy", iou: detector.nms_thresh, per_class: true },
      max_boxes: detector.detections_per_img,
      labels: Array.from({ length: classes }, (_, label) => ({
        label: names?.[label] ?? null,
        threshold: null,
      })),
    },
  };
}
