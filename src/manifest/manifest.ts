/**
 * The fields of the model manifest, `models/<name>/model.json`, from which the types and the
 * published JSON Schema come. Everything a model needs is said from closed lists; what is missing
 * is an error, never a guess. The rules over several fields are in rules.ts.
 */
import { z } from "zod";
import { outputKindSchema } from "./output-kinds.js";
import { modelOutput, type ModelOutput } from "./outputs/outputs.js";
import { resampling } from "./resampling.js";
import { text } from "./texts.js";
import { tiling } from "./tiling.js";

/** Channels of one image tensor: windows times neighbouring slices. */
export const MOST_CHANNELS = 256;

const sha256 = z.string().regex(/^[0-9a-f]{64}$/, "Expected 64 lower-case hexadecimal digits");

/** Model names become parts of file names and URLs. */
export const modelName = z
  .string()
  .regex(
    /^[a-z0-9](?:[a-z0-9_-]{0,61}[a-z0-9])?$/,
    "Expected 1 to 63 of a-z, 0-9, _ and -, beginning and ending with a letter or digit",
  );

export const tagRule = z.strictObject({
  tag: z.string().regex(/^[A-Z][A-Za-z0-9]+$/, "Expected a DICOM keyword, for example ImageType"),
  index: z
    .int()
    .min(0)
    .optional()
    .describe("Which value of a multi-valued attribute; any where absent"),
  in: z.array(z.string()).min(1).optional(),
  not_in: z.array(z.string()).min(1).optional(),
  min: z.number().optional(),
  max: z.number().optional(),
  if_absent: z.enum(["accept", "refuse"]),
  reason: text.describe("Said to the client where the rule refuses"),
});

const DIMENSIONS_MEANING =
  "2d: one frame; 2d_frames: every frame of a multi-frame image, or slice of a folder, on its " +
  "own; series: one volume";
const MAX_TILT_DEGREES_MEANING =
  "Slices that follow each other aside of their normal (a tilted gantry) are moved by whole " +
  "pixels to a straight stack, up to this angle; masks lie in the source's slices";
const PREFER_MEANING =
  "Which of several series of a folder is taken where the model takes more than one, for " +
  "itself or for a role: that with the most slices; the least SliceThickness; the " +
  "ConvolutionKernel that comes first in the order. A later one decides between those that are " +
  "equal by the earlier; what does not say comes last. If several are left, nothing is " +
  "guessed, as without it";

const accepts = z.strictObject({
  formats: z.array(z.enum(["dicom", "png", "jpeg", "tiff"])).min(1),
  modality: z
    .array(z.string().regex(/^[A-Z0-9_ ]{1,16}$/))
    .min(1)
    .optional()
    .describe(
      "Modality of DICOM images, for example CT; with the format dicom this or sop_class is required",
    ),
  sop_class: z
    .array(z.string().regex(/^[0-9.]{1,64}$/))
    .min(1)
    .optional(),
  body_part: z.array(z.string()).min(1).optional(),
  units: z.array(z.string()).min(1).optional().describe("Units of modality values, for example HU"),
  photometric: z
    .array(
      z.enum([
        "MONOCHROME1",
        "MONOCHROME2",
        "PALETTE COLOR",
        "RGB",
        "YBR_FULL",
        "YBR_FULL_422",
        "YBR_PARTIAL_420",
      ]),
    )
    .min(1)
    .optional(),
  dimensions: z.enum(["2d", "2d_frames", "series"]).describe(DIMENSIONS_MEANING),
  slices: z
    .strictObject({
      max_tilt_degrees: z.number().positive().max(45).optional().describe(MAX_TILT_DEGREES_MEANING),
      max_missing: z
        .int()
        .min(1)
        .max(100)
        .optional()
        .describe(
          "Up to so many slices may be missing between the first and the last; the nearest takes their place",
        ),
    })
    .optional()
    .describe(
      "For dimensions series: stacks that are not straight or not whole, which are refused without it",
    ),
  max_frames: z.int().min(1).max(100_000).optional(),
  min_rows: z.int().min(1).optional(),
  min_columns: z.int().min(1).optional(),
  rules: z.array(tagRule).optional(),
  any_of: z
    .array(z.array(tagRule).min(1))
    .min(2)
    .optional()
    .describe("Lists of rules: of one of them all have to hold, and all of `rules`"),
  prefer: z
    .array(
      z.discriminatedUnion("by", [
        z.strictObject({ by: z.enum(["most_slices", "thinnest"]) }),
        z.strictObject({
          by: z.literal("kernel"),
          order: z.array(text).min(1).describe("The best first"),
        }),
      ]),
    )
    .min(1)
    .optional()
    .describe(PREFER_MEANING),
});

