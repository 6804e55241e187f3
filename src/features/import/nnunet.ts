/**
 * nnU-Net v2's plans.json and dataset.json as parts of a manifest (Isensee et al., Nature Methods
 * 18, 2021). What is not expressed is a gap; the steps themselves are those of nnunetv2's
 * DefaultPreprocessor, predictor and export.
 */
import { ownValue } from "../../base/own-value.js";
import { z } from "zod";
import { jsonOf, namesInOrder, parsedAs } from "./json.js";
import { rolesOf } from "./channels.js";
import { Gaps, isOrientation, type ImportChoices, type Imported } from "./gaps.js";

/** nnunetv2.configuration.ANISO_THRESHOLD */
const ANISOTROPIC = 3;

const ofBoth = {
  is_seg: z.literal(false).default(false),
  separate_z_anisotropy_threshold: z.number().default(ANISOTROPIC),
};
// Slices that are always resampled apart are not offered
const separate = z.literal(false).nullable();

/** Arguments of resample_data_or_seg_to_shape, with its defaults. */
const kwargs = z.strictObject({
  ...ofBoth,
  order: z.int().default(3),
  order_z: z.literal(0).default(0),
  force_separate_z: separate.default(false),
});

/**
 * Those of resample_torch_fornnunet: linear, and the nearest of slices that are resampled apart, as
 * order 1 is.
 */
const torchKwargs = z
  .strictObject({
    ...ofBoth,
    num_threads: z.int().optional(),
    memefficient_seg_resampling: z.boolean().optional(),
    mode: z.literal("linear").default("linear"),
    aniso_axis_mode: z.literal("nearest-exact").default("nearest-exact"),
    force_separate_z: separate.default(null),
  })
  .transform((given) => ({ ...given, order: 1 }));

const RESAMPLING = new Map<string, typeof kwargs | typeof torchKwargs>([
  ["resample_data_or_seg_to_shape", kwargs],
  ["resample_torch_fornnunet", torchKwargs],
]);

const configuration = z.looseObject({
  inherits_from: z.string().optional(),
  preprocessor_name: z.string().optional(),
  patch_size: z.array(z.int().positive()).optional(),
  spacing: z.array(z.number().positive()).optional(),
  normalization_schemes: z.array(z.string()).optional(),
  use_mask_for_norm: z.array(z.boolean()).optional(),
  resampling_fn_data: z.string().optional(),
  resampling_fn_data_kwargs: z.unknown().optional(),
  resampling_fn_probabilities: z.string().optional(),
  resampling_fn_probabilities_kwargs: z.unknown().optional(),
  previous_stage: z.union([z.string(), z.array(z.string())]).nullish(),
});
type Configuration = z.infer<typeof configuration>;

/** Fields of a configuration that are of training, or of the network that the graph is. */
const OF_TRAINING = [
  "data_identifier",
  "batch_size",
  "median_image_size_in_voxels",
  "batch_dice",
  "architecture",
  "next_stage",
  "resampling_fn_seg",
  "resampling_fn_seg_kwargs",
  "UNet_class_name",
  "UNet_base_num_features",
  "n_conv_per_stage_encoder",
  "n_conv_per_stage_decoder",
  "num_pool_per_axis",
  "pool_op_kernel_sizes",
  "conv_kernel_sizes",
  "unet_max_num_features",
];
const KNOWN_FIELDS = new Set([...OF_TRAINING, ...Object.keys(configuration.shape)]);

const plansSchema = z.object({
  dataset_name: z.string().optional(),
  image_reader_writer: z.string(),
  transpose_forward: z.array(z.int().min(0).max(2)).length(3),
  transpose_backward: z.array(z.int()).optional(),
  label_manager: z.string().optional(),
  configurations: z.record(z.string(), configuration),
  foreground_intensity_properties_per_channel: z.record(
    z.string(),
    z.object({
      mean: z.number(),
      std: z.number(),
      percentile_00_5: z.number(),
      percentile_99_5: z.number(),
    }),
  ),
});

