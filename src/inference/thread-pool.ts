/**
 * The worker threads of one kind, and the choice among them: a task that runs alone shares its thread with none, and one
 * thread is kept for stat.
 */
import { giveBackOfThread } from "../addon/bytes.js";
import { durations } from "../base/durations.js";
import type { MemoryPlaces } from "../base/process-memory.js";
import { ServiceThread } from "../base/service-thread.js";
import type { FromWorker, WorkerAnswer, WorkerOptions, WorkerTask } from "./worker.js";

/** Images in flight on one thread: while one waits for the disk or the engine, another is decoded. */
export const TASKS_PER_THREAD = 4;
/** A thread with work that has not answered for so many pings' time is stuck. */
const STUCK_PINGS = 10;
/** After so many, tasks go to other threads. */
const SILENT_PINGS = 2;
/** The load of a thread that still loads its modules, in tasks. */
const LOADING_BURDEN = 0.5;

export interface ThreadPoolOptions {
  /** Threads for tasks of every kind. */
  threads: number;
  /** One more thread, which takes stat tasks only. */
  keepsOneForStat: boolean;
  /** Threads start when there is work for them, and end after so many milliseconds without any. */
  idleMs: number;
  /** One of them starts at once and stays. */
  oneStays: boolean;
  workerData: Omit<WorkerOptions, "memory">;
  /** Where the threads count the bytes of their images. */
  places: MemoryPlaces;
  failed: (error: unknown) => void;
  /** Answers what a task asks or tells; what it throws, the task gets. */
  answering: (message: FromWorker) => Promise<void> | void;
}

/** The demands of a task on a thread. */
export interface Demand {
  stat: boolean;
  /** No other task may be on the thread. */
  alone: boolean;
  /** Whose it is. */
  subject: string;
}

export class ThreadPool {
  readonly #threads: WorkerThread[];
  readonly #watch: NodeJS.Timeout;

  constructor(options: ThreadPoolOptions) {
    // The one for stat comes first: among threads that have as much to do it is taken
    this.#threads = [
      ...(options.keepsOneForStat ? [new WorkerThread(options, { forStat: true, stays: false })] : []),
      ...Array.from(
        { length: options.threads },
        (_, i) => new WorkerThread(options, { forStat: false, stays: options.oneStays && i === 0 }),
      ),
    ];
    this.#watch = setInterval(
      () => this.#threads.forEach((thread) => thread.ping()),
      durations.threadPing,
    ).unref();
  }

  /**
   * The best thread that has room for the task, a live one with little to do; undefined where all are full. Reading and
   * making results hold a thread, so that subjects share the threads: while others are at work too, who has its share of
   * tasks gets no more beside theirs.
   */
  free({ stat, alone, subject }: Demand): WorkerThread | undefined {
    // One task at a time needs one thread; with the second, the others load their modules beside it
    if (this.#threads.some(({ tasks }) => tasks > 0)) for (const thread of this.#threads) thread.warm();
    const threads = this.#threads.filter(({ forStat }) => stat || !forStat);
    const withRoom = threads.filter((thread) => thread.hasRoom(alone));
    if (withRoom.length === 0) return undefined;
    const subjects = threads.flatMap((thread) => thread.subjects);
    const own = subjects.filter((other) => other === subject).length;
    const share = (threads.length * TASKS_PER_THREAD) / new Set([subject, ...subjects]).size;
    const fitting = own < share ? withRoom : withRoom.filter((thread) => thread.hasOnly(subject));
    const least = Math.min(...fitting.map(({ burden }) => burden));
    return fitting.find(({ burden }) => burden === least);
  }

  /** Threads that are stuck now. */
  get stuck(): number {
    return this.#threads.filter(({ isStuck }) => isStuck).length;
  }

  /** Every thread that takes tasks of all kinds is stuck. */
  get allStuck(): boolean {
    return this.#threads.every(({ forStat, isStuck }) => forStat || isStuck);
  }

  async close(): Promise<void> {
    clearInterval(this.#watch);
    await Promise.all(this.#threads.map((thread) => thread.close()));
  }
}

export class WorkerThread {
  readonly forStat: boolean;
  /** Whose its tasks are, for each of them. */
  readonly subjects: string[] = [];
  readonly #thread: ServiceThread<WorkerTask | "ping", WorkerAnswer>;
  #hasOneAlone = false;
  /** How often `ping` was called since the thread, which has work, was asked and has not answered. */
  #silent = 0;

  constructor(options: ThreadPoolOptions, { forStat, stays }: { forStat: boolean; stays: boolean }) {
    const { workerData, places, idleMs, answering, failed } = options;
    this.forStat = forStat;
    this.#thread = new ServiceThread({
      ...{ file: new URL("./worker.js", import.meta.url), workerData, places, answering, failed, stays },
      idleMs: stays ? undefined : idleMs,
      exited: giveBackOfThread,
    });
  }

  get tasks(): number {
    return this.subjects.length;
  }

  hasOnly(subject: string): boolean {
    return this.subjects.every((other) => other === subject);
  }

  hasRoom(alone: boolean): boolean {
    return !this.#hasOneAlone && this.tasks < (alone ? 1 : TASKS_PER_THREAD);
  }

  /**
   * How long a task would wait here, to compare: any thread whose event loop turns goes before one that is silent. One
   * that has to load its modules first goes before one with a task, which may hold that thread for long.
   */
  get burden(): number {
    const silence = this.#silent > SILENT_PINGS ? TASKS_PER_THREAD : 0;
    return this.tasks + silence + (this.#thread.isLoaded ? 0 : LOADING_BURDEN);
  }

  /** Starts the thread where there is none, so that it has loaded its modules when a task comes. */
  warm(): void {
    this.#thread.start();
  }

  get isStuck(): boolean {
    return this.#silent > STUCK_PINGS;
  }

  /** Asks a thread with work whether its event loop turns. To be called every `durations.threadPing`. */
  ping(): void {
    this.#silent = this.tasks > 0 ? this.#silent + 1 : 0;
    if (this.#silent !== 1) return;
    const answered = () => (this.#silent = 0);
    this.#thread.call("ping").then(answered, answered);
  }

  /**
   * Runs a task of a subject here.
   * @throws ThreadEnded; what the task throws, as a RadserveError
   */
  async run(work: WorkerTask, alone: boolean, subject: string): Promise<WorkerAnswer> {
    this.subjects.push(subject);
    this.#hasOneAlone = alone;
    try {
      return await this.#thread.call(work);
    } finally {
      this.subjects.splice(this.subjects.indexOf(subject), 1);
      if (this.tasks === 0) this.#hasOneAlone = false;
    }
  }

  /** Ends the thread wherever it is; a fresh one takes over. */
  end(): void {
    // It resolves when the thread's last file operation has ended, which nobody has to wait for
    void this.#thread.end();
  }

  close(): Promise<void> {
    return this.#thread.close();
  }
}
