/**
 * A thread that does one thing after the other, and those who wait for it: started when it is
 * needed, ended where one thing takes too long, and gone when nobody has asked for a while.
 */
import { errors, type RadserveError } from "./errors.js";
import { faultForLog, type Logger } from "./log.js";
import type { MemoryPlaces } from "./process-memory.js";
import { ServiceThread, ThreadEnded } from "./service-thread.js";
import { within } from "./waiting.js";

const MOST_WAITING = 32;
const IDLE_MS = 30_000;

export interface LaneOptions {
  /** Of the thread, which answers by `answerOwner`. */
  file: URL;
  workerData: object;
  /** Where it counts its memory. */
  places: MemoryPlaces;
  /** How long one thing may take. */
  longestMs: number;
  log: Logger;
}

export class Lane<Question> {
  readonly #thread: ServiceThread<Question, unknown>;
  #waiting = 0;
  #last: Promise<unknown> = Promise.resolve();
  #isClosed = false;

  constructor(private readonly options: LaneOptions) {
    const { file, workerData, places, log } = options;
    this.#thread = new ServiceThread({
      file,
      workerData,
      places,
      idleMs: IDLE_MS,
      failed: (error) => log.error({ fault: faultForLog(error) }, "a reading thread failed"),
    });
  }

  /**
   * @param left whether nobody waits for the answer any more
   * @throws RadserveError overloaded, deadline_exceeded, shutting_down; what the thread throws
   */
  ask(question: Question, left: () => boolean): Promise<unknown> {
    if (this.#waiting >= MOST_WAITING)
      throw errors.overloaded(
        `The viewer is busy: ${MOST_WAITING} questions are waiting. Try again shortly.`,
      );
    this.#waiting += 1;
    const answer = this.#last.then(() => {
      this.#waiting -= 1;
      return this.#answer(question, left);
    });
    this.#last = answer.catch(() => undefined);
    return answer;
  }

  async #answer(question: Question, left: () => boolean): Promise<unknown> {
    if (this.#isClosed) throw stopping();
    if (left()) throw errors.cancelled("The client has gone.");
    const answer = this.#thread.call(question);
    try {
      if (await within(answer, this.options.longestMs)) return await answer;
    } catch (error) {
      if (!(error instanceof ThreadEnded)) throw error;
      if (error.wasEnded) throw stopping();
      throw errors.internal("The thread that reads results ended. Try again.");
    }
    answer.catch(() => undefined);
    void this.#thread.end();
    throw errors.deadline_exceeded(
      `Reading took longer than ${this.options.longestMs / 1000} s and was stopped.`,
    );
  }

  /** Waiting calls are refused as their turn comes. */
  async close(): Promise<void> {
    this.#isClosed = true;
    await this.#thread.close();
  }
}

function stopping(): RadserveError {
  return errors.shutting_down("The server is stopping. Try again when it is back.");
}
