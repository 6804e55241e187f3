/**
 * The transforms and inferers of MONAI that a manifest can express, each with all its arguments
 * (MONAI 1.5). An argument is one that changes neither values nor places here (`any`), or has a
 * meaning, or ends the import by its name. What is not in these tables is not known, and ends it
 * too.
 */
import { z } from "zod";
import {
  Expression,
  isComponent,
  Reference,
  shown,
  type BundleConfig,
  type ConfigFields,
} from "./bundle-config.js";
import type { Gaps } from "./gaps.js";

/** Refuses an argument, or the whole step where it is undefined. */
type Refuse = (argument: string | undefined, message: string) => void;

/** A change of values by their own statistics. */
export interface MeasuredStep {
  /** `kind` and what is its alone. */
  step: Record<string, unknown>;
  nonzero: boolean;
  eachChannel: boolean;
  /** Whether Spacingd or Resized came before it. */
  after: boolean;
  refuse: Refuse;
}

/** The meaning of the steps, from the file's voxels to labels. */
export interface Chain {
  orientation?: string;
  spacing?: number[];
  resized?: {
    sides: number[];
    how: Record<string, unknown>;
    /** Whether the mode is one of pictures, or of volumes, alone. */
    pictures: boolean;
    volumes: boolean;
    refuse: Refuse;
  };
  clip?: { range: [number, number]; after: boolean };
  /** Of numbers that are the same for all images. */
  normalisation?: Record<string, unknown>;
  /** Behind it, one after the other. */
  measured: MeasuredStep[];
  foreground?: boolean;
  /** `nearest`: by the nearest voxel. */
  inverted?: { nearest: boolean };
  activation?: { kind: "softmax" | "sigmoid"; inverted: boolean };
  /** The first channel is the background, though channels do not exclude each other. */
  firstIsNone?: boolean;
  /** The highest channel, or all from a threshold on. */
  decided?: "argmax" | { threshold: number };
  /** Lambdad took the background away, so that the channels behind it have other numbers. */
  withoutBackground?: boolean;
  /** Channels were joined to one map, whose values are others than the channels' numbers. */
  joinedToMap?: boolean;
  /**
   * Only the largest region of these labels stays; where there is no list, MONAI chooses them.
   * `first` is the channel that has the number 0.
   */
  largest?: { labels: number[] | undefined; first: number; corners: boolean };
  tiling?: Record<string, unknown>;
  /** Sides of its windows. */
  windows?: { sides: number; refuse: Refuse };
  /** The images of which the channels are made, in their order. */
  joined?: string[];
  /** Each slice across this axis is an image of its own. */
  sliced?: number;
}

/** The chain that a component is read for, and its place: preprocessing.3 for example. */
export interface At {
  chain: Chain;
  config: BundleConfig;
  path: string;
  gaps: Gaps;
  /** The names of what becomes the network's input: several before they are joined. */
  images: readonly string[];
  /** A step that is done though the file disables it. */
  enabled?: string;
}
type TransformStep = (component: ConfigFields, at: At) => void;
type Steps = ReadonlyMap<string, TransformStep>;
const stepsOf = (steps: Record<string, TransformStep>): Steps => new Map(Object.entries(steps));

/**
 * MONAI's engines hold the image, and what the network gives, under these names. A step that acts
 * on the image acts on all that become it.
 */
const IMAGE = "image";
const PREDICTION = "pred";

const any = z.unknown().optional();
const number = z.number({ error: "Expected a number" });
/**
 * As Python has it. A text is true unless it is empty, "False" too: what was meant is for a person
 * to say.
 */
