/** Paths that clients name: resolved, held by the opened file, and inside the allowed roots or refused. */

/** Absolute real paths; undefined where nothing is restricted (the command line). */
export interface Roots {
  input: readonly string[] | undefined;
  output: readonly string[] | undefined;
}
