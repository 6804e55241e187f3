/**
 * The worker threads and the line in front of them. The line is ours and not the pool library's, because a request
 * that waits must be able to leave it (client gone, time over, server stopping) and a stat request to go ahead, and
 * because aborting a task that runs would end its whole thread and the other images on it.
 */
import { Piscina } from "piscina";
import type { EngineOptions } from "../engine/types.js";
import type { WorkerOptions, WorkerResult, WorkerTask } from "./worker.js";
import { RadserveError } from "../base/errors.js";
import { tooLate, type InferContext, type InferTask } from "./task.js";
import type { Logger } from "../base/log.js";
import type { ModelEntry } from "../models/entry.js";
import { ModelSharer } from "../models/shared.js";
import type { Answer } from "../results/receipt/receipt.js";
import type { Summary } from "../results/receipt/compose.js";

/** How long a task whose time is over may take to notice before its client is answered. */
const LAST_WORD_MS = 100;

/** How often the engine is told to stop a task: between two runs of a model it has nothing of it to stop. */
const STOP_AGAIN_MS = 50;

/** Images in flight on one thread: while one waits for the disk or the engine, another is decoded. */
const TASKS_PER_THREAD = 4;
const SINGLE_MANNERS = { niceness: 0, operatesAtOnce: false };
/** A single request's threads take a core from those of bulk work at once (setpriority(2)). */
const BULK_MANNERS = { niceness: 10, operatesAtOnce: true };
/** Threads of bulk work end when there was none for so long. */
const BULK_IDLE_MS = 60_000;

export interface PoolOptions {
  threads: number;
  /** Requests that may wait for a thread. */
  maxQueue: number;
  /**
   * The entries as they are now, another array after each change: a task takes them when it starts, so that none waits
   * with a model since replaced.
   */
  models: () => readonly ModelEntry[];
  engine: EngineOptions;
  /** What the settings say to write for all models. */
  outputs?: InferContext["outputs"];
  /** Stops the native part of a task that a thread has already. */
  cancelRunning: (cancelId: number) => void;
  log: Logger;
}

/** A task that the pool has taken: it waits in a line or runs on a thread. */
interface Admitted {
  task: InferTask;
  timer: NodeJS.Timeout | undefined;
  /** Tells the engine again and again to stop it. */
  stopper?: NodeJS.Timeout;
  /** Resolves when no thread works on it any more. */
  ended?: Promise<void>;
  resolve: (answer: Answer | Summary) => void;
  reject: (error: RadserveError) => void;
}

/** Threads of one kind. Single requests have their own, so that they never wait behind the steps of a bulk image. */
interface Crew {
  piscina: Piscina<WorkerTask, WorkerResult>;
  /** The lines that this crew serves; the first goes first. */
  lines: InferTask["priority"][];
  running: number;
}

export class InferencePool {
  readonly #single: Crew;
  readonly #bulk: Crew;
  readonly #lines: Record<InferTask["priority"], Admitted[]> = { stat: [], routine: [], bulk: [] };
  readonly #running = new Map<number, Admitted>();
  /** Tasks that a crew may have at once. */
  readonly #width: number;
  readonly #models = new ModelSharer();
  #lastCancelId = 0;
  /** How many tasks run, for the threads to see: one that is alone may use the other cores. */
  readonly #runningCount = new Int32Array(new SharedArrayBuffer(4));
  #stopping = false;
  #idle: (() => void) | undefined;

  constructor(private readonly options: PoolOptions) {
    this.#width = options.threads * TASKS_PER_THREAD;
    this.#single = this.#crew(["stat", "routine"], { minThreads: options.threads }, SINGLE_MANNERS);
    this.#bulk = this.#crew(["bulk"], { minThreads: 0, idleTimeout: BULK_IDLE_MS }, BULK_MANNERS);
  }