const datasetSchema = z.object({
  channel_names: z.record(z.string(), z.string()).optional(),
  modality: z.record(z.string(), z.string()).optional(),
  labels: z.record(z.string(), z.union([z.int(), z.array(z.int()).min(1)])),
  regions_class_order: z.array(z.int()).optional(),
  name: z.string().optional(),
  description: z.string().optional(),
  reference: z.string().optional(),
  release: z.string().optional(),
  file_ending: z.string().optional(),
});

/** Least weight of a Gaussian window that nnU-Net's own never falls below. */
const LEAST_WEIGHT = 1e-12;
const AXES = ["depth", "height", "width"] as const;
/** Readers of volumes in millimetres. */
const VOLUME_READERS = [
  "SimpleITKIO",
  "SimpleITKIOWithReorient",
  "NibabelIO",
  "NibabelIOWithReorient",
];
/** Those that turn images to RAS, however they lie in their files. */
const TURNING_READERS = VOLUME_READERS.filter((name) => name.endsWith("WithReorient"));
/** The reader of pictures: single images, whose pixels have no size. */
const PICTURES = "NaturalImage2DIO";
/** Formats of pictures that both read, by the ending of the training files. */
const PICTURE_FORMATS = new Map([
  [".png", "png"],
  [".tif", "tiff"],
]);

export interface NnunetFiles {
  plans: unknown;
  /** Its text, because the order of labels counts. */
  dataset: string;
  /** Name of the folder: TRAINER__PLANS__CONFIGURATION where nnU-Net made it. */
  folder: string;
  /** What export_nnunet.py knows beside the plans; a choice takes the place of a field. */
  exported?: Pick<ImportChoices, "configuration" | "mirror" | "orientation">;
  /** Contents of the file of roles, where there is one. */
  roles?: unknown;
}

/** The trainer and the configuration that nnU-Net names a folder after; none in other names. */
function namesOfFolder(folder: string): string[] {
  const [trainer = "", plans = "", ...rest] = folder.split("__");
  const configuration = rest.join("__");
  const isNamed = /^nnUNetTrainer\w*$/.test(trainer) && plans !== "" && /^\w+$/.test(configuration);
  return isNamed ? [trainer, configuration] : [];
}

/**
 * @throws RadserveError bad_request for files that are not what nnU-Net v2 writes, and for choices
 * that they lack.
 */
