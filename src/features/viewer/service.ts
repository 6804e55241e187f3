/**
 * Answers people who look at results, on threads of their own: one for pictures and marks, one for
 * planes across slices, and one for what takes long. Each is started when it is needed, does one
 * thing after the other, is ended where that takes too long, and goes when nobody has asked for a
 * while.
 */
import { errors, type RadserveError } from "../../base/errors.js";
import { faultForLog, type Logger } from "../../base/log.js";
import type { MemoryPlaces } from "../../base/process-memory.js";
import { ServiceThread, ThreadEnded } from "../../base/service-thread.js";
import { within } from "../../base/waiting.js";
import type { ThreadOptions, View } from "./messages.js";

const MOST_WAITING = 32;
const LONGEST_LOOK_MS = 30_000;
/** A volume is read whole before its first plane is there. */
const LONGEST_PLANE_MS = 120_000;
const LONGEST_STUDY_MS = 300_000;
const IDLE_MS = 30_000;

export interface ViewingOptions {
  engine: ThreadOptions["engine"];
  forms: ThreadOptions["forms"];
  /** Where its threads count their memory. */
  places: MemoryPlaces;
  log: Logger;
}

/** A thread that does one thing after the other, and those who wait for it. */
class Lane {
  readonly #thread: ServiceThread<View, unknown>;
  #waiting = 0;
  #last: Promise<unknown> = Promise.resolve();
  #isClosed = false;

  constructor(
    { engine, forms, places, log }: ViewingOptions,
    private readonly longestMs: number,
  ) {
    this.#thread = new ServiceThread({
      file: new URL("./thread.js", import.meta.url),
      workerData: { engine, forms } satisfies Omit<ThreadOptions, "memory">,
      places,
      idleMs: IDLE_MS,
      failed: (error) => log.error({ fault: faultForLog(error) }, "a viewing thread failed"),
    });
  }

  ask(view: View, left: () => boolean): Promise<unknown> {
    if (this.#waiting >= MOST_WAITING)
      throw errors.overloaded(
        `The viewer is busy: ${MOST_WAITING} questions are waiting. Try again shortly.`,
      );
    this.#waiting += 1;
    const answer = this.#last.then(() => {
      this.#waiting -= 1;
      return this.#answer(view, left);
    });
    this.#last = answer.catch(() => undefined);
    return answer;
  }

  async #answer(view: View, left: () => boolean): Promise<unknown> {
    if (this.#isClosed) throw stopping();
    if (left()) throw errors.cancelled("The client has gone.");
    const answer = this.#thread.call(view);
    try {
      if (await within(answer, this.longestMs)) return await answer;
    } catch (error) {
      if (!(error instanceof ThreadEnded)) throw error;
      if (error.wasEnded) throw stopping();
      throw errors.internal("The thread that reads results ended. Try again.");
    }
    answer.catch(() => undefined);
    void this.#thread.end();
    throw errors.deadline_exceeded(
      `Reading took longer than ${this.longestMs / 1000} s and was stopped.`,
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

export class ViewingService {
  readonly #looks: Lane;
  readonly #planes: Lane;
  readonly #studies: Lane;

  constructor(options: ViewingOptions) {
    this.#looks = new Lane(options, LONGEST_LOOK_MS);
    this.#planes = new Lane(options, LONGEST_PLANE_MS);
    this.#studies = new Lane(options, LONGEST_STUDY_MS);
  }

  /**
   * @param left whether nobody waits for the answer any more
   * @returns what the thread gives for this kind of view
   * @throws RadserveError overloaded, deadline_exceeded, shutting_down; what the view throws
   */
  ask(view: View, left: () => boolean): Promise<unknown> {
    const takesLong = view.kind === "verify" || view.kind === "drift";
    const isAcross = "across" in view && view.across !== undefined;
    return (takesLong ? this.#studies : isAcross ? this.#planes : this.#looks).ask(view, left);
  }

  async close(): Promise<void> {
    await Promise.all([this.#looks, this.#planes, this.#studies].map((lane) => lane.close()));
  }
}
