/**
 * The worker threads of one kind. Each is a pool of one thread, because the pool library ends a single thread only
 * together with its pool, and because we choose the thread: a task that runs alone shares none, and one is kept for
 * stat.
 */
import { setTimeout as delay } from "node:timers/promises";
import { BroadcastChannel } from "node:worker_threads";
import { Piscina } from "piscina";
import { randomUUID } from "node:crypto";
import { giveBackOfThread } from "../addon/bytes.js";
import type { Verdict } from "../audit/action.js";
import { durations } from "../base/durations.js";
import type { MemoryPlaces } from "../base/process-memory.js";
import type { ErrorObject } from "../base/errors.js";
import { monotonic } from "../base/monotonic.js";
import type { FromRecorder, ToRecorder, WorkerOptions, WorkerResult, WorkerTask } from "./worker.js";

/** Images in flight on one thread: while one waits for the disk or the engine, another is decoded. */
export const TASKS_PER_THREAD = 4;
/** A thread with work whose event loop did not turn at so many looks is stuck. */
const STUCK_LOOKS = 10;
/** What loading its modules counts, in tasks. */
const LOADING_BURDEN = 0.5;
const LONGEST_LOADING_MS = 5_000;
const LOOK_MS = 20;

/** What a thread is given that has only to be there. */
export const NO_TASK = "none";

export interface CrewOptions {
  /** Threads for tasks of every kind. */
  threads: number;
  /** One more thread, which takes stat tasks only. */
  keepsOneForStat: boolean;
  /** Threads start when there is work for them, and end after so many milliseconds without any. */
  idleTimeout: number;
  /** One of them starts at once and stays. */
  oneStays: boolean;
  workerData: Omit<WorkerOptions, "beats" | "counts" | "place" | "recorder">;
  /** Where the threads count the bytes of their images. */
  places: MemoryPlaces;
  failed: (error: unknown) => void;
  /** A task asks that it be written down what it will commit; what comes back is why that cannot be. */
  record: (cancelId: number, verdict: Verdict) => Promise<ErrorObject | undefined>;
}

/** What a thread has to offer for a task. */
export interface Wish {
  stat: boolean;
  /** No other task may be on the thread. */
  alone: boolean;
  /** Whose it is. */
  subject: string;
}

export class Crew {
  readonly #threads: CrewThread[];
  readonly #watch: NodeJS.Timeout;

