/**
 * A MONAI bundle's configs/inference.json and configs/metadata.json as parts of a manifest, as far as they are
 * declarative: transforms and the inferer by name, numbers, and references (@name) to numbers. Expressions ($...) are not
 * run; where one decides what goes in or comes out, it is a gap.
 */
import { z } from "zod";
import { parsedAs } from "./json.js";
import type { Gaps, ImportChoices, Imported } from "./gaps.js";

const component = z.looseObject({ _target_: z.string() });
type Component = z.infer<typeof component>;
const compose = z.object({ transforms: z.array(component) });

const inferenceSchema = z.looseObject({
  preprocessing: compose,
  inferer: component,
  postprocessing: compose,
});

const metadataSchema = z.object({
  version: z.string().optional(),
  name: z.string().optional(),
  description: z.string().optional(),
  authors: z.string().optional(),
  intended_use: z.string().optional(),
  network_data_format: z.object({
    inputs: z.record(z.string(), z.object({ modality: z.string().optional(), num_channels: z.int() })),
    outputs: z.record(
      z.string(),
      z.object({ num_channels: z.int(), channel_def: z.record(z.string(), z.string()).optional() }),
    ),
  }),
});

/** They change neither values nor places. */
const HARMLESS = new Set([
  ...["LoadImaged", "EnsureChannelFirstd", "EnsureTyped", "ToTensord", "ToDeviced", "CastToTyped"],
  ...["SaveImaged", "DeleteItemsd"],
]);

const plainName = (target: string): string => target.slice(target.lastIndexOf(".") + 1).replace(/Dict$/, "d");

/** A component's values, with references resolved. An expression is left as its text. */
class Fields {
  constructor(
    private readonly config: Record<string, unknown>,
    private readonly of: Component,
    readonly place: string,
  ) {}

