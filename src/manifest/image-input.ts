/**
 * The fields of an input that holds pixels, what a receipt says of them, and what follows from
 * them. Each step of native/prepare reads those that it uses, as they stand in the manifest.
 */
import { z } from "zod";
import { resampling } from "./resampling.js";
import { modelName, roleName, text } from "./texts.js";

/** Channels of one image tensor: windows times neighbouring slices. */
export const MOST_CHANNELS = 256;

const window = {
  center: z.number(),
  width: z.number().positive(),
  function: z.enum(["LINEAR", "LINEAR_EXACT", "SIGMOID"]),
};

const VOI_MEANING =
  "After the file's window or VOI LUT of that index, 0 to 1 as real numbers; colour is divided " +
  "by its full range. A dtype of whole numbers needs a normalisation that spreads them, scale " +
  "with multiply 255 for example";
const REAL_WORLD_MEANING =
  "After the file's Real World Value Mapping (PS3.3 C.7.6.16.2.11) to these units, which has " +
  "to be linear and the only one; other images are refused";
const WINDOWS_MEANING =
  "Several fixed windows over modality values, each 0 to 1 in a channel of its own, in this " +
  "order (channels: windows)";
const FULL_RANGE_MEANING =
  "After Modality LUT or rescale, 0 to 1 over the range that the bits allow, whatever window the " +
  "file has; colour is divided by its full range";
const SUV_MEANING =
  "Standardised uptake value by body weight, g/ml, of positron emission; images that lack what " +
  "it is computed from are refused";

const values = z.discriminatedUnion("kind", [
  z
    .strictObject({ kind: z.literal("stored") })
    .describe("As in the file, in the range of its bits"),
  z
    .strictObject({ kind: z.literal("modality") })
    .describe("After Modality LUT or rescale, for example HU"),
  z
    .strictObject({
      kind: z.literal("voi"),
      index: z.int().min(0),
      if_absent: z.enum(["full_range", "min_max", "refuse"]),
    })
    .describe(VOI_MEANING),
  z.strictObject({ kind: z.literal("full_range") }).describe(FULL_RANGE_MEANING),
  z
    .strictObject({ kind: z.literal("window"), ...window })
    .describe("A fixed window over modality values, 0 to 1 as real numbers, as those of voi"),
  z
    .strictObject({
      kind: z.literal("real_world"),
      units: z
        .string()
        .min(1)
        .max(16)
        .describe("UCUM, for example mm2/s of an apparent diffusion coefficient"),
      label: z
        .string()
        .min(1)
        .max(16)
        .optional()
        .describe("LUT Label, where an image has several mappings"),
    })
    .describe(REAL_WORLD_MEANING),
  z
    .strictObject({
      kind: z.literal("windows"),
      windows: z.array(z.strictObject(window)).min(2).max(16),
    })
    .describe(WINDOWS_MEANING),
  z.strictObject({ kind: z.literal("suv_bw") }).describe(SUV_MEANING),
]);

const OF_MEANING =
  "With resampling that crops: mean and deviation are taken from voxels that are not 0 in any " +
  "channel, or are enclosed by such voxels; all others are 0 after normalisation (nnU-Net's " +
  "use_mask_for_norm). Default: from all voxels";

const normalisation = z.discriminatedUnion("kind", [
  z.strictObject({ kind: z.literal("none") }),
  z.strictObject({ kind: z.literal("scale"), multiply: z.number(), add: z.number() }),
  z.strictObject({
    kind: z.literal("mean_std"),
    mean: z.array(z.number()).min(1).max(MOST_CHANNELS),
    std: z.array(z.number().positive()).min(1).max(MOST_CHANNELS),
  }),
  z.strictObject({
    kind: z.literal("min_max"),
    over: z.enum(["image", "volume"]),
    to: z.tuple([z.number(), z.number()]),
  }),
  z.strictObject({
    kind: z.literal("z_score"),
    over: z.enum(["image", "volume"]),
    of: z.enum(["nonzero"]).optional().describe(OF_MEANING),
  }),
  z.strictObject({
    kind: z.literal("percentile"),
    over: z.enum(["image", "volume"]),
    low: z.number().min(0).max(100),
    high: z.number().min(0).max(100),
    to: z.tuple([z.number(), z.number()]),
  }),
]);

