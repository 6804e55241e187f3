/** One worker thread: reads, infers and writes images; only paths, small JSON and numbers come in and go out. */
import { workerData } from "node:worker_threads";
import { createEngine, type Engine, type EngineOptions } from "./engine.js";
import { asRadserveError, type ErrorObject } from "./errors.js";
import { infer, type InferTask } from "./infer.js";
import { faultForLog } from "./log.js";
import type { ModelEntry } from "./models.js";
import type { Answer } from "./results/receipt.js";
import { warmUp } from "./warm.js";

export interface WorkerTask {
  task: InferTask;
  models: ModelEntry[];
}

export type WorkerResult =
  | { ok: true; answer: Answer }
  /** `fault` is there where nobody raised the error on purpose: for the log, without any names in it. */
  | { ok: false; error: ErrorObject; fault?: Record<string, unknown> };

let engine: Engine | undefined;

/** Created on first use and kept: sessions are process-wide, only the way back into this thread is its own. */
function engineOfThread(): Engine {
  engine ??= createEngine(workerData as EngineOptions);
  return engine;
}

// Codecs, fonts and the engine are loaded before the first image asks for them.
await warmUp(engineOfThread());

/** What the pool calls. Never throws: errors cross threads as values, so that their codes survive. */
export default async function work({ task, models }: WorkerTask): Promise<WorkerResult> {
  try {
    return { ok: true, answer: await infer(task, { engine: engineOfThread(), models }) };
  } catch (thrown) {
    const error = asRadserveError(thrown);
    const unexpected = error.code === "internal" ? { fault: faultForLog(thrown) } : {};
    return { ok: false, error: error.toObject(), ...unexpected };
  }
}
