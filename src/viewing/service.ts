/**
 * Answers people who look at results, on threads of their own: one for pictures and marks, one for what takes long. Each
 * is started when it is needed, does one thing after the other, is ended where that takes too long, and goes when nobody
 * has asked for a while.
 */
import { Worker } from "node:worker_threads";
import { RadserveError } from "../base/errors.js";
import { faultForLog, type Logger } from "../base/log.js";
import type { MemoryPlace } from "../base/process-memory.js";
import type { FromThread, ThreadOptions, ToThread, View } from "./messages.js";

const MOST_WAITING = 32;
const LONGEST_LOOK_MS = 30_000;
const LONGEST_STUDY_MS = 300_000;
const IDLE_MS = 30_000;

export interface ViewingOptions {
  engine: ThreadOptions["engine"];
  forms: ThreadOptions["forms"];
  takePlace: () => MemoryPlace;
  giveBackPlace: (place: MemoryPlace) => void;
  log: Logger;
}

interface Asked {
  id: number;
  view: View;
  /** Nobody waits for it any more. */
  left: () => boolean;
  resolve: (value: unknown) => void;
  reject: (error: RadserveError) => void;
}

class Lane {
  #thread: Worker | undefined;
  readonly #line: Asked[] = [];
  #now: Asked | undefined;
  #timer: NodeJS.Timeout | undefined;
  #lastId = 0;
  #closed = false;

  constructor(
    private readonly options: ViewingOptions,
    private readonly longestMs: number,
  ) {}

  ask(view: View, left: () => boolean): Promise<unknown> {
    if (this.#line.length >= MOST_WAITING)
      throw new RadserveError(
        "overloaded",
        `Expected fewer than ${MOST_WAITING} people to wait for pictures and reports; found that many. Look again shortly.`,
      );
    return new Promise((resolve, reject) => {
      this.#line.push({ id: (this.#lastId += 1), view, left, resolve, reject });
      this.#next();
    });
  }

  #next(): void {
    if (this.#now !== undefined) return;
    clearTimeout(this.#timer);
    let next = this.#line.shift();
    while (next?.left() === true) {
      next.reject(new RadserveError("cancelled", "The client has gone."));
      next = this.#line.shift();
    }
    if (next === undefined) {
      this.#timer = setTimeout(() => void this.#end(), IDLE_MS).unref();
      return;
    }
    this.#now = next;
    this.#timer = setTimeout(() => this.#tooLong(), this.longestMs);
    this.#running().postMessage({ id: next.id, view: next.view } satisfies ToThread);
  }

  #running(): Worker {
    if (this.#thread !== undefined) return this.#thread;
    const { engine, forms, takePlace, giveBackPlace, log } = this.options;
    const memory = takePlace();
    const workerData: ThreadOptions = { engine, forms, memory };
    const thread = new Worker(new URL("./thread.js", import.meta.url), { workerData });
    thread.on("message", (message: FromThread) => this.#hear(message));
    thread.on("error", (error) => log.error({ fault: faultForLog(error) }, "a viewing thread failed"));
    thread.once("exit", () => {
      giveBackPlace(memory);
      if (this.#thread === thread) this.#fail("internal", "The thread that reads results ended. Look again.");
    });
    this.#thread = thread;
    return thread;
  }

  #hear(message: FromThread): void {
    const asked = this.#now;
    if (asked?.id !== message.id) return;
    this.#now = undefined;
    if (message.ok) asked.resolve(message.value);
    else asked.reject(RadserveError.fromObject(message.error));
    this.#next();
  }

  #tooLong(): void {
    void this.#end();
    this.#fail(
      "deadline_exceeded",
      `Expected what is looked at to be read within ${this.longestMs / 1000} s; it took longer and was stopped.`,
    );
  }

  #fail(code: "internal" | "deadline_exceeded" | "shutting_down", message: string): void {
    this.#thread = undefined;
    const asked = this.#now;
    this.#now = undefined;
    asked?.reject(new RadserveError(code, message));
    if (!this.#closed) this.#next();
  }

  async #end(): Promise<void> {
    const thread = this.#thread;
    this.#thread = undefined;
    await thread?.terminate();
  }

  async close(): Promise<void> {
    this.#closed = true;
    clearTimeout(this.#timer);
    const stopping = () =>
      new RadserveError("shutting_down", "The server stops. Look again when it is back.");
    for (const { reject } of this.#line.splice(0)) reject(stopping());
    this.#now?.reject(stopping());
    this.#now = undefined;
    await this.#end();
  }
}

export class ViewingService {
  readonly #looks: Lane;
  readonly #studies: Lane;

  constructor(options: ViewingOptions) {
    this.#looks = new Lane(options, LONGEST_LOOK_MS);
    this.#studies = new Lane(options, LONGEST_STUDY_MS);
  }

  /**
   * @param left whether nobody waits for the answer any more
   * @returns what the thread gives for this kind of view
   * @throws RadserveError overloaded, deadline_exceeded, shutting_down; what the view throws
   */
  ask(view: View, left: () => boolean): Promise<unknown> {
    const takesLong = view.kind === "verify" || view.kind === "drift";
    return (takesLong ? this.#studies : this.#looks).ask(view, left);
  }

  async close(): Promise<void> {
    await Promise.all([this.#looks.close(), this.#studies.close()]);
  }
}
