/**
 * A thread of its own that answers calls (remote.ts), from its start to its end. It starts with its
 * first call and ends when it has had none for a while; calls that it has not answered when it ends
 * are rejected. It may call its owner.
 */
import { parentPort, Worker } from "node:worker_threads";
import { backOff, type BackOff } from "./back-off.js";
import type { MemoryPlace, MemoryPlaces } from "./process-memory.js";
import {
  Line,
  onPort,
  remoteBy,
  ThreadEnded,
  type Calls,
  type LineMessage,
  type Notes,
  type Remote,
} from "./remote.js";
import { within } from "./waiting.js";

/** How long the end of a thread waits until its modules are loaded. */
const LONGEST_LOADING_MS = 5_000;
/** How long a thread that is closed may take over its last call. */
const LAST_WAIT_MS = 2_000;
/** When one that stays, and that the system refused, is tried again. */
const AGAIN: BackOff = { first: 100, most: 10_000 };
/** What a thread says first. */
const LOADED = "loaded";

/**
 * From now on this thread answers its owner by these methods. To be called while its modules are
 * evaluated.
 */
export function answerOwner<Owner extends object>(methods: object): Remote<Owner> {
  if (parentPort === null) throw new Error("This file is the start of a worker thread.");
  const port = parentPort;
  // Node.js has a last step to do when the modules were evaluated; then the thread can be ended
  setImmediate(() => port.postMessage(LOADED));
  return onPort<Owner>(port, methods);
}

export interface ServiceThreadOptions<Owner extends object = object> {
  /** The thread's module. */
  file: URL;
  workerData?: object;
  /**
   * Gives each thread a place to count its memory, `memory` of its workerData, and takes it back.
   */
  places?: MemoryPlaces;
  /** Milliseconds without a call after which the thread ends; without it, it stays. */
  idleMs?: number | undefined;
  /** It starts at once, and again when it ends. */
  stays?: boolean;
  /** Answers calls of the thread. */
  owner?: Owner;
  /**
   * Told what was thrown in the thread and not caught, which ends it, and why the system refuses a
   * thread, once until it gives one again.
   */
  failed?: (error: Error) => void;
  /** A thread that nobody ended has ended, or could not be started. */
  died?: () => void;
  /** A thread is gone, and what it held is free. */
  exited?: () => void;
}

/** One thread from its start to its end. */
interface Life {
  worker: Worker;
  line: Line;
  memory: MemoryPlace | undefined;
  isLoaded: boolean;
  /** Resolves when its modules are loaded, or it has ended before. */
  loaded: Promise<void>;
}

export class ServiceThread<T extends object, Owner extends object = object> implements Remote<T> {
  /**
   * Starts the thread where it does not run. While it has calls it keeps the process from ending.
   */
  readonly call: Calls<T>;
  /** Tells the thread something, if it runs. */
  readonly note: Notes<T>;
  #life: Life | undefined;
  #idle: NodeJS.Timeout | undefined;
  /** How often the system refused the thread, one time after the other. */
  #refusals = 0;
  #again: NodeJS.Timeout | undefined;
  #isClosed = false;

  constructor(private readonly options: ServiceThreadOptions<Owner>) {
    const { call, note } = remoteBy<T>({
      call: (method, args) => this.#call(method, args),
      note: (method, args) => this.#life?.line.note(method, args),
    });
    this.call = call;
    this.note = note;
    if (options.stays === true) this.start();
  }

  get isRunning(): boolean {
    return this.#life !== undefined;
  }

  /** The thread runs and has loaded its modules. */
  get isLoaded(): boolean {
    return this.#life?.isLoaded === true;
  }

  /** The last time that the thread was to start, the system refused it. */
  get isRefused(): boolean {
    return this.#refusals > 0;
  }

  /** Calls that are not answered. */
  get pending(): number {
    return this.#life?.line.pending ?? 0;
  }

