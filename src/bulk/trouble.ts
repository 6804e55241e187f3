/** What keeps this box from writing into its database, from memory: the database itself may be unable to hold it. */
import type { BulkUnavailable } from "./unavailable.js";

export interface Trouble {
  code: string;
  message: string;
  since: Date;
}

/** Whom a trouble concerns: a job, or all of them. */
const ALL = "";

export class Troubles {
  readonly #known = new Map<string, Trouble>();

  /** @param job absent where all jobs are concerned */
  failed({ reason: code, message }: BulkUnavailable, job = ALL): void {
    const before = this.#known.get(job);
    const since = before?.code === code ? before.since : new Date();
    this.#known.set(job, { code, message, since });
  }

  well(job = ALL): void {
    this.#known.delete(job);
  }

  /** What keeps every job from going on. */
  get ofAll(): Trouble | undefined {
    return this.#known.get(ALL);
  }

  /** What keeps this one from going on. */
  of(job: string): Trouble | undefined {
    return this.ofAll ?? this.#known.get(job);
  }
}