const intensityStep = {
  at: z.enum(["source", "tensor"]).describe("source: before resampling; tensor: after"),
  of: z.enum(["all", "nonzero"]).describe("nonzero: values that are 0 do not count, and stay 0"),
  channels: z
    .enum(["together", "each"])
    .describe(
      "each: every channel by its own statistics. Channels of several roles are always apart",
    ),
};
const percentiles = { low: z.number().min(0).max(100), high: z.number().min(0).max(100) };

const intensity = z.discriminatedUnion("kind", [
  z.strictObject({
    kind: z.literal("min_max"),
    to: z.tuple([z.number(), z.number()]),
    ...intensityStep,
  }),
  z.strictObject({ kind: z.literal("z_score"), ...intensityStep }),
  z.strictObject({
    kind: z.literal("percentile"),
    ...percentiles,
    to: z.tuple([z.number(), z.number()]),
    clip: z.boolean().describe("Whether what lies beyond the percentiles is cut off"),
    ...intensityStep,
  }),
  z
    .strictObject({ kind: z.literal("clip_percentiles"), ...percentiles, ...intensityStep })
    .describe("Values beyond the percentiles are set to them"),
]);

const neighbourCount = z.int().min(0).max(15);

/** The fields that each of several roles in one tensor may have of its own. */
const roleOfInput = z.strictObject({
  role: roleName,
  values: values.optional(),
  clip: z.tuple([z.number(), z.number()]).optional(),
  normalisation: normalisation.optional(),
  background: z.number().optional(),
});

/** Element types of inputs that hold pixels. */
export const IMAGE_TYPES = [
  "float32",
  "float16",
  "uint8",
  "int8",
  "uint16",
  "int16",
  "int32",
] as const;

const FIT_MEANING =
  "stretch: fills the tensor; letterbox: whole image, centred, aspect kept; crop: filled, " +
  "centre kept; none: no resampling. Aspect is that of physical size, in volumes too. " +
  "placement says how libraries do letterbox and crop in whole pixels";
const ROUNDING_MEANING =
  "A side that is computed: its part of a pixel is cut off, or it is rounded, a half upwards or " +
  "to the even number (Python's round)";
const OFFSET_MEANING =
  "Where the middle begins if an odd number of pixels is left over. half: half of it, cut off " +
  "(Transformers, albumentations); half_even: rounded to the even number (torchvision, timm); " +
  "halves: half of the image less half of the middle, each cut off (MONAI, torchxrayvision)";
const PLACEMENT_MEANING =
  "Single images with a fixed size: letterbox and crop in whole pixels, as libraries do them. " +
  "Without it, sides of letterbox are rounded, a half upwards, and what crop shows may begin " +
  "and end within a pixel";
const INTERPOLATION_MEANING =
  "linear and cubic are antialiased when they shrink, unless antialias is false; area averages " +
  "covered pixels, each by the part that is covered (OpenCV), adaptive_area each as a whole " +
  "(PyTorch's area); gaussian is a Gaussian filter where an axis shrinks and linear after it " +
  "(skimage.transform.resize of order 1), with border; without antialias it is linear alone. " +
  "nearest is the pixel under the output's centre (PyTorch's nearest-exact), nearest_floor the one " +
  "under its first edge (OpenCV's INTER_NEAREST). Volumes: linear, area, adaptive_area, nearest, along the three axes; or spline, with resampling";
const ANTIALIAS_MEANING =
  "Linear and cubic, true where absent. false: an output is made of the nearest two or four " +
  "pixels along each axis however much the image shrinks, the border goes on beyond it, and " +
  "cubic has a = -0.75 (OpenCV; PyTorch and MONAI without antialias); masks go back so, too. " +
  "Gaussian without its filter is skimage's anti_aliasing=False";