const truth = any.transform((value, context): boolean => {
  if (value === undefined || value === null || value === false || value === 0) return false;
  if (
    value === true ||
    value === 1 ||
    (typeof value === "string" && value.toLowerCase() === "true")
  )
    return true;
  const text = typeof value === "string" ? "; MONAI takes any text for true" : "";
  context.addIssue({ code: "custom", message: `Expected true or false${text}` });
  return false;
});
const off = truth.refine((value) => !value, { error: "Expected false" });
const on = truth.refine((value) => value, { error: "Expected true" }).default(true);
const none = z.null({ error: "Expected none" }).optional();
const floating = z.enum(["float32", "float64"], { error: "Expected float32 or float64" }).nullish();
const usual = (...wanted: unknown[]) =>
  any.refine(
    (value) =>
      value === undefined || wanted.some((one) => JSON.stringify(one) === JSON.stringify(value)),
    { error: `Expected ${wanted.map((one) => JSON.stringify(one)).join(" or ")}` },
  );
const labelNumber = z.int("Expected label numbers").min(0, "Expected label numbers");
const percent = number.min(0, "Expected 0 to 100").max(100, "Expected 0 to 100");
const three = z.array(number.positive("Expected numbers above 0"), {
  error: "Expected three numbers",
});
const sides = three.length(3, "Expected three numbers");
const letters = z
  .string({ error: "Expected three letters" })
  .regex(/^[LRAPSI]{3}$/, "Expected three letters");
/** Which text stands for a reference to a part of the file. */
const part = (id: string) =>
  z.unknown().refine((value) => value instanceof Reference && value.id === id, {
    error: `Expected "@${id}"`,
  });

/** Arguments that say nothing of values or places. */
const anyOf = (...names: string[]) => Object.fromEntries(names.map((name) => [name, any]));

const SPECIAL = {
  _target_: any,
  ...anyOf("_disabled_", "_requires_", "_desc_"),
  _mode_: usual("default"),
};

/**
 * A component by its arguments.
 * @param apply what it does to the chain; of a component that changes nothing there is none
 * @param acts on which of the engine's items it has to act
 * @param each arguments that may be lists, with a value for each of `keys`
 */
function step<S extends z.ZodRawShape>(
  shape: S,
  apply?: (given: z.output<z.ZodObject<S>>, chain: Chain, refuse: Refuse, at: At) => void,
  acts?: string,
  each: (keyof S & string)[] = [],
): TransformStep {
  const schema = z.strictObject({ ...SPECIAL, ...shape });
  return (component, at) => {
    const { chain, config, path, gaps } = at;
    const refuse: Refuse = (argument, message) => {
      const field = argument !== undefined && argument in component ? argument : undefined;
      const place = `${config.placeOf(component, field)}: ${path}`;
      gaps.refuse(argument === undefined ? place : `${place}.${argument}`, message);
    };
    const given = Object.fromEntries(
      Object.entries(component).map(([name, value]) => [name, config.resolve(value)]),
    );
    const keys = [given["keys"]].flat();
    const acting = acts === IMAGE ? at.images : acts === undefined ? [] : [acts];
    if (!acting.every((one) => keys.includes(one))) {
      const expected = acting.map((one) => `"${one}"`).join(" and ");
      refuse("keys", `Expected ${expected}, found ${shown(given["keys"])}`);
      return;
    }
    for (const name of each) {
      const list = given[name];
      if (!Array.isArray(list)) continue;
      const own = acting.map((one) => list[list.length === 1 ? 0 : keys.indexOf(one)] as unknown);
      if (own.some((one) => JSON.stringify(one) !== JSON.stringify(own[0])))
        refuse(name, `Expected the same for ${acting.join(", ")}`);
      given[name] = own[0];
    }
    const parsed = schema.safeParse(given);
    if (parsed.success) apply?.(parsed.data as z.output<z.ZodObject<S>>, chain, refuse, at);
    else
      for (const issue of parsed.error.issues)
        if (issue.code === "unrecognized_keys")
          issue.keys.forEach((name) =>
            refuse(name, `This argument is not known: ${shown(given[name])}`),
          );
        else {
          const name = String(issue.path[0]);
          refuse(name, `${issue.message}, found ${shown(given[name])}`);
        }
  };
}

const of = { keys: any, allow_missing_keys: any };

