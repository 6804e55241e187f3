/** What the thread that serves HTTP and the bulk thread say to each other. */
import type { MemoryPlace } from "../base/process-memory.js";
import type { Config } from "../config.js";
import type { ErrorObject } from "../base/errors.js";
import type { InferTask } from "../inference/task.js";
import type { ModelEntry } from "../models/entry.js";
import type { Summary } from "../results/commit/compose.js";
import type { OperationName } from "./api.js";
import type { BulkAnswer, BulkCall } from "./call.js";
import type { Depth } from "./leases.js";
import type { Box } from "./schema.js";

export type ItemOutcome =
  | { ok: true; result: Summary }
  /** `errno` where the system refused something. */
  | { ok: false; error: ErrorObject; errno?: string };

/** What Prometheus and the page are told without being asked for. */
export interface BulkFigures extends Depth {
  /** Why the database cannot be used: a code. */
  trouble: string | null;
  /** How many items ended in each state since this process began. */
  ended: Record<string, number>;
  /** The servers on this database. */
  boxes: Omit<Box, "running">[];
}

export interface ThreadOptions {
  config: Config;
  /** Real paths. */
  roots: { input: string[]; output: string[] };
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

export interface EndedItem {
  id: number;
  outcome: ItemOutcome;
}

export type ToThread =
  | { type: "call"; id: number; operation: OperationName; call: BulkCall }
  | {
      type: "models";
      entries: readonly ModelEntry[];
      problems: readonly { name: string; error: ErrorObject }[];
      ready: boolean;
    }
  | { type: "ended"; items: readonly EndedItem[] }
  /** Take no more items; `close` follows when those in flight have ended. */
  | { type: "stop" }
  | { type: "close" };

export type FromThread =
  | { type: "answer"; id: number; answer: BulkAnswer }
  | { type: "refusal"; id: number; error: ErrorObject; fault?: Record<string, unknown> }
  | { type: "run"; items: readonly ItemToRun[] }
  | { type: "cancel"; id: number }
  | { type: "figures"; figures: BulkFigures }
  /** The database cannot say the figures: a code. */
  | { type: "trouble"; trouble: string };