  /**
   * Starts the thread where it does not run, so that it has loaded its modules when a call comes.
   * Where the system refuses it, the call tries again.
   */
  start(): void {
    this.#life ??= this.#begin();
  }

  async #call(method: string, args: readonly unknown[]): Promise<unknown> {
    if (this.#isClosed) throw new ThreadEnded(true);
    const life = (this.#life ??= this.#begin());
    // Whoever calls does what it does for a thread that has died
    if (life === undefined) throw new ThreadEnded(false);
    clearTimeout(this.#idle);
    life.worker.ref();
    try {
      return await life.line.call(method, args);
    } finally {
      if (life === this.#life) this.#rest(life);
    }
  }

  /**
   * Ends the thread wherever it is, and rejects its calls; the next call starts a fresh one.
   * Resolves when it is gone.
   */
  async end(): Promise<void> {
    const life = this.#life;
    if (life === undefined) return;
    this.#leave(life, true);
    if (this.options.stays === true && !this.#isClosed) this.start();
    // Node.js 20 aborted the process where a thread was ended while it loaded
    // (v8::Module::IsGraphAsync)
    await within(life.loaded, LONGEST_LOADING_MS);
    await life.worker.terminate();
  }

  /** Ends the thread for good. @param last is done before, and waited for for a while */
  async close(last?: (call: Calls<T>) => Promise<unknown>): Promise<void> {
    if (last !== undefined) await within(last(this.call), LAST_WAIT_MS).catch(() => undefined);
    this.#isClosed = true;
    clearTimeout(this.#again);
    await this.end();
  }

  /** @returns undefined where the system refuses another thread, as at the limit of a user's own */
  #begin(): Life | undefined {
    const { file, workerData, places, owner = {}, failed, exited } = this.options;
    const memory = places?.take();
    let worker: Worker;
    try {
      worker = new Worker(file, { workerData: { ...workerData, memory } });
    } catch (error) {
      if (memory !== undefined) places?.giveBack(memory);
      this.#refused(error as Error);
      return undefined;
    }
    clearTimeout(this.#again);
    this.#refusals = 0;
    const line = new Line((message, transfer) => worker.postMessage(message, transfer), owner);
    let loaded: () => void = () => undefined;
    const whenLoaded = new Promise<void>((resolve) => (loaded = resolve));
    const life: Life = { worker, line, memory, isLoaded: false, loaded: whenLoaded };
    worker.on("message", (message: LineMessage | typeof LOADED) => {
      if (message === LOADED) {
        life.isLoaded = true;
        loaded();
        if (life === this.#life) this.#rest(life);
        // A call of a thread that was ended is of no use any more
      } else if (life === this.#life) line.hear(message);
    });
    worker.on("error", (error: Error) => failed?.(error));
    worker.once("exit", () => {
      loaded();
      exited?.();
      if (life === this.#life) this.#died(life);
    });
    return life;
  }

  #refused(error: Error): void {
    const { stays, failed, died } = this.options;
    this.#refusals += 1;
    clearTimeout(this.#again);
    if (stays === true)
      this.#again = setTimeout(() => this.start(), backOff(this.#refusals, AGAIN)).unref();
    if (this.#refusals === 1) failed?.(error);
    died?.();
  }

  #died(life: Life): void {
    this.#leave(life, false);
    this.options.died?.();
    // One that cannot load would fail again and again
    if (this.options.stays === true && life.isLoaded) this.start();
  }

  #leave({ line, memory }: Life, wasEnded: boolean): void {
    this.#life = undefined;
    clearTimeout(this.#idle);
    if (memory !== undefined) this.options.places?.giveBack(memory);
    line.fail(new ThreadEnded(wasEnded));
  }

  #rest({ worker, line, isLoaded }: Life): void {
    if (line.pending > 0 || !isLoaded) return;
    worker.unref();
    clearTimeout(this.#idle);
    const { idleMs } = this.options;
    if (idleMs !== undefined) this.#idle = setTimeout(() => void this.end(), idleMs).unref();
  }
}
