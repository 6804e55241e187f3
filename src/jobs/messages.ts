/** What the thread that serves HTTP and the bulk thread have to say to one another. */
import type { MessagePort } from "node:worker_threads";
import type { MemoryPlace } from "../base/process-memory.js";
import type { Config } from "../config.js";
import type { ErrorObject } from "../base/errors.js";
import type { KnownDestinations } from "../inference/request.js";
import type { NewTask } from "../inference/task.js";
import type { Summary } from "../results/commit/compose.js";
import type { KnownModels } from "../models/entry.js";
import type { OperationName } from "./api.js";
import type { BulkAnswer, BulkCall, Caller, JobEnd, Submitted } from "./call.js";
import type { Depth } from "./leases.js";
import type { NodeFacts } from "./nodes.js";
import type { Pins } from "./pins.js";
import type { NodeState } from "./schema.js";

export type ItemOutcome =
  | { ok: true; result: Summary }
  /** `errno` if the system refused something. */
  | { ok: false; error: ErrorObject; errno?: string };

/** Figures for Prometheus and the page, which the bulk thread sends every few seconds. */
export interface BulkFigures extends Depth {
  /** How many jobs this node leaves to others, for each reason. */
  left_alone: Readonly<Record<string, number>>;
  /** Jobs that an older database lacks, which has taken the place of theirs. */
  lost: readonly string[];
  /** Why the database cannot be used: a code. */
  trouble: string | null;
  /** How many items ended in each state since this process began. */
  ended: Record<string, number>;
  /** The servers on this database. */
  nodes: Omit<NodeState, "running">[];
  /** Which of them is this one; null while the database does not know it. */
  self: string | null;
}

/** What this node has, and the thread that serves HTTP knows. */
export type OwnFacts = Omit<NodeFacts, "models">;

export interface BulkThreadOptions {
  config: Config;
  /** Real paths. */
  roots: { input: string[]; output: string[] };
  destinations?: KnownDestinations | undefined;
  /** Identifies this serving process. */
  processId: string;
  /** Where clients reach this node. */
  address: string;
  /** The process before this one ended by its own fault. */
  crashed: boolean;
  /** The system ended it because memory ran out. */
  forMemory: boolean;
  /** Items that may be at the worker threads at once, those waiting for one included. */
  window: number;
  /** Where the folders that it looks into are counted. */
  memory: MemoryPlace;
}

export interface ItemToRun {
  id: number;
  /** For the audit: whose job it is of, and which item. */
  item: { subject: string; job_id: string; item: number };
  task: NewTask;
}

/** What the thread that serves HTTP asks the bulk thread, and tells it. */
export interface JobsThread {
  perform(operation: OperationName, call: BulkCall): Promise<BulkAnswer>;
  /** Keeps a job that the server itself makes. */
  submit(caller: Caller, request: Record<string, unknown>): Promise<Submitted>;
  /** Answers another thread on this port from now on. */
  answerOn(port: MessagePort): void;
  /** The models as they are now. @param ready every required one passed its check */
  useModels(models: KnownModels, ready: boolean): void;
  /** What this node has now, for the other nodes. */
  useFacts(facts: OwnFacts): void;
  /** A worker thread is done with an item. */
  ended(id: number, outcome: ItemOutcome): void;
  /** Take no more items; `close` follows when those in flight have ended. */
  stop(): void;
  /** Resolves when all is written down and the database closed. */
  close(): Promise<void>;
}

/** What other threads may ask the bulk thread, on lines of their own. */
export interface JobsAside {
  stateOf(caller: Caller, jobId: string): Promise<JobEnd>;
}

/** What the bulk thread tells the thread that serves HTTP. */
export interface JobsOwner {
  run(items: readonly ItemToRun[]): void;
  cancel(id: number): void;
  /** A job of which nothing was done got other pins: what this node has. */
  pinned(jobId: string, subject: string, pins: Pins): void;
  /** @param ended how many items ended in each state since the figures before */
  figures(figures: Omit<BulkFigures, "ended">, ended: Record<string, number>): void;
  /** The database cannot say the figures. @param code why */
  trouble(code: string): void;
}