  constructor(options: CrewOptions) {
    // The one for stat comes first: among threads that have as much to do it is taken
    this.#threads = [
      ...(options.keepsOneForStat ? [new CrewThread(options, { forStat: true, stays: false })] : []),
      ...Array.from(
        { length: options.threads },
        (_, i) => new CrewThread(options, { forStat: false, stays: options.oneStays && i === 0 }),
      ),
    ];
    this.#watch = setInterval(
      () => this.#threads.forEach((thread) => thread.look()),
      durations.threadLook,
    ).unref();
  }

  /**
   * The best thread that has room for the task, a live one with little to do; undefined where all are full. Reading and
   * making results hold a thread, so that subjects share the threads: while others are at work too, who has its share of
   * tasks gets no more beside theirs.
   */
  free({ stat, alone, subject }: Wish): CrewThread | undefined {
    // One task at a time needs one thread; with the second, the others load their modules beside it
    if (this.#threads.some(({ tasks }) => tasks > 0)) for (const thread of this.#threads) thread.warm();
    const threads = this.#threads.filter(({ forStat }) => stat || !forStat);
    const subjects = new Set([subject, ...threads.flatMap((thread) => thread.subjects)]);
    const own = threads.reduce((sum, thread) => sum + thread.tasksOf(subject), 0);
    const hasShare = own >= Math.ceil((threads.length * TASKS_PER_THREAD) / subjects.size);
    let best: CrewThread | undefined;
    for (const thread of threads) {
      if (!thread.hasRoom(alone)) continue;
      if (hasShare && thread.tasks > thread.tasksOf(subject)) continue;
      if (best === undefined || thread.burden < best.burden) best = thread;
    }
    return best;
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

export class CrewThread {
  readonly forStat: boolean;
  readonly #stays: boolean;
  readonly #options: CrewOptions;
  #piscina: Piscina<WorkerTask | typeof NO_TASK, WorkerResult>;
  /** The thread counts it up as its event loop turns. */
  #beats = new Int32Array(new SharedArrayBuffer(4));
  #lastBeat = 0;
  /** Its beats when it was last seen not to be there: more of them say that it has loaded since. */
  #beatsBefore = 0;
  #isWarming = false;
  /** Looks in a row that found work, and no beat since the one before. */
  #silent = 0;
  #tasks = 0;
  /** Its tasks by whose they are. */
  readonly #subjects = new Map<string, number>();
  #hasOneAlone = false;
  #place = 0;
  /** Those whose thread could not load its modules. */
  readonly #broken = new WeakSet<object>();
  /** The library that runs the thread has no way for messages to it. */
  #recorder: BroadcastChannel | undefined;

  constructor(options: CrewOptions, { forStat, stays }: { forStat: boolean; stays: boolean }) {
    this.#options = options;
    this.forStat = forStat;
    this.#stays = stays;
    this.#piscina = this.#start(stays);
  }

  /** @param now it starts at once, and again whenever it ends; otherwise when there is work */
  #start(now: boolean): Piscina<WorkerTask | typeof NO_TASK, WorkerResult> {
    const { idleTimeout, workerData, failed, places } = this.#options;
    const recorder = this.#openRecorder();
    this.#place = places.take();
    this.#beats = new Int32Array(new SharedArrayBuffer(4));
    this.#lastBeat = 0;
    this.#beatsBefore = 0;
    this.#silent = 0;
    const piscina = new Piscina<WorkerTask | typeof NO_TASK, WorkerResult>({
      filename: new URL("./worker.js", import.meta.url).href,
      ...(now ? { minThreads: 1 } : { minThreads: 0, idleTimeout }),
      maxThreads: 1,
      concurrentTasksPerWorker: TASKS_PER_THREAD,
      // A thread that blocks in Atomics.wait runs no timers and closes no files.
      atomics: "disabled",
      workerData: {
        ...workerData,
        beats: this.#beats,
        counts: places.counts,
        place: this.#place,
        recorder,
      } satisfies WorkerOptions,
    });
    piscina.on("error", (error) => {
      failed(error);
      if (this.#piscina !== piscina || this.#isLoaded) return;
      // It could not load its modules. The library would never start it again, and what waits for it would wait on
      this.#broken.add(piscina);
      this.#replace(false);
    });
    // One that comes back after it was idle is to be loaded anew
    const beats = this.#beats;
    piscina.on("workerDestroy", () => {
      Atomics.store(beats, 0, 0);
      giveBackOfThread();
    });
    return piscina;
  }

  /** @returns the name by which the thread finds it */
  #openRecorder(): string {
    this.#recorder?.close();
    const name = randomUUID();
    const channel = new BroadcastChannel(name);
    this.#recorder = channel;
    channel.unref();
    channel.onmessage = (event) => {
      const { id, cancelId, verdict } = (event as { data: ToRecorder }).data;
      void this.#options.record(cancelId, verdict).then((error) => {
        // What a thread that was ended has asked for is of no use to the next
        if (this.#recorder === channel)
          channel.postMessage({ id, ...(error === undefined ? {} : { error }) } satisfies FromRecorder);
      });
    };
    return name;
  }

  get tasks(): number {
    return this.#tasks;
  }

  /** Those who have tasks here. */
  get subjects(): string[] {
    return [...this.#subjects.keys()];
  }

  tasksOf(subject: string): number {
    return this.#subjects.get(subject) ?? 0;
  }

  #count(subject: string, more: number): void {
    this.#tasks += more;
    const tasks = this.tasksOf(subject) + more;
    if (tasks > 0) this.#subjects.set(subject, tasks);
    else this.#subjects.delete(subject);
  }

  hasRoom(alone: boolean): boolean {
    return !this.#hasOneAlone && this.#tasks < (alone ? 1 : TASKS_PER_THREAD);
  }

  /**
   * How long a task would wait here, to compare: any thread whose event loop turns goes before one that is silent. One
   * that has to load its modules first goes before one with a task, which may hold that thread for long.
   */
  get burden(): number {
    return this.#tasks + (this.#silent > 1 ? TASKS_PER_THREAD : 0) + (this.#isLoaded ? 0 : LOADING_BURDEN);
  }

  get #isLoaded(): boolean {
    const beats = Atomics.load(this.#beats, 0);
    if (this.#piscina.threads.length > 0) return beats > this.#beatsBefore;
    this.#beatsBefore = beats;
    return false;
  }

  /** Starts the thread where there is none, so that it has loaded its modules when a task comes. */
  warm(): void {
    if (this.#isWarming || this.#tasks > 0 || this.#piscina.threads.length > 0) return;
    this.#beatsBefore = Atomics.load(this.#beats, 0);
    this.#isWarming = true;
    const done = () => (this.#isWarming = false);
    // It fails where the thread is ended meanwhile; then the next task finds none
    this.#piscina.run(NO_TASK).then(done, done);
  }

  get isStuck(): boolean {
    return this.#silent >= STUCK_LOOKS;
  }

  /** Called each beat. */
  look(): void {
    const beat = Atomics.load(this.#beats, 0);
    this.#silent = this.#tasks > 0 && beat === this.#lastBeat ? this.#silent + 1 : 0;
    this.#lastBeat = beat;
  }

  /**
   * Runs a task of a subject here.
   * @returns undefined where the thread was ended meanwhile
   * @throws what ended the thread, where it failed of itself
   */
  async run(work: WorkerTask, alone: boolean, subject: string): Promise<WorkerResult | undefined> {
    const piscina = this.#piscina;
    if (piscina.threads.length === 0) this.#beatsBefore = Atomics.load(this.#beats, 0);
    this.#count(subject, 1);
    this.#hasOneAlone = alone;
    try {
      return await piscina.run(work);
    } catch (error) {
      if (piscina !== this.#piscina && !this.#broken.has(piscina)) return undefined;
      throw error;
    } finally {
      this.#count(subject, -1);
      if (this.#tasks === 0) this.#hasOneAlone = false;
    }
  }

  /** Ends the thread wherever it is; a fresh one takes over. */
  end(): void {
    this.#replace(this.#stays);
  }

  #replace(now: boolean): void {
    const ended = this.#piscina;
    this.#options.places.giveBack(this.#place);
    this.#piscina = this.#start(now);
    // It resolves when the thread's last file operation has ended, which nobody has to wait for
    void ended.destroy();
  }

  async close(): Promise<void> {
    this.#recorder?.close();
    await this.#loaded();
    await this.#piscina.destroy();
  }

  /**
   * Resolves when the thread has loaded its modules, or there is none: Node.js 20 aborts the process where a thread is
   * ended while it does (v8::Module::IsGraphAsync on a module that is not instantiated).
   */
  async #loaded(): Promise<void> {
    const end = monotonic() + LONGEST_LOADING_MS;
    while (this.#piscina.threads.length > 0 && !this.#isLoaded && monotonic() < end) await delay(LOOK_MS);
  }
}
