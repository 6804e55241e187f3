/** What a handler is given: the request's context, and the parts of the server. */
import type { ParameterizedContext } from "koa";
import type { z } from "zod";
import type { Action } from "../audit/action.js";
import type { Audit } from "../audit/audit.js";
import type { ErrorObject } from "../base/errors.js";
import type { BulkService } from "../jobs/service.js";
import type { Config } from "../config.js";
import type { Engine } from "../engine/engine.js";
import type { InferencePool } from "../inference/worker-pool.js";
import type { ModelEntry } from "../models/entry.js";
import type { AnswerText } from "../results/commit/compose.js";
import type { Conditions } from "./conditions.js";
import type { HeldFile } from "./held.js";
import type { History } from "./history.js";
import type { LivingKeyring } from "./keys.js";
import type { Metrics } from "./metrics.js";
import type { RunningFeatures } from "./running-features.js";
import type { Caller } from "./tokens.js";

export interface RequestState {
  requestId: string;
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
  /** For the log: what became of each model. */
  models?:
    | (Pick<AnswerText["models"][0], "name" | "status"> & Partial<AnswerText["models"][0]>)[]
    | undefined;
}
export type Context = ParameterizedContext<RequestState>;

/** The models as the server needs them. */
export interface ServedModels {
  readonly entries: readonly ModelEntry[];
  /**
   * Models that do not serve as their folders say, those without a readable manifest among them.
   */
  readonly problems: readonly { name: string; required: boolean; error: ErrorObject }[];
  /** True when every required model is loaded, warm and its canary passed. */
  ready(): boolean;
  /** Resolves when the first loading has ended, well or not. */
  readonly loaded: Promise<void>;
  /**
   * While the first loading goes on: the model that is loaded now, or "" between two of them; then
   * undefined.
   */
  readonly loading: string | undefined;
}

export interface Services {
  config: Config;
  /** Real paths. */
  roots: { input: string[]; output: string[] };
  models: ServedModels;
  engine: Pick<Engine, "stats" | "missing">;
  pool: InferencePool;
  bulk: BulkService;
  features: RunningFeatures;
  /** The published contract. */
  contract: () => HeldFile;
  metrics: Metrics;
  history: History;
  audit: Audit;
  keyring: LivingKeyring;
  conditions: Conditions;
  /** True once the server was told to stop. */
  stopping(): boolean;
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