export function importNnunet(files: NnunetFiles, given: ImportChoices, gaps: Gaps): Imported {
  const choices: ImportChoices = { ...files.exported, ...given };
  const plans = parsedAs(plansSchema, files.plans, "plans.json");
  const dataset = parsedAs(datasetSchema, jsonOf(files.dataset, "dataset.json"), "dataset.json");
  const labelled = namesInOrder(files.dataset, "labels", "dataset.json").map((label) => ({
    label,
    value: ownValue(dataset.labels, label) ?? 0,
  }));
  const [trainer, folderConfiguration] = namesOfFolder(files.folder);
  const name = choices.configuration ?? folderConfiguration;
  const configured = chosenConfiguration(plans.configurations, name, gaps);
  const chosen = configured ?? {};
  // What a configuration lacks that cannot be read need not be said too
  const ofChosen = configured === undefined ? new Gaps() : gaps;
  const names = Object.values(dataset.channel_names ?? dataset.modality ?? {});
  if (names.length === 0)
    gaps.refuse("dataset.json: channel_names", "Expected at least one channel");
  const reader = plans.image_reader_writer;
  const pictures = reader === PICTURES;
  if (!pictures && !VOLUME_READERS.includes(reader))
    gaps.refuse(
      "plans.json: image_reader_writer",
      `${reader} is not known; ${[...VOLUME_READERS, PICTURES].join(", ")} are`,
    );
  const back = plans.transpose_backward?.map((axis) => plans.transpose_forward[axis]) ?? [0, 1, 2];
  if (back.join() !== "0,1,2")
    gaps.refuse("plans.json: transpose_backward", "Expected the way back of transpose_forward");
  if ((plans.label_manager ?? "LabelManager") !== "LabelManager")
    gaps.refuse(
      "plans.json: label_manager",
      `${plans.label_manager} is not known; LabelManager is`,
    );
  const channels = names.map((channel, place) => ({
    name: channel,
    prepared: valuesOf(
      place,
      plans.foreground_intensity_properties_per_channel,
      chosen,
      pictures ? "image" : "volume",
      ofChosen,
    ),
  }));
  const accepts = pictures
    ? acceptsPictures(dataset.file_ending, channels.length, choices, gaps)
    : {
        ...acceptsOf(names, choices.modality, gaps),
        ...(choices.single === true ? { dimensions: "2d" } : {}),
      };
  const several =
    channels.length > 1 && !pictures
      ? rolesOf(channels, files.roles, accepts.modality ?? [], gaps)
      : undefined;
  if (several === undefined && files.roles !== undefined)
    gaps.refuse(
      "--roles",
      "The network has one channel, which is one series, or is one of pictures",
    );
  const prepared =
    several === undefined
      ? channels[0]?.prepared
      : { normalisation: { kind: "none" }, background: 0, roles: several.ofInput };
  const input = pictures
    ? {
        ...pictureInput(
          plans.transpose_forward,
          channels.map((one) => one.prepared),
          chosen,
          ofChosen,
        ),
        ...prepared,
      }
    : {
        ...volumeInput(
          plans.transpose_forward,
          reader,
          TURNING_READERS.includes(reader) ? given : choices,
          gaps,
        ),
        ...prepared,
        resampling: resamplingOf(chosen, ofChosen),
      };
  if (choices.single === true) {
    if (reader !== "SimpleITKIO" || channels.length > 1 || chosen.patch_size?.length !== 2)
      gaps.refuse(
        "--single",
        "Expected a 2d configuration of one channel, whose images SimpleITKIO reads",
      );
    if (plans.transpose_forward.join() !== "0,1,2")
      gaps.refuse("plans.json: transpose_forward", "Expected 0, 1, 2 for single images");
  }
  const output = outputOf(
    labelled,
    dataset.regions_class_order,
    pictures || choices.single === true ? "area" : "volume",
    gaps,
  );
  const cascade = cascadeOf(chosen, output, choices.previous, gaps);
  if (/totalsegmentator/i.test(`${dataset.name} ${plans.dataset_name}`))
    gaps.note(
      "plans.json: dataset_name",
      "This is nnU-Net alone. TotalSegmentator resamples and turns volumes by itself before and after it, and makes one map of several parts: about 1 voxel in 100 gets another label",
    );
  return {
    accepts,
    ...(several === undefined ? {} : { roles: several.roles }),
    input: { ...input, ...cascade },
    output,
    tiling: tilingOf(chosen, trainer, choices.mirror, ofChosen),
    about: {
      version: /^[0-9A-Za-z.+-]{1,64}$/.test(dataset.release ?? "")
        ? (dataset.release ?? "1")
        : "1",
      manufacturer: (dataset.reference ?? "").slice(0, 64) || "not stated",
      description:
        dataset.description ??
        `nnU-Net, ${dataset.name ?? plans.dataset_name ?? "a data set without a name"}`,
      intended_use: "Not stated in dataset.json.",
    },
  };
}