const ALIGN_CORNERS_MEANING =
  "With fit stretch and linear without antialias: the centres of the outermost pixels of image " +
  "and tensor lie at the same places, instead of their edges (PyTorch's align_corners, " +
  "scipy.ndimage.zoom)";
const BORDER_MEANING =
  "With gaussian: what lies beyond the image, or beyond the part of it that is cut out first. " +
  "mirror is skimage's default; value is its mode constant, with cval in `values` units, before " +
  "normalisation";
const EDGES_MEANING =
  "Whose whole pixels: those of Transformers for DETR, of torchvision's Resize with max_size, or " +
  "of Detectron2's ResizeShortestEdge, which MMDetection's Resize has too";
const NEIGHBOURS_MEANING =
  "Slices beside the one that is looked at, as further channels, in the order in which a " +
  "volume is sorted: those before, the slice itself, those after; of each all its channels. " +
  "Needs accepts.dimensions 2d_frames, and an image whose frames are one even volume";
const ROLES_MEANING =
  "With `roles` of the model: the roles that the tensor holds, whose channels follow each " +
  "other in this order. Each is prepared by itself; a field that is given here replaces the " +
  "same field of the input";
const CROP_MEANING =
  "Single images of stored values, MONOCHROME2 or RGB: only the box around all pixels that are " +
  "not 0 in every sample is looked at, and nothing is found outside (nnU-Net). For volumes: " +
  "resampling.crop";
const INTENSITY_MEANING =
  "Changes by the values' own statistics after `normalisation`, one after the other: of all " +
  "values of the tensor, Pixel Padding too, as `background`; or of the source's. Needs dtype " +
  "float32, and a tensor that the image fills";
const SPACING_MM_MEANING =
  "Volumes: mm between the tensor's voxels along depth, height, width; the volume is resampled " +
  "to it and centred. letterbox: it must fit; crop: the rest is cut off; none: it must have " +
  "this spacing. Without it, the fit alone decides";
const CASCADE_MEANING =
  "Volumes with resampling: behind the channel of the pixels one for each label that another " +
  "model marked on the same volume, 1 where it is and 0 elsewhere (nnU-Net's " +
  "3d_cascade_fullres)";
const ORIENTATION_MEANING =
  "Volumes: the patient's sides to which the tensor's indices grow, in the order depth, " +
  "height, width (the convention of nibabel for an array with these axes). RAS: depth grows to " +
  "the right, height to the front, width to the head; AIL: coronal slices as radiologists look " +
  "at them, back to front. The volume is turned by quarter turns and flips, as nibabel's " +
  "io_orientation has them; an oblique one stays oblique. Without it, depth, height and width " +
  "are slices, rows and columns as they come";

const rounding = z.enum(["down", "half_up", "half_even"]).describe(ROUNDING_MEANING);
const offset = z.enum(["half", "half_even", "halves"]).describe(OFFSET_MEANING);
const pixels = z.int().min(1).max(16384);

const placement = z
  .discriminatedUnion("kind", [
    z
      .strictObject({
        kind: z.literal("resize_then_crop"),
        shortest_edge: pixels
          .optional()
          .describe("The shorter side becomes so long, the longer one in proportion"),
        rounding: rounding.optional(),
        height: pixels.optional().describe("With width, instead: both sides, whatever the aspect"),
        width: pixels.optional(),
        offset,
      })
      .describe("With crop: the tensor is the middle of the resized image"),
    z
      .strictObject({ kind: z.literal("crop_then_resize"), rounding, offset })
      .describe(
        "With crop: the largest middle with the tensor's proportions is resized, and no pixel outside of it counts",
      ),
    z
      .strictObject({
        kind: z.literal("resize_then_pad"),
        rounding,
        offset: z
          .enum(["half", "top_left"])
          .describe("half: centred; top_left: padding lies at the right and at the bottom"),
      })
      .describe("With letterbox"),
  ])
  .describe(PLACEMENT_MEANING);