/** They change neither values nor places. */
const HARMLESS: Record<string, TransformStep> = {
  LoadImaged: step({
    ...of,
    // Others know no patient's sides
    reader: z
      .string({ error: "Expected NibabelReader, ITKReader, PydicomReader or PILReader" })
      .regex(
        /^(nibabel|itk|pydicom|pil)(reader)?$/i,
        "Expected NibabelReader, ITKReader, PydicomReader or PILReader",
      )
      .nullish(),
    dtype: floating,
    affine_lps_to_ras: on,
    as_closest_canonical: off,
    ...anyOf("meta_keys", "meta_key_postfix", "overwriting", "image_only", "ensure_channel_first"),
    ...anyOf("simple_keys", "prune_meta_pattern", "prune_meta_sep", "expanduser"),
  }),
  // Colours are behind the sides of a picture, whether this says it or its reader
  EnsureChannelFirstd: step({
    ...of,
    strict_check: any,
    channel_dim: usual("no_channel", null, -1, 2),
  }),
  EnsureTyped: step({
    ...of,
    ...anyOf("data_type", "device", "wrap_sequence"),
    dtype: floating,
    track_meta: on.nullable(),
  }),
  ToTensord: step({
    ...of,
    ...anyOf("device", "wrap_sequence"),
    dtype: floating,
    track_meta: on.nullable(),
  }),
  ToDeviced: step({ ...of, ...anyOf("device", "non_blocking") }),
  CastToTyped: step({ ...of, dtype: floating }),
  DeleteItemsd: step({ keys: any, sep: any, use_re: off }, ({ keys }, _, refuse) => {
    if ([keys].flat().includes(PREDICTION)) refuse("keys", `Expected others than "${PREDICTION}"`);
  }),
};

