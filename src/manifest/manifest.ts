/**
 * The fields of the model manifest, `models/<name>/model.json`, from which the types and the
 * published JSON Schema come. Everything a model needs is said from closed lists; what is missing
 * is an error, never a guess. The rules over several fields are in rules.ts.
 */
import { z } from "zod";
import { imageInput, type ImageInput } from "./image-input.js";
import { outputKindSchema } from "./output-kinds.js";
import { modelOutput, type ModelOutput } from "./outputs/outputs.js";
import { PRECISIONS, PROVIDERS } from "./providers.js";
import { modelName, roleName, text } from "./texts.js";
import { tiling } from "./tiling.js";

const sha256 = z.string().regex(/^[0-9a-f]{64}$/, "Expected 64 lower-case hexadecimal digits");

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

const keyword = z
  .string()
  .regex(/^[A-Z][A-Za-z0-9]+$/, "Expected a DICOM keyword, for example PatientAge");

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

/** Element types of inputs that hold numbers of attributes. */
export const NUMBER_TYPES = ["float32", "float16", "int32", "int64"] as const;
type NumberType = (typeof NUMBER_TYPES)[number];

export const isWholeType = (dtype: NumberType): boolean => dtype === "int32" || dtype === "int64";

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

const EXECUTION_MEANING =
  "The providers (cpu and cuda are ONNX Runtime, openvino is OpenVINO on the CPU), and the " +
  "precision in which the model was validated: tf32 is cuda's, bfloat16 openvino's; other " +
  "providers then compute in float32";

const tolerance = z.strictObject({
  provider: z.enum(PROVIDERS),
  precision: z.enum(PRECISIONS),
  absolute: z.number().min(0),
  relative: z.number().min(0),
});

const PATH_MEANING =
  "Inside the model's folder, or npm:PACKAGE/PATH; the first is the graph, then every file " +
  "that it opens, and the other graphs of an ensemble or of parts with theirs";

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

const canary = z.strictObject({
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
});

const { clip, normalisation } = imageInput.shape;

const PART_GRAPHS_MEANING =
  "Paths of `files`: its graph, or several, of whose outputs (logits) the mean is taken, as " +
  "nnU-Net does over its folds";

const modelPart = z.strictObject({
  name: modelName.describe("Its name in receipts"),
  graphs: z.array(z.string().min(1)).min(1).max(32).describe(PART_GRAPHS_MEANING),
  labels: z
    .array(z.string().min(1).max(64))
    .min(1)
    .max(254)
    .describe("Labels of the output, in the order of the graph's channels after background"),
  clip: clip.describe("In place of the input's"),
  normalisation: normalisation.optional().describe("In place of the input's"),
  tiling: tiling.optional().describe("In place of the model's"),
  canary: canary.optional(),
});

const PARTS_MEANING =
  "Several graphs over one volume, for labels of one segmentation. They run one after the " +
  "other, and where two mark a voxel the later one counts. Each takes the input and the output " +
  "of the model, with what it says itself in place of theirs";

const WHEN_EMPTY_MEANING =
  "If the label is nowhere: negative, this model does not run and finds nothing there; refuse, " +
  "it does not accept the image; whole, it is given the whole image. Results say so";

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
  name: modelName.describe("Name of the folder too"),
  version: z.string().regex(/^[0-9A-Za-z.+-]{1,64}$/),
  manufacturer: z.string().min(1).max(64).describe("Who made it; in every object"),
  description: text,
  intended_use: text.describe("What it is for; in the model card"),
  regulatory: text.describe("Shown on every picture and in every object"),
  stage: z
    .enum(["draft", "final"])
    .describe(
      "draft: codes and canary may be missing, JSON and PNG only; final: SR, SEG and SC too",
    ),
  release: z
    .enum(["off", "shadow", "active"])
    .describe(
      "off: not loaded; shadow: runs, and only the receipt has its results; active: normal",
    ),
  required: z
    .boolean()
    .describe(
      "The server is not ready without it; a start waits a minute for all others together, and what takes longer joins later",
    ),
  files: z
    .array(modelFileSchema)
    .min(1)
    .describe("The graph first, then every file that it opens, each with its SHA-256"),
  accepts: accepts.describe(
    "Which images: with the format dicom, only of the modalities or SOP classes that it names",
  ),
  roles: z.array(role).min(2).max(16).optional().describe(MANIFEST_FIELDS_ROLES_MEANING),
  envelope: z
    .array(envelopeRule)
    .optional()
    .describe("Ranges in which the model was tested; outside them a result has a warning"),
  inputs: z
    .array(modelInput)
    .min(1)
    .max(16)
    .describe("How pixels, or numbers of attributes, become each tensor of the graph"),
  outputs: z
    .array(modelOutput)
    .min(1)
    .describe("What tensors mean: labels, codes, thresholds, post-processing, measurements"),
  tiling: tiling
    .optional()
    .describe(
      "For graphs that take a part of the image or volume at a time: how it is cut, and blended again",
    ),
  ensemble: ensemble.optional(),
  parts: z.array(modelPart).min(2).max(16).optional().describe(PARTS_MEANING),
  region: region.optional(),
  batching: z.strictObject({ max: z.int().min(1).max(1024) }).describe("The largest batch"),
  execution: z
    .strictObject({
      providers: z.array(z.enum(PROVIDERS)).min(1),
      precision: z.enum(PRECISIONS),
    })
    .describe(EXECUTION_MEANING),
  canary: canary
    .optional()
    .describe("An input and the expected output, with a tolerance; it runs at each load"),
  results: z
    .strictObject({ outputs: z.array(outputKindSchema).min(1) })
    .describe("Files to write where neither the request nor the settings say it"),
});

export type Manifest = z.infer<typeof manifestFields>;
export type ModelInput = Manifest["inputs"][number];
export type AttributeInput = Extract<ModelInput, { kind: "attributes" }>;
export type AttributeValue = AttributeInput["values"][number];
export type Ensemble = z.infer<typeof ensemble>;
export type Region = z.infer<typeof region>;
export type ModelPart = z.infer<typeof modelPart>;
export type Role = z.infer<typeof role>;
export { outputKindSchema, type DicomKind, type OutputKind } from "./output-kinds.js";
export const acceptsSchema = accepts;
export const roleSchema = role;
export {
  channelsOf,
  IMAGE_TYPES,
  isVolume,
  MOST_CHANNELS,
  partsOf,
  valuesSchema,
  type ImageInput,
} from "./image-input.js";
export { modelName } from "./texts.js";

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