/** Undefined if it cannot be read. */
function chosenConfiguration(
  all: Record<string, Configuration>,
  name: string | undefined,
  gaps: Gaps,
): Configuration | undefined {
  const names = Object.keys(all);
  const chosen = name ?? (names.length === 1 ? names[0] : undefined);
  const whole = chosen === undefined ? undefined : ownValue(all, chosen);
  if (chosen === undefined || whole === undefined) {
    gaps.refuse(
      "plans.json: configurations",
      `${chosen === undefined ? "Several" : `No "${chosen}"`}: choose one of ${names.join(", ")} with --configuration`,
    );
    return undefined;
  }
  // As nnU-Net resolves it: what a configuration lacks is its parent's.
  let merged = whole;
  const seen = [chosen];
  for (let parent = whole.inherits_from; parent !== undefined;) {
    const child = seen.at(-1) ?? "";
    const from = ownValue(all, parent);
    if (from === undefined || seen.includes(parent)) {
      gaps.refuse(
        `plans.json: configurations.${child}.inherits_from`,
        from === undefined
          ? `Expected one of ${names.join(", ")}, found "${parent}"`
          : `"${parent}" inherits from "${child}" itself`,
      );
      return undefined;
    }
    seen.push(parent);
    merged = { ...from, ...merged };
    parent = from.inherits_from;
  }
  if (merged.preprocessor_name !== undefined && merged.preprocessor_name !== "DefaultPreprocessor")
    gaps.refuse(
      `plans.json: configurations.${chosen}.preprocessor_name`,
      `${merged.preprocessor_name}: its steps are not known; DefaultPreprocessor is`,
    );
  for (const field of Object.keys(merged).filter((key) => !KNOWN_FIELDS.has(key)))
    gaps.refuse(`plans.json: configurations.${chosen}.${field}`, "This field is not known");
  return merged;
}

/** The labels of the stage before, which has the same labels, as channels. */
function cascadeOf(
  { previous_stage: stage }: Configuration,
  output: Record<string, unknown>,
  previous: string | undefined,
  gaps: Gaps,
): Record<string, unknown> {
  if (stage === undefined || stage === null) return {};
  const field = "plans.json: previous_stage";
  if (previous === undefined)
    gaps.refuse(
      field,
      `The network is also given the labels of ${[stage].flat().join(", ")}: import that first, beside this one, and name its folder with --previous`,
    );
  if (output["activation"] !== "softmax")
    gaps.refuse(field, "Regions of the stage before are not offered");
  const labels = (output["labels"] as { label: string }[]).map(({ label }) => label);
  return { cascade: { model: previous ?? "?", labels } };
}

/** The fields that volumes and pictures have in common. */
const INPUT = {
  size: { kind: "source" },
  monochrome1: "refuse",
  channels: "grayscale",
  colour_source: "refuse",
} as const;

function volumeInput(
  transpose: readonly number[],
  reader: string,
  choices: ImportChoices,
  gaps: Gaps,
): Record<string, unknown> {
  if ([...transpose].sort().join() !== "0,1,2")
    gaps.refuse(
      "plans.json: transpose_forward",
      `Expected each of three axes once, found ${transpose.join(", ")}`,
    );
  // Their arrays are z, y, x
  const turned = TURNING_READERS.includes(reader) ? "SAR" : undefined;
  // A single image has no sides of its own: it is taken as it lies
  const letters = choices.orientation ?? (choices.single === true ? "SPL" : turned);
  if (turned !== undefined && letters !== turned)
    gaps.refuse(
      "--orientation",
      `${reader} turns images to ${turned}: expected no other, found ${letters}`,
    );
  if (!isOrientation(letters))
    gaps.refuse(
      "plans.json: image_reader_writer",
      `${reader} takes images as they lie in their files, and the plans do not say how the training images lay. Say it with --orientation, for depth, height and width: SPL as DICOM series lie (SimpleITK), SAL or SAR as most NIfTI files lie (nib.axcodes, from the last to the first)`,
    );
  return {
    ...INPUT,
    layout: "NCDHW",
    fit: "stretch",
    interpolation: "spline",
    values: { kind: "modality" },
    orientation: transpose.map((axis) => letters?.[axis] ?? "?").join(""),
  };
}

