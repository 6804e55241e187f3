/**
 * The worker threads of one kind, and the choice among them: a task that runs alone shares its
 * thread with none, one thread is kept for stat, and one of the others for other subjects than the
 * one that has all the rest.
 */
import { giveBackOfThread } from "../addon/bytes.js";
import { durations } from "../base/durations.js";
import type { MemoryPlaces } from "../base/process-memory.js";
import { ServiceThread } from "../base/service-thread.js";
import type { Worker, WorkerAnswer, WorkerOptions, WorkerOwner, WorkerTask } from "./worker.js";

/**
 * Images in flight on one thread: while one waits for the disk or the engine, another is decoded.
 */
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
  /**
   * Two more threads: one takes stat tasks only, and of the others no subject ever has all. What
   * holds a thread for long, such as a file with parts without number, then keeps nobody else
   * waiting.
   */
  forRequests: boolean;
  /** Threads start when there is work for them, and end after so many milliseconds without any. */
  idleMs: number;
  /** One of them starts at once and stays. */
  oneStays: boolean;
  workerData: Omit<WorkerOptions, "memory">;
  /** Where the threads count the bytes of their images. */
  places: MemoryPlaces;
  failed: (error: unknown) => void;
  /** Answers what tasks ask and tell. */
  owner: WorkerOwner;
}

/** The demands of a task on a thread. */
export interface Demand {
  stat: boolean;
  /** No other task may be on the thread. */
  alone: boolean;
  /** A task that runs alone waits for an empty thread: one takes no more until it has begun. */
  aloneWaits?: boolean;
  /** Whose it is. */
  subject: string;
}

export class ThreadPool {
  readonly #threads: WorkerThread[];
  /** Of the threads that a task may go to, so many are kept from its subject. */
  readonly #kept: number;
  readonly #watch: NodeJS.Timeout;

