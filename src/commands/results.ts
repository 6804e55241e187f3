/** `radserve results index`: the list of results, made again from receipts. */
import path from "node:path";
import { ConfigError } from "../base/errors.js";
import { count } from "../base/table.js";
import type { Config } from "../config.js";
import { rebuild } from "../results/list/list.js";
import { during } from "./activity.js";
import { print, remark, type ExitStatus } from "./run.js";

export async function indexResults(config: Config, folders: readonly string[]): Promise<ExitStatus> {
  const roots = folders.length > 0 ? folders.map((folder) => path.resolve(folder)) : config.output_roots;
  if (roots.length === 0)
    throw new ConfigError("Expected output roots, or RADSERVE_OUTPUT_ROOTS; found neither.");
  const unreadable = (folder: string, why: string | undefined) =>
    remark(`${folder} cannot be read (${why}); its receipts are left out.`);
  for (const root of roots) {
    const { results, added, gone } = await during(`Reading receipts of ${root}`, () =>
      rebuild(root, unreadable),
    );
    print(`${root}: ${count(results)} results listed, ${count(added)} of them new; ${count(gone)} are gone`);
  }
  return 0;
}