const PREPROCESSING = stepsOf({
  ...HARMLESS,
  Orientationd: step(
    {
      ...of,
      axcodes: letters,
      as_closest_canonical: off,
      labels: usual(null, [
        ["L", "R"],
        ["P", "A"],
        ["I", "S"],
      ]),
      lazy: off,
    },
    ({ axcodes }, chain, refuse) => {
      if (chain.orientation !== undefined || isPlaced(chain))
        refuse(
          undefined,
          "Expected it once, and before Spacingd, whose pixdim is along the axes then",
        );
      chain.orientation = axcodes;
    },
    IMAGE,
  ),
  Spacingd: step(
    {
      ...of,
      pixdim: sides,
      mode: usual("bilinear"),
      padding_mode: usual("border"),
      dtype: floating,
      diagonal: off,
      align_corners: off,
      scale_extent: off,
      recompute_affine: off,
      lazy: off,
      min_pixdim: none,
      max_pixdim: none,
      ensure_same_shape: any,
    },
    ({ pixdim }, chain, refuse) => {
      if (isPlaced(chain)) refuse(undefined, "Expected it once, and no Resized");
      checkForeground(chain, refuse);
      chain.spacing = pixdim;
    },
    IMAGE,
    ["mode", "padding_mode", "align_corners", "dtype"],
  ),
  Resized: step(
    {
      ...of,
      spatial_size: z.array(
        number.int("Expected whole numbers").positive("Expected numbers above 0"),
        {
          error: "Expected a list of numbers",
        },
      ),
      size_mode: usual("all"),
      mode: z
        .enum(["area", "bilinear", "bicubic", "trilinear", "nearest-exact"], {
          error: "Expected area, bilinear, bicubic, trilinear or nearest-exact",
        })
        .default("area"),
      align_corners: off.nullable(),
      anti_aliasing: off,
      anti_aliasing_sigma: none,
      dtype: floating,
      lazy: off,
    },
    ({ spatial_size: sides, mode }, chain, refuse) => {
      if (isPlaced(chain)) refuse(undefined, "Expected it once, and no Spacingd");
      const how = {
        area: { interpolation: "adaptive_area" },
        bilinear: { interpolation: "linear", antialias: false },
        trilinear: { interpolation: "linear", antialias: false },
        bicubic: { interpolation: "cubic", antialias: false },
        "nearest-exact": { interpolation: "nearest" },
      }[mode];
      const pictures = mode === "bilinear" || mode === "bicubic";
      chain.resized = { sides, how, pictures, volumes: mode === "trilinear", refuse };
    },
    IMAGE,
    ["mode", "align_corners", "anti_aliasing", "dtype"],
  ),
  // Of renalStructures_CECT_segmentation, to the letter
  "scripts.my_transforms.ConcatImages": step(
    {
      keys_merge: z.array(z.string()).min(2, "Expected two names or more"),
      keys_out: z.literal(IMAGE, { error: `Expected "${IMAGE}"` }),
      allow_missing_keys: any,
    },
    ({ keys_merge: joined }, chain) => {
      chain.joined = joined;
    },
  ),
  CropForegroundd: step(
    {
      ...of,
      source_key: z.literal(IMAGE, { error: `Expected "${IMAGE}"` }),
      select_fn: none,
      channel_indices: none,
      margin: usual(0),
      k_divisible: usual(1),
      lazy: off,
      ...anyOf("allow_smaller", "mode", "start_coord_key", "end_coord_key"),
    },
    (_, chain) => {
      chain.foreground = true;
    },
    IMAGE,
  ),
  ScaleIntensityRanged: step(
    {
      ...of,
      a_min: number,
      a_max: number,
      b_min: number,
      b_max: number,
      clip: truth,
      dtype: floating,
    },
    ({ a_min: from, a_max: to, b_min: low, b_max: high, clip }, chain, refuse) => {
      const multiply = (high - low) / (to - from);
      if (!Number.isFinite(multiply))
        refuse("a_max", `Expected another number than a_min, found ${to}`);
      if (clip && !(from < to && low < high))
        refuse("clip", "Expected a_min below a_max, b_min below b_max");
      if (clip) clipValues(chain, [from, to], refuse);
      normalise(chain, { kind: "scale", multiply, add: low - from * multiply }, refuse);
    },
    IMAGE,
  ),
  ScaleIntensityd: step(
    {
      ...of,
      minv: number.default(0),
      maxv: number.default(1),
      factor: none,
      channel_wise: truth,
      dtype: floating,
    },
    ({ minv, maxv, channel_wise: eachChannel }, chain, refuse) =>
      measure(
        chain,
        { step: { kind: "min_max", to: [minv, maxv] }, nonzero: false, eachChannel },
        refuse,
      ),
    IMAGE,
  ),
  ScaleIntensityRangePercentilesd: step(
    {
      ...of,
      lower: percent,
      upper: percent,
      b_min: number,
      b_max: number,
      clip: truth,
      relative: off,
      channel_wise: truth,
      dtype: floating,
    },
    (
      { lower: low, upper: high, b_min: from, b_max: to, clip, channel_wise: eachChannel },
      chain,
      refuse,
    ) =>
      measure(
        chain,
        {
          step: { kind: "percentile", low, high, to: [from, to], clip },
          nonzero: false,
          eachChannel,
        },
        refuse,
      ),
    IMAGE,
  ),
  NormalizeIntensityd: step(
    {
      ...of,
      subtrahend: numbersOfChannels(),
      divisor: numbersOfChannels(),
      nonzero: truth,
      channel_wise: truth,
      dtype: floating,
    },
    ({ subtrahend: mean, divisor: std, nonzero, channel_wise: eachChannel }, chain, refuse) => {
      if (mean !== undefined && std !== undefined) {
        if (nonzero) refuse("nonzero", "Expected false beside numbers for subtrahend and divisor");
        normalise(chain, { kind: "mean_std", mean, std }, refuse);
      } else if (mean === undefined && std === undefined)
        measure(chain, { step: { kind: "z_score" }, nonzero, eachChannel }, refuse);
      else refuse(undefined, "Expected numbers for both subtrahend and divisor, or neither");
    },
    IMAGE,
  ),
});

