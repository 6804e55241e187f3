/**
 * Answers people who look at results, on threads of their own: a lane for pictures and marks, one
 * for planes across slices, and one for what takes long.
 */
import { Lane } from "../../base/lane.js";
import type { Logger } from "../../base/log.js";
import type { MemoryPlaces } from "../../base/process-memory.js";
import type { ViewerThreadOptions, ViewCall } from "./messages.js";

const LONGEST_LOOK_MS = 30_000;
/** A volume is read whole before its first plane is there. */
const LONGEST_PLANE_MS = 120_000;
const LONGEST_STUDY_MS = 300_000;

export interface ViewingOptions {
  engine: ViewerThreadOptions["engine"];
  forms: ViewerThreadOptions["forms"];
  /** Where its threads count their memory. */
  places: MemoryPlaces;
  log: Logger;
}

export class ViewingService {
  readonly #looks: Lane<ViewCall>;
  readonly #planes: Lane<ViewCall>;
  readonly #studies: Lane<ViewCall>;

  constructor({ engine, forms, places, log }: ViewingOptions) {
    const file = new URL("./thread.js", import.meta.url);
    const workerData = { engine, forms } satisfies Omit<ViewerThreadOptions, "memory">;
    const lane = (longestMs: number) =>
      new Lane<ViewCall>({ file, workerData, places, longestMs, log });
    this.#looks = lane(LONGEST_LOOK_MS);
    this.#planes = lane(LONGEST_PLANE_MS);
    this.#studies = lane(LONGEST_STUDY_MS);
  }

  /**
   * @param subject who asks
   * @param left whether nobody waits for the answer any more
   * @returns what the thread gives for this kind of view
   * @throws RadserveError overloaded, deadline_exceeded, shutting_down; what the view throws
   */
  ask(view: ViewCall, subject: string, left: () => boolean): Promise<unknown> {
    const takesLong = view.kind === "verify";
    const isAcross = "across" in view && view.across !== undefined;
    const lane = takesLong ? this.#studies : isAcross ? this.#planes : this.#looks;
    return lane.ask(view, subject, left);
  }

  async close(): Promise<void> {
    await Promise.all([this.#looks, this.#planes, this.#studies].map((lane) => lane.close()));
  }
}
