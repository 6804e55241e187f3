/** What `radserve doctor` says of the lists of results. */
import { bad, type Diagnosis } from "../../commands/doctor/finding.js";
import type { Config } from "../../config.js";
import { badLists } from "./list/files.js";

export async function doctor({ output_roots }: Config): Promise<Diagnosis[]> {
  const all = output_roots.map(async (root) =>
    (await badLists(root)).map(({ name, why }) =>
      bad(
        "list of results",
        `${root}/${name}: ${why}`,
        "Remove it, or let the server's user read it; then run radserve results index.",
      ),
    ),
  );
  return (await Promise.all(all)).flat();
}
