/** `radserve models import` and `models export-nnunet`. */
import { readFile } from "node:fs/promises";
import { withEngine } from "../../commands/engine.js";
import { say } from "../../commands/models.js";
import { print, type JsonOption } from "../../commands/run.js";
import type { Config } from "../../config.js";
import { exportScript, modelsImport, type ImportOptions } from "./import.js";

export const importModel = (
  config: Config,
  folder: string,
  { json, ...options }: ImportOptions & JsonOption,
) =>
  withEngine(config, async ({ trials, mostBytes }) =>
    say(await modelsImport(folder, trials.within(mostBytes), options), json),
  );

export async function exportNnunet(): Promise<number> {
  print((await readFile(exportScript(), "utf8")).trimEnd());
  return 0;
}