/** A number for all channels, or one for each. */
function numbersOfChannels() {
  return any
    .transform((value) => (value === undefined || value === null ? undefined : [value].flat()))
    .pipe(z.array(number).min(1, "Expected numbers").optional());
}

/** Whether the image has been resampled. */
const isPlaced = ({ spacing, resized }: Chain): boolean =>
  spacing !== undefined || resized !== undefined;

function normalise(chain: Chain, normalisation: Record<string, unknown>, refuse: Refuse): void {
  if (chain.normalisation !== undefined || chain.measured.length > 0)
    refuse(
      undefined,
      "Values are changed by numbers after they were changed before: expected it first",
    );
  checkForeground(chain, refuse);
  chain.normalisation = normalisation;
}

/** A manifest can clip values after Spacingd (`resampling`), but not after Resized. */
function clipValues(chain: Chain, range: [number, number], refuse: Refuse): void {
  const { resized } = chain;
  // The nearest pixels are copied whole, so that either order gives the same
  if (resized !== undefined && resized.how["interpolation"] !== "nearest")
    refuse("clip", "Expected Resized behind it: values are clipped before images are resized");
  chain.clip = { range, after: isPlaced(chain) };
}

function measure(
  chain: Chain,
  measured: Omit<MeasuredStep, "after" | "refuse">,
  refuse: Refuse,
): void {
  checkForeground(chain, refuse);
  chain.measured.push({ ...measured, after: isPlaced(chain), refuse });
}

/**
 * A manifest finds the box in the finished tensor, so that CropForegroundd comes last. Orientationd
 * alone may follow it, because turned voxels have the same box.
 */
function checkForeground({ foreground }: Chain, refuse: Refuse): void {
  if (foreground === true) refuse(undefined, "Expected CropForegroundd behind it");
}

