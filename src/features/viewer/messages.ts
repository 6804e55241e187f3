/** What the server may ask its viewing threads, and their answers. */
import { z } from "zod";
import type { MemoryPlace } from "../../base/process-memory.js";
import type { EngineOptions } from "../../engine/types.js";
import type { Root } from "../../files/roots.js";
import type { SharedModels } from "../../models/shared.js";
import type { ResultForms } from "../../results/forms.js";
import type { ListedRow, listResults, ListQuery } from "./list/list.js";
import { VERDICTS } from "../../results/commit/verify.js";
import { deliveryInAnswer, receiptSchema } from "../../results/receipt/receipt.js";
import { trustSchema } from "../../results/receipt/seal.js";

export interface ViewerThreadOptions {
  engine: EngineOptions;
  memory: MemoryPlace;
  forms: ResultForms;
}

/** A receipt, and who may look at it. Paths are those of this machine. */
export interface OfResult {
  receiptPath: string;
  /** The MAC of the receipt that is looked at; undefined: whichever lies there now is meant. */
  mac?: string | undefined;
  roots: { input: readonly Root[]; output: readonly Root[] };
}

/**
 * A plane across the slices of a volume is meant, through this of each slice; `frame` is then its
 * number, from 1.
 */
export type Across = "row" | "column" | undefined;

export interface OfPlace extends OfResult {
  inputPath: string;
  frame: number;
  across: Across;
}

export interface OfPicture extends OfPlace {
  /** The picture that this one wrote; without it the frame as it is. */
  model?: string | undefined;
}

export interface OfMarks extends OfPlace {
  model: string;
  /** A label: the frame on which it has the most pixels is meant. */
  fullest: string | undefined;
  /** Numbers of the segments that are drawn; all if undefined. */
  only: readonly number[] | undefined;
}

export interface OfStudy extends OfResult {
  inputPath: string | undefined;
  models: SharedModels;
}

/** A receipt, and what may be told of its delivery. */
export interface OfReceipt extends OfResult {
  /** Whose deliveries the caller may see; all, where undefined. */
  subject: string | undefined;
}

export interface OfNifti extends OfResult {
  /** Where the image is to be read; without it, the model's masks are meant. */
  inputPath: string | undefined;
  model: string | undefined;
}

export interface OfList {
  /** The server's output roots, and the folders of them that the caller may see; real paths. */
  roots: readonly string[];
  folders: readonly string[];
  wanted: ListQuery;
  limit: number;
  cursor: string | undefined;
}

export interface ViewingThread {
  receipt(of: OfReceipt): Promise<ShownReceipt>;
  /** @returns a PNG */
  picture(of: OfPicture): Promise<Uint8Array>;
  /** @returns FrameFacts as JSON */
  frame(of: OfPlace): Promise<Uint8Array>;
  marks(of: OfMarks): Promise<ResultMarks>;
  /** The image, or the masks of a model. @returns a .nii.gz */
  nifti(of: OfNifti): Promise<Uint8Array>;
  verify(of: OfStudy): Promise<Verification>;
  /** The row of a receipt in the list; undefined where it has none. */
  row(receiptPath: string, roots: readonly string[]): Promise<ListedRow | undefined>;
  list(of: OfList): ReturnType<typeof listResults>;
}

const text = z.string().nullable();
const side = z.strictObject({ along: z.enum(["slice", "row", "column"]), reversed: z.boolean() });
const WINDOW_MEANING =
  "The file's window, by which the picture is drawn; null if the file has a table or a curve " +
  "instead, or none of them";

export const frameFactsSchema = z.strictObject({
  rows: z.int(),
  columns: z.int(),
  pixel_aspect: z.number().describe("Height of a pixel divided by its width"),
  inverted: z.boolean().describe("Small values are shown bright"),
  window: z
    .strictObject({
      center: z.number(),
      width: z.number(),
      exact: z.boolean().describe("VOI LUT Function LINEAR_EXACT; otherwise LINEAR"),
    })
    .nullable()
    .describe(WINDOW_MEANING),
  unit: text.describe("Unit of the values, for example HU; null if it is not known"),
  spacing: z
    .array(z.number())
    .length(2)
    .nullable()
    .describe("Millimetres in the patient between rows, then between columns"),
  sides: z
    .strictObject({ left: z.string(), right: z.string(), top: z.string(), bottom: z.string() })
    .nullable()
    .describe("Which part of the patient lies towards each edge"),
  position: z.array(z.number()).length(3).nullable().describe("ImagePositionPatient"),
  patient_name: text,
  patient_id: text,
  study_date: text,
  series_description: text,
  instance_number: text,
  across: z
    .strictObject({
      name: z.string().describe("axial, coronal or sagittal; oblique before it where it is turned"),
      right: side.describe(
        "The index of the volume that changes to the right, and whether it decreases",
      ),
      down: side,
    })
    .nullable()
    .describe("How a plane across the slices lies; null for a frame"),
  values: z
    .strictObject({
      type: z.enum(["int16", "uint16", "float32"]),
      slope: z.number(),
      intercept: z.number(),
      base64: z
        .string()
        .describe("Stored values, little endian, rows from the top; NaN is padding"),
    })
    .nullable()
    .describe(
      "Null for colours, for integers of more than 16 bits, and if a lookup table gives the values their meaning",
    ),
});
export type FrameFacts = z.infer<typeof frameFactsSchema>;

const segment = z.strictObject({
  number: z.int().min(1),
  label: z.string(),
  colour: z.string().regex(/^#[0-9a-f]{6}$/),
  pixels: z
    .int()
    .min(0)
    .describe(
      "Pixels of the frame that belong to the segment; of a fractional one those of at least one half",
    ),
});

const overlap = z.strictObject({
  segments: z.array(z.int().min(1)).describe("Their numbers"),
  runs: z
    .array(z.int().min(0))
    .describe(
      "The first pixel and the length of each run, counted from 0 along the rows from the top",
    ),
});

export const marksSchema = z.strictObject({
  frame: z
    .int()
    .min(1)
    .nullable()
    .describe("Number of the frame; null for a plane across the slices"),
  rows: z.int(),
  columns: z.int(),
  segments: z.array(segment),
  png: z
    .string()
    .nullable()
    .describe(
      "PNG in base64: pixels have the colour of their segment, or stripes of those that share them, and others are transparent; null if no pixel is marked",
    ),
  overlaps: z.array(overlap).describe("Pixels that several of the drawn segments share"),
});
export type ResultMarks = z.infer<typeof marksSchema>;

export const verificationSchema = z.strictObject({
  equal: z.boolean().describe("Every file and every replayed result is equal, and no MAC is wrong"),
  checks: z.array(
    z.strictObject({
      what: z
        .string()
        .describe(
          "Name of a file, of a model, or `source`, `receipt` and `MAC`; the version of a known fault",
        ),
      verdict: z.enum(VERDICTS),
      detail: z.string(),
    }),
  ),
});
export type Verification = z.infer<typeof verificationSchema>;

/** GET /results. */
export const shownSchema = receiptSchema.extend({
  trust: trustSchema.describe("Whether the receipt is as this installation wrote it"),
  deliveries: z
    .array(
      deliveryInAnswer.extend({ path: z.string().describe("Name of the file beside the receipt") }),
    )
    .optional()
    .describe(
      "Each object for each destination, where this subject asked for it (or with the claim admin)",
    ),
});
export type Shown = z.infer<typeof shownSchema>;

/** The same as text: megabytes would keep the thread that serves HTTP from it. */
export interface ShownReceipt {
  study: string | undefined;
  json: Uint8Array;
}