const envelopeRule = z.strictObject({
  tag: z.string().regex(/^[A-Z][A-Za-z0-9]+$/),
  min: z.number().optional(),
  max: z.number().optional(),
  in: z.array(z.string()).min(1).optional(),
  caveat: text,
});

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

const keyword = z
  .string()
  .regex(/^[A-Z][A-Za-z0-9]+$/, "Expected a DICOM keyword, for example PatientAge");

const roleName = z
  .string()
  .regex(
    /^[a-z0-9](?:[a-z0-9_-]{0,30}[a-z0-9])?$/,
    "Expected 1 to 32 of a-z, 0-9, _ and -, beginning and ending with a letter or digit",
  );

const roleRules = z
  .array(
    z.strictObject({
      tag: keyword,
      index: z
        .int()
        .min(0)
        .optional()
        .describe("Which value of a multi-valued attribute; any where absent"),
      in: z.array(text).min(1).optional().describe("One of the attribute's values is in this list"),
      not_in: z.array(text).min(1).optional(),
      contains: z
        .array(text)
        .min(1)
        .optional()
        .describe("One of the attribute's values contains one of these texts; case is ignored"),
      not_contains: z.array(text).min(1).optional(),
      min: z.number().optional(),
      max: z.number().optional(),
    }),
  )
  .min(1)
  .max(32);

const RULES_MEANING =
  "All of them have to hold, in every file. Where an attribute is absent, in, contains, min " +
  "and max do not hold, not_in and not_contains do";
const STUDY_MEANING =
  "Study of the role, by StudyDate and StudyTime: latest, the current one; earlier, a prior. " +
  "Give it for all roles or for none; without it, all roles are of one study";

const role = z.strictObject({
  role: roleName,
  rules: roleRules.describe(RULES_MEANING),
  any_of: z
    .array(roleRules)
    .min(2)
    .optional()
    .describe("Lists of such rules: of one of them all have to hold, and all of `rules`"),
  study: z.enum(["latest", "earlier"]).optional().describe(STUDY_MEANING),
});

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

/** Element types of inputs that hold numbers of attributes. */
export const NUMBER_TYPES = ["float32", "float16", "int32", "int64"] as const;

const FIT_MEANING =
  "stretch: fills the tensor; letterbox: whole image, centred, aspect kept; crop: filled, " +
  "centre kept; none: no resampling. Aspect is that of physical size, in volumes too";
const INTERPOLATION_MEANING =
  "linear and cubic are antialiased when they shrink, unless antialias is false; area averages " +
  "covered pixels, each by the part that is covered (OpenCV), adaptive_area each as a whole " +
  "(PyTorch's area). Volumes: linear, area, adaptive_area, nearest, along the three axes; or " +
  "spline, with resampling";
const ANTIALIAS_MEANING =
  "Single images, linear and cubic, true where absent. false: an output is made of the nearest " +
  "two or four pixels along each axis however much the image shrinks, the border goes on " +
  "beyond it, and cubic has a = -0.75 (OpenCV; PyTorch and MONAI without antialias); masks go " +
  "back so, too";
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
  "at them, back to front. The volume is turned by the quarter turns and flips that come " +
  "closest; an oblique one stays oblique. Without it, depth, height and width are slices, rows " +
  "and columns as they come";

