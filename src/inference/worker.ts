/**
 * One worker thread: reads, infers and writes images; only paths, small JSON and numbers come in
 * and go out.
 */
import os from "node:os";
import { workerData } from "node:worker_threads";
import { giveBack } from "../addon/bytes.js";
import type { AuditOutcome, PatientAndStudy } from "../audit/action.js";
import { dropGrownCodecs } from "../images/dicom/codecs.js";
import { shareDecoding } from "../images/dicom/decoders.js";
import { operateAtOnce } from "../files/disk.js";
import { createEngine } from "../engine/engine.js";
import type { EngineOptions } from "../engine/types.js";
import { durations } from "../base/durations.js";
import { infer } from "./infer-image.js";
import {
  loadResultParts,
  type ResultPartName,
  type ResultPlace,
  type StagedResult,
} from "./result-hook.js";
import { isSet, setSign, type InferContext, type InferTask, type Signs } from "./task.js";
import { ProcessMemory, type MemoryPlace } from "../base/process-memory.js";
import { answerOwner } from "../base/service-thread.js";
import { MemoryBudget } from "../base/memory-budget.js";
import { ModelReader, type SharedModels } from "../models/shared.js";
import { answerText, summaryOf, type AnswerText, type Summary } from "../results/commit/compose.js";
import { dcmjsData } from "../images/dicom/dictionary.js";

export interface WorkerOptions {
  engine: EngineOptions;
  /** The outputs that the settings ask for, for all models. */
  outputs: InferContext["outputs"];
  forms: InferContext["forms"];
  /** The parts of features at the commit of results. */
  resultParts: readonly ResultPartName[];
  /** How many tasks run on all threads together. */
  running: Int32Array;
  threads: number;
  /**
   * How much nicer the thread is than the server (setpriority(2)); only Linux has a value for each
   * thread.
   */
  niceness: number;
  /** This thread does small file operations itself. */
  operatesAtOnce: boolean;
  /** Where this thread counts the bytes of its images. */
  memory: MemoryPlace;
}

/** What a worker thread may ask the pool, and tell it, of a task. */
export interface WorkerOwner {
  /**
   * The task will commit something: resolves when that is written down, and what is to be delivered
   * of it.
   * @throws RadserveError audit_failed, delivery_unavailable
   */
  willCommit(cancelId: number, verdict: AuditOutcome, place?: ResultPlace): Promise<void>;
  /** The task failed, and its image is of that person. */
  wasOf(cancelId: number, whose: PatientAndStudy): void;
}

export interface Worker {
  run(work: WorkerTask): Promise<WorkerAnswer>;
  /** Its event loop turns. */
  ping(): void;
}

/**
 * Bytes of decoded pixels that the images of bulk work on one thread may have in memory together.
 * V8 collects a thread's whole heap when 64 MiB of arrays came since the last time, and files,
 * masks and pictures come to as much again.
 */
const MOST_PIXEL_BYTES = 1 << 25;

/** After so much work a thread that then has none for a moment gives its memory back. */
const WORKED_BYTES = 1 << 24;

/** The largest nice value (setpriority(2)). */
const LOWEST_PRIORITY = 19;

const options = workerData as WorkerOptions;

const resultParts = loadResultParts(options.resultParts);
// The first result that is staged tells of it
resultParts.catch(() => undefined);

async function staged(result: StagedResult): Promise<void> {
  for (const part of await resultParts) await part.staged(result);
}

giveWay(options.niceness);
if (options.operatesAtOnce) operateAtOnce();
shareDecoding(() => Atomics.load(options.running, 0) <= 1, options.threads - 1);

/**
 * Lowers the priority of this thread (on Linux each has its own) below that with which the server
 * was started: an ordinary user may never raise it. It is a courtesy to single requests; where the
 * system forbids it, the work goes on.
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

export type WorkerAnswer = AnswerText | Summary;

const pixelBudget = options.operatesAtOnce ? new MemoryBudget(MOST_PIXEL_BYTES) : undefined;
const processMemory = new ProcessMemory(options.memory, dropGrownCodecs);
const models = new ModelReader();
/** Its sessions are process-wide; only the way back into this thread is its own. */
const engine = createEngine(options.engine);

// Every DICOM file needs the dictionary. Codecs, fonts and the encoder are loaded by the first
// image that needs them.
dcmjsData();

let tasks = 0;
let givenBackAt = 0;
let moment: NodeJS.Timeout | undefined;

/** A task has ended; with the last one the thread's work is over for now. */
function end(): void {
  tasks -= 1;
  if (tasks > 0) return;
  moment = setTimeout(() => {
    if (processMemory.claimed - givenBackAt < WORKED_BYTES) return;
    givenBackAt = processMemory.claimed;
    void giveBack();
  }, durations.threadMoment).unref();
}

const methods: Worker = {
  async run(work) {
    clearTimeout(moment);
    tasks += 1;
    try {
      return await inferred(work);
    } finally {
      end();
    }
  },
  ping: () => undefined,
};

const pool = answerOwner<WorkerOwner>(methods);

async function inferred({ task, models: shared, signs }: WorkerTask): Promise<WorkerAnswer> {
  setSign(signs, "begun");
  const { cancelId } = task;
  let whose: PatientAndStudy | undefined;
  try {
    const { outputs, forms } = options;
    const context: InferContext = {
      engine,
      models: models.read(shared),
      outputs,
      forms,
      pixelBudget,
      processMemory,
      stopped: () => isSet(signs, "stop"),
      willCommit: (verdict, place) => pool.call.willCommit(cancelId, verdict, place),
      staged,
      wasOf: (found) => (whose = found),
    };
    const answer = await infer(task, context);
    // To send a whole answer costs several times a summary, or its text
    return task.named === undefined ? summaryOf(answer) : answerText(answer, task.named);
  } catch (error) {
    if (whose !== undefined) pool.note.wasOf(cancelId, whose);
    throw error;
  }
}