const POSTPROCESSING = stepsOf({
  ...HARMLESS,
  SaveImaged: step({
    ...of,
    ...anyOf(
      "meta_keys",
      "meta_key_postfix",
      "output_dir",
      "output_postfix",
      "output_ext",
      "resample",
      "mode",
    ),
    ...anyOf(
      "padding_mode",
      "scale",
      "dtype",
      "output_dtype",
      "squeeze_end_dims",
      "data_root_dir",
      "writer",
    ),
    ...anyOf(
      "separate_folder",
      "print_log",
      "output_format",
      "output_name_formatter",
      "folder_layout",
    ),
    savepath_in_metadict: any,
  }),
  SaveClassificationd: step({
    ...of,
    ...anyOf(
      "meta_keys",
      "meta_key_postfix",
      "saver",
      "output_dir",
      "filename",
      "delimiter",
      "overwrite",
    ),
  }),
  KeepLargestConnectedComponentd: step(
    {
      ...of,
      applied_labels: z
        .union([labelNumber, z.array(labelNumber)], { error: "Expected label numbers" })
        .nullish()
        .transform((labels) =>
          labels === undefined || labels === null ? undefined : [labels].flat(),
        ),
      independent: on,
      connectivity: z.literal([1, null], { error: "Expected 1 or none" }).default(null),
      num_components: usual(1),
      is_onehot: none,
    },
    ({ applied_labels: labels, connectivity }, chain, refuse) => {
      if (chain.decided === undefined || (isPlaced(chain) && chain.inverted === undefined))
        refuse(
          undefined,
          "Expected it behind AsDiscreted and Invertd: regions are those of the source's grid",
        );
      if (chain.largest !== undefined) refuse(undefined, "Expected it once");
      if (chain.joinedToMap === true)
        refuse(undefined, "Expected it before channels are joined to one map");
      const first = chain.withoutBackground === true ? 1 : 0;
      chain.largest = { labels, first, corners: connectivity === null };
    },
    PREDICTION,
  ),
  Lambdad: step(
    { ...of, func: any, inv_func: any, track_meta: any, overwrite: on, lazy: off },
    ({ func }, chain, refuse, { gaps, config, path }) => {
      const text = func instanceof Expression ? func.text : undefined;
      if (text === WITHOUT_BACKGROUND && chain.decided === "argmax") {
        if (chain.withoutBackground === true) refuse(undefined, "Expected it once");
        chain.withoutBackground = true;
        return;
      }
      if (text !== BRATS_LABELS || typeof chain.decided !== "object") {
        refuse("func", "Functions are not run, and this one is not known here");
        return;
      }
      chain.joinedToMap = true;
      gaps.note(
        `${config.file}: ${path}`,
        "It joins the channels to one map of the labels 4, 1 and 2; here each channel is a segment of its own, which holds the same",
      );
    },
    PREDICTION,
  ),
  // Of renalStructures_CECT_segmentation, to the letter
  "scripts.my_transforms.MergeClassesd": step(
    of,
    (_, chain, refuse, { gaps, config, path }) => {
      if (typeof chain.decided !== "object") {
        refuse(undefined, "Expected it behind AsDiscreted with a threshold");
        return;
      }
      chain.firstIsNone = true;
      chain.joinedToMap = true;
      gaps.note(
        `${config.file}: ${path}`,
        "It joins the channels to one map, in which the first of several labels at a voxel counts; here each is a segment of its own, and they may overlap",
      );
    },
    PREDICTION,
  ),
  Activationsd: step(
    { ...of, sigmoid: truth, softmax: truth, other: none, dim: usual(0) },
    ({ sigmoid, softmax }, chain, refuse) => {
      if (sigmoid === softmax) refuse(undefined, "Expected either softmax or sigmoid true");
      if (chain.activation !== undefined || chain.decided !== undefined)
        refuse(undefined, "Expected it once, and before AsDiscreted");
      chain.activation = {
        kind: softmax ? "softmax" : "sigmoid",
        inverted: chain.inverted !== undefined,
      };
    },
    PREDICTION,
    ["sigmoid", "softmax", "other"],
  ),
  Invertd: step(
    {
      ...of,
      transform: part("preprocessing"),
      nearest_interp: truth.default(true),
      post_func: none,
      orig_keys: any.transform((value) => [value ?? IMAGE].flat()),
      ...anyOf("meta_keys", "orig_meta_keys", "meta_key_postfix", "to_tensor", "device"),
    },
    ({ nearest_interp: nearest, orig_keys: from }, chain, refuse) => {
      const leading = chain.joined?.[0] ?? IMAGE;
      if (from.length !== 1 || from[0] !== leading)
        refuse("orig_keys", `Expected "${leading}", in whose grid results lie`);
      if (nearest && chain.resized !== undefined)
        refuse("nearest_interp", "Expected false after Resized; the nearest pixel is not offered");
      if (!nearest && chain.decided !== undefined && isPlaced(chain))
        refuse(
          "nearest_interp",
          "Expected true, or AsDiscreted after it: labels that are chosen before would be mixed to numbers of no label",
        );
      if (chain.inverted !== undefined) refuse(undefined, "Expected it once");
      chain.inverted = { nearest };
    },
    PREDICTION,
    ["nearest_interp", "post_func"],
  ),
  AsDiscreted: step(
    {
      ...of,
      argmax: truth,
      threshold: number.nullish(),
      // Labels stay the same, one to a channel
      to_onehot: number.nullish(),
      rounding: none,
      dim: usual(0),
      keepdim: on,
      dtype: any,
    },
    ({ argmax, threshold, to_onehot: channels }, chain, refuse) => {
      const sigmoid = chain.activation?.kind === "sigmoid";
      if (chain.decided !== undefined) refuse(undefined, "Expected it once");
      if (typeof threshold === "number") {
        if (argmax)
          refuse(
            "threshold",
            "Expected it without argmax: a threshold of label numbers joins labels",
          );
        else if (!sigmoid)
          refuse("threshold", "Expected it after Activationsd with sigmoid true alone");
        if (typeof channels === "number") refuse("to_onehot", "Expected it with argmax alone");
        chain.decided = { threshold };
        return;
      }
      if (!argmax) refuse(undefined, "Expected argmax true, or a number for threshold");
      else if (sigmoid)
        refuse("argmax", "Expected a threshold after Activationsd with sigmoid true");
      chain.decided = "argmax";
    },
    PREDICTION,
    ["argmax", "threshold", "to_onehot", "rounding"],
  ),
});

