/**
 * The worker threads and the queues in front of them. A waiting request leaves its queue when its
 * client disconnects, its deadline passes or the server stops. A running task is first asked to
 * end. Only if it does not end soon is its thread terminated, which also stops the other images on
 * that thread; those run again.
 */
import type { EngineOptions } from "../engine/types.js";
import type { WorkerAnswer } from "./worker.js";
import { TASKS_PER_THREAD, ThreadPool, type WorkerThread } from "./thread-pool.js";
import { FairQueue } from "../base/fair-queue.js";
import type { AuditOutcome, Trail } from "../audit/action.js";
import { durations } from "../base/durations.js";
import { errno } from "../base/errno.js";
import { errors, RadserveError } from "../base/errors.js";
import { DistantFault } from "../base/fault.js";
import { MemoryPlaces, ProcessMemory } from "../base/process-memory.js";
import { ThreadEnded } from "../base/remote.js";
import {
  isSet,
  newSigns,
  setSign,
  tooLate,
  type InferContext,
  type InferTask,
  type Signs,
} from "./task.js";
import type { Logger } from "../base/log.js";
import { monotonic } from "../base/monotonic.js";
import type { ModelEntry } from "../models/entry.js";
import { ModelSharer } from "../models/shared.js";
import type { Delivery } from "../results/receipt/delivery.js";
import type { ResultPartName, ResultPlace, Sending } from "./result-hook.js";
import type { AnswerText, Summary } from "../results/commit/compose.js";

/** How long a task whose time is over may take to notice before its client is answered. */
const LAST_WORD_MS = 100;

/**
 * How often the engine is told to stop a task: between two runs of a model it has nothing of it to
 * stop.
 */
const STOP_AGAIN_MS = 50;

const SINGLE = {
  forRequests: true,
  oneStays: true,
  /** Each thread holds some 35 MiB. */
  idleMs: 120_000,
  niceness: 0,
  operatesAtOnce: false,
};
const BULK: typeof SINGLE = {
  forRequests: false,
  oneStays: false,
  idleMs: 60_000,
  /** A single request's threads take a core from those of bulk work at once (setpriority(2)). */
  niceness: 10,
  operatesAtOnce: true,
};

export interface PoolOptions {
  threads: number;
  /** Requests that may wait for a thread. */
  maxQueue: number;
  /** How long an item of a bulk job may take from its begin; requests bring their own deadline. */
  itemMs: number;
  /** Bytes that the images in work may take together. */
  memory: number;
  /**
   * The entries as they are now, another array after each change: a task takes them when it starts,
   * so that none waits with a model since replaced.
   */
  models: () => readonly ModelEntry[];
  engine: EngineOptions;
  /** The outputs that the settings ask for, for all models. */
  outputs?: InferContext["outputs"];
  forms?: InferContext["forms"];
  /** The parts of features in the threads. */
  resultParts: readonly ResultPartName[];
  /** Undefined where results are sent nowhere. */
  sending: () => Sending | undefined;
  /** Stops the native part of a task that a thread has already. */
  cancelRunning: (cancelId: number) => void;
  log: Logger;
}

/** A task that the pool has taken: it waits in a queue or runs on a thread. */
interface Admitted {
  task: InferTask;
  /** Whose it is. */
  subject: string;
  /** Where it is written down what comes of it. */
  trail: Trail | undefined;
  timer: NodeJS.Timeout | undefined;
  /**
   * It shares its thread with no other: it runs for the second time, after one that a neighbour may
   * have spoilt.
   */
  alone: boolean;
  /** Nobody waits for it any more. */
  cancelled: boolean;
  /** Tells the engine again and again to stop it. */
  stopper?: NodeJS.Timeout;
  /** Ends its thread, where it does not stop. */
  ender?: NodeJS.Timeout;
  /** Resolves when no thread works on it any more. */
  ended?: Promise<void>;
  resolve: (answer: WorkerAnswer) => void;
  reject: (error: RadserveError) => void;
}