/** A picture as it is stored, which nnU-Net takes for pixels of 1 mm. */
function pictureInput(
  transpose: readonly number[],
  channels: readonly Record<string, unknown>[],
  { spacing = [], use_mask_for_norm: masked = [] }: Configuration,
  gaps: Gaps,
): Record<string, unknown> {
  if (transpose.join() !== "0,1,2")
    gaps.refuse("plans.json: transpose_forward", "Expected 0, 1, 2 for pictures");
  if (spacing.join() !== "1,1")
    gaps.refuse("plans.json: spacing", `Expected 1, 1 for pictures, found ${spacing.join(", ")}`);
  if (masked.includes(true))
    gaps.refuse("plans.json: use_mask_for_norm", "Expected false for pictures");
  const colour = channels.length === 3;
  const alike = channels.every((one) => JSON.stringify(one) === JSON.stringify(channels[0]));
  const [first = {}] = channels;
  const measured = ["z_score", "min_max"].includes(
    (first["normalisation"] as { kind: string }).kind,
  );
  if (channels.length !== 1 && !colour)
    gaps.refuse(
      "dataset.json: channel_names",
      `Expected one channel or three, found ${channels.length}`,
    );
  if (colour && (!alike || measured))
    gaps.refuse(
      "plans.json: normalization_schemes",
      "Colours that are normalised each by itself are not offered",
    );
  return {
    ...INPUT,
    layout: "NCHW",
    fit: "none",
    interpolation: "linear",
    values: { kind: "stored" },
    ...(colour ? { channels: "rgb", colour_source: "accept" } : {}),
    crop: "nonzero",
  };
}

/** Clip, normalisation and background of one channel. */
function valuesOf(
  place: number,
  intensities: z.infer<typeof plansSchema>["foreground_intensity_properties_per_channel"],
  { normalization_schemes: schemes = [], use_mask_for_norm: masked = [] }: Configuration,
  over: "image" | "volume",
  gaps: Gaps,
): Record<string, unknown> {
  const scheme = schemes[place] ?? "";
  const intensity = intensities[String(place)];
  switch (scheme) {
    case "CTNormalization": {
      if (intensity === undefined) {
        gaps.refuse(
          "plans.json: foreground_intensity_properties_per_channel",
          `CTNormalization needs those of channel ${place}`,
        );
        return {};
      }
      const { mean, std, percentile_00_5: low, percentile_99_5: high } = intensity;
      // nnU-Net divides by 1e-8 then, and no network can have learnt from that
      if (std <= 0)
        gaps.refuse(
          `plans.json: foreground_intensity_properties_per_channel.${place}.std`,
          `Expected more than 0, found ${std}`,
        );
      return {
        clip: [low, high],
        normalisation: { kind: "mean_std", mean: [mean], std: [Math.max(std, 1e-8)] },
        background: -1024,
      };
    }
    case "ZScoreNormalization":
      return {
        normalisation: {
          kind: "z_score",
          over,
          ...(masked[place] === true ? { of: "nonzero" } : {}),
        },
        background: 0,
      };
    case "RescaleTo01Normalization":
      return { normalisation: { kind: "min_max", over, to: [0, 1] }, background: 0 };
    case "RGBTo01Normalization":
      return { normalisation: { kind: "scale", multiply: 1 / 255, add: 0 }, background: 0 };
    case "NoNormalization":
      return { normalisation: { kind: "none" }, background: 0 };
    default:
      gaps.refuse("plans.json: normalization_schemes", `"${scheme}" is not known`);
      return { normalisation: { kind: "none" }, background: 0 };
  }
}

