/** One table of routes: it gives the routing and the published contract. */
import type { ErrorCode } from "../base/errors.js";
import {
  bulk,
  singleInference,
  ready,
  metrics,
  live,
  listModels,
  showOverview,
  type Handler,
} from "./handlers.js";
import { download, downloadQuerySchema, upload, uploadQuerySchema } from "./file-transfer.js";
import { asset, index } from "./page.js";
import {
  driftQuerySchema,
  listPaths,
  marksQuerySchema,
  pathsQuerySchema,
  pictureQuerySchema,
  resultQuerySchema,
  showDrift,
  showMarks,
  showPicture,
  showResult,
  showVerification,
  verificationQuerySchema,
} from "./viewing.js";
import type { OperationName } from "../bulk/api.js";
import { giveHeld, hold, type Held } from "./held.js";
import { openApi, type DescribedRoute } from "./openapi.js";
import { jobQuerySchema, itemQuerySchema, reconcileQuerySchema } from "../bulk/schema.js";

const PATH_ERRORS = ["path_not_allowed", "input_not_found", "disk_full", "audit_failed"] as const;
const IMAGE_ERRORS: readonly ErrorCode[] = [
  ...PATH_ERRORS,
  "output_name_taken",
  "unsupported_format",
  "unsupported_transfer_syntax",
  "no_pixel_data",
  "corrupt_image",
  "truncated_image",
  "decode_suspect",
  "series_invalid",
  "model_not_found",
  "no_model_accepts",
  "output_invalid",
  "overloaded",
  "model_unavailable",
  "shutting_down",
  "deadline_exceeded",
];

const bulkPage = (operation: OperationName, errors: readonly ErrorCode[] = []) =>
  ({
    auth: "token",
    tag: "jobs",
    serves: "requests",
    errors: [...new Set([...errors, "audit_failed", "bulk_unavailable", "shutting_down"] as const)],
    handler: bulk(operation),
  }) as const;
/** A page that reads results or images for people. */
const view = {
  method: "GET",
  tag: "results",
  auth: "token",
  serves: "requests",
} as const;
const VIEW_ERRORS: readonly ErrorCode[] = [
  ...["bad_request", "path_not_allowed", "not_found", "file_not_found", "overloaded"],
  ...["deadline_exceeded", "shutting_down", "audit_failed"],
] as ErrorCode[];
const SOURCE_ERRORS: readonly ErrorCode[] = [
  ...VIEW_ERRORS,
  ...["input_not_found", "result_changed", "unsupported_format", "unsupported_transfer_syntax"],
  ...["no_pixel_data", "corrupt_image", "truncated_image", "decode_suspect", "series_invalid"],
] as ErrorCode[];
const ofJob = (operation: OperationName, errors: readonly ErrorCode[] = []) => ({
  ...bulkPage(operation, ["job_not_found", ...errors]),
  answer: "JobDetails" as const,
});

export interface Route extends DescribedRoute {
  handler: Handler;
  /** "requests": not served if the role is worker. */
  serves?: "requests";
  /** False where a good answer tells nothing of anybody and is asked for every few seconds: the audit has no line of it. */
  audited?: false;
}

