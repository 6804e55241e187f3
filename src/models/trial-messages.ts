/** What a server and the process that tries models for it say to each other. */
import type { ErrorObject } from "../base/errors.js";

export interface TrialOrder {
  folder: string;
  /** Memory that it may take beside what the process has. */
  bytes: number;
  /** Bytes that the weights of models that make room for each other may have together. */
  weights: number;
}

/** Said before the answer: the files have been read, and then the graphs have been looked at. */
export const READ = "read";
export const LOOKED = "looked";

export interface TrialAnswer {
  /** What it took at most, beside what the process had. */
  bytes: number;
  /** What its runs took of that, as far as is known. */
  runs: number;
  /** Why the model does not serve. */
  error?: ErrorObject;
}