  #crew(
    lines: Crew["lines"],
    lives: { minThreads: number; idleTimeout?: number },
    manners: Pick<WorkerOptions, "niceness" | "operatesAtOnce">,
  ): Crew {
    const { threads, engine, outputs, log } = this.options;
    const piscina = new Piscina<WorkerTask, WorkerResult>({
      filename: new URL("./worker.js", import.meta.url).href,
      ...lives,
      maxThreads: threads,
      concurrentTasksPerWorker: TASKS_PER_THREAD,
      // A thread that blocks in Atomics.wait runs no timers and closes no files.
      atomics: "disabled",
      workerData: {
        engine,
        outputs,
        running: this.#runningCount,
        threads,
        ...manners,
      } satisfies WorkerOptions,
    });
    piscina.on("error", (error: unknown) => {
      log.error({ fault: error instanceof Error ? error.name : typeof error }, "a worker thread failed");
    });
    return { piscina, lines, running: 0 };
  }

  /** Single requests that wait. */
  get queued(): number {
    return this.#lines.stat.length + this.#lines.routine.length;
  }

  /** Images of bulk jobs that may be read, inferred and written at once. */
  get bulkWidth(): number {
    return this.#width;
  }

  /** A number that no other task of this process has. */
  newCancelId(): number {
    return (this.#lastCancelId += 1);
  }

  get running(): number {
    return this.#running.size;
  }

  /** Runs one image. Throws what infer throws, and overloaded, deadline_exceeded or shutting_down. */
  run(task: InferTask): Promise<Answer> {
    return this.#admit(task) as Promise<Answer>;
  }

  /** Runs one image of a bulk job; of its answer only the summary comes back. */
  runForSummary(task: InferTask): Promise<Summary> {
    return this.#admit(task) as Promise<Summary>;
  }

  #admit(task: InferTask): Promise<Answer | Summary> {
    return new Promise((resolve, reject) => {
      if (this.#stopping) {
        reject(shuttingDown());
        return;
      }
      const full = this.#single.running >= this.#width && this.queued >= this.options.maxQueue;
      // Bulk sends no more than bulkWidth tasks, and has a line of its own.
      if (full && task.priority !== "bulk") {
        reject(
          new RadserveError(
            "overloaded",
            `Expected fewer than ${this.options.maxQueue} requests waiting; found that many. Send the request again after the time in Retry-After.`,
            { queued: this.queued },
          ),
        );
        return;
      }
      if (isOver(task)) {
        reject(tooLate("start"));
        return;
      }
      const entry: Admitted = { task, timer: undefined, resolve, reject };
      if (task.deadline !== undefined) this.#expire(entry, task.deadline);
      this.#lines[task.priority].push(entry);
      this.#next();
    });
  }

  /** Takes a task out of the line, or has the engine stop it. */
  cancel(cancelId: number): void {
    const waiting = this.#remove((entry) => entry.task.cancelId === cancelId);
    if (waiting !== undefined)
      waiting.reject(new RadserveError("cancelled", "The client went away before its turn came."));
    else this.#stopRunning(cancelId);
  }

  #stopRunning(cancelId: number): void {
    const entry = this.#running.get(cancelId);
    if (entry === undefined) return;
    this.options.cancelRunning(cancelId);
    entry.stopper ??= setInterval(() => this.options.cancelRunning(cancelId), STOP_AGAIN_MS);
  }

  /** Takes no more work; resolves when everything admitted is answered. */
  drain(): Promise<void> {
    this.#stopping = true;
    return new Promise((resolve) => {
      this.#idle = resolve;
      this.#next();
    });
  }

  /** Resolves when all tasks that run now have ended; ones that start meanwhile are not waited for. */
  async settled(): Promise<void> {
    for (const { ended } of [...this.#running.values()]) await ended;
  }

  /** Fails whatever waits or runs with shutting_down; threads that still compute are cancelled. */
  abandon(): void {
    this.#stopping = true;
    for (let entry = this.#remove(() => true); entry !== undefined; entry = this.#remove(() => true))
      entry.reject(shuttingDown());
    for (const [cancelId, entry] of this.#running) {
      this.#stopRunning(cancelId);
      entry.reject(shuttingDown());
    }
  }

  async close(): Promise<void> {
    this.#stopping = true;
    await Promise.all([this.#single.piscina.destroy(), this.#bulk.piscina.destroy()]);
  }

  #expire(entry: Admitted, deadline: number): void {
    entry.timer = setTimeout(
      () => {
        if (this.#remove((other) => other === entry) !== undefined) entry.reject(tooLate("start"));
      },
      Math.max(0, deadline - Date.now()),
    );
  }

  /** When its time is over the task is cancelled, and its client answered when it has ended, or soon. */
  #limit(entry: Admitted, deadline: number): void {
    entry.timer = setTimeout(
      () => {
        this.#stopRunning(entry.task.cancelId);
        entry.timer = setTimeout(() => entry.reject(tooLate("finish")), LAST_WORD_MS);
      },
      Math.max(0, deadline - Date.now()),
    );
  }

  #remove(
    wanted: (entry: Admitted) => boolean,
    lines: Crew["lines"] = ["stat", "routine", "bulk"],
  ): Admitted | undefined {
    for (const line of lines.map((name) => this.#lines[name])) {
      const at = line.findIndex(wanted);
      if (at === -1) continue;
      const [entry] = line.splice(at, 1);
      clearTimeout(entry?.timer);
      return entry;
    }
    return undefined;
  }

  #next(): void {
    for (const crew of [this.#single, this.#bulk])
      while (crew.running < this.#width) {
        const entry = this.#remove(() => true, crew.lines);
        if (entry === undefined) break;
        entry.ended = this.#start(entry, crew);
      }
    if (this.#running.size === 0 && this.queued === 0 && this.#lines.bulk.length === 0) this.#idle?.();
  }

  async #start(entry: Admitted, crew: Crew): Promise<void> {
    const { task } = entry;
    this.#running.set(task.cancelId, entry);
    crew.running += 1;
    Atomics.store(this.#runningCount, 0, this.#running.size);
    if (task.deadline !== undefined) this.#limit(entry, task.deadline);
    try {
      const result = await crew.piscina.run({
        task,
        models: this.#models.share(this.options.models()),
      });
      if (!result.ok && result.fault !== undefined)
        this.options.log.error({ request_id: task.requestId, fault: result.fault }, "unexpected failure");
      // Results may have been committed at the last moment: a repeat of the request finds and reuses them.
      if (isOver(task)) entry.reject(tooLate("finish"));
      else if (result.ok) entry.resolve(result.answer);
      else entry.reject(RadserveError.fromObject(result.error, result.errno));
    } catch (error) {
      // Only a failure of the thread itself comes here; what infer throws comes back as a value.
      const fault = error instanceof Error ? error.name : typeof error;
      this.options.log.error({ request_id: task.requestId, fault }, "the worker thread failed");
      entry.reject(new RadserveError("internal", "The thread that had this request failed. Send it again."));
    } finally {
      clearTimeout(entry.timer);
      clearInterval(entry.stopper);
      this.#running.delete(task.cancelId);
      crew.running -= 1;
      Atomics.store(this.#runningCount, 0, this.#running.size);
      this.#next();
    }
  }
}

function isOver({ deadline }: InferTask): boolean {
  return deadline !== undefined && Date.now() >= deadline;
}

export function shuttingDown(): RadserveError {
  return new RadserveError(
    "shutting_down",
    "The server is stopping and takes no new work. Send the request again after the time in Retry-After.",
  );
}
