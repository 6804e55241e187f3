/**
 * The jobs that a narrowed token may see and steer: those whose folders all lie where it may read
 * and write. A job that a wider token of the same subject has submitted is like another subject's
 * to it.
 */
import path from "node:path";
import { cached } from "../base/cached.js";
import type { Config } from "../config.js";
import { translateIn } from "../files/path-map.js";
import { isInside, narrowRoots, realPathToBe } from "../files/roots.js";
import type { Caller } from "./call.js";
import type { Database } from "./database.js";
import { namedPaths, type JobRow } from "./jobs.js";

export interface RootsContext {
  config: Pick<Config, "path_map">;
  /** Real paths. */
  roots: { input: string[]; output: string[] };
}

/**
 * Tells whether all of some folders, in the client's names, lie inside roots that a token narrowed.
 */
function folderCheck(
  roots: readonly string[],
  ofToken: string[] | undefined,
  pathMap: Config["path_map"],
) {
  const narrowed = narrowRoots(roots, ofToken);
  const includes = cached(async (folder: string) => {
    const here = translateIn(folder, pathMap).path;
    const real = (await realPathToBe(here)) ?? path.posix.normalize(here);
    return isInside(real, await narrowed);
  });
  return async (folders: readonly string[]) => {
    for (const folder of folders) if (!(await includes(folder))) return false;
    return true;
  };
}

/** A job that was submitted with a token of the same folders lies inside for certain. */
function coveredBy(ofToken: string[] | undefined, ofJob: string[] | null): boolean {
  return ofToken === undefined || (ofJob !== null && ofJob.join("\0") === ofToken.join("\0"));
}

/** Tells of jobs whether the token of a caller may see them; folders are looked at once. */
export function visibleTo({ inputRoots, outputRoots }: Caller, { config, roots }: RootsContext) {
  const inputsInside = folderCheck(roots.input, inputRoots, config.path_map);
  const outputsInside = folderCheck(roots.output, outputRoots, config.path_map);
  return async (job: JobRow, { readPool }: Database): Promise<boolean> => {
    const input = coveredBy(inputRoots, job.input_roots);
    const output = coveredBy(outputRoots, job.output_roots);
    if (input && output) return true;
    const { inputs, outputs } = await namedPaths(readPool, job);
    return (output || (await outputsInside(outputs))) && (input || (await inputsInside(inputs)));
  };
}