const imageInput = z.strictObject({
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
    z.strictObject({ kind: z.literal("source") }).describe("The source's own size"),
  ]),
  fit: z.enum(["stretch", "letterbox", "crop", "none"]).describe(FIT_MEANING),
  interpolation: z
    .enum(["area", "adaptive_area", "linear", "cubic", "nearest", "spline"])
    .describe(INTERPOLATION_MEANING),
  antialias: z.boolean().optional().describe(ANTIALIAS_MEANING),
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

const attributeIfAbsent = z
  .discriminatedUnion("kind", [
    z.strictObject({ kind: z.literal("refuse") }).describe("The image is not accepted"),
    z.strictObject({
      kind: z.literal("default"),
      numbers: z
        .array(z.number())
        .min(1)
        .max(64)
        .describe(
          "Values of the tensor if the attribute is missing, as many as the encoding has; the result has a caveat",
        ),
    }),
  ])
  .describe("Also used if the value cannot be encoded: it is not in the list, or is not a number");

const valueIndex = z
  .int()
  .min(0)
  .optional()
  .describe("Which value of a multi-valued attribute; where absent there has to be one");
const categories = z.array(z.string().min(1).max(64)).min(2).max(64);
const ofList = { index: valueIndex, values: categories, if_absent: attributeIfAbsent };
const scaled = { multiply: z.number(), add: z.number(), if_absent: attributeIfAbsent };

const ATTRIBUTE_VALUE_MEANING =
  "An age (VR AS: 045Y, 018M, 003W, 010D) in this unit * multiply + add. A year has 12 months " +
  "and 365.25 days, a week 7 days";

const attributeValue = z.discriminatedUnion("encoding", [
  z
    .strictObject({ tag: keyword, encoding: z.literal("one_hot"), ...ofList })
    .describe(
      "One number for each value of the list: 1 for the attribute's value, 0 for the others",
    ),
  z
    .strictObject({ tag: keyword, encoding: z.literal("category"), ...ofList })
    .describe("The place of the attribute's value in the list, from 0"),
  z
    .strictObject({ tag: keyword, encoding: z.literal("number"), index: valueIndex, ...scaled })
    .describe("The attribute's number * multiply + add, in the unit that DICOM gives it"),
  z
    .strictObject({
      tag: keyword,
      encoding: z.literal("age"),
      unit: z.enum(["years", "months", "weeks", "days"]),
      ...scaled,
    })
    .describe(ATTRIBUTE_VALUE_MEANING),
]);

const attributeInput = z
  .strictObject({
    kind: z.literal("attributes"),
    tensor: text,
    dtype: z.enum(NUMBER_TYPES),
    layout: z.enum(["NC", "N"]).describe("NC: [1, numbers]; N: [1], for a single number"),
    values: z.array(attributeValue).min(1).max(64).describe("In the tensor's order"),
  })
  .describe("Numbers from DICOM attributes, the same for all frames of an image");

const modelInput = z.discriminatedUnion("kind", [imageInput, attributeInput]);

const tolerance = z.strictObject({
  provider: z.enum(["cpu", "cuda"]),
  precision: z.enum(["float32", "tf32", "float16"]),
  absolute: z.number().min(0),
  relative: z.number().min(0),
});

const PATH_MEANING =
  "Inside the model's folder, or npm:PACKAGE/PATH; the first is the graph, then every file " +
  "that it opens, and the other graphs of an ensemble with theirs";

export const modelFileSchema = z.strictObject({
  path: z
    .string()
    .min(1)
    .refine(
      (p) => !p.replace(/^npm:/, "").startsWith("/") && !p.split("/").includes(".."),
      "Expected a path inside the model's folder, or npm:PACKAGE/PATH",
    )
    .describe(PATH_MEANING),
  sha256,
});

