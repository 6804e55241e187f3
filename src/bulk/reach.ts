/**
 * Which jobs a narrowed token may see and steer: those whose folders all lie where it may read and write. A job that a
 * wider token of the same subject has submitted is like another subject's to it.
 */
import path from "node:path";
import type { Config } from "../config.js";
import { translateIn } from "../files/path-map.js";
import { isInside, narrowRoots, realPathToBe, type Root } from "../files/roots.js";
import type { Database } from "./database.js";
import { namedPaths, type JobRow } from "./jobs.js";
import type { BulkCall } from "./messages.js";

export interface ReachContext {
  config: Pick<Config, "path_map">;
  roots: { input: string[]; output: string[] };
}

/** One side, input or output, of one token. */
class Side {
  readonly #roots: Promise<Root[]>;
  readonly #known = new Map<string, Promise<boolean>>();

  constructor(
    private readonly claims: string[] | undefined,
    roots: readonly string[],
    private readonly pathMap: Config["path_map"],
  ) {
    this.#roots = narrowRoots(roots, claims);
  }

  /** True where a job that was submitted with these claims lies inside for certain. */
  covers(claims: string[] | null): boolean {
    if (this.claims === undefined) return true;
    return claims !== null && claims.join("\0") === this.claims.join("\0");
  }

  /** @param folder in the client's names */
  includes(folder: string): Promise<boolean> {
    const known = this.#known.get(folder) ?? this.#look(folder);
    this.#known.set(folder, known);
    return known;
  }

  async #look(folder: string): Promise<boolean> {
    const here = translateIn(folder, this.pathMap).path;
    const real = (await realPathToBe(here)) ?? path.posix.normalize(here);
    return isInside(real, await this.#roots);
  }
}

/** The reach of the token of one call. */
export class Reach {
  readonly #input: Side;
  readonly #output: Side;

  constructor({ inputRoots, outputRoots }: BulkCall["caller"], { config, roots }: ReachContext) {
    this.#input = new Side(inputRoots, roots.input, config.path_map);
    this.#output = new Side(outputRoots, roots.output, config.path_map);
  }

  /** Whether every folder of the job lies inside. */
  async includes(job: JobRow, { looks }: Database): Promise<boolean> {
    const [input, output] = [this.#input.covers(job.input_roots), this.#output.covers(job.output_roots)];
    if (input && output) return true;
    const { inputs, outputs } = await namedPaths(looks, job);
    return (output || (await all(outputs, this.#output))) && (input || (await all(inputs, this.#input)));
  }
}

async function all(named: readonly string[], side: Side): Promise<boolean> {
  for (const one of named) if (!(await side.includes(one))) return false;
  return true;
}
