/**
 * One table of routes: it gives the routing, the published contract, and what the audit calls each page. A page is an
 * entry here and a handler with its schemas.
 */
import type { Interaction } from "../audit/fhir.js";
import type { ErrorCode } from "../base/errors.js";
import type { OperationName } from "../bulk/api.js";
import {
  acceptedSchema,
  bulkRequestSchema,
  itemListSchema,
  itemQuerySchema,
  jobDetailsSchema,
  jobListSchema,
  jobQuerySchema,
  reconcileQuerySchema,
  reconciliationSchema,
} from "../bulk/schema.js";
import { listDeliveries, retryDeliveries } from "./deliveries.js";
import { complete, stow } from "./doors.js";
import { download, upload } from "./file-transfer.js";
import {
  bulk,
  listModels,
  live,
  metrics,
  ready,
  showOverview,
  singleInference,
  type Handler,
} from "./handlers.js";
import { giveHeld, hold, type Held } from "./held.js";
import { openApi, type DescribedRoute } from "./openapi.js";
import { asset, index } from "./page.js";
import {
  listPaths,
  listResults,
  showDrift,
  showFrame,
  showMarks,
  showPicture,
  showResult,
  showVerification,
} from "./viewing.js";

const PATH_ERRORS = ["path_not_allowed", "input_not_found", "disk_full"] as const;
const READ_ERRORS = [
  "unsupported_format",
  "unsupported_transfer_syntax",
  "no_pixel_data",
  "corrupt_image",
  "truncated_image",
  "decode_suspect",
  "series_invalid",
] as const;

const bulkPage = (operation: OperationName, errors: readonly ErrorCode[] = []) =>
  ({
    tag: "jobs",
    errors: [...errors, "bulk_unavailable", "shutting_down"],
    handler: bulk(operation),
  }) as const;
/** A page that reads results or images for people. */
const view = { method: "GET", tag: "results" } as const;
/** A page that every server has, whatever its role. */
const everywhere = { method: "GET", onWorkers: true, tag: "operations" } as const;
const VIEW_ERRORS = [
  "path_not_allowed",
  "not_found",
  "file_not_found",
  "overloaded",
  "deadline_exceeded",
  "shutting_down",
] as const;
const SOURCE_ERRORS = [...VIEW_ERRORS, "input_not_found", "result_changed", ...READ_ERRORS] as const;
const ofJob = (operation: OperationName, errors: readonly ErrorCode[] = []) => ({
  ...bulkPage(operation, ["job_not_found", ...errors]),
  answer: { JobDetails: jobDetailsSchema },
});

export interface Route extends DescribedRoute {
  handler: Handler;
  /** Served if the role is worker, too. */
  onWorkers?: true;
  /** A body of megabytes: few of them are in memory at a time, and the bulk thread parses it. */
  hasLargeBody?: true;
  /** The kind of its lines in the audit; "page" if absent. */
  auditedAs?: "inference" | "reconcile";
  /** The interaction of FHIR that the audit's export calls it; "read" for GET and else "patch" if absent. */
  interaction?: Interaction;
}

