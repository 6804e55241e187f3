/**
 * The routes of the core. A table of routes gives the routing, the published contract, and what the
 * audit calls each endpoint. Features bring rows of their own.
 */
import type { Interaction } from "../audit/interaction.js";
import type { ErrorCode } from "../base/errors.js";
import { merged } from "../base/merged.js";
import type { OperationName } from "../jobs/api.js";
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
} from "../jobs/schema.js";
import { download, pathHeader, upload } from "./file-transfer.js";
import {
  bulk,
  listFailedRequests,
  listModels,
  live,
  metrics,
  ready,
  showOverview,
  singleInference,
} from "./handlers.js";
import { type NamedSchemas } from "./services.js";
import { giveHeld, hold, type HeldFile } from "./held.js";
import type { ServingFeature } from "./feature.js";
import { openApi } from "./openapi.js";
import { at, PATH_ERRORS, READ_ERRORS, type Route } from "./route.js";
import { asset, index } from "./page.js";

const bulkPage = (operation: OperationName, errors: readonly ErrorCode[] = []) =>
  ({
    tag: "jobs",
    errors: [...errors, "bulk_unavailable", "shutting_down"],
    handler: bulk(operation),
  }) as const;
/** An endpoint that every server has, whatever its role. */
const everywhere = { onWorkers: true, tag: "operations" } as const;
const ofJob = (operation: OperationName, errors: readonly ErrorCode[] = []) => ({
  ...bulkPage(operation, ["job_not_found", ...errors]),
  answer: { JobDetails: jobDetailsSchema },
});

const OF_JOB = ["subject", "input_roots", "output_roots"] as const;
/** Results of what is set to work are sent on. */
const SETS_TO_WORK = [...OF_JOB, "destinations"] as const;

