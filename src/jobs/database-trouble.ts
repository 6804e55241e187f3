/**
 * The error of a database that cannot be used, and what keeps this node from writing into its own.
 */
import { RadserveError } from "../base/errors.js";
import { ThreadEnded } from "../base/remote.js";

const RETRY_AFTER_SECONDS = 5;

/**
 * `bulk_unavailable` in two sentences: what was found, and what to do. `radserve doctor` shows them
 * apart.
 */
export class BulkUnavailable extends RadserveError {
  /** A code: why jobs wait meanwhile. */
  readonly reason: string;

  constructor(
    readonly found: string,
    readonly fix: string,
    options: ErrorOptions & { reason?: string } = {},
  ) {
    const { reason } = options;
    const details = {
      retry_after: RETRY_AFTER_SECONDS,
      ...(reason === undefined ? {} : { reason }),
    };
    super("bulk_unavailable", `${found} ${fix}`, details, options);
    this.reason = reason ?? "database_unavailable";
  }
}

/** What the thread of the jobs answers. @throws BulkUnavailable where it ended before it did */
export async function unlessEnded<T>(answer: Promise<T>): Promise<T> {
  try {
    return await answer;
  } catch (error) {
    if (!(error instanceof ThreadEnded)) throw error;
    throw new BulkUnavailable(
      "The bulk queue is starting again.",
      "Send the request again shortly.",
    );
  }
}

export interface Trouble {
  code: string;
  message: string;
  since: Date;
}

/** The key of a trouble that concerns all jobs. */
const ALL = "";

/** DatabaseTroubles are kept in memory: the database itself may be unable to hold them. */
export class DatabaseTroubles {
  readonly #known = new Map<string, Trouble>();

  /** @param job absent if all jobs are concerned */
  failed({ reason: code, message }: BulkUnavailable, job = ALL): void {
    const before = this.#known.get(job);
    const since = before?.code === code ? before.since : new Date();
    this.#known.set(job, { code, message, since });
  }

  well(job = ALL): void {
    this.#known.delete(job);
  }

  /** Forgets what is known of other jobs than these. */
  keep(jobs: ReadonlySet<string>): void {
    for (const job of Array.from(this.#known.keys()))
      if (job !== ALL && !jobs.has(job)) this.#known.delete(job);
  }

  /** The trouble that keeps every job from going on. */
  get ofAll(): Trouble | undefined {
    return this.#known.get(ALL);
  }

  /** The trouble that keeps this job from going on. */
  of(job: string): Trouble | undefined {
    return this.ofAll ?? this.#known.get(job);
  }
}
