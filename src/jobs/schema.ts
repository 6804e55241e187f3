/**
 * Requests and answers of the endpoints of jobs: one schema each, for the types, the checks and the
 * published contract.
 */
import { z } from "zod";
import { errorObjectSchema } from "../base/errors.js";
import {
  choice,
  clientPath,
  deliveryOfJob,
  group,
  inputImagePath,
  keepableText,
  outputFolderPath,
  priority,
} from "../inference/request.js";
import { outputKindSchema } from "../manifest/manifest.js";
import { modelIdentitiesSchema } from "../models/identity.js";
import { answerSchema } from "../results/receipt/receipt.js";
import { pinsSchema } from "./pins.js";

/** For the published contract; what is asked for is said by `keepableText`. */
// oxlint-disable-next-line no-control-regex -- PostgreSQL keeps no text with this character
const WITHOUT_NUL = /^[^\u0000]*$/;

const MOST_ITEMS = 10_000;

const folders = {
  input_folder_path: clientPath.describe(
    "Searched with all folders below it; results keep their relative path below output_folder_path",
  ),
  output_folder_path: outputFolderPath,
};
const items = z
  .array(z.strictObject({ input_image_path: inputImagePath, output_folder_path: outputFolderPath }))
  .min(1)
  .max(MOST_ITEMS)
  .describe("In place of the two folders, up to 10,000 images, each with its output folder");
/** Among the jobs of one subject. */
const jobPriority = priority.describe(
  "stat goes before the other jobs of its subject; default: routine",
);
const rest = {
  group,
  ...choice,
  ...deliveryOfJob,
  priority: jobPriority,
  idempotency_key: keepableText(200)
    .regex(WITHOUT_NUL)
    .optional()
    .describe(
      "The same request with the same key is the same job (200 in place of 202); another request with it is 409 idempotency_conflict",
    ),
};

/** The two forms of a bulk request, as the contract publishes them. */
export const bulkFolderRequestSchema = z.strictObject({ ...folders, ...rest });
export const bulkItemsRequestSchema = z.strictObject({ items, ...rest });

/** Both at once, so that one answer says all that is wrong with a request. */
export const bulkRequestSchema = z
  .strictObject({
    input_folder_path: folders.input_folder_path.optional(),
    output_folder_path: folders.output_folder_path.optional(),
    items: items.optional(),
    ...rest,
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
        folders
          ? "Expected a string"
          : "Expected input_folder_path and output_folder_path, or items",
      );
    else if (body.output_folder_path === undefined)
      missing("output_folder_path", "Expected a string");
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

export const skipReasonSchema = z.object({
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
      since: z.iso
        .datetime()
        .nullable()
        .describe("When the pause began; null if that was not recorded"),
    })
    .nullable()
    .describe(
      "Work continues by itself after every code but paused_by_request and repeated_failures; after no_node_can_run once a node has what is in `pinned`, or, where nothing of the job was done, after half a minute with what the nodes have then",
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
  warnings: z
    .array(z.object({ code: z.string(), message: z.string() }))
    .describe(
      "`nothing_analysed`: the job has ended, and every file was skipped, or none was found. `several_versions`: its results are of several versions of a model or of Radserve, because it was resumed with others. `pinned_anew`: all are of others than those that it was submitted with, which no node had any more",
    ),
  images_per_second: z.number().nullable(),
  estimated_end: z.iso.datetime().nullable(),
  request: z.object({
    input_folder_path: z.string().optional(),
    output_folder_path: z.string().optional(),
    group,
    models: z.array(z.string()).optional(),
    outputs: z.array(outputKindSchema).optional(),
    labels: z.array(z.string()).optional(),
    priority: jobPriority,
    destinations: z.array(z.string()).optional().describe("To which the objects of its results go"),
  }),
  status_url: z.string(),
});
export type Job = z.infer<typeof jobSchema>;

export const waitingSchema = z.object({
  reason: z.string().describe("The code of paused_reason, or what some of the images wait for"),
  message: z.string(),
  since: z.iso.datetime().nullable(),
  node: z
    .string()
    .nullable()
    .describe("The node that reported the reason, or that the reason is about"),
  images: count
    .nullable()
    .describe(
      "Number of images that wait; null: the whole job, or all of it that would run on this node",
    ),
});

export const nodeSchema = z.object({
  name: z.string().describe("RADSERVE_NODE_NAME, or the host name"),
  id: z.uuid().describe("Identifies the state directory of the node"),
  instance: z.uuid().describe("Identifies this run of the node"),
  address: z.string().describe("Where clients reach it"),
  release: z.string().describe("Version of Radserve; empty of 0.6 and before"),
  alive: z.boolean().describe("The node has written to the database within the last 6 seconds"),
  works: z.boolean().describe("It runs images of jobs: its role is worker or both"),
  ready: z.boolean().describe("Its models are loaded and checked"),
  seen_at: z.iso.datetime().describe("When the node last wrote to the database"),
  entered_at: z.iso.datetime().describe("When this run of the node began"),
  clock_offset_ms: z
    .number()
    .nullable()
    .describe(
      "By how much its clock is ahead of the database's; null until they have been compared",
    ),
  models: modelIdentitiesSchema.describe("Its models by name, but for those that are off"),
  keys: z.array(z.string()).describe("Ids of its keys of tokens"),
  result_keys: z.array(z.string()).describe("Ids of its keys of results"),
  roots: z
    .array(
      z.object({
        side: z.enum(["input", "output"]),
        number: z.int().min(1).describe("Its place among the roots of its side"),
        mark: z.string().nullable().describe("Text of its file .radserve-root; null without one"),
        empty: z.boolean(),
        usable: z.boolean().describe("It can be read, and an output root written to"),
      }),
    )
    .describe("Its roots as they look there; never a path"),
  settings: z
    .record(z.string(), z.string())
    .describe("Its settings that decide the form of results, by their variables"),
  running: count.describe("Images of this job"),
});
export type NodeState = z.infer<typeof nodeSchema>;