export const ROUTES: readonly Route[] = [
  {
    method: "POST",
    path: "/single_inference",
    id: "singleInference",
    tag: "inference",
    auth: "token",
    serves: "requests",
    summary: "Runs the models that accept one image, and writes their results",
    body: "SingleRequest",
    answer: "Answer",
    errors: IMAGE_ERRORS,
    handler: singleInference,
  },
  {
    method: "POST",
    path: "/bulk_inference",
    id: "submitJob",
    summary: "Takes many images as one job",
    body: "BulkRequest",
    answer: "Accepted",
    statuses: {
      202: "The job is written down, and will be done",
      200: "The job of before, which has the same idempotency_key and request",
    },
    ...bulkPage("submit", [...PATH_ERRORS, "model_not_found", "idempotency_conflict", "model_unavailable"]),
  },
  {
    method: "GET",
    path: "/bulk_inference",
    id: "listJobs",
    summary: "This subject's jobs, newest first (all subjects' with the claim admin)",
    query: jobQuerySchema,
    answer: "JobList",
    ...bulkPage("list", ["bad_request"]),
  },
  { method: "GET", path: "/bulk_inference/:id", id: "getJob", summary: "One job", ...ofJob("show") },
  {
    method: "GET",
    path: "/bulk_inference/:id/items",
    id: "listItems",
    summary: "The images of a job, in their order",
    query: itemQuerySchema,
    ...bulkPage("items", ["bad_request", "job_not_found"]),
    answer: "ItemList",
  },
  {
    method: "DELETE",
    path: "/bulk_inference/:id",
    id: "cancelJob",
    summary: "Cancels a job: what waits never starts, what runs finishes or stops, results stay",
    ...ofJob("cancel"),
  },
  {
    method: "POST",
    path: "/bulk_inference/:id/retry",
    id: "retryJob",
    summary: "Runs a job's failed images again",
    ...ofJob("retry", ["job_state", ...PATH_ERRORS]),
  },
  {
    method: "POST",
    path: "/bulk_inference/:id/pause",
    id: "pauseJob",
    summary: "Begins no more images of a job until it is resumed",
    ...ofJob("pause", ["job_state"]),
  },
  {
    method: "POST",
    path: "/bulk_inference/:id/resume",
    id: "resumeJob",
    summary: "Lets a job go on at once, whatever it waited for",
    ...ofJob("resume", ["job_state"]),
  },
  {
    method: "POST",
    path: "/bulk_inference/:id/reconcile",
    id: "reconcileJob",
    summary: "Compares a job with what lies in its output folders, page by page",
    query: reconcileQuerySchema,
    ...bulkPage("reconcile", ["bad_request", "job_not_found", "job_state", ...PATH_ERRORS]),
    answer: "Reconciliation",
  },
  {
    method: "POST",
    path: "/bulk_inference/:id/purge",
    id: "purgeJob",
    summary: "Forgets a job that is over; its results stay",
    ...ofJob("purge", ["job_state"]),
  },
  {
    method: "PUT",
    path: "/files",
    id: "uploadFile",
    tag: "files",
    auth: "token",
    serves: "requests",
    summary: "Writes an image into an input folder, whole or not at all",
    query: uploadQuerySchema,
    takesFile: true,
    answer: "Uploaded",
    statuses: {
      201: "The file is there, and the disk has it",
      200: "The same bytes were there already, or another file was replaced",
    },
    errors: [...PATH_ERRORS, "not_found", "file_exists", "shutting_down"],
    handler: upload,
  },
  {
    method: "GET",
    path: "/files",
    id: "downloadFile",
    tag: "files",
    auth: "token",
    serves: "requests",
    summary: "Gives a file of an output folder, or a part of it",
    query: downloadQuerySchema,
    headers: {
      Range: "One range of bytes, such as bytes=1000-; several are answered with the whole file",
      "If-Range": "The ETag of the answer before: the range counts only if the file is still the same",
      "If-None-Match": "An ETag: the answer is 304 if the file is still the same",
    },
    answer: "application/octet-stream",
    statuses: { 200: "The file", 206: "The part that was asked for", 304: "The file is still the same" },
    errors: [
      "bad_request",
      "path_not_allowed",
      "not_found",
      "file_not_found",
      "range_not_satisfiable",
      "audit_failed",
    ],
    handler: download,
  },
  {
    ...view,
    path: "/results",
    id: "getResult",
    summary: "The receipt of a result",
    query: resultQuerySchema,
    answer: "Receipt",
    errors: VIEW_ERRORS,
    handler: showResult,
  },
  {
    ...view,
    path: "/results/picture",
    id: "getResultPicture",
    summary: "A frame of the image that a result is of, as its window shows it",
    query: pictureQuerySchema,
    answer: "application/octet-stream",
    errors: SOURCE_ERRORS,
    handler: showPicture,
  },
  {
    ...view,
    path: "/results/marks",
    id: "getResultMarks",
    summary: "What a model marked on a frame, from the segmentation that it wrote",
    query: marksQuerySchema,
    answer: "Marks",
    errors: [...VIEW_ERRORS, "result_changed", "corrupt_image"],
    handler: showMarks,
  },
  {
    ...view,
    path: "/results/verification",
    id: "verifyResult",
    summary: "Whether a result is as it was written, and comes out the same when it is computed again",
    query: verificationQuerySchema,
    answer: "Verification",
    errors: SOURCE_ERRORS,
    handler: showVerification,
  },
  {
    ...view,
    path: "/drift",
    id: "getDrift",
    tag: "operations",
    summary: "How models do from week to week, from receipts and never from images",
    query: driftQuerySchema,
    answer: "Drift",
    errors: VIEW_ERRORS,
    handler: showDrift,
  },
  {
    ...view,
    path: "/paths",
    id: "listPaths",
    tag: "files",
    summary: "Files and folders whose paths begin as given",
    query: pathsQuerySchema,
    answer: "PathList",
    errors: [...VIEW_ERRORS, "input_not_found"],
    handler: listPaths,
  },
  {
    method: "GET",
    path: "/models",
    auth: "token",
    id: "listModels",
    tag: "models",
    summary: "Each model: what it takes, how it does, what its work costs",
    answer: "ModelList",
    errors: ["audit_failed"],
    handler: listModels,
  },
  {
    method: "GET",
    path: "/overview",
    id: "getOverview",
    tag: "operations",
    auth: "token",
    summary: "Whether the server is well and why not, and how busy it is and was; nothing of any image",
    answer: "Overview",
    errors: [],
    audited: false,
    handler: showOverview,
  },
  {
    method: "GET",
    path: "/health/live",
    auth: "open",
    id: "getLive",
    tag: "operations",
    summary: "The process answers",
    answer: "Live",
    errors: [],
    handler: live,
  },
  {
    method: "GET",
    path: "/health/ready",
    auth: "open",
    id: "getReady",
    tag: "operations",
    summary: "Every required model is loaded and checked",
    answer: "Ready",
    errors: ["model_unavailable", "overloaded", "audit_failed", "shutting_down"],
    handler: ready,
  },
  {
    method: "GET",
    path: "/metrics",
    auth: "local",
    id: "getMetrics",
    tag: "operations",
    summary: "Figures for Prometheus",
    answer: "text/plain",
    errors: [],
    handler: metrics,
  },
  {
    method: "GET",
    path: "/openapi.json",
    auth: "open",
    id: "getContract",
    tag: "operations",
    summary: "This document",
    answer: "application/json",
    errors: [],
    handler: (ctx) => {
      ctx.set("Cache-Control", "no-cache");
      giveHeld(ctx, "json", contract());
    },
  },
  {
    method: "GET",
    path: "/",
    id: "getIndex",
    tag: "operations",
    auth: "open",
    summary: "A page for people",
    answer: "text/html",
    errors: ["not_found"],
    handler: index,
  },
  {
    method: "GET",
    path: "/assets/:name",
    id: "getAsset",
    tag: "operations",
    auth: "open",
    summary: "A part of the page for people",
    answer: "text/html",
    errors: ["not_found"],
    handler: asset,
  },
];

let held: Held | undefined;
/** The published contract as it is served: made once, because its text takes longer than an answer may. */
export function contract(): Held {
  held ??= hold(Buffer.from(JSON.stringify(openApi(ROUTES))));
  return held;
}
