/** One worker thread: reads, infers and writes images; only paths, small JSON and numbers come in and go out. */
import os from "node:os";
import { BroadcastChannel, workerData } from "node:worker_threads";
import { giveBack } from "../addon/bytes.js";
import type { Verdict, Whose } from "../audit/action.js";
import { dropGrownCodecs } from "../images/dicom/codecs.js";
import { shareDecoding } from "../images/dicom/decoders.js";
import { operateAtOnce } from "../files/disk.js";
import { createEngine } from "../engine/engine.js";
import type { EngineOptions } from "../engine/types.js";
import { durations } from "../base/durations.js";
import { errno } from "../base/errno.js";
import { asRadserveError, RadserveError, type ErrorObject } from "../base/errors.js";
import { infer } from "./infer-image.js";
import { isSet, setSign, type InferContext, type InferTask, type Signs } from "./task.js";
import { ProcessMemory } from "../base/process-memory.js";
import { MemoryBudget } from "../base/memory-budget.js";
import { faultForLog } from "../base/log.js";
import { ModelReader, type SharedModels } from "../models/shared.js";
import type { Answer } from "../results/receipt/receipt.js";
import { summaryOf, type Summary } from "../results/commit/compose.js";
import { dcmjsData } from "../images/dicom/dictionary.js";

export interface WorkerOptions {
  engine: EngineOptions;
  /** What the settings say to write for all models. */
  outputs: InferContext["outputs"];
  forms: InferContext["forms"];
  /** How many tasks run on all threads together. */
  running: Int32Array;
  threads: number;
  /** How much nicer the thread is than the server (setpriority(2)); only Linux has a value for each thread. */
  niceness: number;
  /** This thread does small file operations itself. */
  operatesAtOnce: boolean;
  /** Bytes that the images of all threads may take together. */
  memory: number;
  /** Where all threads count the bytes of their images, and the place of this one. */
  counts: Int32Array;
  place: number;
  /** Counted up once when the thread is loaded, and while it has tasks and its event loop turns. */
  beats: Int32Array;
  /** Name of the BroadcastChannel to whoever writes the audit. */
  recorder: string;
}

/** A task that will commit something, and the answer that it is written down, or why not. */
export interface ToRecorder {
  id: number;
  cancelId: number;
  verdict: Verdict;
}
export interface FromRecorder {
  id: number;
  error?: ErrorObject;
}

/**
 * Bytes of decoded pixels that the images of bulk work on one thread may have in memory together. V8 collects a
 * thread's whole heap when 64 MiB of arrays came since the last time, and files, masks and pictures come to as much
 * again.
 */
const MOST_PIXEL_BYTES = 1 << 25;

/** After so much work a thread that then has none for a moment gives its memory back. */
const WORKED_BYTES = 1 << 24;

/** Of setpriority(2). */
const LOWEST_PRIORITY = 19;

const options = workerData as WorkerOptions;

giveWay(options.niceness);
if (options.operatesAtOnce) operateAtOnce();
shareDecoding(() => Atomics.load(options.running, 0) <= 1, options.threads - 1);

/**
 * Lowers the priority of this thread (on Linux each has its own) below that with which the server was started: an ordinary
 * user may never raise it. It is a courtesy to single requests; where the system forbids it, the work goes on.
 */
function giveWay(niceness: number): void {
  if (process.platform !== "linux" || niceness === 0) return;
  try {
    os.setPriority(0, Math.min(LOWEST_PRIORITY, os.getPriority(0) + niceness));
  } catch {
    // Bulk work then runs beside single requests, as on other systems
  }
}

export interface WorkerTask {
  task: InferTask;
  models: SharedModels;
  signs: Signs;
}

export type WorkerResult =
  | { ok: true; answer: Answer | Summary }
  /** `fault` is set if nobody raised the error on purpose. It is for the log, and holds no names. */
  | { ok: false; error: ErrorObject; errno?: string; fault?: Record<string, unknown>; whose?: Whose };

