/**
 * Threads that answer calls. A service thread starts with its first call and ends when it has had
 * none for a while; calls that it has not answered when it ends are rejected. Either side may call
 * the other.
 */
import { parentPort, Worker, type Transferable } from "node:worker_threads";
import { errno } from "./errno.js";
import { asRadserveError, RadserveError, type ErrorObject } from "./errors.js";
import { DistantFault, faultForLog } from "./fault.js";
import type { MemoryPlace, MemoryPlaces } from "./process-memory.js";
import { within } from "./waiting.js";

/** How long the end of a thread waits until its modules are loaded. */
const LONGEST_LOADING_MS = 5_000;
/** How long a thread that is closed may take over its last call. */
const LAST_WAIT_MS = 2_000;

/**
 * An error as it crosses threads: `fault` is for the log, and set if nobody raised the error on
 * purpose.
 */
interface Refusal {
  error: ErrorObject;
  errno?: string;
  fault?: Record<string, unknown>;
}

/** A note is a call that nobody waits for. */
type ThreadMessage =
  | "loaded"
  | { type: "note"; call: unknown }
  | { type: "call"; id: number; call: unknown }
  | { type: "answer"; id: number; answer: unknown }
  | { type: "refusal"; id: number; refusal: Refusal };

/**
 * Answers a call or takes a note. Buffers that are added to `transfer` go over with the answer and
 * are lost here. What it throws for a note is an uncaught error.
 */
export type Answering<Call, Answer> = (
  call: Call,
  transfer: Transferable[],
) => Promise<Answer> | Answer;

/** The thread ended, or was ended, before it answered. */
export class ThreadEnded extends Error {
  override readonly name = "ThreadEnded";

  /** @param wasEnded its owner ended it; otherwise it failed */
  constructor(readonly wasEnded: boolean) {
    super("The thread ended before it answered");
  }
}

interface PendingCall {
  resolve: (answer: unknown) => void;
  reject: (error: Error) => void;
}

/** One side of a port. */
class Calls {
  readonly #waiting = new Map<number, PendingCall>();
  #lastId = 0;

  constructor(
    private readonly post: (message: ThreadMessage, transfer: Transferable[]) => void,
    private readonly answering: Answering<never, unknown>,
  ) {}

  get pending(): number {
    return this.#waiting.size;
  }

  call(call: unknown, transfer: Transferable[] = []): Promise<unknown> {
    return new Promise((resolve, reject) => {
      const id = (this.#lastId += 1);
      this.post({ type: "call", id, call }, transfer);
      this.#waiting.set(id, { resolve, reject });
    });
  }

  note(call: unknown): void {
    this.post({ type: "note", call }, []);
  }

  async hear(message: Exclude<ThreadMessage, "loaded">): Promise<void> {
    if (message.type === "note") await this.answering(message.call as never, []);
    else if (message.type === "call") await this.#answer(message.id, message.call);
    else {
      const waiting = this.#waiting.get(message.id);
      this.#waiting.delete(message.id);
      if (message.type === "answer") waiting?.resolve(message.answer);
      else waiting?.reject(errorOf(message.refusal));
    }
  }

  /** Rejects all that waits. */
  fail(error: Error): void {
    for (const { reject } of this.#waiting.values()) reject(error);
    this.#waiting.clear();
  }

  async #answer(id: number, call: unknown): Promise<void> {
    try {
      const transfer: Transferable[] = [];
      const answer = await this.answering(call as never, transfer);
      this.post({ type: "answer", id, answer }, transfer);
    } catch (thrown) {
      this.post({ type: "refusal", id, refusal: refusalOf(thrown) }, []);
    }
  }
}

function refusalOf(thrown: unknown): Refusal {
  const error = asRadserveError(thrown);
  const { cause } = error;
  // The system's own code, for example EIO
  const code = cause instanceof Error && "syscall" in cause ? errno(cause) : "";
  return {
    error: error.toObject(),
    ...(code === "" ? {} : { errno: code }),
    ...(error.code === "internal" ? { fault: faultForLog(thrown) } : {}),
  };
}

function errorOf({ error, errno, fault }: Refusal): RadserveError {
  if (fault === undefined) return RadserveError.fromObject(error, errno);
  const cause = new DistantFault(fault, errno ?? "");
  return new RadserveError(error.error, error.message, error.details, { cause });
}

/** How a service thread calls the thread that started it. */
export interface ThreadOwner<Call> {
  call(call: Call): Promise<unknown>;
  note(call: Call): void;
}

/** From now on this thread answers its owner. To be called while its modules are evaluated. */
export function answerOwner<Call, Answer, Back = never>(
  answering: Answering<Call, Answer>,
): ThreadOwner<Back> {
  const port = parentPort;
  if (port === null) throw new Error("This file is the start of a worker thread.");
  const calls = new Calls((message, transfer) => port.postMessage(message, transfer), answering);
  port.on("message", (message: Exclude<ThreadMessage, "loaded">) => void calls.hear(message));
  // Node.js has a last step to do when the modules were evaluated; then the thread can be ended
  setImmediate(() => port.postMessage("loaded" satisfies ThreadMessage));
  return calls;
}

export interface ServiceThreadOptions {
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
  answering?: Answering<never, unknown>;
  /** Told what was thrown in the thread and not caught, which ends it. */
  failed?: (error: Error) => void;
  /** A thread that nobody ended has ended. */
  died?: () => void;
  /** A thread is gone, and what it held is free. */
  exited?: () => void;
}

/** One thread from its start to its end. */
interface Life {
  worker: Worker;
  calls: Calls;
  memory: MemoryPlace | undefined;
  isLoaded: boolean;
  /** Resolves when its modules are loaded, or it has ended before. */
  loaded: Promise<void>;
}

export class ServiceThread<Call, Answer> {
  #life: Life | undefined;
  #idle: NodeJS.Timeout | undefined;
  #isClosed = false;