function resamplingOf(chosen: Configuration, gaps: Gaps): Record<string, unknown> {
  const { spacing = [], patch_size: patch = [] } = chosen;
  const given = (part: "data" | "probabilities") => {
    const key = `resampling_fn_${part}` as const;
    const found = chosen[key] ?? "no function";
    const known = RESAMPLING.get(found);
    if (known === undefined)
      gaps.refuse(
        `plans.json: ${key}`,
        `${found} is not known; ${[...RESAMPLING.keys()].join(" and ")} are`,
      );
    const parsed = (known ?? kwargs).safeParse(chosen[`${key}_kwargs`]);
    if (parsed.success) return parsed.data;
    for (const { path, message } of parsed.error.issues)
      gaps.refuse(["plans.json", [`${key}_kwargs`, ...path].join(".")].join(": "), message);
    return kwargs.parse({});
  };
  const forward = given("data");
  const back = given("probabilities");
  if (![0, 1, 3].includes(forward.order))
    gaps.refuse(
      "plans.json: resampling_fn_data_kwargs.order",
      `Expected 0, 1 or 3, found ${forward.order}`,
    );
  if (![0, 1].includes(back.order))
    gaps.refuse(
      "plans.json: resampling_fn_probabilities_kwargs.order",
      `Expected 0 or 1, found ${back.order}`,
    );
  for (const key of ["force_separate_z", "separate_z_anisotropy_threshold"] as const)
    if (forward[key] !== back[key])
      gaps.refuse(`plans.json: ${key}`, "Data and probabilities differ in it");
  if (spacing.length !== patch.length || spacing.length < 2)
    gaps.refuse(
      "plans.json: spacing",
      `Expected as many spacings as the patch has sides, two or three; found ${spacing.length} and ${patch.length}`,
    );
  if (forward.force_separate_z === null)
    checkCoarse(spacing, forward.separate_z_anisotropy_threshold, gaps);
  return {
    grid: "edges",
    spacing_mm: spacing.length === 2 ? [null, ...spacing] : spacing,
    order: forward.order,
    order_back: back.order,
    ...(forward.force_separate_z === false
      ? {}
      : { separate_above: forward.separate_z_anisotropy_threshold }),
    keep_range: true,
    clip: "before",
    crop: "nonzero",
    activation: "after",
  };
}

/**
 * Where one axis of the network's grid is coarser than the others, nnU-Net resamples each slice
 * across it by itself; here such slices are those of the series.
 */
function checkCoarse(spacing: readonly number[], above: number, gaps: Gaps): void {
  const [least, most] = [Math.min(...spacing), Math.max(...spacing)];
  const coarse = spacing.indexOf(most);
  const shares = spacing.lastIndexOf(most) !== coarse;
  if (most / least <= above || shares) return;
  const text = `${spacing.join(", ")} mm`;
  if (spacing.length === 2)
    gaps.note(
      "plans.json: spacing",
      `The network's pixels are ${text}: nnU-Net resamples a series whose slices lie less than ${most} mm apart across the rows or columns, and such a series is not accepted here`,
    );
  else if (coarse !== 0)
    gaps.refuse(
      "plans.json: spacing",
      `The network's voxels are ${text}, coarse within its slices: nnU-Net resamples each slice across that axis by itself. Expected the coarse axis first, as nnU-Net plans it (transpose_forward)`,
    );
}

function acceptsPictures(
  ending: string | undefined,
  channels: number,
  { modality, orientation }: ImportChoices,
  gaps: Gaps,
) {
  const format = PICTURE_FORMATS.get(ending ?? "");
  if (format === undefined)
    gaps.refuse(
      "dataset.json: file_ending",
      `Expected ${[...PICTURE_FORMATS.keys()].join(" or ")} for pictures, found ${ending ?? "none"}`,
    );
  if (orientation !== undefined)
    gaps.note("--orientation", "Pictures have no patient's sides: it does not count");
  if (modality !== undefined)
    gaps.note(
      "--modality",
      `The network was trained on ${ending ?? "pictures"}; DICOM is taken with the values that are stored, which may mean something else`,
    );
  return {
    formats: [format ?? "png", ...(modality === undefined ? [] : ["dicom"])],
    ...(modality === undefined ? {} : { modality: modality.split(",").map((name) => name.trim()) }),
    photometric: [channels === 1 ? "MONOCHROME2" : "RGB"],
    dimensions: "2d",
  };
}

