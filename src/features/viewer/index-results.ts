/** `radserve results index`: the list of results, made again from receipts. */
import { count, counted } from "../../base/table.js";
import type { Config } from "../../config.js";
import { rebuild } from "./list/list.js";
import { during } from "../../commands/activity.js";
import { leftOut, receiptFolders } from "../../commands/receipt-folders.js";
import { print, type ExitStatus } from "../../commands/run.js";

export async function indexResults(
  config: Config,
  folders: readonly string[],
): Promise<ExitStatus> {
  for (const root of receiptFolders(folders, config)) {
    const { results, added, gone } = await during(`Reading receipts of ${root}`, () =>
      rebuild(root, leftOut),
    );
    print(
      `${root}: ${counted(results, "result")} listed, ${count(added)} new, ${count(gone)} gone`,
    );
  }
  return 0;
}
