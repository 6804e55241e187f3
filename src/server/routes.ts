/** One table of routes: it gives the routing and the published contract. */
import type { ErrorCode } from "../base/errors.js";
import { bulk, singleInference, ready, metrics, live, listModels, index, type Handler } from "./handlers.js";
import type { Operation } from "../bulk/messages.js";
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

const bulkPage = (operation: Operation, errors: readonly ErrorCode[] = []) =>
  ({
    auth: "token",
    serves: "requests",
    errors: [...new Set([...errors, "audit_failed", "bulk_unavailable", "shutting_down"] as const)],
    handler: bulk(operation),
  }) as const;
const ofJob = (operation: Operation, errors: readonly ErrorCode[] = []) => ({
  ...bulkPage(operation, ["job_not_found", ...errors]),
  answer: "JobDetails" as const,
});

export interface Route extends DescribedRoute {
  handler: Handler;
  /** "requests": not served if the role is worker. */
  serves?: "requests";
}

export const ROUTES: readonly Route[] = [
  {
    method: "POST",
    path: "/single_inference",
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
    summary: "Takes many images as one job; 200 with the job of before where its idempotency_key was used",
    body: "BulkRequest",
    answer: "Accepted",
    status: 202,
    ...bulkPage("submit", [...PATH_ERRORS, "model_not_found", "idempotency_conflict", "model_unavailable"]),
  },
  {
    method: "GET",
    path: "/bulk_inference",
    summary: "This subject's jobs, newest first (all subjects' with the claim admin)",
    query: jobQuerySchema,
    answer: "JobList",
    ...bulkPage("list", ["bad_request"]),
  },
  { method: "GET", path: "/bulk_inference/:id", summary: "One job", ...ofJob("show") },
  {
    method: "GET",
    path: "/bulk_inference/:id/items",
    summary: "The images of a job, in their order",
    query: itemQuerySchema,
    ...bulkPage("items", ["bad_request", "job_not_found"]),
    answer: "ItemList",
  },
  {
    method: "DELETE",
    path: "/bulk_inference/:id",
    summary: "Cancels a job: what waits never starts, what runs finishes or stops, results stay",
    ...ofJob("cancel"),
  },
  {
    method: "POST",
    path: "/bulk_inference/:id/retry",
    summary: "Runs a job's failed images again",
    ...ofJob("retry", ["job_state", ...PATH_ERRORS]),
  },
  {
    method: "POST",
    path: "/bulk_inference/:id/pause",
    summary: "Begins no more images of a job until it is resumed",
    ...ofJob("pause", ["job_state"]),
  },
  {
    method: "POST",
    path: "/bulk_inference/:id/resume",
    summary: "Lets a job go on at once, whatever it waited for",
    ...ofJob("resume", ["job_state"]),
  },
  {
    method: "POST",
    path: "/bulk_inference/:id/reconcile",
    summary: "Compares a job with what lies in its output folders, page by page",
    query: reconcileQuerySchema,
    ...bulkPage("reconcile", ["bad_request", "job_not_found", "job_state", ...PATH_ERRORS]),
    answer: "Reconciliation",
  },
  {
    method: "POST",
    path: "/bulk_inference/:id/purge",
    summary: "Forgets a job that is over; its results stay",
    ...ofJob("purge", ["job_state"]),
  },
  {
    method: "GET",
    path: "/models",
    auth: "token",
    summary: "Each model: what it takes, how it does, what its work costs",
    answer: "ModelList",
    errors: ["audit_failed"],
    handler: listModels,
  },
  {
    method: "GET",
    path: "/health/live",
    auth: "open",
    summary: "The process answers",
    errors: [],
    handler: live,
  },
  {
    method: "GET",
    path: "/health/ready",
    auth: "open",
    summary: "Every required model is loaded and checked",
    errors: ["model_unavailable", "overloaded", "audit_failed", "shutting_down"],
    handler: ready,
  },
  {
    method: "GET",
    path: "/metrics",
    auth: "local",
    summary: "Figures for Prometheus",
    errors: [],
    handler: metrics,
  },
  {
    method: "GET",
    path: "/openapi.json",
    auth: "open",
    summary: "This document",
    errors: [],
    handler: (ctx) => {
      ctx.type = "json";
      ctx.body = contract();
    },
  },
  { method: "GET", path: "/", auth: "open", summary: "A page for people", errors: [], handler: index },
];

let contractText: string | undefined;
export function contract(): string {
  contractText ??= JSON.stringify(openApi(ROUTES));
  return contractText;
}
