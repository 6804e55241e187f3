/** What the bulk pages take and give: one schema each, for the types, the checks and the published contract. */
import { z } from "zod";
import { errorCode } from "../base/errors.js";
import { outputKindSchema } from "../manifest/manifest.js";
import { answerSchema } from "../results/receipt/receipt.js";

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
    .object({ code: z.string(), message: z.string() })
    .nullable()
    .describe("Whatever the code, work goes on by itself, except after paused_by_request"),
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
  error: z
    .object({
      error: errorCode,
      message: z.string(),
      details: z.record(z.string(), z.unknown()).optional(),
    })
    .optional(),
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
export const itemQuerySchema = z.strictObject({ ...page(1000, 100), state: z.enum(ITEM_STATES).optional() });