const AVERAGE_MEANING =
  "before_activation: the mean of the graphs' outputs (logits, as nnU-Net averages its folds); " +
  "after_activation: the mean of the activated outputs (probabilities). Calibration, " +
  "resampling to the source and thresholds are applied once, to the mean";

const ensemble = z
  .strictObject({
    graphs: z
      .array(z.string().min(1))
      .min(2)
      .max(32)
      .describe(
        "Paths of `files`: the graphs, which take the same tensors and give the same, each once",
      ),
    average: z.enum(["before_activation", "after_activation"]).describe(AVERAGE_MEANING),
  })
  .describe("The mean of several graphs, element by element, in float32 and in their order");

const WHEN_EMPTY_MEANING =
  "If the label is nowhere: negative, this model does not run and finds nothing there; refuse, " +
  "it does not accept the image; whole, it looks at the whole image. Results say so";

const region = z
  .strictObject({
    model: modelName.describe("The model that finds it, in a folder of this name beside this one"),
    label: z.string().min(1).max(64).describe("A label of one of its segmentations"),
    margin_mm: z
      .number()
      .min(0)
      .max(1000)
      .describe(
        "Added to the smallest box round the label on each side, rounded up to whole pixels and slices",
      ),
    when_empty: z.enum(["negative", "refuse", "whole"]).describe(WHEN_EMPTY_MEANING),
  })
  .describe(
    "The region of the image that this model gets, found by another model on the same image",
  );

const MANIFEST_FIELDS_ROLES_MEANING =
  "Several series, or several single images (views), that are one case: which of a folder's is " +
  "which. Results lie in the first; the others are taken to its grid, if they are volumes of " +
  "its frame of reference";

export const manifestFields = z.strictObject({
  $schema: z.string().optional(),
  name: modelName,
  version: z.string().regex(/^[0-9A-Za-z.+-]{1,64}$/),
  manufacturer: z.string().min(1).max(64),
  description: text,
  intended_use: text,
  regulatory: text.describe("Shown on every picture and in every object"),
  stage: z
    .enum(["draft", "final"])
    .describe("draft: codes and canary may be missing, JSON and PNG only"),
  release: z.enum(["off", "shadow", "active"]),
  required: z.boolean().describe("The server is not ready without it"),
  files: z.array(modelFileSchema).min(1),
  accepts,
  roles: z.array(role).min(2).max(16).optional().describe(MANIFEST_FIELDS_ROLES_MEANING),
  envelope: z.array(envelopeRule).optional(),
  inputs: z.array(modelInput).min(1).max(16),
  outputs: z.array(modelOutput).min(1),
  tiling: tiling
    .optional()
    .describe(
      "For graphs that take a part of the image or volume at a time: how it is cut, and blended again",
    ),
  ensemble: ensemble.optional(),
  region: region.optional(),
  batching: z.strictObject({ max: z.int().min(1).max(1024) }),
  execution: z.strictObject({
    providers: z.array(z.enum(["cpu", "cuda"])).min(1),
    precision: z.enum(["float32", "tf32", "float16"]),
  }),
  canary: z
    .strictObject({
      input: modelFileSchema
        .optional()
        .describe(".npy, the tensor that goes in, of a model with one input"),
      inputs: z
        .array(z.strictObject({ tensor: text, file: modelFileSchema }))
        .min(2)
        .optional()
        .describe("Input tensors of a model with several inputs"),
      expected: z.array(z.strictObject({ tensor: text, file: modelFileSchema })).min(1),
      tolerance: z.array(tolerance).min(1),
    })
    .optional(),
  results: z.strictObject({ outputs: z.array(outputKindSchema).min(1) }),
});

