/** The messages between the thread that serves HTTP and the bulk thread. */
import type { MemoryPlace } from "../base/process-memory.js";
import type { Config } from "../config.js";
import type { ErrorObject } from "../base/errors.js";
import type { KnownDestinations } from "../inference/request.js";
import type { InferTask } from "../inference/task.js";
import type { Summary } from "../results/commit/compose.js";
import type { KnownModels } from "../models/entry.js";
import type { OperationName } from "./api.js";
import type { BulkCall } from "./call.js";
import type { Depth } from "./leases.js";
import type { NodeState } from "./schema.js";

export type ItemOutcome =
  | { ok: true; result: Summary }
  /** `errno` if the system refused something. */
  | { ok: false; error: ErrorObject; errno?: string };

/** Figures for Prometheus and the page, which the bulk thread sends every few seconds. */
export interface BulkFigures extends Depth {
  /** How many jobs this node leaves to others, for each reason. */
  left_alone: Readonly<Record<string, number>>;
  /** Why the database cannot be used: a code. */
  trouble: string | null;
  /** How many items ended in each state since this process began. */
  ended: Record<string, number>;
  /** The servers on this database. */
  nodes: Omit<NodeState, "running">[];
}

export interface BulkThreadOptions {
  config: Config;
  /** Real paths. */
  roots: { input: string[]; output: string[] };
  destinations?: KnownDestinations | undefined;
  /** Identifies this serving process. */
  processId: string;
  /** The process before this one ended by its own fault. */
  crashed: boolean;
  /** Items that may be at the worker threads at once, those waiting for one included. */
  window: number;
  /** Where the folders that it looks into are counted. */
  memory: MemoryPlace;
}

export interface ItemToRun {
  id: number;
  /** For the audit: whose job it is of, and which item. */
  item: { subject: string; job_id: string; item: number };
  task: Omit<InferTask, "cancelId" | "priority">;
}

export type ToThread =
  /** Answered with a BulkAnswer. */
  | { type: "call"; operation: OperationName; call: BulkCall }
  | { type: "models"; models: KnownModels; ready: boolean }
  | { type: "ended"; id: number; outcome: ItemOutcome }
  /** Take no more items; `close` follows when those in flight have ended. */
  | { type: "stop" }
  /** Answered when all is written down and the database closed. */
  | { type: "close" };

export type FromThread =
  | { type: "run"; items: readonly ItemToRun[] }
  | { type: "cancel"; id: number }
  /** `ended`: how many items ended in each state since the figures before. */
  | { type: "figures"; figures: Omit<BulkFigures, "ended">; ended: Record<string, number> }
  /** The database cannot say the figures: a code. */
  | { type: "trouble"; trouble: string };
