/** What the thread that serves HTTP and the bulk thread say to each other. */
import type { MemoryPlace } from "../base/process-memory.js";
import type { Config } from "../config.js";
import type { ErrorObject } from "../base/errors.js";
import type { InferTask } from "../inference/task.js";
import type { ModelEntry } from "../models/entry.js";
import type { Box, JobProgress } from "./schema.js";
import type { Summary } from "../results/receipt/compose.js";

export type Operation =
  "submit" | "list" | "show" | "items" | "cancel" | "retry" | "pause" | "resume" | "purge" | "reconcile";

/** One request, as it came: what is in it is looked at in the bulk thread. */
export interface BulkCall {
  operation: Operation;
  caller: {
    subject: string;
    admin: boolean;
    inputRoots: string[] | undefined;
    outputRoots: string[] | undefined;
  };
  jobId?: string;
  /** The parameters of the page's query. */
  query?: Record<string, unknown>;
  /** The text of the body. */
  body?: string;
  /** How far images of the job are that this box looks at window by window. */
  progress?: JobProgress[];
}

export interface BulkAnswer {
  status: number;
  /** JSON text. */
  body: string;
  location?: string;
  /** Of a job that was submitted, for the audit: its folders as the client named them, where it has such. */
  job?: { id: string; input?: string; output?: string };
  /** Of a job that was compared with its folders, for the audit: how many of each. */
  compared?: { checked: number; differences: number; requeued: number };
}

export type ItemOutcome =
  | { ok: true; result: Summary }
  /** `errno` where the system refused something. */
  | { ok: false; error: ErrorObject; errno?: string };

/** What Prometheus and the page are told without being asked for. */
export interface BulkFigures {
  /** Jobs that have not ended, or whose marks are still in their folders. */
  open: number;
  queued: number;
  running: number;
  paused: number;
  /** How many of them for each reason. */
  paused_for: Readonly<Record<string, number>>;
  /** Why the database cannot be used: a code. */
  trouble: string | null;
  /** Since this process began. */
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
  /** Answered with a BulkAnswer. */
  | { type: "call"; call: BulkCall }
  | {
      type: "models";
      entries: readonly ModelEntry[];
      problems: readonly { name: string; error: ErrorObject }[];
      ready: boolean;
    }
  | { type: "ended"; items: readonly EndedItem[] }
  /** Take no more items; `close` follows when those in flight have ended. */
  | { type: "stop" }
  /** Answered when all is written down and the database closed. */
  | { type: "close" };

export type FromThread =
  | { type: "run"; items: readonly ItemToRun[] }
  | { type: "cancel"; id: number }
  | { type: "figures"; figures: BulkFigures }
  /** The database cannot say the figures: a code. */
  | { type: "trouble"; trouble: string };