function acceptsOf(channels: readonly string[], asked: string | undefined, gaps: Gaps) {
  const other = channels.find((channel) => channel !== "CT");
  const modality =
    asked?.split(",").map((name) => name.trim()) ?? (other === undefined ? ["CT"] : ["?"]);
  if (asked === undefined && other !== undefined)
    gaps.refuse(
      "dataset.json: channel_names",
      `"${other}" is not a modality of DICOM: say which one the network takes with --modality, for example MR${channels.length > 1 ? ", or several with commas" : ""}`,
    );
  return {
    formats: ["dicom"],
    modality,
    dimensions: "series",
    ...(modality.every((name) => name === "CT") ? { units: ["HU"] } : {}),
  };
}

/** @param labelled in the order of dataset.json, which is that of the channels of regions */
function outputOf(
  labelled: readonly { label: string; value: number | number[] }[],
  order: readonly number[] | undefined,
  measurement: "area" | "volume",
  gaps: Gaps,
): Record<string, unknown> {
  const isBackground = (value: number | number[]) => [value].flat().every((v) => v === 0);
  const foreground = labelled.filter(
    ({ label, value }) => label !== "ignore" && !isBackground(value),
  );
  // A list of one label is that label to nnU-Net
  const regions = foreground.some(({ value }) => Array.isArray(value) && value.length > 1);
  const common = { kind: "segmentation", postprocess: [], measurements: [measurement] };
  if (regions) {
    if (order === undefined)
      gaps.refuse("dataset.json: regions_class_order", "Expected it, because labels are regions");
    else if (order.length !== foreground.length)
      gaps.refuse(
        "dataset.json: regions_class_order",
        `Expected ${foreground.length} numbers, one for each region, found ${order.length}`,
      );
    gaps.note(
      "dataset.json: regions_class_order",
      "Each region is a label of its own here, and regions may overlap; nnU-Net also lays them over each other, in this order, as one map",
    );
    return {
      ...common,
      activation: "sigmoid",
      labels: foreground.map(({ label }) => ({ label, threshold: 0.5 })),
    };
  }
  const sorted = foreground
    .map(({ label, value }) => ({ label, value: Number(value) }))
    .sort((a, b) => a.value - b.value);
  if (sorted.some(({ value }, i) => value !== i + 1))
    gaps.refuse(
      "dataset.json: labels",
      `Expected the numbers 1 to ${sorted.length}, found ${sorted.map(({ value }) => value).join(", ")}`,
    );
  return { ...common, activation: "softmax", labels: sorted.map(({ label }) => ({ label })) };
}

function tilingOf(
  { patch_size: window = [] }: Configuration,
  trainer: string | undefined,
  choice: string | undefined,
  gaps: Gaps,
): Record<string, unknown> {
  const known: Record<string, string> = { nnUNetTrainer: "all", nnUNetTrainerNoMirroring: "none" };
  const mirror = choice ?? ownValue(known, trainer ?? "");
  const axes = AXES.slice(3 - window.length);
  const chosen =
    mirror === "all"
      ? axes.map((_, i) => i)
      : mirror === "none"
        ? []
        : (mirror ?? "").split(",").map(Number);
  if (mirror === undefined || chosen.some((axis) => axes[axis] === undefined))
    gaps.refuse(
      "the trainer",
      `Along which axes inference may be mirrored is in the trainer's checkpoint, not in the plans${trainer === undefined ? "" : `, and ${trainer} is not known`}. Say it with --mirror: all (nnUNetTrainer), none (nnUNetTrainerNoMirroring), or axes as 0,1`,
    );
  const names = chosen.flatMap((axis) => axes[axis] ?? []);
  return {
    window,
    overlap: 0.5,
    steps: "even",
    weights: { kind: "gaussian", sigma: 0.125, centre: "half", least: LEAST_WEIGHT },
    ...(names.length === 0 ? {} : { mirror: names }),
    padding: 0,
  };
}