export const failureSchema = z.object({
  state: z.enum(["failed", "skipped"]),
  code: z.string(),
  message: z.string().describe("The message of one of these images"),
  images: count,
});

export const reportSchema = z.object({
  html_path: z.string().nullable().describe("The page for people; it needs nothing beside it"),
  csv_path: z
    .string()
    .nullable()
    .describe("The table: a row for each label of each model on each image"),
  error: errorObjectSchema.nullable().describe("Why the report could not be written"),
});

export const jobProgressSchema = z.object({
  index: count.describe("Index of the item"),
  windows_done: count.describe("Windows that the running model has finished"),
  windows: count,
});
export type JobProgress = z.infer<typeof jobProgressSchema>;

/** One job, as its own endpoint shows it. */
export const jobDetailsSchema = jobSchema.extend({
  waiting: z.array(waitingSchema).describe("What the job or some of its images wait for"),
  nodes: z.array(nodeSchema).describe("The servers on this database"),
  progress: z
    .array(jobProgressSchema)
    .describe("Images and series that this server runs in windows at this moment"),
  failures: z
    .array(failureSchema)
    .describe("Why images failed or were skipped, the most frequent first; at most 20 of each"),
  report: reportSchema
    .nullable()
    .describe(
      "Written into the output folder before the job ends; null before that, and if reports are off",
    ),
  pinned: pinsSchema
    .nullable()
    .describe(
      "What the job was submitted with: only nodes that have it run its images. Null for jobs of 0.6 and before",
    ),
  pinned_before: z
    .array(pinsSchema)
    .describe("What earlier results of the job were made with, where it was resumed with others"),
  pinned_anew: z
    .array(
      z.object({
        at: z.iso.datetime(),
        node: z.string().describe("Whose models and release the job got"),
        before: pinsSchema,
      }),
    )
    .describe(
      "Where no node had what the job was submitted with, and nothing of it was done: what it had before",
    ),
});
export type JobDetails = z.infer<typeof jobDetailsSchema>;

export const DIFFERENCES = [
  "receipt_missing",
  "receipt_invalid",
  "receipt_untrusted",
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
      index: count
        .nullable()
        .describe("Index of the image; null for a file that belongs to no image"),
      message: z.string(),
    }),
  ),
  requeued: count.describe("Images that run again, because results of them are missing or damaged"),
  next_cursor: z.string().nullable().describe("For the next page; null on the last"),
});
export type Reconciliation = z.infer<typeof reconciliationSchema>;

export const acceptedSchema = jobSchema.pick({
  job_id: true,
  state: true,
  total: true,
  status_url: true,
});
export type Accepted = z.infer<typeof acceptedSchema>;

const found = z
  .array(z.string())
  .optional()
  .describe("Labels that are present; of more than 51 the first, and the receipt has all");
const modelResult = answerSchema.shape.models.element;

export const itemSchema = z.object({
  index: count,
  input_image_path: z.string(),
  series_instance_uid: z
    .string()
    .optional()
    .describe("SeriesInstanceUID of the item, if its folder has several series"),
  output_folder_path: z.string(),
  state: z.enum(ITEM_STATES),
  attempts: count,
  reused: z
    .boolean()
    .optional()
    .describe("A finished, valid result lay there and nothing was computed"),
  receipt_path: z.string().optional(),
  finished_at: answerSchema.shape.finished_at.optional(),
  outputs: modelResult.shape.outputs,
  models: z.array(modelResult.pick({ name: true, status: true, shadow: true }).extend({ found })),
  warnings: answerSchema.shape.warnings,
  deliveries: answerSchema.shape.deliveries,
  replaced: z
    .literal(true)
    .optional()
    .describe(
      "Of a job that delivers: another result was delivered from there since, and nothing of that is told here. `finished_at` tells it of any job",
    ),
  error: errorObjectSchema.optional(),
  reason: skipReasonSchema.optional().describe("Why a skipped file is not an input"),
});
export type Item = z.infer<typeof itemSchema>;

const cursor = z.string().nullable().describe("For the next page; null on the last");
export const jobListSchema = z.object({ jobs: z.array(jobSchema), next_cursor: cursor });
export const itemListSchema = z.object({ items: z.array(itemSchema), next_cursor: cursor });

const page = (most: number, usual: number, cursor = /^\d{1,9}$/) => ({
  limit: z.coerce.number().int().min(1).max(most).default(usual).describe("How many on a page"),
  cursor: z
    .string()
    .regex(cursor, "Expected the next_cursor of the page before")
    .optional()
    .describe("The next_cursor of the page before; without it the first page"),
});

export const jobQuerySchema = z.strictObject({
  ...page(100, 20),
  state: z.enum(JOB_STATES).optional().describe("Jobs in this state alone"),
});
export const reconcileQuerySchema = z.strictObject({
  ...page(1000, 100, /^[if]\d{1,9}$/),
  retry: z
    .enum(["true", "false"])
    .default("false")
    .describe("Runs images again whose results are missing"),
});
export const itemQuerySchema = z.strictObject({
  ...page(1000, 100),
  state: z.enum(ITEM_STATES).optional().describe("Images in this state alone"),
  code: z
    .string()
    .regex(/^[a-z_]{1,60}$/, "Expected a code of `failures`, such as truncated_image")
    .optional()
    .describe("Images with this error, or skipped for this reason, alone"),
});