export type Manifest = z.infer<typeof manifestFields>;
export type ModelInput = Manifest["inputs"][number];
export type AttributeInput = Extract<ModelInput, { kind: "attributes" }>;
export type ImageInput = Exclude<ModelInput, AttributeInput>;
export type AttributeValue = AttributeInput["values"][number];
export type Ensemble = z.infer<typeof ensemble>;
export type Region = z.infer<typeof region>;
export type Role = z.infer<typeof role>;
export { outputKindSchema, type DicomKind, type OutputKind } from "./output-kinds.js";
export const acceptsSchema = accepts;
export const roleSchema = role;
export const valuesSchema = values;

/**
 * `site.json` beside the manifest: this hospital's thresholds, outside the model's hash, inside
 * receipts and UIDs.
 */
export const siteSchema = z.strictObject({
  thresholds: z.record(z.string(), z.number()).describe("By label"),
});
export type Site = z.infer<typeof siteSchema>;

export const isImageInput = (input: ModelInput): input is ImageInput => input.kind !== "attributes";

/** The inputs that hold pixels, in the manifest's order. */
export const imageInputs = ({ inputs }: Pick<Manifest, "inputs">): ImageInput[] =>
  inputs.filter(isImageInput);

/** The inputs that hold numbers of attributes, in the manifest's order. */
export const attributeInputs = ({ inputs }: Pick<Manifest, "inputs">): AttributeInput[] =>
  inputs.filter((input) => !isImageInput(input));

/** How many numbers an attribute becomes. */
export const numbersOf = (value: AttributeValue): number =>
  value.encoding === "one_hot" ? value.values.length : 1;

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

/** The labels of another model that a model is given as channels. */
export const cascadeOf = (manifest: Pick<Manifest, "inputs">): ImageInput["cascade"] =>
  imageInputs(manifest).find(({ cascade }) => cascade !== undefined)?.cascade;

/**
 * The model that has to look before another: it finds its region, or its labels are channels of the
 * other.
 */
export const firstModelOf = (manifest: Pick<Manifest, "inputs" | "region">): string | undefined =>
  manifest.region?.model ?? cascadeOf(manifest)?.model;

/**
 * How far the slices reach that a model is given beside the one that it looks at; undefined if none
 * does.
 */
export function neighboursOf(
  manifest: Pick<Manifest, "inputs">,
): { before: number; after: number } | undefined {
  const all = imageInputs(manifest).flatMap(({ neighbours }) => neighbours ?? []);
  if (all.length === 0) return undefined;
  return {
    before: Math.max(...all.map(({ before }) => before)),
    after: Math.max(...all.map(({ after }) => after)),
  };
}

/**
 * Whether all frames of an image are in memory at once for a model: it is given all of them, or
 * several together.
 */
export const takesWhole = (manifest: Pick<Manifest, "inputs" | "accepts">): boolean =>
  manifest.accepts.dimensions === "series" || neighboursOf(manifest) !== undefined;

/** The tilt and the missing slices that the models together take. */
export function toleranceOf(...manifests: readonly Pick<Manifest, "accepts">[]): {
  tiltDegrees: number;
  missing: number;
} {
  const most = (limits: readonly (number | undefined)[]) =>
    Math.max(0, ...limits.map((limit) => limit ?? 0));
  return {
    tiltDegrees: most(manifests.map(({ accepts: { slices } }) => slices?.max_tilt_degrees)),
    missing: most(manifests.map(({ accepts: { slices } }) => slices?.max_missing)),
  };
}

/**
 * The number, among all inputs, of the one on whose grid an output is: the one that it names, or
 * the only one.
 */
export function inputOf(manifest: Pick<Manifest, "inputs">, output: ModelOutput): number {
  const named = "input" in output ? output.input : undefined;
  const found = manifest.inputs.findIndex(
    (input) => isImageInput(input) && (named === undefined || input.tensor === named),
  );
  return Math.max(0, found);
}

export const isVolume = ({ layout }: ImageInput): boolean => layout.includes("D");
