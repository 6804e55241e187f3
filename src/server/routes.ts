/**
 * One table of routes: it gives the routing, the published contract, and what the audit calls each
 * page. A page is an entry here and a handler with its schemas.
 */
import type { Interaction } from "../features/fhir-audit/fhir.js";
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
import {
  dropDeliveries,
  listDeliveries,
  retryDeliveries,
} from "../features/gateway/deliver/endpoints.js";
import { complete, stow } from "../features/gateway/receive/endpoints.js";
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
} from "../features/viewer/endpoints.js";

const PATH_ERRORS = [
  "path_not_allowed",
  "input_not_found",
  "disk_full",
  "share_unavailable",
] as const;
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
const view = { tag: "results" } as const;
/** A page that every server has, whatever its role. */
const everywhere = { onWorkers: true, tag: "operations" } as const;
const VIEW_ERRORS = [
  "path_not_allowed",
  "not_found",
  "file_not_found",
  "overloaded",
  "deadline_exceeded",
  "shutting_down",
] as const;
const SOURCE_ERRORS = [
  ...VIEW_ERRORS,
  "input_not_found",
  "result_changed",
  ...READ_ERRORS,
] as const;
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
  /**
   * The interaction of FHIR that the audit's export calls it; "read" for GET and else "patch" if
   * absent.
   */
  interaction?: Interaction;
}

const at = (
  endpoint: `${Route["method"]} /${string}`,
  id: string,
  more: Omit<Route, "method" | "path" | "id">,
): Route => {
  const [method, path] = endpoint.split(" ") as [Route["method"], string];
  return { method, path, id, ...more };
};

