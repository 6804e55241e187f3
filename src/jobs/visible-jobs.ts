/**
 * The jobs that a narrowed token may see and steer. A job that a wider token of the same subject
 * has submitted is like another subject's to it.
 */
import type { Config } from "../config.js";
import { seesFolders } from "../files/seen-folders.js";
import type { Caller } from "./call.js";
import type { Database } from "./database.js";
import { namedPaths, type JobRow } from "./jobs.js";

export interface RootsContext {
  config: Pick<Config, "path_map">;
  /** Real paths. */
  roots: { input: string[]; output: string[] };
}

/** Tells of jobs whether the token of a caller may see them; folders are looked at once. */
export function visibleTo(caller: Caller, { config, roots }: RootsContext) {
  const sees = seesFolders(caller, roots, config.path_map);
  return (job: JobRow, { readPool }: Database): Promise<boolean> =>
    sees({ inputRoots: job.input_roots, outputRoots: job.output_roots }, () =>
      namedPaths(readPool, job),
    );
}