  get(name: string): unknown {
    let value = this.of[name];
    for (let steps = 0; typeof value === "string" && value.startsWith("@") && steps < 8; steps++)
      value = value
        .slice(1)
        .split(/::|#/)
        .reduce<unknown>((at, key) => (at as Record<string, unknown> | undefined)?.[key], this.config);
    return value;
  }

  number(name: string, usual: number): number | undefined {
    const value = this.get(name) ?? usual;
    return typeof value === "number" ? value : undefined;
  }

  numbers(name: string): number[] | undefined {
    const value = this.get(name);
    const list = Array.isArray(value) ? value : [value, value, value];
    return list.every((v) => typeof v === "number") ? list : undefined;
  }
}

interface Prepared {
  orientation?: string;
  spacing?: number[];
  clip?: { range: [number, number]; after: boolean };
  normalisation: Record<string, unknown>;
}

export interface MonaiFiles {
  inference: unknown;
  metadata: unknown;
}

/** @throws RadserveError bad_request for files that are not those of a bundle */
export function importMonai(files: MonaiFiles, choices: ImportChoices, gaps: Gaps): Imported {
  const config = parsedAs(inferenceSchema, files.inference, "configs/inference.json");
  const metadata = parsedAs(metadataSchema, files.metadata, "configs/metadata.json");
  const { inputs, outputs } = metadata.network_data_format;
  const [input] = Object.values(inputs);
  const [output] = Object.values(outputs);
  if (Object.keys(inputs).length !== 1 || input?.num_channels !== 1)
    gaps.refuse("metadata.json: inputs", "Expected one image of one channel; several are not offered");
  const prepared = preparation(config, gaps);
  const back = wayBack(config, gaps);
  const { spacing, clip } = prepared;
  return {
    accepts: accepts(choices.modality ?? input?.modality, gaps),
    input: {
      layout: "NCDHW",
      size: { kind: "source" },
      ...{
        fit: spacing === undefined ? "none" : "stretch",
        interpolation: spacing === undefined ? "linear" : "spline",
      },
      values: { kind: "modality" },
      monochrome1: "refuse",
      channels: "grayscale",
      colour_source: "refuse",
      ...(clip === undefined ? {} : { clip: clip.range }),
      normalisation: prepared.normalisation,
      background: (choices.modality ?? input?.modality) === "CT" ? -1024 : 0,
      ...(spacing === undefined
        ? {}
        : {
            resampling: {
              ...{ grid: "first_voxel", spacing_mm: spacing, order: 1, order_back: 1, keep_range: false },
              ...{
                clip: clip?.after === true ? "after" : "before",
                crop: "none",
                activation: back.activation,
              },
            },
          }),
      ...(prepared.orientation === undefined ? {} : { orientation: prepared.orientation }),
    },
    output: outputOf(output?.num_channels ?? 0, output?.channel_def, back, gaps),
    tiling: tilingOf(new Fields(config, config.inferer, "inference.json: inferer"), gaps),
    about: {
      version: /^[0-9A-Za-z.+-]{1,64}$/.test(metadata.version ?? "") ? (metadata.version ?? "1") : "1",
      manufacturer: (metadata.authors ?? "").slice(0, 64) || "not stated",
      description: metadata.description ?? metadata.name ?? "A MONAI bundle",
      intended_use: metadata.intended_use ?? "Not stated in metadata.json.",
    },
  };
}

function accepts(modality: string | undefined, gaps: Gaps): Record<string, unknown> {
  const found = { CT: "CT", MR: "MR", MRI: "MR", PT: "PT" }[modality ?? ""] ?? modality;
  if (found === undefined || !/^[A-Z0-9_ ]{1,16}$/.test(found))
    gaps.refuse(
      "metadata.json: modality",
      `"${modality ?? ""}" is no modality of DICOM: say it with --modality`,
    );
  return {
    formats: ["dicom"],
    modality: [found ?? "?"],
    dimensions: "series",
    ...(found === "CT" ? { units: ["HU"] } : {}),
  };
}

function preparation(config: z.infer<typeof inferenceSchema>, gaps: Gaps): Prepared {
  const prepared: Prepared = { normalisation: { kind: "none" } };
  let scaled = false;
  config.preprocessing.transforms.forEach((transform, i) => {
    const name = plainName(transform._target_);
    const fields = new Fields(config, transform, `inference.json: preprocessing.${i}.${name}`);
    if (HARMLESS.has(name)) return;
    if (name === "Orientationd") orient(fields, prepared, gaps);
    else if (name === "Spacingd") space(fields, prepared, scaled, gaps);
    else if (["ScaleIntensityRanged", "ScaleIntensityd", "NormalizeIntensityd"].includes(name)) {
      if (scaled) gaps.refuse(fields.place, "Values are changed more than once");
      scaled = true;
      scale(name, fields, prepared, gaps);
    } else gaps.refuse(fields.place, "This transform is not known");
  });
  return prepared;
}

function orient(fields: Fields, prepared: Prepared, gaps: Gaps): void {
  const letters = fields.get("axcodes");
  if (typeof letters === "string" && /^[LRAPSI]{3}$/.test(letters)) prepared.orientation = letters;
  else gaps.refuse(fields.place, `Expected axcodes of three letters, found ${JSON.stringify(letters)}`);
}

function space(fields: Fields, prepared: Prepared, scaled: boolean, gaps: Gaps): void {
  const pixdim = fields.numbers("pixdim");
  const mode: unknown = [fields.get("mode") ?? "bilinear"].flat()[0];
  if (pixdim?.length !== 3 || pixdim.some((mm) => mm <= 0))
    gaps.refuse(
      fields.place,
      `Expected pixdim of three numbers, found ${JSON.stringify(fields.get("pixdim"))}`,
    );
  else prepared.spacing = pixdim;
  if (mode !== "bilinear")
    gaps.refuse(fields.place, `Expected the mode bilinear, found ${JSON.stringify(mode)}`);
  const padding: unknown = [fields.get("padding_mode") ?? "border"].flat()[0];
  if (padding !== "border")
    gaps.refuse(fields.place, `Expected padding_mode border, found ${JSON.stringify(padding)}`);
  if (scaled && prepared.clip !== undefined) prepared.clip.after = false;
}

function scaleRange(fields: Fields, prepared: Prepared, gaps: Gaps): void {
  const found = ["a_min", "a_max", "b_min", "b_max"].map((key) => fields.number(key, NaN) ?? NaN);
  const [from = NaN, to = NaN, low = NaN, high = NaN] = found;
  const multiply = (high - low) / (to - from);
  if (!Number.isFinite(multiply)) {
    gaps.refuse(fields.place, "Expected numbers for a_min, a_max, b_min and b_max");
    return;
  }
  prepared.normalisation = { kind: "scale", multiply, add: low - from * multiply };
  if (fields.get("clip") === true)
    prepared.clip = { range: [from, to], after: prepared.spacing !== undefined };
}

function scale(name: string, fields: Fields, prepared: Prepared, gaps: Gaps): void {
  const spaced = prepared.spacing !== undefined;
  if (name === "ScaleIntensityRanged") {
    scaleRange(fields, prepared, gaps);
    return;
  }
  const [shift, divisor] = [fields.get("subtrahend"), fields.get("divisor")];
  if (name === "NormalizeIntensityd" && typeof shift === "number" && typeof divisor === "number") {
    prepared.normalisation = { kind: "mean_std", mean: [shift], std: [divisor] };
    return;
  }
  if (spaced)
    gaps.refuse(
      fields.place,
      "Statistics of the resampled volume are not offered, only those before Spacingd",
    );
  if (fields.get("nonzero") === true)
    gaps.refuse(fields.place, "Statistics of what is not 0 are not offered");
  if (name === "NormalizeIntensityd") {
    if (shift !== undefined || divisor !== undefined)
      gaps.refuse(fields.place, "Expected numbers for both subtrahend and divisor, or neither");
    prepared.normalisation = { kind: "z_score", over: "volume" };
    return;
  }
  const [low, high] = [fields.number("minv", 0), fields.number("maxv", 1)];
  if (fields.get("factor") !== undefined || low === undefined || high === undefined)
    gaps.refuse(fields.place, "Expected minv and maxv as numbers, and no factor");
  prepared.normalisation = { kind: "min_max", over: "volume", to: [low ?? 0, high ?? 1] };
}

interface WayBack {
  activation: "before" | "after";
  kind: "softmax" | "sigmoid" | "argmax";
  threshold: number;
}

function wayBack(config: z.infer<typeof inferenceSchema>, gaps: Gaps): WayBack {
  const back: WayBack = { activation: "after", kind: "argmax", threshold: 0.5 };
  let inverted = false;
  config.postprocessing.transforms.forEach((transform, i) => {
    const name = plainName(transform._target_);
    const fields = new Fields(config, transform, `inference.json: postprocessing.${i}.${name}`);
    if (HARMLESS.has(name)) return;
    if (name === "Invertd") {
      inverted = true;
      if (fields.get("nearest_interp") !== false)
        gaps.refuse(
          fields.place,
          "Expected nearest_interp false; maps that go back by the nearest voxel are not offered",
        );
    } else if (name === "Activationsd") {
      back.activation = inverted ? "after" : "before";
      if (fields.get("softmax") === true) back.kind = "softmax";
      else if (fields.get("sigmoid") === true) back.kind = "sigmoid";
      else gaps.refuse(fields.place, "Expected softmax or sigmoid true");
    } else if (name === "AsDiscreted") {
      if (!inverted && config.postprocessing.transforms.some(({ _target_: t }) => plainName(t) === "Invertd"))
        gaps.refuse(
          fields.place,
          "Labels that are chosen before Invertd go back by the nearest voxel, which is not offered",
        );
      const threshold = fields.get("threshold");
      if (typeof threshold === "number") back.threshold = threshold;
      else if (fields.get("argmax") !== true)
        gaps.refuse(fields.place, "Expected argmax true, or a number for threshold");
    } else if (name === "KeepLargestConnectedComponentd")
      gaps.note(
        fields.place,
        "It is not written; postprocess with largest_component is the same for one label at a time",
      );
    else gaps.refuse(fields.place, "This transform is not known");
  });
  if (!config.postprocessing.transforms.some(({ _target_: target }) => plainName(target) === "Invertd"))
    gaps.note(
      "inference.json: postprocessing",
      "There is no Invertd: results go back to the source's grid all the same",
    );
  return back;
}

function outputOf(
  channels: number,
  names: Record<string, string> | undefined,
  { kind, threshold }: WayBack,
  gaps: Gaps,
): Record<string, unknown> {
  const all = Array.from({ length: channels }, (_, channel) => names?.[channel]);
  if (all.some((name) => name === undefined))
    gaps.refuse("metadata.json: channel_def", `Expected a name for each of ${channels} channels`);
  const found = all.map((name) => (name ?? "?").slice(0, 64));
  const labels =
    kind === "sigmoid"
      ? found.map((label) => ({ label, threshold }))
      : found.slice(1).map((label) => ({ label }));
  return { kind: "segmentation", activation: kind, labels, postprocess: [], measurements: ["volume"] };
}

function tilingOf(inferer: Fields, gaps: Gaps): Record<string, unknown> | undefined {
  const name = plainName(String(inferer.get("_target_")));
  if (name !== "SlidingWindowInferer") {
    gaps.refuse("inference.json: inferer", `${name} is not known; SlidingWindowInferer is`);
    return;
  }
  const window = inferer.numbers("roi_size");
  const overlap = inferer.number("overlap", 0.25);
  const sigma = inferer.number("sigma_scale", 0.125);
  const padding = inferer.number("cval", 0);
  if (window?.length !== 3 || window.some((side) => side < 1))
    gaps.refuse("inference.json: inferer.roi_size", "Expected three numbers above 0");
  if (overlap === undefined || sigma === undefined || padding === undefined)
    gaps.refuse("inference.json: inferer", "Expected numbers for overlap, sigma_scale and cval");
  if ((inferer.get("padding_mode") ?? "constant") !== "constant")
    gaps.refuse("inference.json: inferer.padding_mode", "Expected constant");
  const gaussian = inferer.get("mode") === "gaussian";
  return {
    ...{ window, overlap, steps: "stride" },
    weights: gaussian ? { kind: "gaussian", sigma, centre: "middle", least: 0.001 } : { kind: "constant" },
    padding,
  };
}