/** @param contract the published one, of all routes */
const routesOfCore = (contract: () => HeldFile): Route[] => [
  at("POST /single_inference", "singleInference", {
    claims: ["input_roots", "output_roots", "destinations"],
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
      "memory_exceeded",
      "delivery_unavailable",
      "overloaded",
      "model_unavailable",
      "shutting_down",
      "deadline_exceeded",
    ],
    ...singleInference,
  }),
  at("GET /failed_requests", "listFailedRequests", {
    claims: OF_JOB,
    interaction: "search",
    tag: "inference",
    summary:
      "Single requests of this subject that this server process remembers as failed (all with the claim admin)",
    ...listFailedRequests,
  }),
  at("POST /bulk_inference", "submitJob", {
    claims: ["input_roots", "output_roots", "destinations"],
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
    claims: OF_JOB,
    interaction: "search",
    summary: "This subject's jobs, newest first (all subjects' with the claim admin)",
    query: jobQuerySchema,
    answer: { JobList: jobListSchema },
    ...bulkPage("list"),
  }),
  at("GET /bulk_inference/:id", "getJob", {
    claims: OF_JOB,
    summary: "One job",
    ...ofJob("show"),
  }),
  at("GET /bulk_inference/:id/items", "listItems", {
    claims: OF_JOB,
    summary: "The images of a job, in their order",
    query: itemQuerySchema,
    ...bulkPage("items", ["job_not_found"]),
    answer: { ItemList: itemListSchema },
  }),
  at("DELETE /bulk_inference/:id", "cancelJob", {
    claims: OF_JOB,
    summary:
      "Cancels a job: waiting images never start, running images finish or stop, results stay",
    ...ofJob("cancel"),
  }),
  at("POST /bulk_inference/:id/retry", "retryJob", {
    claims: SETS_TO_WORK,
    summary: "Runs a job's failed images again, and the cancelled images of a cancelled job",
    ...ofJob("retry", ["job_state", ...PATH_ERRORS]),
  }),
  at("POST /bulk_inference/:id/pause", "pauseJob", {
    claims: OF_JOB,
    summary: "Pauses a job: no more of its images start until it is resumed",
    ...ofJob("pause", ["job_state"]),
  }),
  at("POST /bulk_inference/:id/resume", "resumeJob", {
    claims: SETS_TO_WORK,
    summary: "Resumes a paused job at once, whatever its reason",
    ...ofJob("resume", ["job_state"]),
  }),
  at("POST /bulk_inference/:id/reconcile", "reconcileJob", {
    claims: SETS_TO_WORK,
    auditedAs: "reconcile",
    interaction: "compare",
    summary: "Compares a job with the files in its output folders, page by page",
    query: reconcileQuerySchema,
    ...bulkPage("reconcile", ["job_not_found", "job_state", ...PATH_ERRORS]),
    answer: { Reconciliation: reconciliationSchema },
  }),
  at("POST /bulk_inference/:id/purge", "purgeJob", {
    claims: OF_JOB,
    interaction: "delete",
    summary: "Deletes a job that has ended from the database; its results stay",
    ...ofJob("purge", ["job_state"]),
  }),
  at("PUT /files", "uploadFile", {
    claims: ["input_roots"],
    interaction: "create",
    tag: "files",
    summary: "Writes an image into an input folder, whole or not at all",
    takesFile: true,
    headers: pathHeader,
    statuses: {
      201: "The file is written and synced to the disk",
      200: "The same bytes were there already, or another file was replaced",
    },
    errors: [...PATH_ERRORS, "not_found", "file_exists", "unsupported_format", "shutting_down"],
    ...upload,
  }),
  at("GET /files", "downloadFile", {
    claims: ["output_roots"],
    tag: "files",
    summary: "Gives a file of an output folder, or a part of it",
    headers: {
      ...pathHeader,
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
    errors: [
      "path_not_allowed",
      "not_found",
      "file_not_found",
      "result_changed",
      "range_not_satisfiable",
    ],
    ...download,
  }),
  at("GET /models", "listModels", {
    claims: [],
    ...everywhere,
    tag: "models",
    summary: "Lists each model: what it takes, its status, and the time and memory it uses",
    ...listModels,
  }),
  at("GET /overview", "getOverview", {
    claims: ["output_roots"],
    ...everywhere,
    summary:
      "State of the server, its problems, and its load now and in the last hour; no data of any image",
    audited: false,
    ...showOverview,
  }),
  at("GET /health/live", "getLive", {
    claims: [],
    ...everywhere,
    auth: "open",
    summary: "The process answers",
    ...live,
  }),
  at("GET /health/ready", "getReady", {
    claims: [],
    ...everywhere,
    auth: "open",
    summary: "Every required model is loaded and checked",
    errors: ["model_unavailable", "overloaded", "audit_failed", "shutting_down"],
    ...ready,
  }),
  at("GET /metrics", "getMetrics", {
    claims: [],
    ...everywhere,
    auth: "local",
    summary: "Figures for Prometheus",
    ...metrics,
  }),
  at("GET /openapi.json", "getContract", {
    claims: [],
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
    claims: [],
    ...everywhere,
    auth: "open",
    summary: "A page for people",
    errors: ["not_found"],
    ...index,
  }),
  at("GET /assets/:name", "getAsset", {
    claims: [],
    ...everywhere,
    auth: "open",
    summary: "A part of the page for people",
    errors: ["not_found"],
    ...asset,
  }),
];

/** Those of the core, and those of features. */
export function routesOf(features: readonly ServingFeature[]): Route[] {
  const routes: Route[] = [
    ...routesOfCore(() => contractOf(features, routes)),
    ...features.flatMap(({ endpoints = [] }) => endpoints),
  ];
  return routes;
}

/** Parts of schemas that generated clients have a type for. */
export const partsOf = (features: readonly ServingFeature[]): NamedSchemas =>
  merged(features.map(({ schemas = {} }) => schemas));

const contracts = new WeakMap<readonly Route[], HeldFile>();

/**
 * The published contract as it is served: made once, because its text takes longer than an answer
 * may.
 */
export function contractOf(
  features: readonly ServingFeature[],
  routes: readonly Route[],
): HeldFile {
  const made = contracts.get(routes);
  if (made !== undefined) return made;
  const held = hold(Buffer.from(JSON.stringify(openApi(routes, partsOf(features)))));
  contracts.set(routes, held);
  return held;
}

/**
 * The interaction of an endpoint, as lines of the audit name it; undefined if its route does not
 * say one.
 */
export const interactionsOf =
  (routes: readonly Route[]) =>
  (endpoint: string): Interaction | undefined =>
    routes.find(({ method, path }) => `${method} ${path}` === endpoint)?.interaction;
