/**
 * What lies beside a graph that was exported from Transformers or timm into a draft:
 * preprocessor_config.json says how pictures are prepared, config.json which labels there are;
 * timm's config.json says both.
 */
import { existsSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { z } from "zod";
import { errors } from "../base/errors.js";
import { ownValue } from "../base/own-value.js";
import type { TensorInfo } from "../base/tensor.js";
import type { GraphInfo } from "../engine/types.js";
import { textOfRegular } from "../files/regular-file.js";
import type { Concept } from "./codes.js";
import { relabelOutput } from "./draft-like.js";
import { fault } from "./files.js";

type Draft = Record<string, unknown>;

const sides = z.union([
  z.int(),
  z.object({
    shortest_edge: z.int().optional(),
    longest_edge: z.int().optional(),
    height: z.int().optional(),
    width: z.int().optional(),
  }),
]);

/** Fields of preprocessor_config.json that say what goes in. */
const processorSchema = z.object({
  image_processor_type: z.string().optional(),
  feature_extractor_type: z.string().optional(),
  do_resize: z.boolean().default(true),
  size: sides.optional(),
  crop_pct: z.number().positive().optional(),
  resample: z.int().optional(),
  do_center_crop: z.boolean().optional(),
  crop_size: sides.optional(),
  do_rescale: z.boolean().default(true),
  rescale_factor: z
    .number()
    .positive()
    .default(1 / 255),
  do_normalize: z.boolean().default(true),
  image_mean: z.array(z.number()).optional(),
  image_std: z.array(z.number().positive()).optional(),
  do_pad: z.boolean().optional(),
  pad_size: z.unknown().optional(),
});
type Processor = z.infer<typeof processorSchema>;

/** config.json of Transformers, and of timm. */
const configSchema = z.object({
  architectures: z.array(z.string()).optional(),
  _name_or_path: z.string().optional(),
  id2label: z.record(z.string(), z.string()).optional(),
  problem_type: z.string().optional(),
  architecture: z.string().optional(),
  num_classes: z.int().optional(),
  label_names: z.array(z.string()).optional(),
  pretrained_cfg: z
    .object({
      tag: z.string().optional(),
      input_size: z.array(z.int().positive()).length(3).optional(),
      interpolation: z.string().optional(),
      crop_pct: z.number().positive().optional(),
      crop_mode: z.string().optional(),
      mean: z.array(z.number()).optional(),
      std: z.array(z.number().positive()).optional(),
      num_classes: z.int().optional(),
      label_names: z.array(z.string()).optional(),
    })
    .optional(),
});
type Config = z.infer<typeof configSchema>;
type Pretrained = NonNullable<Config["pretrained_cfg"]>;

interface FilesBeside {
  processor?: Processor;
  config?: Config;
}

const FILES = { processor: "preprocessor_config.json", config: "config.json" } as const;

/**
 * Processors of Transformers that resize, cut out the middle, and normalise: how the size is meant
 * that is one number, and whether the middle is cut out where the file does not say it. Those that
 * are bounded resize to a shorter side with a bound on the longer one.
 */
const PROCESSORS: Record<string, { square: boolean; crops: boolean; bounded?: true }> = {
  vit: { square: true, crops: false },
  beit: { square: true, crops: false },
  siglip: { square: true, crops: false },
  pvt: { square: true, crops: false },
  segformer: { square: true, crops: false },
  deit: { square: true, crops: true },
  bit: { square: false, crops: true },
  clip: { square: false, crops: true },
  mobilenetv1: { square: false, crops: true },
  mobilenetv2: { square: false, crops: true },
  convnext: { square: false, crops: false },
  levit: { square: false, crops: true },
  rtdetr: { square: true, crops: false },
  detr: { square: false, crops: false, bounded: true },
  conditionaldetr: { square: false, crops: false, bounded: true },
  deformabledetr: { square: false, crops: false, bounded: true },
};
/** ConvNextImageProcessor stretches pictures from this size on. */
const CONVNEXT_STRETCHES = 384;
/** LevitImageProcessor resizes to so much more than it says. */
const LEVIT_ENLARGES = 256 / 224;

/** PIL's numbers and timm's names of interpolations that a manifest has. */
const INTERPOLATIONS: Record<string, string> = {
  0: "nearest",
  2: "linear",
  3: "cubic",
  nearest: "nearest",
  bilinear: "linear",
  bicubic: "cubic",
};

interface Processed {
  draft: Draft;
  /** What was taken, and what a person has to know of it. */
  source: string[];
  /** Why labels have no code. */
  notes: string[];
}

/** Sides of the tensor, and how a picture comes to them. */
interface Preparation {
  sides?: [height: number, width: number];
  fit?: Draft;
  interpolation?: string | undefined;
  normalisation?: Draft | undefined;
  /** Channels of the graph, where the files say it. */
  channels?: number;
  /** What is left open, and why. */
  open: string[];
}

/**
 * Fills a draft with what preprocessor_config.json and config.json beside the graph say; without
 * them it comes back as it was.
 * @param path of the graph; of onnx/model.onnx the files may lie one folder above
 * @throws RadserveError bad_request for files that cannot be read
 */
export async function draftByProcessor(
  draft: Draft,
  graph: GraphInfo,
  path: string,
  concepts: readonly Concept[],
): Promise<Processed> {
  const { processor, config } = await filesBeside(dirname(path));
  const pretrained = config?.pretrained_cfg;
  const prepared =
    pretrained !== undefined
      ? ofTimm(pretrained)
      : processor !== undefined
        ? ofTransformers(processor)
        : undefined;
  const [input] = draft["inputs"] as Draft[];
  const [info] = graph.inputs;
  const source: string[] = [];
  const filled: Draft = { ...draft };
  const isPicture = graph.inputs.length === 1 && info?.shape.length === 4;
  if (prepared !== undefined && input !== undefined && isPicture) {
    const unfit = unfitSides(prepared, input, info);
    if (unfit !== undefined) source.push(unfit);
    else if (prepared.sides !== undefined || prepared.normalisation !== undefined) {
      filled["inputs"] = [filledInput(input, info, prepared)];
      filled["accepts"] = { ...(draft["accepts"] as Draft), dimensions: "2d" };
      const file = pretrained === undefined ? FILES.processor : `${FILES.config} (timm)`;
      source.push(
        `How pictures are prepared is what ${file} says. It begins with pictures as they are displayed, 0 to 1: of DICOM that is the file's window, or its full range where it has none. Take other values if you trained on others.`,
      );
    }
    source.push(...prepared.open.map((one) => `Left open: ${one}.`));
  } else if (prepared !== undefined)
    source.push(
      `Nothing was taken of how pictures are prepared: the graph takes ${graph.inputs.length === 1 ? "no single picture" : `${graph.inputs.length} tensors`}.`,
    );
  const labelled = config === undefined ? undefined : outputOf(config, graph);
  if (labelled === undefined || config === undefined) return { draft: filled, source, notes: [] };
  const { output, labels, told } = labelled;
  source.push(...told);
  if (output === undefined) return { draft: filled, source, notes: [] };
  filled["outputs"] = [output];
  filled["description"] ??= describing(config);
  const notes =
    labels === undefined
      ? []
      : relabelOutput(
          output,
          labels.map((name) => ({ name })),
          concepts,
        );
  // A draft needs no code
  for (const label of (output["labels"] ?? []) as Draft[])
    if (label["code"] === null) delete label["code"];
  return { draft: filled, source, notes };
}

/**
 * Transformers and timm write null for what is not set. Where it says whether a step is done, it is
 * not done, while a step that the file does not have is one that the class decides.
 */
const withoutNulls = (text: string): unknown =>
  JSON.parse(text, (field, value: unknown) =>
    value !== null ? value : field.startsWith("do_") ? false : undefined,
  );

async function filesBeside(folder: string): Promise<FilesBeside> {
  const folders = basename(folder) === "onnx" ? [folder, dirname(folder)] : [folder];
  const read = async <T>(name: string, schema: z.ZodType<T>): Promise<T | undefined> => {
    const path = folders.map((one) => join(one, name)).find((one) => existsSync(one));
    if (path === undefined) return undefined;
    try {
      const parsed = schema.safeParse(withoutNulls(await textOfRegular(path)));
      if (parsed.success) return parsed.data;
      const [issue] = parsed.error.issues;
      throw new Error(`${issue?.path.join(".") ?? ""}: ${issue?.message ?? ""}`);
    } catch (error) {
      throw errors.bad_request(
        `Expected what Transformers or timm write in ${path}, but ${fault(error)}. Move it away to do without it.`,
      );
    }
  };
  const processor = await read(FILES.processor, processorSchema);
  const config = await read(FILES.config, configSchema);
  return {
    ...(processor === undefined ? {} : { processor }),
    ...(config === undefined ? {} : { config }),
  };
}

const layoutOf = (input: Draft): string => (input["layout"] ?? "NCHW") as string;

/** Why the sides are none of the graph's; undefined where they fit, or the graph has none. */
function unfitSides(
  { sides, fit, channels }: Preparation,
  input: Draft,
  { name, shape }: TensorInfo,
): string | undefined {
  const layout = layoutOf(input);
  const open = ["H", "W"].every((letter) => (shape[layout.indexOf(letter)] ?? -1) < 0);
  if (fit?.["size"] !== undefined && !open)
    return `Nothing was taken of how pictures are prepared: each has sides of its own, and the graph's "${name}" is ${shape.join(" x ")}. Export it with dynamic height and width.`;
  const differs = [sides?.[0], sides?.[1], channels].some((side, i) => {
    const given = shape[layout.indexOf("HWC".charAt(i))] ?? -1;
    return side !== undefined && given > 0 && given !== side;
  });
  return differs
    ? `Nothing was taken of how pictures are prepared: they become ${sides?.join(" x ") ?? "others"}, and the graph's "${name}" is ${shape.join(" x ")}.`
    : undefined;
}

function filledInput(input: Draft, { shape }: TensorInfo, prepared: Preparation): Draft {
  const { sides, fit, interpolation, normalisation } = prepared;
  const layout = layoutOf(input);
  const given = shape[layout.indexOf("C")] ?? -1;
  const channels = given > 0 ? given : (prepared.channels ?? 3);
  return {
    ...input,
    layout,
    ...(sides === undefined ? {} : { size: { kind: "fixed", height: sides[0], width: sides[1] } }),
    ...fit,
    interpolation: interpolation ?? null,
    values: { kind: "voi", index: 0, if_absent: "full_range" },
    // White is what is bright on a display
    monochrome1: "invert",
    channels: channels === 1 ? "grayscale" : "rgb",
    colour_source: "accept",
    normalisation: normalisation ?? { kind: null },
    background: 0,
  };
}

/** By transforms_imagenet_eval of timm. */
function ofTimm(given: Pretrained): Preparation {
  const open: string[] = [];
  const { input_size: size, crop_pct: part = 0.875, crop_mode: mode = "center", mean, std } = given;
  const [channels, height = 0, width = 0] = size ?? [];
  const scaled = [height, width].map((side) => Math.floor(side / part));
  const fit =
    size === undefined
      ? undefined
      : mode === "squash"
        ? stretchedAndCut(scaled, [height, width], "half_even")
        : mode === "center" && height === width
          ? cutFrom(scaled[0] ?? 0, "half_even")
          : undefined;
  if (fit === undefined)
    open.push(
      `crop_mode ${mode} of ${size?.join(" x ") ?? "no input_size"}, which has no fit here`,
    );
  const interpolation = ownValue(INTERPOLATIONS, given.interpolation ?? "bicubic");
  if (interpolation === undefined)
    open.push(`the interpolation "${given.interpolation ?? ""}", which is not offered`);
  return {
    ...(size === undefined ? {} : { sides: [height, width], channels: channels ?? 3 }),
    ...(fit === undefined ? {} : { fit }),
    interpolation,
    ...(mean === undefined || std === undefined
      ? {}
      : { normalisation: { kind: "mean_std", mean, std } }),
    open,
  };
}

/** By the image processors of Transformers, slow and fast. */
function ofTransformers(given: Processor): Preparation {
  const open: string[] = [];
  const type = given.image_processor_type ?? given.feature_extractor_type ?? "";
  const [, name = ""] = /^(\w+?)(?:ImageProcessor|FeatureExtractor)(?:Fast|Pil)?$/.exec(type) ?? [];
  const known = ownValue(PROCESSORS, name.toLowerCase());
  if (known === undefined)
    return {
      open: [
        `${FILES.processor} is of "${type}", whose steps are not known here; nothing of it was taken`,
      ],
    };
  const placed = placedBy(name.toLowerCase(), known, given);
  if (placed === undefined)
    open.push(
      `how pictures come to the tensor's sides, which ${FILES.processor} says in a way that has no fit here`,
    );
  const interpolation = ownValue(INTERPOLATIONS, String(given.resample ?? ""));
  if (interpolation === undefined)
    open.push(`resample ${given.resample ?? "is missing"}, which is not offered (0, 2 and 3 are)`);
  return { ...placed, interpolation, normalisation: normalisationOf(given), open };
}

/** Of values from 0 to 1, where Transformers begins with 0 to 255. */
function normalisationOf(given: Processor): Draft | undefined {
  const { do_rescale, rescale_factor, do_normalize, image_mean: mean, image_std: std } = given;
  const exact = do_rescale ? 255 * rescale_factor : 255;
  const factor = Math.abs(exact - 1) < 1e-6 ? 1 : exact;
  if (!do_normalize)
    return factor === 1 ? { kind: "none" } : { kind: "scale", multiply: factor, add: 0 };
  if (mean === undefined || std === undefined) return undefined;
  const by = (numbers: readonly number[]) => numbers.map((one) => one / factor);
  return { kind: "mean_std", mean: by(mean), std: by(std) };
}

/** Sides and fit; undefined for what has none. */
function placedBy(
  name: string,
  { square, crops, bounded }: { square: boolean; crops: boolean; bounded?: true },
  given: Processor,
): Pick<Preparation, "sides" | "fit"> | undefined {
  const { size, crop_pct: part, do_pad: pads } = given;
  if (!given.do_resize || size === undefined) return undefined;
  if (bounded && typeof size !== "number") {
    const { shortest_edge: shortest, longest_edge: longest } = size;
    // Otherwise a picture alone is padded to its own sides
    if (given.pad_size !== undefined) return undefined;
    if (shortest !== undefined && longest !== undefined && shortest <= longest)
      return {
        fit: {
          size: { kind: "edges", shortest, longest, rounding: "transformers" },
          fit: "letterbox",
        },
      };
  } else if (pads === true) return undefined;
  const edge = typeof size === "number" ? (square ? undefined : size) : size.shortest_edge;
  const both = typeof size === "number" ? (square ? [size, size] : undefined) : pairOf(size);
  if (typeof size !== "number" && size.longest_edge !== undefined) return undefined;
  if (name === "convnext") {
    if (edge === undefined) return undefined;
    const fit =
      edge < CONVNEXT_STRETCHES
        ? cutFrom(Math.trunc(edge / (part ?? 224 / 256)), "half")
        : { fit: "stretch" };
    return { sides: [edge, edge], fit };
  }
  const cut = (given.do_center_crop ?? crops) ? given.crop_size : undefined;
  if ((given.do_center_crop ?? crops) && cut === undefined) return undefined;
  const middle = typeof cut === "number" ? [cut, cut] : cut === undefined ? both : pairOf(cut);
  const [height, width] = middle ?? [];
  if (height === undefined || width === undefined) return undefined;
  const sides: [number, number] = [height, width];
  if (edge !== undefined) {
    const longer = name === "levit" ? Math.trunc(LEVIT_ENLARGES * edge) : edge;
    return cut === undefined || longer < Math.max(...sides)
      ? undefined
      : { sides, fit: cutFrom(longer, "half") };
  }
  const fit = both === undefined ? undefined : stretchedAndCut(both, sides, "half");
  return fit === undefined ? undefined : { sides, fit };
}

const pairOf = ({ height, width }: { height?: number | undefined; width?: number | undefined }) =>
  height === undefined || width === undefined ? undefined : [height, width];

const cutFrom = (edge: number, offset: string): Draft => ({
  fit: "crop",
  placement: { kind: "resize_then_crop", shortest_edge: edge, rounding: "down", offset },
});

/** Stretched to sides of which the middle is cut out, if it is not all. */
function stretchedAndCut(
  [height = 0, width = 0]: readonly number[],
  middle: readonly number[],
  offset: string,
): Draft | undefined {
  const [rows = 0, columns = 0] = middle;
  if (height === rows && width === columns) return { fit: "stretch" };
  if (height < rows || width < columns) return undefined;
  return { fit: "crop", placement: { kind: "resize_then_crop", height, width, offset } };
}

/** The scores of a classifier; undefined where config.json is of no classifier. */
function outputOf(
  config: Config,
  { outputs }: GraphInfo,
): { output?: Draft; labels?: string[] | undefined; told: string[] } | undefined {
  const timm = config.architecture !== undefined;
  const architecture = config.architectures?.[0] ?? config.architecture ?? "";
  if (!timm && !architecture.endsWith("ForImageClassification"))
    return config.architectures === undefined
      ? undefined
      : { told: [`Left open: what comes out of ${architecture}, which is not a classifier.`] };
  const named = timm
    ? (config.label_names ?? config.pretrained_cfg?.label_names)
    : inOrder(config.id2label);
  const count = named?.length ?? config.num_classes ?? config.pretrained_cfg?.num_classes;
  const [scores, ...others] = outputs;
  const [, given = -1] = scores?.shape ?? [];
  if (scores === undefined || others.length > 0 || scores.shape.length !== 2)
    return {
      told: [`Left open: what comes out; expected one tensor of scores for ${architecture}.`],
    };
  if (count !== undefined && given > 0 && given !== count)
    return {
      told: [
        `Left open: what comes out; ${FILES.config} has ${count} labels, and the graph's "${scores.name}" has ${given} scores.`,
      ],
    };
  if (config.problem_type === "regression")
    return {
      output: { kind: "regression", tensor: scores.name, values: null },
      told: [
        `${FILES.config} calls it a regression: what each of its numbers measures, and in which unit, you decide.`,
      ],
    };
  const several = config.problem_type === "multi_label_classification" || count === 1;
  const told = several
    ? "Labels are independent (sigmoid): from which score on each is present, you decide."
    : "Labels exclude each other (softmax, as Transformers' own pipeline and timm have it): the highest one is present.";
  return {
    output: {
      kind: "classification",
      tensor: scores.name,
      activation: several ? "sigmoid" : "softmax",
      calibration: { kind: "none" },
      ...(several ? {} : { decision: "highest" }),
      labels: named === undefined ? null : several ? [{ threshold: null }] : [],
    },
    labels: named,
    told: [
      `Labels are those of ${FILES.config}. ${told} Where the graph itself ends in the activation, it is "none" here.`,
    ],
  };
}

/** Labels by their numbers from 0; undefined where one is missing. */
function inOrder(labels: Record<string, string> | undefined): string[] | undefined {
  if (labels === undefined) return undefined;
  const names = Array.from({ length: Object.keys(labels).length }, (_, i) =>
    ownValue(labels, String(i)),
  );
  return names.every((name) => name !== undefined) ? names : undefined;
}

function describing({
  architectures,
  architecture,
  _name_or_path,
  pretrained_cfg,
}: Config): string {
  const parts = [architectures?.[0] ?? architecture, pretrained_cfg?.tag, _name_or_path];
  return parts.filter((part) => part !== undefined && part !== "").join(" ");
}