/**
 * Functions that are known to the letter: of brats_mri_segmentation, and of
 * endoscopic_tool_segmentation.
 */
const BRATS_LABELS =
  "$lambda x: torch.where(x[[2]] > 0, 4, torch.where(x[[0]] > 0, 1, torch.where(x[[1]] > 0, 2, 0)))";
const WITHOUT_BACKGROUND = "$lambda x : x[1:]";

/** A list of the same number for each side is that number. */
const perSide = any
  .transform((value) =>
    Array.isArray(value) && new Set(value).size === 1 ? (value[0] as unknown) : value,
  )
  .pipe(number.optional());

const WINDOWS = {
  overlap: perSide,
  mode: z
    .enum(["constant", "gaussian"], { error: "Expected constant or gaussian" })
    .default("constant"),
  sigma_scale: perSide,
  padding_mode: z
    .enum(["constant", "replicate"], { error: "Expected constant or replicate" })
    .default("constant"),
  cval: number.default(0),
  with_coord: off,
  ...anyOf(
    "sw_batch_size",
    "sw_device",
    "device",
    "progress",
    "cache_roi_weight_map",
    "cpu_thresh",
  ),
  ...anyOf("buffer_steps", "buffer_dim"),
};

/** How windows of these sides go over the image. */
function tilingOf(
  window: number[],
  {
    overlap = 0.25,
    mode,
    sigma_scale: sigma = 0.125,
    padding_mode,
    cval,
  }: z.output<z.ZodObject<typeof WINDOWS>>,
): Record<string, unknown> {
  return {
    window,
    overlap,
    steps: "stride",
    weights:
      mode === "gaussian"
        ? { kind: "gaussian", sigma, centre: "middle", least: 0.001 }
        : { kind: "constant" },
    padding: padding_mode === "replicate" ? "edge" : cval,
  };
}

const INFERERS = stepsOf({
  SimpleInferer: step({}),
  SlidingWindowInferer: step(
    { roi_size: three.min(2, "Expected two or three numbers").max(3), ...WINDOWS },
    ({ roi_size, ...windows }, chain, refuse) => {
      chain.tiling = tilingOf(roi_size, windows);
      chain.windows = { sides: roi_size.length, refuse };
    },
  ),
  SliceInferer: step(
    {
      roi_size: three.length(2, "Expected two numbers"),
      spatial_dim: z.literal([0, 1, 2], { error: "Expected 0, 1 or 2" }).default(0),
      ...WINDOWS,
    },
    ({ roi_size, spatial_dim, ...windows }, chain) => {
      chain.sliced = spatial_dim;
      chain.tiling = tilingOf(roi_size, windows);
    },
  ),
});

const DATASET = step({
  transform: part("preprocessing"),
  ...anyOf(
    "data",
    "cache_num",
    "cache_rate",
    "num_workers",
    "progress",
    "copy_cache",
    "as_contiguous",
  ),
  ...anyOf("hash_as_key", "hash_func", "runtime_cache"),
});

/** The evaluator brings the parts together: they must be the parts that are read here. */
const WIRING = stepsOf({
  SupervisedEvaluator: step({
    inferer: part("inferer"),
    postprocessing: part("postprocessing"),
    prepare_batch: none,
    iteration_update: none,
    ...anyOf(
      "device",
      "val_data_loader",
      "epoch_length",
      "network",
      "non_blocking",
      "key_val_metric",
    ),
    ...anyOf("additional_metrics", "metric_cmp_fn", "val_handlers", "amp", "mode", "event_names"),
    ...anyOf("event_to_attr", "decollate", "to_kwargs", "amp_kwargs", "compile", "compile_kwargs"),
  }),
  Dataset: DATASET,
  CacheDataset: DATASET,
});