/** A task that a thread has. */
interface RunningTask extends Admitted {
  signs: Signs;
  thread: WorkerThread;
  /**
   * It was told to stop because its time is over: a timer may end a moment before its time by the
   * clock.
   */
  late: boolean;
  /** Its result is being committed: it does not look any more whether it is to stop. */
  commits: boolean;
}

const PRIORITIES = ["stat", "routine", "bulk"] as const;

/** @param alone it has its thread to itself */
function admitted(
  what: Pick<Admitted, "task" | "subject" | "trail" | "resolve" | "reject">,
  alone: boolean,
): Admitted {
  return { ...what, timer: undefined, alone, cancelled: false };
}

export class InferencePool {
  /**
   * Single requests have threads of their own, so that they never wait behind the steps of a bulk
   * image.
   */
  readonly #single: ThreadPool;
  readonly #bulk: ThreadPool;
  readonly #queues: Record<InferTask["priority"], FairQueue<Admitted>> = {
    stat: new FairQueue(),
    routine: new FairQueue(),
    bulk: new FairQueue(),
  };
  readonly #running = new Map<number, RunningTask>();
  #threadsEnded = 0;
  readonly #models = new ModelSharer();
  #lastCancelId = 0;
  /** Numbers of those who ask, for the engine. */
  readonly #subjects = new Map<string, number>();
  /** How many tasks run, for the threads to see: one that is alone may use the other cores. */
  readonly #runningCount = new Int32Array(new SharedArrayBuffer(4));
  #stopping = false;
  #idle: (() => void) | undefined;
  /** Where threads count the bytes of the images that they work on. */
  readonly places: MemoryPlaces;
  /** Counts memory beside the work of the threads of the pool. */
  readonly #memory: ProcessMemory;

  constructor(private readonly options: PoolOptions) {
    this.places = new MemoryPlaces(2 * options.threads + 9, options.memory);
    this.#memory = new ProcessMemory(this.places.take());
    this.#single = this.#threadPool(SINGLE);
    this.#bulk = this.#threadPool(BULK);
  }

  #threadPool({ niceness, operatesAtOnce, ...kind }: typeof SINGLE): ThreadPool {
    const { threads, engine, outputs, forms, resultParts, log } = this.options;
    const running = this.#runningCount;
    return new ThreadPool({
      threads,
      ...kind,
      places: this.places,
      workerData: {
        engine,
        outputs,
        forms,
        resultParts,
        threads,
        running,
        niceness,
        operatesAtOnce,
      },
      owner: {
        willCommit: (cancelId, verdict, place) => this.#willCommit(cancelId, verdict, place),
        wasOf: (cancelId, whose) => this.#running.get(cancelId)?.trail?.wasOf(whose),
      },
      failed: (error) =>
        log.error(
          { fault: error instanceof Error ? error.name : typeof error },
          "a worker thread failed",
        ),
    });
  }

  async #willCommit(
    cancelId: number,
    verdict: AuditOutcome,
    place: ResultPlace | undefined,
  ): Promise<void> {
    const entry = this.#running.get(cancelId);
    if (entry === undefined) throw new Error("A task that does not run wants to commit something");
    entry.commits = true;
    const { delivery } = entry.task;
    if (delivery !== undefined && place !== undefined) await this.#send(delivery, place);
    await entry.trail?.willCommit(verdict);
  }

  async #send(delivery: Delivery, place: ResultPlace): Promise<void> {
    const sending = this.options.sending();
    if (sending === undefined)
      throw errors.delivery_unavailable(
        "Expected RADSERVE_GATEWAY to name destinations on this node, as on the one that took the request; it names none. Nothing was written.",
      );
    await sending.staged(delivery, place);
  }

  /** Single requests that wait. */
  get queued(): number {
    return this.#queues.stat.length + this.#queues.routine.length;
  }

  /** Images of bulk jobs that may be read, inferred and written at once. */
  get bulkWidth(): number {
    return this.options.threads * TASKS_PER_THREAD;
  }

  /** Threads that were ended because a task did not stop, since the process began. */
  get threadsEnded(): number {
    return this.#threadsEnded;
  }

  /** Threads whose event loop has not turned for ten seconds although they have work. */
  get threadsStuck(): number {
    return this.#single.stuck + this.#bulk.stuck;
  }

  /** Each thread for single requests is stuck, so that none of them goes on. */
  get isStuck(): boolean {
    return this.#single.allStuck;
  }

  /** Bytes of the images in work. */
  get memory(): number {
    return this.places.bytes;
  }

  /**
   * Counts bytes that something else than an image takes. The function that it returns gives them
   * back.
   */
  hold(bytes: number): () => void {
    return this.#memory.hold("images", bytes);
  }

  /** A number that no other task of this process has. */
  newCancelId(): number {
    return (this.#lastCancelId += 1);
  }

  get running(): number {
    return this.#running.size;
  }

  /** Ids of the requests, and of the items of jobs, that threads have. */
  get runningRequests(): string[] {
    return [...this.#running.values()].map(({ task }) => task.requestId);
  }

  /**
   * Runs one image, whose task has the names of its client. Throws what infer throws, and
   * overloaded, deadline_exceeded or shutting_down.
   * @param subject who sent the request; subjects take turns among requests of one priority
   */
  run(task: InferTask, subject: string, trail?: Trail): Promise<AnswerText> {
    const numbered = { ...task, subjectNumber: this.#numberOf(`single ${subject}`) };
    return this.#admit(numbered, subject, trail) as Promise<AnswerText>;
  }

  /**
   * Runs one image of a bulk job; of its answer only the summary comes back.
   * @param subject whose job it is: another than who sends requests under the same name
   */
  runForSummary(task: InferTask, subject: string, trail?: Trail): Promise<Summary> {
    const numbered = { ...task, subjectNumber: this.#numberOf(`bulk ${subject}`) };
    // The items of jobs have taken their turns already.
    return this.#admit(numbered, "", trail) as Promise<Summary>;
  }

  #numberOf(subject: string): number {
    const number = this.#subjects.get(subject) ?? this.#subjects.size + 1;
    this.#subjects.set(subject, number);
    return number;
  }

  async #admit(task: InferTask, subject: string, trail: Trail | undefined): Promise<WorkerAnswer> {
    if (this.#stopping) throw shuttingDown();
    // Bulk sends no more than bulkWidth tasks, and has a queue of its own.
    if (task.priority !== "bulk" && this.#isFullFor(task, subject))
      throw errors.overloaded(
        `Expected fewer than ${this.options.maxQueue} requests waiting; found that many. Send the request again after the time in Retry-After.`,
        { queued: this.queued },
      );
    if (isPastDeadline(task)) throw tooLate("start");
    return new Promise((resolve, reject) => {
      const entry = admitted({ task, subject, trail, resolve, reject }, false);
      this.#expire(entry);
      this.#queues[task.priority].add(entry, subject);
      this.#next();
    });
  }

  #isFullFor({ priority }: InferTask, subject: string): boolean {
    if (this.queued < this.options.maxQueue) return false;
    return this.#single.free({ stat: priority === "stat", alone: false, subject }) === undefined;
  }

  /** Takes a task out of its queue, or has the engine stop it. */
  cancel(cancelId: number): void {
    const waiting = this.#remove((entry) => entry.task.cancelId === cancelId);
    if (waiting !== undefined)
      waiting.reject(errors.cancelled("The client went away before its turn came."));
    else this.#cancelRunning(cancelId);
  }

  #cancelRunning(cancelId: number): void {
    const entry = this.#running.get(cancelId);
    if (entry === undefined) return;
    entry.cancelled = true;
    this.#stop(entry);
  }

  #stop(entry: RunningTask): void {
    const { cancelId } = entry.task;
    setSign(entry.signs, "stop");
    this.options.cancelRunning(cancelId);
    entry.stopper ??= setInterval(() => this.options.cancelRunning(cancelId), STOP_AGAIN_MS);
    const latest = monotonic() + durations.lastCommit;
    entry.ender ??= setTimeout(() => this.#endThreadOf(entry, latest), durations.lastMoment);
  }

  /**
   * A task that has not begun on a busy thread is no reason: it ends as soon as the thread comes to
   * it. What was cancelled while its result was committed, and an item of a job that is late with
   * that, tells soon whether the result is there, which nobody would know if the thread ended now.
   * @param latest (ms of `monotonic`) when no commit is waited for any longer
   */
  #endThreadOf(entry: RunningTask, latest: number): void {
    const { task, thread, signs } = entry;
    if (!isSet(signs, "begun")) return;
    if (monotonic() < latest && this.#isToTell(thread)) {
      entry.ender = setTimeout(() => this.#endThreadOf(entry, latest), durations.lastMoment);
      return;
    }
    this.#threadsEnded += 1;
    this.options.log.warn(
      { request_id: task.requestId, neighbours: thread.tasks - 1 },
      "a worker thread was ended, because its task did not stop; its neighbours run again",
    );
    thread.end();
  }

  #isToTell(thread: WorkerThread): boolean {
    return [...this.#running.values()].some(
      ({ thread: its, commits, cancelled, late, task }) =>
        its === thread && commits && (cancelled || (late && task.priority === "bulk")),
    );
  }

  /** Takes no more work; resolves when everything admitted is answered. */
  drain(): Promise<void> {
    this.#stopping = true;
    return new Promise((resolve) => {
      this.#idle = resolve;
      this.#next();
    });
  }

  /**
   * Resolves when all tasks that run now have ended; ones that start meanwhile are not waited for.
   */
  async settled(): Promise<void> {
    for (const { ended } of Array.from(this.#running.values())) await ended;
  }

  /** Fails whatever waits or runs with shutting_down; threads that still compute are cancelled. */
  abandon(): void {
    this.#stopping = true;
    for (
      let entry = this.#remove(() => true);
      entry !== undefined;
      entry = this.#remove(() => true)
    )
      entry.reject(shuttingDown());
    for (const [cancelId, entry] of this.#running) {
      this.#cancelRunning(cancelId);
      entry.reject(shuttingDown());
    }
  }

  async close(): Promise<void> {
    this.#stopping = true;
    await Promise.all([this.#single.close(), this.#bulk.close()]);
  }

  #expire(entry: Admitted): void {
    const { deadline } = entry.task;
    if (deadline === undefined) return;
    entry.timer = setTimeout(
      () => {
        if (this.#remove((other) => other === entry) !== undefined) entry.reject(tooLate("start"));
      },
      Math.max(0, deadline - monotonic()),
    );
  }

  /**
   * When its time is over the task is stopped, and its client answered when it has ended, or soon.
   */
  #limit(entry: RunningTask, deadline: number): void {
    entry.timer = setTimeout(
      () => {
        entry.late = true;
        this.#stop(entry);
        // Nobody waits for an item: what is told of it is what became of it
        if (entry.task.priority === "bulk") return;
        entry.timer = setTimeout(() => entry.reject(tooLate("finish")), LAST_WORD_MS);
      },
      Math.max(0, deadline - monotonic()),
    );
  }

  #remove(wanted: (entry: Admitted) => boolean): Admitted | undefined {
    for (const queue of PRIORITIES.map((name) => this.#queues[name])) {
      const entry = queue.remove(wanted);
      if (entry === undefined) continue;
      clearTimeout(entry.timer);
      return entry;
    }
    return undefined;
  }

  #next(): void {
    for (const name of PRIORITIES) {
      const queue = this.#queues[name];
      const pool = name === "bulk" ? this.#bulk : this.#single;
      for (;;) {
        let thread: WorkerThread | undefined;
        // Those that run alone are asked first
        let aloneWaits = false;
        const entry = queue.take(({ alone, subject }) => {
          thread = pool.free({ stat: name === "stat", alone, aloneWaits, subject });
          aloneWaits ||= alone && thread === undefined;
          return thread !== undefined;
        });
        if (entry === undefined || thread === undefined) break;
        clearTimeout(entry.timer);
        entry.ended = this.#start(entry, thread);
      }
    }
    if (this.#running.size === 0 && PRIORITIES.every((name) => this.#queues[name].length === 0))
      this.#idle?.();
  }

  async #start(entry: Admitted, thread: WorkerThread): Promise<void> {
    const { alone, subject } = entry;
    const deadline = entry.task.deadline ?? monotonic() + this.options.itemMs;
    const task = { ...entry.task, deadline };
    const signs = newSigns();
    const running: RunningTask = Object.assign(entry, {
      signs,
      thread,
      late: false,
      commits: false,
    });
    this.#running.set(task.cancelId, running);
    Atomics.store(this.#runningCount, 0, this.#running.size);
    this.#limit(running, deadline);
    const isLate = () => running.late || isPastDeadline(task);
    try {
      const models = this.#models.share(this.options.models());
      const answer = await thread.run({ task, models, signs }, alone, subject);
      // Results may have been committed at the last moment: a repeat of the request finds and
      // reuses them. An item of a job is told with its result.
      if (isLate() && task.priority !== "bulk") this.#tooLate(entry);
      else entry.resolve(answer);
    } catch (error) {
      const cause = error instanceof RadserveError ? error.cause : undefined;
      if (cause instanceof DistantFault)
        this.options.log.error(
          { request_id: task.requestId, fault: cause.fault },
          "unexpected failure",
        );
      const wasEnded = error instanceof ThreadEnded && error.wasEnded;
      if (!(wasEnded || error instanceof RadserveError)) this.#threadFailed(entry, error);
      else if (isLate()) this.#tooLate(entry);
      else if (error instanceof ThreadEnded && entry.cancelled)
        entry.reject(errors.cancelled("The client went away, and the work was stopped."));
      else if (error instanceof ThreadEnded) this.#runAgain(entry);
      else entry.reject(RadserveError.fromObject(error.toObject(), errno(cause) || undefined));
    } finally {
      for (const timer of [running.timer, running.stopper, running.ender]) clearTimeout(timer);
      this.#running.delete(task.cancelId);
      Atomics.store(this.#runningCount, 0, this.#running.size);
      this.#next();
    }
  }

  #tooLate(entry: Admitted): void {
    if (mayRunAgain(entry)) this.#runAgain(entry);
    else entry.reject(tooLate("finish"));
  }

  #threadFailed(entry: Admitted, error: unknown): void {
    const fault = error instanceof Error ? error.name : typeof error;
    this.options.log.error({ request_id: entry.task.requestId, fault }, "the worker thread failed");
    entry.reject(errors.internal("The thread that had this request failed. Send it again."));
  }

  /** Results appear whole or not at all and are reused, so that a task is safe to repeat. */
  #runAgain({ task, subject, trail, resolve, reject }: Admitted): void {
    const again = admitted({ task, subject, trail, resolve, reject }, true);
    this.#expire(again);
    this.#queues[task.priority].addFirst(again);
  }
}

/**
 * Nobody waits for an item of a bulk job, and its time may have gone to a neighbour that held the
 * thread: only one that takes too long by itself is to blame.
 */
function mayRunAgain({ task, alone, cancelled }: Admitted): boolean {
  return task.priority === "bulk" && !alone && !cancelled;
}

const isPastDeadline = ({ deadline }: InferTask): boolean =>
  deadline !== undefined && monotonic() >= deadline;

export function shuttingDown(): RadserveError {
  return errors.shutting_down(
    "The server is stopping and takes no new work. Send the request again after the time in Retry-After.",
  );
}
