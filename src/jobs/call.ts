/** A request to the endpoints of jobs and its answer, as data that crosses threads. */
import type { About } from "../audit/action.js";
import type { Job, JobProgress } from "./schema.js";

export interface Caller {
  subject: string;
  admin: boolean;
  inputRoots: string[] | undefined;
  outputRoots: string[] | undefined;
  /** Destinations that the token may send to; all if undefined. */
  destinations?: string[] | undefined;
}

/** One request, as it came: the bulk thread checks what is in it. */
export interface BulkCall {
  caller: Caller;
  /** Empty if the endpoint is of no job. */
  jobId: string;
  query: Record<string, unknown>;
  /** The text of the body; empty if there is none. */
  body: string;
  /** The trace that the request is part of. */
  traceparent?: string | undefined;
  /** Images of the job that this node looks at window by window. */
  progress: JobProgress[];
}

/** A job that was kept, or was there already. */
export interface Submitted {
  job: Job;
  fresh: boolean;
  /** Facts for the line of the audit. */
  note: Partial<About>;
}

/**
 * `failed`: it has ended, and some of its images have failed or were cancelled.
 * `gone`: the database does not have it, because it was purged, or was lost with the tables.
 */
export type JobEnd = "open" | "ended" | "failed" | "gone";

export interface BulkAnswer {
  status: number;
  /** JSON text. */
  body: string;
  location?: string;
  /** Facts for the line of the audit, beside those of the request. */
  note?: Partial<About>;
}
