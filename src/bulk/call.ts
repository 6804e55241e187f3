/** A request to the bulk pages and its answer, as data that crosses threads. */
import type { About } from "../audit/action.js";
import type { JobProgress } from "./schema.js";

export interface Caller {
  subject: string;
  admin: boolean;
  inputRoots: string[] | undefined;
  outputRoots: string[] | undefined;
}

/** One request, as it came: the bulk thread checks what is in it. */
export interface BulkCall {
  caller: Caller;
  /** Empty where the page is of no job. */
  jobId: string;
  query: Record<string, unknown>;
  /** The text of the body; empty where there is none. */
  body: string;
  /** Images of the job that this box looks at window by window. */
  progress: JobProgress[];
}

export interface BulkAnswer {
  status: number;
  /** JSON text. */
  body: string;
  location?: string;
  /** What the audit says of the call beside its request. */
  note?: Partial<About>;
}