  constructor(options: ThreadPoolOptions) {
    this.#kept = options.forRequests ? 1 : 0;
    // The one for stat comes first: among threads that have as much to do it is taken
    this.#threads = [
      ...(options.forRequests ? [new WorkerThread(options, { forStat: true, stays: false })] : []),
      ...Array.from(
        { length: options.threads + this.#kept },
        (_, i) => new WorkerThread(options, { forStat: false, stays: options.oneStays && i === 0 }),
      ),
    ];
    this.#watch = setInterval(
      () => this.#threads.forEach((thread) => thread.ping()),
      durations.threadPing,
    ).unref();
  }

  /**
   * The best thread that has room for the task, a live one with little to do; undefined where all
   * are full. Reading and making results hold a thread, so that subjects are kept apart where there
   * are threads enough: a task goes to one on which only its subject has others, or to an empty
   * one, and to one with others' tasks only as long as its subject has less than its share of all.
   */
  free({ stat, alone, subject, aloneWaits }: Demand): WorkerThread | undefined {
    const threads = this.#threads.filter(({ forStat }) => stat || !forStat);
    const emptying = aloneWaits === true ? this.#leastBusy() : undefined;
    const subjects = threads.flatMap((thread) => thread.subjects);
    const others = new Set([subject, ...subjects]).size - 1;
    // One task at a time needs one thread; with the second, the others load their modules beside it
    if (subjects.length > 0)
      for (const thread of this.#threads.slice(
        0,
        others > 0 ? undefined : -this.#kept || undefined,
      ))
        thread.warm();
    // Where the system refuses one, no task is to find out about another
    if (subjects.length > 0 && this.#threads.some(({ isRefused }) => isRefused))
      for (const thread of this.#threads) thread.warm();
    const own = subjects.filter((other) => other === subject).length;
    const held = threads.filter((thread) => thread.subjects.includes(subject)).length;
    // What the system refuses is asked for a task only where there is no other
    const isRefused = threads.some((thread) => !thread.isRefused)
      ? (thread: WorkerThread) => thread.isRefused
      : () => false;
    const withRoom = threads.filter(
      (thread) =>
        thread !== emptying &&
        !isRefused(thread) &&
        thread.hasRoom(alone) &&
        (thread.subjects.includes(subject) ||
          thread.tasks > 0 ||
          held < threads.length - this.#kept),
    );
    const apart = withRoom.filter((thread) => thread.subjects.every((other) => other === subject));
    const hasShare = own * (others + 1) >= threads.length * TASKS_PER_THREAD;
    const fitting = apart.length > 0 || hasShare ? apart : withRoom;
    const least = Math.min(...fitting.map(({ burden }) => burden));
    return fitting.find(({ burden }) => burden === least);
  }

  /**
   * The thread that is empty soonest: the others take new tasks, so that it stays the one. A stuck
   * one may never be, and one that the system refuses takes none.
   */
  #leastBusy(): WorkerThread | undefined {
    const live = this.#threads.filter(
      ({ forStat, isStuck, isRefused }) => !forStat && !isStuck && !isRefused,
    );
    const least = Math.min(...live.map(({ tasks }) => tasks));
    return live.find(({ tasks }) => tasks === least);
  }

  /** Threads that are stuck now. */
  get stuck(): number {
    return this.#threads.filter(({ isStuck }) => isStuck).length;
  }

  /**
   * Every thread that takes tasks of all kinds is stuck, but for the one that the subject of all
   * the others never has.
   */
  get allStuck(): boolean {
    return (
      this.#threads.filter(({ forStat, isStuck }) => !forStat && !isStuck).length <= this.#kept
    );
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
  readonly #thread: ServiceThread<Worker, WorkerOwner>;
  #hasOneAlone = false;
  /**
   * How often `ping` was called since the thread, which has work, was asked and has not answered.
   */
  #silent = 0;

  constructor(
    options: ThreadPoolOptions,
    { forStat, stays }: { forStat: boolean; stays: boolean },
  ) {
    const { workerData, places, idleMs, owner, failed } = options;
    this.forStat = forStat;
    this.#thread = new ServiceThread({
      file: new URL("./worker.js", import.meta.url),
      workerData,
      places,
      owner,
      failed,
      stays,
      idleMs: stays ? undefined : idleMs,
      exited: giveBackOfThread,
    });
  }

  get tasks(): number {
    return this.subjects.length;
  }

  hasRoom(alone: boolean): boolean {
    return !this.#hasOneAlone && this.tasks < (alone ? 1 : TASKS_PER_THREAD);
  }

  /**
   * How long a task would wait here, to compare: any thread whose event loop turns goes before one
   * that is silent. One that has to load its modules first goes before one with a task, which may
   * hold that thread for long.
   */
  get burden(): number {
    const silence = this.#silent > SILENT_PINGS ? TASKS_PER_THREAD : 0;
    return this.tasks + silence + (this.#thread.isLoaded ? 0 : LOADING_BURDEN);
  }

  /**
   * Starts the thread where there is none, so that it has loaded its modules when a task comes. One
   * that was refused waits for the next ping: a refusal takes of the processor, too.
   */
  warm(): void {
    if (!this.isRefused) this.#thread.start();
  }

  get isRefused(): boolean {
    return this.#thread.isRefused;
  }

  get isStuck(): boolean {
    return this.#silent > STUCK_PINGS;
  }

  /**
   * Asks a thread with work whether its event loop turns, and the system again for one that it
   * refused. To be called every `durations.threadPing`.
   */
  ping(): void {
    if (this.isRefused) this.#thread.start();
    this.#silent = this.tasks > 0 ? this.#silent + 1 : 0;
    if (this.#silent !== 1) return;
    const answered = () => (this.#silent = 0);
    this.#thread.call.ping().then(answered, answered);
  }

  /**
   * Runs a task of a subject here.
   * @throws ThreadEnded; what the task throws, as a RadserveError
   */
  async run(work: WorkerTask, alone: boolean, subject: string): Promise<WorkerAnswer> {
    this.subjects.push(subject);
    this.#hasOneAlone = alone;
    try {
      return await this.#thread.call.run(work);
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
