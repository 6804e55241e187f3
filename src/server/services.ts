/** What a handler is given: the request's context, and the parts of the server. */
import type { ParameterizedContext } from "koa";
import type { z } from "zod";
import type { Action } from "../audit/action.js";
import type { Audit } from "../audit/audit.js";
import type { BulkService } from "../jobs/service.js";
import type { Config } from "../config.js";
import type { AnswerText } from "../results/commit/compose.js";
import type { FailedRequests } from "./failed-requests.js";
import type { InferenceService } from "./inference-service.js";
import type { Monitoring } from "./monitoring.js";
import type { RunningFeatures } from "./running-features.js";
import type { Caller } from "./tokens.js";

export interface RequestState {
  requestId: string;
  /** The trace that the request is part of, if its sender says so. */
  traceparent?: string | undefined;
  /**
   * The pattern of the endpoint, for logs and metrics; the path itself may hold what a client
   * likes.
   */
  route: string;
  /**
   * The client's address, through trusted proxies too; undefined where its connection was gone
   * before anybody looked.
   */
  address?: string | undefined;
  caller?: Caller;
  /** Its line of the audit; there is one wherever there is a caller. */
  action?: Action;
  /** For the log: the code of the error that was answered. */
  error?: string;
  /** Which of several reasons it has. */
  reason?: string | undefined;
  /** For the log: what became of each model. */
  models?:
    | (Pick<AnswerText["models"][0], "name" | "status"> & Partial<AnswerText["models"][0]>)[]
    | undefined;
}
export type Context = ParameterizedContext<RequestState>;

/** The parts of the server, of which a handler takes what it works with. */
export interface Services {
  config: Config;
  /** Real paths. */
  roots: { input: string[]; output: string[] };
  audit: Audit;
  inference: Pick<InferenceService, "engine" | "models" | "pool">;
  jobs: BulkService;
  features: RunningFeatures;
  monitoring: Monitoring;
  failed: FailedRequests;
  /** True once the server takes no more requests, because it stops. */
  stopping: () => boolean;
  /** True once it was told to stop: it may still answer, and clients are to go elsewhere. */
  leaving: () => boolean;
}

export type Handler = (ctx: Context, services: Services) => Promise<void> | void;

/** Schemas by their names in the published contract. */
export type NamedSchemas = Readonly<Record<string, z.ZodType>>;

/** An endpoint: the schemas of its body, query and answer, and its work. */
export interface Endpoint {
  body?: NamedSchemas;
  query?: z.ZodObject;
  /** A media type where it is no JSON of ours. */
  answer:
    NamedSchemas | "text/plain" | "text/html" | "application/json" | "application/octet-stream";
  handler: Handler;
}