export const ROUTES: readonly Route[] = [
  at("POST /single_inference", "singleInference", {
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
  }),
  at("POST /bulk_inference", "submitJob", {
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
  }),
  at("GET /bulk_inference", "listJobs", {
    interaction: "search",
    summary: "This subject's jobs, newest first (all subjects' with the claim admin)",
    query: jobQuerySchema,
    answer: { JobList: jobListSchema },
    ...bulkPage("list"),
  }),
  at("GET /bulk_inference/:id", "getJob", { summary: "One job", ...ofJob("show") }),
  at("GET /bulk_inference/:id/items", "listItems", {
    summary: "The images of a job, in their order",
    query: itemQuerySchema,
    ...bulkPage("items", ["job_not_found"]),
    answer: { ItemList: itemListSchema },
  }),
  at("DELETE /bulk_inference/:id", "cancelJob", {
    summary:
      "Cancels a job: waiting images never start, running images finish or stop, results stay",
    ...ofJob("cancel"),
  }),
  at("POST /bulk_inference/:id/retry", "retryJob", {
    summary: "Runs a job's failed images again, and the cancelled images of a cancelled job",
    ...ofJob("retry", ["job_state", ...PATH_ERRORS]),
  }),
  at("POST /bulk_inference/:id/pause", "pauseJob", {
    summary: "Pauses a job: no more of its images start until it is resumed",
    ...ofJob("pause", ["job_state"]),
  }),
  at("POST /bulk_inference/:id/resume", "resumeJob", {
    summary: "Resumes a paused job at once, whatever its reason",
    ...ofJob("resume", ["job_state"]),
  }),
  at("POST /bulk_inference/:id/reconcile", "reconcileJob", {
    auditedAs: "reconcile",
    interaction: "compare",
    summary: "Compares a job with the files in its output folders, page by page",
    query: reconcileQuerySchema,
    ...bulkPage("reconcile", ["job_not_found", "job_state", ...PATH_ERRORS]),
    answer: { Reconciliation: reconciliationSchema },
  }),
  at("POST /bulk_inference/:id/purge", "purgeJob", {
    interaction: "delete",
    summary: "Deletes a job that has ended from the database; its results stay",
    ...ofJob("purge", ["job_state"]),
  }),
  at("PUT /files", "uploadFile", {
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
  }),
  at("GET /files", "downloadFile", {
    tag: "files",
    summary: "Gives a file of an output folder, or a part of it",
    headers: {
      Range:
        "One range of bytes, for example bytes=1000-; a request for several ranges gets the whole file",
      "If-Range": "ETag of the earlier answer: the range is used only if the file is unchanged",
      "If-None-Match": "An ETag: the answer is 304 if the file is unchanged",
    },
    statuses: {
      200: "The file",
      206: "The part that was asked for",
      304: "The file is still the same",
    },
    errors: ["path_not_allowed", "not_found", "file_not_found", "range_not_satisfiable"],
    ...download,
  }),
  at("POST /dicomweb/studies", "storeInstances", {
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
  }),
  at("POST /doors/received/:study/complete", "completeStudy", {
    interaction: "create",
    tag: "files",
    summary:
      "Makes jobs of the received images of a study at once, without waiting until it is quiet",
    errors: [
      "path_not_allowed",
      "not_found",
      "model_not_found",
      "disk_full",
      "bulk_unavailable",
      "shutting_down",
    ],
    ...complete,
  }),
  at("GET /deliveries", "listDeliveries", {
    interaction: "search",
    tag: "results",
    summary:
      "Results of this subject that are not delivered yet, or were set aside (all with the claim admin)",
    errors: ["not_found", "destination_not_found", "shutting_down"],
    ...listDeliveries,
  }),
  at("POST /deliveries/retry", "retryDeliveries", {
    tag: "results",
    summary: "Sends objects again that were set aside, or to another destination",
    errors: ["path_not_allowed", "not_found", "destination_not_found", "shutting_down"],
    ...retryDeliveries,
  }),
  at("POST /deliveries/drop", "dropDeliveries", {
    tag: "results",
    summary: "Gives up objects that were set aside: they are not sent any more",
    errors: [
      "bad_request",
      "path_not_allowed",
      "not_found",
      "destination_not_found",
      "shutting_down",
    ],
    ...dropDeliveries,
  }),
  at("GET /results", "getResult", {
    ...view,
    summary: "The receipt of a result",
    errors: VIEW_ERRORS,
    ...showResult,
  }),
  at("GET /results/list", "listResults", {
    ...view,
    summary: "Results in the output folders, the latest first",
    errors: VIEW_ERRORS,
    ...listResults,
  }),
  at("GET /results/picture", "getResultPicture", {
    ...view,
    summary: "A frame of the analysed image, drawn with its window",
    errors: SOURCE_ERRORS,
    ...showPicture,
  }),
  at("GET /results/frame", "getResultFrame", {
    ...view,
    summary: "The values of a frame of the analysed image, and what a viewer shows beside them",
    errors: SOURCE_ERRORS,
    ...showFrame,
  }),
  at("GET /results/marks", "getResultMarks", {
    ...view,
    summary: "What a model marked on a frame, from the segmentation that it wrote",
    errors: SOURCE_ERRORS,
    ...showMarks,
  }),
  at("GET /results/verification", "verifyResult", {
    ...view,
    summary:
      "Verifies a result: files are compared with the receipt, and the models compute it again",
    errors: SOURCE_ERRORS,
    ...showVerification,
  }),
  at("GET /drift", "getDrift", {
    ...view,
    tag: "operations",
    summary:
      "Scores, shares and times of models week by week, read from receipts and never from images",
    errors: VIEW_ERRORS,
    ...showDrift,
  }),
  at("GET /paths", "listPaths", {
    ...view,
    tag: "files",
    summary: "Completes a path: files and folders that begin with the given text",
    errors: [...VIEW_ERRORS, "input_not_found"],
    ...listPaths,
  }),
  at("GET /models", "listModels", {
    ...everywhere,
    tag: "models",
    summary: "Lists each model: what it takes, its status, and the time and memory it uses",
    ...listModels,
  }),
  at("GET /overview", "getOverview", {
    ...everywhere,
    summary:
      "State of the server, its problems, and its load now and in the last hour; no data of any image",
    audited: false,
    ...showOverview,
  }),
  at("GET /health/live", "getLive", {
    ...everywhere,
    auth: "open",
    summary: "The process answers",
    ...live,
  }),
  at("GET /health/ready", "getReady", {
    ...everywhere,
    auth: "open",
    summary: "Every required model is loaded and checked",
    errors: ["model_unavailable", "overloaded", "audit_failed", "shutting_down"],
    ...ready,
  }),
  at("GET /metrics", "getMetrics", {
    ...everywhere,
    auth: "local",
    summary: "Figures for Prometheus",
    ...metrics,
  }),
  at("GET /openapi.json", "getContract", {
    ...everywhere,
    auth: "open",
    summary: "This document",
    answer: "application/json",
    handler: (ctx) => {
      ctx.set("Cache-Control", "no-cache");
      giveHeld(ctx, "json", contract());
    },
  }),
  at("GET /", "getIndex", {
    ...everywhere,
    auth: "open",
    summary: "A page for people",
    errors: ["not_found"],
    ...index,
  }),
  at("GET /assets/:name", "getAsset", {
    ...everywhere,
    auth: "open",
    summary: "A part of the page for people",
    errors: ["not_found"],
    ...asset,
  }),
];

let held: Held | undefined;
/**
 * The published contract as it is served: made once, because its text takes longer than an answer
 * may.
 */
export function contract(): Held {
  held ??= hold(Buffer.from(JSON.stringify(openApi(ROUTES))));
  return held;
}

/**
 * The interaction of a page, as lines of the audit name it; undefined if its route does not say
 * one.
 */
export const interactionOf = (endpoint: string): Interaction | undefined =>
  ROUTES.find(({ method, path }) => `${method} ${path}` === endpoint)?.interaction;