  constructor(private readonly options: ServiceThreadOptions) {
    if (options.stays === true) this.start();
  }

  get isRunning(): boolean {
    return this.#life !== undefined;
  }

  /** The thread runs and has loaded its modules. */
  get isLoaded(): boolean {
    return this.#life?.isLoaded === true;
  }

  /** Calls that are not answered. */
  get pending(): number {
    return this.#life?.calls.pending ?? 0;
  }

  /**
   * Starts the thread where it does not run, so that it has loaded its modules when a call comes.
   */
  start(): void {
    this.#life ??= this.#begin();
  }

  /**
   * Starts the thread where it does not run. While it has calls it keeps the process from ending.
   * @throws ThreadEnded; what the thread throws, as a RadserveError
   */
  async call(call: Call, transfer: Transferable[] = []): Promise<Answer> {
    if (this.#isClosed) throw new ThreadEnded(true);
    const life = (this.#life ??= this.#begin());
    clearTimeout(this.#idle);
    life.worker.ref();
    try {
      return (await life.calls.call(call, transfer)) as Answer;
    } finally {
      if (life === this.#life) this.#rest(life);
    }
  }

  /** Tells the thread something, if it runs. */
  note(call: Call): void {
    this.#life?.calls.note(call);
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

  /** Ends the thread for good; before, it is given `last`, and for a while to answer. */
  async close(last?: Call): Promise<void> {
    if (last !== undefined) await within(this.call(last), LAST_WAIT_MS).catch(() => undefined);
    this.#isClosed = true;
    await this.end();
  }

  #begin(): Life {
    const { file, workerData, places, answering = () => undefined, failed, exited } = this.options;
    const memory = places?.take();
    const worker = new Worker(file, { workerData: { ...workerData, memory } });
    const calls = new Calls(
      (message, transfer) => worker.postMessage(message, transfer),
      answering,
    );
    let loaded: () => void = () => undefined;
    const whenLoaded = new Promise<void>((resolve) => (loaded = resolve));
    const life: Life = { worker, calls, memory, isLoaded: false, loaded: whenLoaded };
    worker.on("message", (message: ThreadMessage) => {
      if (message === "loaded") {
        life.isLoaded = true;
        loaded();
        if (life === this.#life) this.#rest(life);
        // A call of a thread that was ended is of no use any more
      } else if (life === this.#life) void calls.hear(message);
    });
    worker.on("error", (error: Error) => failed?.(error));
    worker.once("exit", () => {
      loaded();
      exited?.();
      if (life === this.#life) this.#died(life);
    });
    return life;
  }

  #died(life: Life): void {
    this.#leave(life, false);
    this.options.died?.();
    // One that cannot load would fail again and again
    if (this.options.stays === true && life.isLoaded) this.start();
  }

  #leave({ calls, memory }: Life, wasEnded: boolean): void {
    this.#life = undefined;
    clearTimeout(this.#idle);
    if (memory !== undefined) this.options.places?.giveBack(memory);
    calls.fail(new ThreadEnded(wasEnded));
  }

  #rest({ worker, calls, isLoaded }: Life): void {
    if (calls.pending > 0 || !isLoaded) return;
    worker.unref();
    clearTimeout(this.#idle);
    const { idleMs } = this.options;
    if (idleMs !== undefined) this.#idle = setTimeout(() => void this.end(), idleMs).unref();
  }
}