/** The names of the images that a step joins to the network's input; none, if it does not. */
function joinedBy(step: unknown): string[] {
  const names = isComponent(step) ? step["keys_merge"] : undefined;
  return Array.isArray(names) ? names.filter((name) => typeof name === "string") : [];
}

/** A list of steps, one after the other. */
const compose = (known: Steps): Steps =>
  stepsOf({
    Compose: step(
      {
        transforms: z.array(z.unknown(), { error: "Expected a list of transforms" }),
        lazy: off,
        overrides: none,
        ...anyOf("map_items", "unpack_items", "log_stats"),
      },
      ({ transforms }, _, __, at) => {
        const path = at.path.replace(/\.Compose$/, "");
        const joins = transforms.findIndex((one) => joinedBy(one).length > 0);
        transforms.forEach((one, i) =>
          runStep(one, known, {
            ...at,
            path: `${path}.${i}`,
            images: i < joins ? joinedBy(transforms[joins]) : at.images,
          }),
        );
      },
    ),
  });

/** The parts of inference.json with what each may hold, in the order in which they are read. */
export const PARTS: readonly [name: string, known: Steps][] = [
  ["preprocessing", compose(PREPROCESSING)],
  ["inferer", INFERERS],
  ["postprocessing", compose(POSTPROCESSING)],
  ["dataset", WIRING],
  ["evaluator", WIRING],
];

/** As MONAI has it: of texts "true" alone. */
const isDisabled = (value: unknown): boolean =>
  typeof value === "string" ? value.trim().toLowerCase() === "true" : value === true || value === 1;

/** Runs a component, or a reference to one, unless it is disabled. */
export function runStep(value: unknown, known: Steps, { path, ...at }: At): void {
  const { config, gaps } = at;
  const found = config.resolve(value);
  const component = found instanceof Reference ? found.component : found;
  if (!isComponent(component)) {
    gaps.refuse(
      `${config.placeOf(config.root, path)}: ${path}`,
      `Expected a component with _target_, found ${shown(value)}`,
    );
    return;
  }
  const disabled = config.resolve(component["_disabled_"]);
  const refuse = (expected: string) =>
    gaps.refuse(
      `${config.placeOf(component, "_disabled_")}: ${path}._disabled_`,
      `Expected ${expected}, found ${shown(disabled)}`,
    );
  const name = nameOf(config.resolve(component["_target_"]));
  const anyway = at.enabled === name;
  if (isDisabled(disabled) && anyway)
    gaps.note(
      `${config.placeOf(component, "_disabled_")}: ${path}.${name}`,
      "The file disables it, for volumes that had this spacing before; it is done here, which changes nothing of such volumes",
    );
  else if (isDisabled(disabled)) {
    // Without a whole part the bundle itself does not run
    if (known !== WIRING && !path.includes(".")) refuse("false");
    return;
  }
  if (typeof disabled === "object" && disabled !== null) refuse("true or false");
  const run = known.get(name);
  if (run !== undefined) run(component, { ...at, path: `${path}.${name}` });
  else
    gaps.refuse(
      `${config.placeOf(component)}: ${path}.${name}`,
      "It is not known; docs/models.md has those that are",
    );
}

/**
 * A class of MONAI by its shortest name: Spacingd for SpacingDict and monai.transforms.SpacingD.
 * Others keep theirs.
 */
function nameOf(target: unknown): string {
  const text = typeof target === "string" ? target : shown(target);
  const [, name = text] = /^(?:monai\.(?:\w+\.)*)?(\w+)$/.exec(text) ?? [];
  return name.replace(/(Dict|D)$/, "d");
}
