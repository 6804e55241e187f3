/** One worker thread: reads, infers and writes images; only paths, small JSON and numbers come in and go out. */
import os from "node:os";
import { workerData } from "node:worker_threads";
import { shareDecoding } from "../images/dicom/decoders.js";
import { operateAtOnce } from "../files/disk.js";
import { createEngine, type Engine } from "../engine/engine.js";
import { type EngineOptions } from "../engine/types.js";
import { asRadserveError, type ErrorObject } from "../base/errors.js";
import { infer } from "./infer-image.js";
import { type InferContext, type InferTask } from "./task.js";
import { MemoryBudget } from "../base/memory-budget.js";
import { faultForLog } from "../base/log.js";
import { ModelReader, type SharedModels } from "../models/shared.js";
import type { Answer } from "../results/receipt/receipt.js";
import { summaryOf, type Summary } from "../results/receipt/summary.js";
import { warmUp } from "./warm-up.js";

export interface WorkerOptions {
  engine: EngineOptions;
  /** What the settings say to write for all models. */
  outputs: InferContext["outputs"];
  /** How many tasks run on all threads together. */
  running: Int32Array;
  threads: number;
  /** The thread's nice value (setpriority(2)); only Linux has one for each thread. */
  niceness: number;
  /** This thread does small file operations itself. */
  operatesAtOnce: boolean;
}

/**
 * Bytes of decoded pixels that the images of bulk work on one thread may have in memory together. V8 collects a
 * thread's whole heap when 64 MiB of arrays came since the last time, and files, masks and pictures come to as much
 * again.
 */
const MOST_PIXEL_BYTES = 1 << 25;

const options = workerData as WorkerOptions;
if (process.platform === "linux") os.setPriority(0, options.niceness);
if (options.operatesAtOnce) operateAtOnce();
shareDecoding(() => Atomics.load(options.running, 0) <= 1, options.threads - 1);

export interface WorkerTask {
  task: InferTask;
  models: SharedModels;
  /** Only the summary is sent back: to send a whole answer costs several times that. */
  brief: boolean;
}

export type WorkerResult =
  | { ok: true; answer: Answer | Summary }
  /** `fault` is set if nobody raised the error on purpose. It is for the log, and holds no names. */
  | { ok: false; error: ErrorObject; errno?: string; fault?: Record<string, unknown> };

const pixelBudget = options.operatesAtOnce ? new MemoryBudget(MOST_PIXEL_BYTES) : undefined;
const models = new ModelReader();
let engine: Engine | undefined;

/** Made on first use. Its sessions are process-wide; only the way back into this thread is its own. */
function engineOfThread(): Engine {
  engine ??= createEngine(options.engine);
  return engine;
}

/** The system's own code behind an error, for example EIO. */
function errnoOf({ cause }: Error): string | undefined {
  if (!(cause instanceof Error) || !("syscall" in cause) || !("code" in cause)) return undefined;
  return typeof cause.code === "string" ? cause.code : undefined;
}

// Codecs, fonts and the engine are loaded before the first image asks for them.
await warmUp(engineOfThread());

/** What the pool calls. Never throws: errors cross threads as values, so that their codes survive. */
export default async function work({ task, models: shared, brief }: WorkerTask): Promise<WorkerResult> {
  try {
    const { outputs } = options;
    const context = { engine: engineOfThread(), models: models.read(shared), outputs, pixelBudget };
    const answer = await infer(task, context);
    return { ok: true, answer: brief ? summaryOf(answer) : answer };
  } catch (thrown) {
    const error = asRadserveError(thrown);
    const unexpected = error.code === "internal" ? { fault: faultForLog(thrown) } : {};
    const errno = errnoOf(error);
    return { ok: false, error: error.toObject(), ...unexpected, ...(errno === undefined ? {} : { errno }) };
  }
}
