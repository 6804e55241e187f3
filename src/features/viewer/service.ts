/**
 * Answers people who look at results, on threads of their own: a lane for pictures and marks, one
 * for planes across slices, and one for what takes long.
 */
import { Lane } from "../../base/lane.js";
import type { Logger } from "../../base/log.js";
import type { MemoryPlaces } from "../../base/process-memory.js";
import type { ViewerThreadOptions, ViewingThread } from "./messages.js";

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
  /** For pictures, marks and lists. */
  readonly looks: Lane<ViewingThread>;
  /** For planes across slices. */
  readonly planes: Lane<ViewingThread>;
  /** For what takes long. */
  readonly studies: Lane<ViewingThread>;

  constructor({ engine, forms, places, log }: ViewingOptions) {
    const file = new URL("./thread.js", import.meta.url);
    const workerData = { engine, forms } satisfies Omit<ViewerThreadOptions, "memory">;
    const lane = (longestMs: number) =>
      new Lane<ViewingThread>({ file, workerData, places, longestMs, log });
    this.looks = lane(LONGEST_LOOK_MS);
    this.planes = lane(LONGEST_PLANE_MS);
    this.studies = lane(LONGEST_STUDY_MS);
  }

  async close(): Promise<void> {
    await Promise.all([this.looks, this.planes, this.studies].map((lane) => lane.close()));
  }
}
