/** What the bulk pages take and give: one schema each, for the types, the checks and the published contract. */
import { z } from "zod";
import { errorObjectSchema } from "../base/errors.js";
import { choice, clientPath, inputImagePath, keepableText, outputFolderPath } from "../inference/request.js";
import { outputKindSchema } from "../manifest/manifest.js";
import { answerSchema } from "../results/receipt/receipt.js";

const MOST_ITEMS = 10_000;

export const bulkRequestSchema = z
  .strictObject({
    input_folder_path: clientPath.optional().describe("Walked recursively; DICOM is recognised by content"),
    output_folder_path: clientPath.optional(),
    items: z
      .array(z.strictObject({ input_image_path: inputImagePath, output_folder_path: outputFolderPath }))
      .min(1)
      .max(MOST_ITEMS)
      .optional()
      .describe("Instead of the two folders"),
    ...choice,
    idempotency_key: keepableText(200).optional(),
  })
  .superRefine((body, context) => {
    const folders = body.input_folder_path !== undefined || body.output_folder_path !== undefined;
    const missing = (field: string, message: string) =>
      context.addIssue({ code: "custom", path: [field], message });
    if (body.items !== undefined) {
      if (folders) missing("items", "Expected either items or the two folders, not both");
      return;
    }
    if (body.input_folder_path === undefined)
      missing(
        "input_folder_path",
        folders ? "Expected a string" : "Expected input_folder_path and output_folder_path, or items",
      );
    else if (body.output_folder_path === undefined) missing("output_folder_path", "Expected a string");
  })
  // The same for the published schema, which has no words for the checks above.
  .meta({
    oneOf: [
      { required: ["items"], properties: { input_folder_path: false, output_folder_path: false } },
      { required: ["input_folder_path", "output_folder_path"], properties: { items: false } },
    ],
  });
export type BulkRequest = z.infer<typeof bulkRequestSchema>;

export const JOB_STATES = ["scanning", "running", "paused", "completed", "cancelled"] as const;
export const ITEM_STATES = [
  "queued",
  "running",
  "succeeded",
  "partial",
  "failed",
  "skipped",
  "cancelled",
] as const;

const count = z.int().min(0);

const reason = z.object({
  code: z.string(),
  message: z.string(),
  details: z.record(z.string(), z.unknown()).optional(),
});

export const jobSchema = z.object({
  job_id: z.uuid(),
  state: z.enum(JOB_STATES),
  paused_reason: z
    .object({
      code: z.string(),
      message: z.string(),
      since: z.iso.datetime().nullable().describe("null where nobody has noted it"),
    })
    .nullable()
    .describe(
      "Whatever the code, work goes on by itself, except after paused_by_request and repeated_failures",
    ),
  created_at: z.iso.datetime(),
  finished_at: z.iso.datetime().nullable(),
  total: count.nullable().describe("null while the folder is scanned"),
  counts: z.object(
    Object.fromEntries(ITEM_STATES.map((state) => [state, count])) as Record<
      (typeof ITEM_STATES)[number],
      typeof count
    >,
  ),
  images_per_second: z.number().nullable(),
  estimated_end: z.iso.datetime().nullable(),
  request: z.object({
    input_folder_path: z.string().optional(),
    output_folder_path: z.string().optional(),
    models: z.array(z.string()).optional(),
    outputs: z.array(outputKindSchema).optional(),
  }),
  status_url: z.string(),
});
export type Job = z.infer<typeof jobSchema>;

const waiting = z.object({
  reason: z.string().describe("The code of paused_reason, or what some of the images wait for"),
  message: z.string(),
  since: z.iso.datetime().nullable(),
  box: z.string().nullable().describe("The box that found it, or that it is about"),
  images: count.nullable().describe("How many wait for it; null: the whole job"),
});

const box = z.object({
  name: z.string().describe("Host name"),
  id: z.uuid().describe("Of its state directory"),
  alive: z.boolean().describe("It has shown a sign of life within the last 6 seconds"),
  works: z.boolean().describe("It runs images of jobs: its role is worker or both"),
  ready: z.boolean().describe("Its models are loaded and checked"),
  seen_at: z.iso.datetime().describe("Its last sign of life"),
  running: count.describe("Images of this job"),
});

/** One job, as its own page shows it. */
export const jobDetailsSchema = jobSchema.extend({
  waiting: z.array(waiting).describe("What the job or some of its images wait for"),
  boxes: z.array(box).describe("The servers on this database"),
});
export type JobDetails = z.infer<typeof jobDetailsSchema>;

export const DIFFERENCES = [
  "receipt_missing",
  "receipt_invalid",
  "receipt_replaced",
  "output_missing",
  "output_differs",
  "folder_unreadable",
  "unlisted",
] as const;

export const reconciliationSchema = z.object({
  checked: count.describe("Images that say succeeded or partial, on this page"),
  differences: z.array(
    z.object({
      difference: z.enum(DIFFERENCES),
      path: z.string(),
      index: count.nullable().describe("The image; null for what belongs to none"),
      message: z.string(),
    }),
  ),
  requeued: count.describe("Images that run again, because results of them are missing or damaged"),
  next_cursor: z.string().nullable().describe("For the next page; null on the last"),
});
export type Reconciliation = z.infer<typeof reconciliationSchema>;

export const acceptedSchema = jobSchema.pick({ job_id: true, state: true, total: true, status_url: true });
export type Accepted = z.infer<typeof acceptedSchema>;

const modelResult = answerSchema.shape.models.element;

export const itemSchema = z.object({
  index: count,
  input_image_path: z.string(),
  output_folder_path: z.string(),
  state: z.enum(ITEM_STATES),
  attempts: count,
  reused: z.boolean().optional().describe("A finished, valid result lay there and nothing was computed"),
  receipt_path: z.string().optional(),
  outputs: modelResult.shape.outputs,
  models: z.array(modelResult.pick({ name: true, status: true })),
  warnings: answerSchema.shape.warnings,
  error: errorObjectSchema.optional(),
  reason: reason.optional().describe("Why the file is no input, of skipped ones"),
});
export type Item = z.infer<typeof itemSchema>;

const cursor = z.string().nullable().describe("For the next page; null on the last");
export const jobListSchema = z.object({ jobs: z.array(jobSchema), next_cursor: cursor });
export const itemListSchema = z.object({ items: z.array(itemSchema), next_cursor: cursor });

const page = (most: number, usual: number) => ({
  limit: z.coerce.number().int().min(1).max(most).default(usual),
  cursor: z
    .string()
    .regex(/^\d{1,9}$/, "Expected the next_cursor of the page before")
    .optional(),
});

export const jobQuerySchema = z.strictObject({ ...page(100, 20), state: z.enum(JOB_STATES).optional() });
export const reconcileQuerySchema = z.strictObject({
  limit: page(1000, 100).limit,
  cursor: z
    .string()
    .regex(/^[if]\d{1,9}$/, "Expected the next_cursor of the page before")
    .optional(),
  retry: z.enum(["true", "false"]).default("false").describe("Runs images again whose results are missing"),
});
export const itemQuerySchema = z.strictObject({ ...page(1000, 100), state: z.enum(ITEM_STATES).optional() });