const pixelBudget = options.operatesAtOnce ? new MemoryBudget(MOST_PIXEL_BYTES) : undefined;
const processMemory = new ProcessMemory(options.counts, options.place, options.memory);
const models = new ModelReader();
/** Its sessions are process-wide; only the way back into this thread is its own. */
const engine = createEngine(options.engine);

const recorder = new BroadcastChannel(options.recorder);
recorder.unref();
const asked = new Map<number, (error: ErrorObject | undefined) => void>();
let lastAsked = 0;
recorder.onmessage = (event) => {
  const { id, error } = (event as { data: FromRecorder }).data;
  asked.get(id)?.(error);
  asked.delete(id);
};

/** Resolves when it is written down. Throws audit_failed where that cannot be done. */
function willCommit(cancelId: number, verdict: Verdict): Promise<void> {
  return new Promise((resolve, reject) => {
    const id = (lastAsked += 1);
    asked.set(id, (error) => {
      if (error === undefined) resolve();
      else reject(RadserveError.fromObject(error));
    });
    recorder.postMessage({ id, cancelId, verdict } satisfies ToRecorder);
  });
}

/** The system's own code behind an error, for example EIO. */
function errnoOf({ cause }: Error): string | undefined {
  return cause instanceof Error && "syscall" in cause ? errno(cause) || undefined : undefined;
}

// Every DICOM file needs the dictionary. Codecs, fonts and the encoder are loaded by the first image that needs them.
dcmjsData();

const beat = () => Atomics.add(options.beats, 0, 1);

// From then on it can be ended: Node.js has a last step to do when this module was evaluated.
setImmediate(beat);

/** Tasks of this thread. */
let tasks = 0;
let beating: NodeJS.Timeout | undefined;
let givenBackAt = 0;
let moment: NodeJS.Timeout | undefined;

/** A task begins: beats are counted while there is one, for without one nobody looks at them. */
function begin(): void {
  clearTimeout(moment);
  tasks += 1;
  beating ??= setInterval(beat, durations.threadLook / 2).unref();
  beat();
}

/** A task has ended; with the last one the thread's work is over for now. */
function end(): void {
  tasks -= 1;
  if (tasks > 0) return;
  clearInterval(beating);
  beating = undefined;
  moment = setTimeout(() => {
    if (processMemory.claimed - givenBackAt < WORKED_BYTES) return;
    givenBackAt = processMemory.claimed;
    dropGrownCodecs();
    void giveBack();
  }, durations.threadMoment).unref();
}

/**
 * What the pool calls. Never throws: errors cross threads as values, so that their codes survive.
 * @returns undefined where there is no task, and the thread has only to be there
 */
export default async function work(given: WorkerTask | "none"): Promise<WorkerResult | undefined> {
  if (given === "none") return undefined;
  begin();
  const result = await inferred(given);
  end();
  return result;
}

async function inferred({ task, models: shared, signs }: WorkerTask): Promise<WorkerResult> {
  setSign(signs, "begun");
  const stopped = () => isSet(signs, "stop");
  let whose: Whose | undefined;
  try {
    const { outputs, forms } = options;
    const context: InferContext = {
      engine,
      models: models.read(shared),
      outputs,
      forms,
      pixelBudget,
      processMemory,
      stopped,
      willCommit: (verdict) => willCommit(task.cancelId, verdict),
      wasOf: (found) => (whose = found),
    };
    const answer = await infer(task, context);
    // To send a whole answer costs several times a summary.
    return { ok: true, answer: task.priority === "bulk" ? summaryOf(answer) : answer };
  } catch (thrown) {
    const error = asRadserveError(thrown);
    const unexpected = error.code === "internal" ? { fault: faultForLog(thrown) } : {};
    const errno = errnoOf(error);
    return {
      ...{ ok: false, error: error.toObject(), ...unexpected },
      ...(errno === undefined ? {} : { errno }),
      ...(whose === undefined ? {} : { whose }),
    };
  }
}
