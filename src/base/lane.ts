/**
 * Threads that do one thing after the other each, and those who wait for them: subjects take turns,
 * and none has more than one thing in work at a time, so that a second thread is there for somebody
 * else. A thread is started when it is needed, ended where one thing takes too long, and gone when
 * nobody has asked for a while.
 */
import { errors, type RadserveError } from "./errors.js";
import { FairQueue } from "./fair-queue.js";
import { faultForLog, type Logger } from "./log.js";
import type { MemoryPlaces } from "./process-memory.js";
import { ThreadEnded, type Calls } from "./remote.js";
import { ServiceThread } from "./service-thread.js";
import { within } from "./waiting.js";

/** The second runs only while two subjects ask. */
const THREADS = 2;
const MOST_OF_SUBJECT = 32;
/** Of all subjects together: sixteen that ask as much as they may. */
const MOST_WAITING = 16 * MOST_OF_SUBJECT;
const IDLE_MS = 30_000;

export interface LaneOptions {
  /** Of the threads, which answer by `answerOwner`. */
  file: URL;
  workerData: object;
  /** Where they count their memory. */
  places: MemoryPlaces;
  /** How long one thing may take. */
  longestMs: number;
  log: Logger;
}

/** What is asked of a thread that answers by T. */
export type Question<T, Answer> = (call: Calls<T>) => Promise<Answer>;

interface WaitingQuestion<T extends object> {
  subject: string;
  /** Asks on this thread, and tells whoever waits. */
  begin: (thread: ServiceThread<T>) => Promise<unknown>;
}

export class Lane<T extends object> {
  readonly #queue = new FairQueue<WaitingQuestion<T>>();
  readonly #waitingOf = new Map<string, number>();
  /** Whom each thread works for. */
  readonly #threads = new Map<ServiceThread<T>, string | undefined>();
  #isClosed = false;

  constructor(private readonly options: LaneOptions) {
    const { file, workerData, places, log } = options;
    for (let i = 0; i < THREADS; i++) {
      const thread = new ServiceThread<T>({
        file,
        workerData,
        places,
        idleMs: IDLE_MS,
        failed: (error) => log.error({ fault: faultForLog(error) }, "a reading thread failed"),
      });
      this.#threads.set(thread, undefined);
    }
  }

  /**
   * @param subject who asks
   * @param left whether nobody waits for the answer any more
   * @throws RadserveError overloaded, deadline_exceeded, shutting_down; what the thread throws
   */
  ask<Answer>(
    question: Question<T, Answer>,
    subject: string,
    left: () => boolean,
  ): Promise<Answer> {
    const own = this.#waitingOf.get(subject) ?? 0;
    if (own >= MOST_OF_SUBJECT || this.#queue.length >= MOST_WAITING)
      return Promise.reject(
        errors.overloaded(
          own >= MOST_OF_SUBJECT
            ? `Expected at most ${MOST_OF_SUBJECT} questions of one subject to wait; found more. Try again shortly.`
            : `The viewer is busy: ${MOST_WAITING} questions are waiting. Try again shortly.`,
        ),
      );
    return new Promise((resolve) => {
      this.#waitingOf.set(subject, own + 1);
      const begin = (thread: ServiceThread<T>) => {
        const answer = this.#answer(thread, question, left);
        resolve(answer);
        return answer;
      };
      this.#queue.add({ subject, begin }, subject);
      this.#next();
    });
  }

  /** Gives waiting questions to threads that are free. */
  #next(): void {
    for (const [thread, busyWith] of this.#threads) {
      if (busyWith !== undefined) continue;
      const inWork = new Set(this.#threads.values());
      const waiting = this.#queue.take(({ subject }) => !inWork.has(subject));
      if (waiting === undefined) return;
      const { subject, begin } = waiting;
      const others = (this.#waitingOf.get(subject) ?? 1) - 1;
      if (others > 0) this.#waitingOf.set(subject, others);
      else this.#waitingOf.delete(subject);
      this.#threads.set(thread, subject);
      const free = () => {
        this.#threads.set(thread, undefined);
        this.#next();
      };
      begin(thread).then(free, free);
    }
  }

  async #answer<Answer>(
    thread: ServiceThread<T>,
    question: Question<T, Answer>,
    left: () => boolean,
  ): Promise<Answer> {
    if (this.#isClosed) throw stopping();
    if (left()) throw errors.cancelled("The client has gone.");
    const answer = question(thread.call);
    try {
      if (await within(answer, this.options.longestMs)) return await answer;
    } catch (error) {
      if (!(error instanceof ThreadEnded)) throw error;
      if (error.wasEnded) throw stopping();
      throw errors.internal("The thread that reads results ended. Try again.");
    }
    answer.catch(() => undefined);
    void thread.end();
    throw errors.deadline_exceeded(
      `Reading took longer than ${this.options.longestMs / 1000} s and was stopped.`,
    );
  }

  /** Waiting calls are refused as their turn comes. */
  async close(): Promise<void> {
    this.#isClosed = true;
    await Promise.all([...this.#threads.keys()].map((thread) => thread.close()));
  }
}

function stopping(): RadserveError {
  return errors.shutting_down("The server is stopping. Try again when it is back.");
}