export const imageInput = z.strictObject({
  kind: z.literal("image").optional().describe("Default kind of an input"),
  tensor: text,
  dtype: z
    .enum(IMAGE_TYPES)
    .describe(
      "Data type of the graph's input; export a graph that takes another (float64) again, with float32",
    ),
  layout: z
    .enum(["NCHW", "NHWC", "NCWH", "NCDHW", "NDHWC"])
    .describe("NCWH: rows of the tensor are columns of the image, as MONAI reads pictures"),
  size: z.discriminatedUnion("kind", [
    z.strictObject({
      kind: z.literal("fixed"),
      height: z.int().min(1).max(16384),
      width: z.int().min(1).max(16384),
      depth: z.int().min(1).max(4096).optional().describe("Slices, for volumes"),
    }),
    z
      .strictObject({
        kind: z.literal("multiple_of"),
        multiple: z.int().min(1).max(1024),
        max_side: z.int().min(1).max(16384),
      })
      .describe(
        "The source's own size, shrunk so that no side exceeds max_side, padded to the multiple",
      ),
    z
      .strictObject({
        kind: z.literal("edges"),
        shortest: z.int().min(1).max(16384),
        longest: z.int().min(1).max(16384),
        rounding: z.enum(["transformers", "torchvision", "detectron2"]).describe(EDGES_MEANING),
        multiple: z
          .int()
          .min(1)
          .max(1024)
          .optional()
          .describe("Padded at the right and at the bottom to this multiple"),
      })
      .describe(
        "Single images with fit letterbox: the shorter side is resized to shortest, or to less where the longer one would exceed longest; proportions are kept",
      ),
    z.strictObject({ kind: z.literal("source") }).describe("The source's own size"),
  ]),
  fit: z.enum(["stretch", "letterbox", "crop", "none"]).describe(FIT_MEANING),
  placement: placement.optional(),
  interpolation: z
    .enum([
      "area",
      "adaptive_area",
      "linear",
      "cubic",
      "nearest",
      "nearest_floor",
      "gaussian",
      "spline",
    ])
    .describe(INTERPOLATION_MEANING),
  antialias: z.boolean().optional().describe(ANTIALIAS_MEANING),
  align_corners: z.boolean().optional().describe(ALIGN_CORNERS_MEANING),
  border: z
    .discriminatedUnion("kind", [
      z.strictObject({ kind: z.literal("mirror") }),
      z.strictObject({ kind: z.literal("value"), value: z.number() }),
    ])
    .optional()
    .describe(BORDER_MEANING),
  values,
  monochrome1: z
    .enum(["invert", "as_stored", "refuse"])
    .describe("invert: after modality or VOI, over the output range; HU are never inverted"),
  channels: z
    .enum(["grayscale", "rgb", "bgr", "windows"])
    .describe(
      "grayscale sources are repeated for rgb and bgr; windows: one channel for each window of values",
    ),
  neighbours: z
    .strictObject({
      before: neighbourCount,
      after: neighbourCount,
      edges: z
        .enum(["repeat", "background"])
        .describe("Beyond the first and the last slice: the edge slice again, or `background`"),
    })
    .optional()
    .describe(NEIGHBOURS_MEANING),
  roles: z.array(roleOfInput).min(1).max(16).optional().describe(ROLES_MEANING),
  colour_source: z
    .enum(["accept", "refuse"])
    .describe("For grayscale: luminance by CCIR 601, or refuse"),
  crop: z.literal("nonzero").optional().describe(CROP_MEANING),
  clip: z.tuple([z.number(), z.number()]).optional().describe("Before normalisation"),
  normalisation,
  intensity: z.array(intensity).min(1).max(8).optional().describe(INTENSITY_MEANING),
  background: z
    .number()
    .describe(
      "Fills letterbox, padding to a multiple, and Pixel Padding; in `values` units, before normalisation",
    ),
  spacing_mm: z
    .tuple([z.number().positive(), z.number().positive(), z.number().positive()])
    .optional()
    .describe(SPACING_MM_MEANING),
  cascade: z
    .strictObject({
      model: modelName.describe(
        "The model whose labels these are, in a folder of this name beside this one",
      ),
      labels: z
        .array(z.string().min(1).max(64))
        .min(1)
        .max(254)
        .describe("All labels of its segmentation, in their order"),
    })
    .optional()
    .describe(CASCADE_MEANING),
  resampling: resampling
    .optional()
    .describe(
      "Volumes, with interpolation spline, size source and fit stretch: resampled as nnU-Net and MONAI do it",
    ),
  orientation: z
    .string()
    .regex(/^[LRAPSI]{3}$/)
    .refine((letters) => /^(?=.*[LR])(?=.*[AP])(?=.*[SI])/.test(letters), {
      message: "Expected one of L and R, one of A and P, one of S and I",
    })
    .optional()
    .describe(ORIENTATION_MEANING),
});

