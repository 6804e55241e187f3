import type { AuditOutcome, PatientAndStudy } from "../audit/action.js";
import type { Engine } from "../engine/engine.js";
import type { ProcessMemory } from "../base/process-memory.js";
import type { MemoryBudget } from "../base/memory-budget.js";
import type { Roots } from "../files/roots.js";
import type { OutputKind } from "../manifest/manifest.js";
import type { ModelEntry } from "../models/entry.js";
import type { ModelIdentities } from "../models/identity.js";
import { errors, type RadserveError } from "../base/errors.js";
import { monotonic } from "../base/monotonic.js";
import type { Stopwatch } from "../base/stopwatch.js";
import type { Image, Warning } from "../images/image.js";
import type { ResultForms } from "../results/forms.js";
import { deliveryOf, type Delivery } from "../results/receipt/delivery.js";
import type { answerText } from "../results/commit/compose.js";
import type { Receipt } from "../results/receipt/receipt.js";
import type { Plan } from "./plan.js";
import type { ResultPlace, StagedResult } from "./result-hook.js";

/** Small and structured-cloneable: it crosses to a worker thread. */
export interface InferTask {
  requestId: string;
  /** The trace that the request, or the job's, is part of. */
  traceparent?: string | undefined;
  inputPath: string;
  outputFolder: string;
  /**
   * Base name of the results; by default the input's: of the file with its extension, or of the
   * folder.
   */
  name?: string | undefined;
  /**
   * Which series of a folder is meant; without it the only one, or the only one that a model of
   * series takes.
   */
  seriesInstanceUid?: string | undefined;
  /** The folder is to be taken as a case of several series or images, and as nothing else. */
  asCase?: boolean | undefined;
  /** A series of a folder is for models of single images, too. */
  group?: "series" | undefined;
  /** Names of models to run; without it, all that accept the image. */
  models?: string[] | undefined;
  /** What these models have to be; undefined where any of their versions will do. */
  pinned?: ModelIdentities | undefined;
  outputs?: OutputKind[] | undefined;
  /** Labels of segmentations that are wanted; without it all. */
  labels?: string[] | undefined;
  priority: "stat" | "routine" | "bulk";
  /** In milliseconds of `monotonic`. The pool gives one to items of bulk jobs when they begin. */
  deadline?: number;
  cancelId: number;
  /** The number of whoever asks, for the engine; the pool gives it. */
  subjectNumber?: number;
  /**
   * The client's names, of a request. Items of bulk jobs have none: a summary of their answers is
   * enough.
   */
  named?: Parameters<typeof answerText>[1];
  /**
   * When the task was admitted, ISO 8601; now, if absent. A rerun with the same start writes the
   * same bytes.
   */
  startedAt?: string;
  roots: Roots;
  /** To where its DICOM objects are to be delivered. */
  delivery?: Delivery;
  /** Both paths lay on disks of this machine when the task was admitted. */
  local?: boolean;
}

/** Why a task with `pinned` did not run: `details.reason` of its error. */
export const OTHER_MODELS = "other_models";

/** A task that no pool has taken yet. */
export type NewTask = Omit<InferTask, "cancelId">;

/** What is asked of one image: by a request, or by an item of a job. */
export interface TaskRequest extends Omit<NewTask, "delivery" | "startedAt"> {
  startedAt: string;
  subject: string;
  /** Where its DICOM objects go; nowhere if there are none. */
  destinations: readonly string[] | undefined;
  /** A name for that, which no other delivery has. */
  deliveryId: string;
}

export function taskOf({ subject, destinations = [], deliveryId, ...task }: TaskRequest): NewTask {
  if (destinations.length === 0) return task;
  const { requestId: request_id, startedAt: asked_at, priority } = task;
  const asked = { id: deliveryId, subject, request_id, asked_at, priority };
  return { ...task, delivery: deliveryOf(asked, destinations) };
}

export interface InferContext {
  engine: Engine;
  models: readonly ModelEntry[];
  /** Kinds that the settings write for all models, if the request names none. */
  outputs?: readonly OutputKind[] | undefined;
  /** The forms of results; `RESULT_FORMS` if the settings do not say them. */
  forms?: ResultForms | undefined;
  /**
   * Bounds the decoded pixels that the images of this thread have in memory together; without it
   * there is no bound.
   */
  pixelBudget?: MemoryBudget | undefined;
  /** Bounds what the images of the whole process take; without it there is no bound. */
  processMemory?: ProcessMemory | undefined;
  /**
   * True as soon as the task was told to stop: its client has gone, its time is over, or the server
   * stops.
   */
  stopped?: (() => boolean) | undefined;
  /**
   * Resolves when it is written down what will be committed, or given out; without it there is no
   * audit.
   * @param place of a result that is to be delivered
   */
  willCommit?: ((verdict: AuditOutcome, place?: ResultPlace) => Promise<void>) | undefined;
  /** What features do before a result is decided that will be committed. */
  staged?: ((result: StagedResult) => Promise<void>) | undefined;
  /** Told whose image the task is of, when it is read. */
  wasOf?: ((whose: PatientAndStudy) => void) | undefined;
}

/**
 * @throws RadserveError deadline_exceeded if the task's time is over; cancelled if it was told to
 * stop before
 */
export function checkTime(task: InferTask, { stopped }: Pick<InferContext, "stopped">): void {
  if (task.deadline !== undefined && monotonic() > task.deadline) throw tooLate("finish");
  if (stopped?.() === true)
    throw errors.cancelled("The work was stopped before its end: nobody waits for it any more.");
}

/** @param what could not be done within the task's time */
export function tooLate(what: "start" | "finish"): RadserveError {
  return errors.deadline_exceeded(
    what === "start"
      ? "Expected the work to start within its time (timeout_ms, or else the setting deadline_seconds); no thread could begin by then."
      : "Expected the work to finish within its time (timeout_ms, or else the setting deadline_seconds); it took longer and was stopped.",
  );
}

/** Signs between the pool and the thread that has a task, in shared memory; each is set once. */
const SIGNS = ["stop", "begun"] as const;
export type Signs = Int32Array;

export function newSigns(): Signs {
  return new Int32Array(new SharedArrayBuffer(SIGNS.length * Int32Array.BYTES_PER_ELEMENT));
}

export function setSign(signs: Signs, sign: (typeof SIGNS)[number]): void {
  Atomics.store(signs, SIGNS.indexOf(sign), 1);
}

export function isSet(signs: Signs, sign: (typeof SIGNS)[number]): boolean {
  return Atomics.load(signs, SIGNS.indexOf(sign)) !== 0;
}

/** One task while it is worked on: what is known of it once its image is read and planned. */
export interface Analysis {
  task: InferTask;
  context: InferContext;
  watch: Stopwatch;
  /** NAME, the stem of the results. */
  name: string;
  image: Image;
  /** What the gateway says of how the image came. */
  reception: readonly Warning[];
  /** SOPInstanceUIDs of objects that took the place of others there. */
  replaced: readonly string[];
  plan: Plan;
  /** The earlier result of the same image that this one will replace. */
  earlier?: Receipt | undefined;
}