export const ROUTES: readonly Route[] = [
  {
    method: "POST",
    path: "/single_inference",
    id: "singleInference",
    tag: "inference",
    summary: "Runs the models that accept one image, and writes their results",
    auditedAs: "inference",
    errors: [
      ...PATH_ERRORS,
      "output_name_taken",
      ...READ_ERRORS,
      "model_not_found",
      "destination_not_found",
      "no_model_accepts",
      "output_invalid",
      "delivery_unavailable",
      "overloaded",
      "model_unavailable",
      "shutting_down",
      "deadline_exceeded",
    ],
    ...singleInference,
  },
  {
    method: "POST",
    path: "/bulk_inference",
    id: "submitJob",
    summary: "Takes many images as one job",
    body: { BulkRequest: bulkRequestSchema },
    hasLargeBody: true,
    interaction: "create",
    answer: { Accepted: acceptedSchema },
    statuses: {
      202: "The job is stored in the database and will run",
      200: "The earlier job with the same idempotency_key and request",
    },
    ...bulkPage("submit", [
      ...PATH_ERRORS,
      "model_not_found",
      "destination_not_found",
      "idempotency_conflict",
      "model_unavailable",
    ]),
  },
  {
    method: "GET",
    path: "/bulk_inference",
    id: "listJobs",
    interaction: "search",
    summary: "This subject's jobs, newest first (all subjects' with the claim admin)",
    query: jobQuerySchema,
    answer: { JobList: jobListSchema },
    ...bulkPage("list"),
  },
  { method: "GET", path: "/bulk_inference/:id", id: "getJob", summary: "One job", ...ofJob("show") },
  {
    method: "GET",
    path: "/bulk_inference/:id/items",
    id: "listItems",
    summary: "The images of a job, in their order",
    query: itemQuerySchema,
    ...bulkPage("items", ["job_not_found"]),
    answer: { ItemList: itemListSchema },
  },
  {
    method: "DELETE",
    path: "/bulk_inference/:id",
    id: "cancelJob",
    summary: "Cancels a job: waiting images never start, running images finish or stop, results stay",
    ...ofJob("cancel"),
  },
  {
    method: "POST",
    path: "/bulk_inference/:id/retry",
    id: "retryJob",
    summary: "Runs a job's failed images again, and the cancelled images of a cancelled job",
    ...ofJob("retry", ["job_state", ...PATH_ERRORS]),
  },
  {
    method: "POST",
    path: "/bulk_inference/:id/pause",
    id: "pauseJob",
    summary: "Pauses a job: no more of its images start until it is resumed",
    ...ofJob("pause", ["job_state"]),
  },
  {
    method: "POST",
    path: "/bulk_inference/:id/resume",
    id: "resumeJob",
    summary: "Resumes a paused job at once, whatever its reason",
    ...ofJob("resume", ["job_state"]),
  },
  {
    method: "POST",
    path: "/bulk_inference/:id/reconcile",
    id: "reconcileJob",
    auditedAs: "reconcile",
    interaction: "compare",
    summary: "Compares a job with the files in its output folders, page by page",
    query: reconcileQuerySchema,
    ...bulkPage("reconcile", ["job_not_found", "job_state", ...PATH_ERRORS]),
    answer: { Reconciliation: reconciliationSchema },
  },
  {
    method: "POST",
    path: "/bulk_inference/:id/purge",
    id: "purgeJob",
    interaction: "delete",
    summary: "Deletes a job that has ended from the database; its results stay",
    ...ofJob("purge", ["job_state"]),
  },
  {
    method: "PUT",
    path: "/files",
    id: "uploadFile",
    interaction: "create",
    tag: "files",
    summary: "Writes an image into an input folder, whole or not at all",
    takesFile: true,
    statuses: {
      201: "The file is written and synced to the disk",
      200: "The same bytes were there already, or another file was replaced",
    },
    errors: [...PATH_ERRORS, "not_found", "file_exists", "unsupported_format", "shutting_down"],
    ...upload,
  },
  {
    method: "GET",
    path: "/files",
    id: "downloadFile",
    tag: "files",
    summary: "Gives a file of an output folder, or a part of it",
    headers: {
      Range: "One range of bytes, for example bytes=1000-; a request for several ranges gets the whole file",
      "If-Range": "ETag of the earlier answer: the range is used only if the file is unchanged",
      "If-None-Match": "An ETag: the answer is 304 if the file is unchanged",
    },
    statuses: { 200: "The file", 206: "The part that was asked for", 304: "The file is still the same" },
    errors: ["path_not_allowed", "not_found", "file_not_found", "range_not_satisfiable"],
    ...download,
  },
  {
    method: "POST",
    path: "/dicomweb/studies",
    id: "storeInstances",
    interaction: "create",
    tag: "files",
    summary:
      "Takes DICOM objects (STOW-RS); a series that is complete becomes a job by the rules of the doors",
    takesFile: "multipart/related",
    statuses: {
      200: "The disk has all objects",
      202: "Some objects were stored; FailedSOPSequence lists the others with the reason",
      409: "No object was stored; FailedSOPSequence has the reasons",
    },
    errors: ["path_not_allowed", "not_found", "unsupported_format", "shutting_down"],
    ...stow,
  },
  {
    method: "POST",
    path: "/doors/received/:study/complete",
    id: "completeStudy",
    interaction: "create",
    tag: "files",
    summary: "Makes jobs of the received images of a study at once, without waiting until it is quiet",
    errors: [
      "path_not_allowed",
      "not_found",
      "model_not_found",
      "disk_full",
      "bulk_unavailable",
      "shutting_down",
    ],
    ...complete,
  },
  {
    method: "GET",
    path: "/deliveries",
    id: "listDeliveries",
    interaction: "search",
    tag: "results",
    summary:
      "Results of this subject that are not delivered yet, or were set aside (all with the claim admin)",
    errors: ["not_found", "destination_not_found", "shutting_down"],
    ...listDeliveries,
  },
  {
    method: "POST",
    path: "/deliveries/retry",
    id: "retryDeliveries",
    tag: "results",
    summary: "Sends objects again that were set aside",
    errors: ["path_not_allowed", "not_found", "destination_not_found", "shutting_down"],
    ...retryDeliveries,
  },
  {
    ...view,
    path: "/results",
    id: "getResult",
    summary: "The receipt of a result",
    errors: VIEW_ERRORS,
    ...showResult,
  },
  {
    ...view,
    path: "/results/list",
    id: "listResults",
    summary: "Results in the output folders, the latest first",
    errors: VIEW_ERRORS,
    ...listResults,
  },
  {
    ...view,
    path: "/results/picture",
    id: "getResultPicture",
    summary: "A frame of the analysed image, drawn with its window",
    errors: SOURCE_ERRORS,
    ...showPicture,
  },
  {
    ...view,
    path: "/results/frame",
    id: "getResultFrame",
    summary: "The values of a frame of the analysed image, and what a viewer shows beside them",
    errors: SOURCE_ERRORS,
    ...showFrame,
  },
  {
    ...view,
    path: "/results/marks",
    id: "getResultMarks",
    summary: "What a model marked on a frame, from the segmentation that it wrote",
    errors: SOURCE_ERRORS,
    ...showMarks,
  },
  {
    ...view,
    path: "/results/verification",
    id: "verifyResult",
    summary: "Verifies a result: files are compared with the receipt, and the models compute it again",
    errors: SOURCE_ERRORS,
    ...showVerification,
  },
  {
    ...view,
    path: "/drift",
    id: "getDrift",
    tag: "operations",
    summary: "Scores, shares and times of models week by week, read from receipts and never from images",
    errors: VIEW_ERRORS,
    ...showDrift,
  },
  {
    ...view,
    path: "/paths",
    id: "listPaths",
    tag: "files",
    summary: "Completes a path: files and folders that begin with the given text",
    errors: [...VIEW_ERRORS, "input_not_found"],
    ...listPaths,
  },
  {
    ...everywhere,
    path: "/models",
    id: "listModels",
    tag: "models",
    summary: "Lists each model: what it takes, its status, and the time and memory it uses",
    ...listModels,
  },
  {
    ...everywhere,
    path: "/overview",
    id: "getOverview",
    summary: "State of the server, its problems, and its load now and in the last hour; no data of any image",
    audited: false,
    ...showOverview,
  },
  {
    ...everywhere,
    path: "/health/live",
    auth: "open",
    id: "getLive",
    summary: "The process answers",
    ...live,
  },
  {
    ...everywhere,
    path: "/health/ready",
    auth: "open",
    id: "getReady",
    summary: "Every required model is loaded and checked",
    errors: ["model_unavailable", "overloaded", "audit_failed", "shutting_down"],
    ...ready,
  },
  {
    ...everywhere,
    path: "/metrics",
    auth: "local",
    id: "getMetrics",
    summary: "Figures for Prometheus",
    ...metrics,
  },
  {
    ...everywhere,
    path: "/openapi.json",
    auth: "open",
    id: "getContract",
    summary: "This document",
    answer: "application/json",
    handler: (ctx) => {
      ctx.set("Cache-Control", "no-cache");
      giveHeld(ctx, "json", contract());
    },
  },
  {
    ...everywhere,
    path: "/",
    id: "getIndex",
    auth: "open",
    summary: "A page for people",
    errors: ["not_found"],
    ...index,
  },
  {
    ...everywhere,
    path: "/assets/:name",
    id: "getAsset",
    auth: "open",
    summary: "A part of the page for people",
    errors: ["not_found"],
    ...asset,
  },
];

let held: Held | undefined;
/** The published contract as it is served: made once, because its text takes longer than an answer may. */
export function contract(): Held {
  held ??= hold(Buffer.from(JSON.stringify(openApi(ROUTES))));
  return held;
}

/** The interaction of a page, as lines of the audit name it; undefined if its route does not say one. */
export const interactionOf = (endpoint: string): Interaction | undefined =>
  ROUTES.find(({ method, path }) => `${method} ${path}` === endpoint)?.interaction;