export type ImageInput = z.infer<typeof imageInput>;
export const valuesSchema = values;

/** A step of a receipt: its name and its parameters. */
interface ReceiptStep {
  step: string;
  [parameter: string]: unknown;
}

const intensitySteps = (
  { intensity: steps = [] }: ImageInput,
  at: "source" | "tensor",
): ReceiptStep[] =>
  steps
    .filter((one) => one.at === at)
    .map(({ kind, ...how }) => ({ step: `intensity_${kind}`, ...how }));

/**
 * The steps from values to the tensor, in their order, as far as the manifest alone tells of them.
 * @param placed where the image lies in the tensor
 * @param normalise the step of `normalisation`, with what it measured
 */
export function tensorSteps(
  input: ImageInput,
  placed: Readonly<Record<string, unknown>>,
  normalise: readonly ReceiptStep[],
): ReceiptStep[] {
  const { fit, placement: whole, interpolation, antialias, align_corners, border } = input;
  const { size, background } = input;
  const { spacing_mm, orientation, resampling: splines, neighbours } = input;
  const { tensor: name, dtype, layout, channels } = input;
  return [
    ...(input.clip === undefined ? [] : [{ step: "clip", to: input.clip }]),
    ...intensitySteps(input, "source"),
    {
      step: "resample",
      fit,
      ...(whole === undefined ? {} : { whole_pixels: whole }),
      interpolation,
      ...(antialias === undefined ? {} : { antialias }),
      ...(align_corners === undefined ? {} : { align_corners }),
      ...(border === undefined ? {} : { border }),
      size,
      background,
      ...placed,
      ...(spacing_mm === undefined ? {} : { spacing_mm }),
      ...(orientation === undefined ? {} : { orientation }),
      ...(splines === undefined ? {} : { splines }),
    },
    ...(neighbours === undefined ? [] : [{ step: "neighbours", ...neighbours }]),
    ...normalise,
    ...intensitySteps(input, "tensor"),
    { step: "tensor", name, dtype, layout, channels },
  ];
}

/**
 * An image input as the preparations that it is made of: one for each role, whose channels follow
 * each other. Without roles it is one.
 */
export function partsOf(input: ImageInput): ImageInput[] {
  const { roles, ...whole } = input;
  // Beside other mistakes it may be anything
  if (!Array.isArray(roles)) return [input];
  return roles.map(({ role: name, values, clip, normalisation, background }) => ({
    ...whole,
    values: values ?? whole.values,
    ...((clip ?? whole.clip) === undefined ? {} : { clip: clip ?? whole.clip }),
    normalisation: normalisation ?? whole.normalisation,
    background: background ?? whole.background,
    roles: [{ role: name }],
  }));
}

export const channelsOf = (input: ImageInput): number =>
  partsOf(input).reduce((sum, part) => sum + ownChannels(part), input.cascade?.labels.length ?? 0);

function ownChannels({ channels, values, neighbours }: ImageInput): number {
  const windows = values.kind === "windows" ? values.windows.length : 1;
  const own = channels === "windows" ? windows : channels === "grayscale" ? 1 : 3;
  return own * (neighbours === undefined ? 1 : neighbours.before + 1 + neighbours.after);
}

export const isVolume = ({ layout }: ImageInput): boolean => layout.includes("D");
