import type { Engine } from "../engine/engine.js";
import type { MemoryBudget } from "../base/memory-budget.js";
import type { Roots } from "../files/roots.js";
import type { OutputKind } from "../manifest/manifest.js";
import type { ModelEntry } from "../models/entry.js";
import { RadserveError } from "../base/errors.js";
import type { Stopwatch } from "../base/stopwatch.js";
import type { Image } from "../images/image.js";
import type { Receipt } from "../results/receipt/receipt.js";
import type { Plan } from "./plan.js";

/** Small and structured-cloneable: it crosses to a worker thread. */
export interface InferTask {
  requestId: string;
  inputPath: string;
  outputFolder: string;
  /** Base name of the results; by default the input's: of the file with its extension, or of the folder. */
  name?: string;
  /** Names of models to run; without it, all that accept the image. */
  models?: string[];
  outputs?: OutputKind[];
  priority: "stat" | "routine" | "bulk";
  /** Milliseconds since the epoch. */
  deadline?: number;
  cancelId: number;
  /** When the task was admitted, ISO 8601; now, if absent. A rerun with the same start writes the same bytes. */
  startedAt?: string;
  roots: Roots;
}

export interface InferContext {
  engine: Engine;
  models: readonly ModelEntry[];
  /** What the settings say to write for all models, if the request does not say it. */
  outputs?: readonly OutputKind[] | undefined;
  /** Bounds the decoded pixels that the images of this thread have in memory together; without it there is no bound. */
  pixelBudget?: MemoryBudget | undefined;
}

/** @throws RadserveError deadline_exceeded if the task's time is over */
export function checkDeadline(task: InferTask): void {
  if (task.deadline !== undefined && Date.now() > task.deadline) throw tooLate("finish");
}

/** @param what could not be done within timeout_ms */
export function tooLate(what: "start" | "finish"): RadserveError {
  return new RadserveError(
    "deadline_exceeded",
    what === "start"
      ? "Expected the work to start within timeout_ms; no thread could begin in time."
      : "Expected the work to finish within timeout_ms; it took longer and was stopped.",
  );
}

/** One task while it is worked on: what is known of it once its image is read and planned. */
export interface Analysis {
  task: InferTask;
  context: InferContext;
  watch: Stopwatch;
  /** NAME, the stem of the results. */
  name: string;
  image: Image;
  plan: Plan;
  /** The earlier result of the same image that this one will replace. */
  earlier?: Receipt | undefined;
}
