/** `radserve models import` and `models export-nnunet`. */
import { readFile } from "node:fs/promises";
import { say } from "../../commands/models.js";
import { print, type JsonOption } from "../../commands/run.js";
import type { Config } from "../../config.js";
import { withEngine } from "../../server/start-engine.js";
import { exportScript, modelsImport, type ImportOptions } from "./import.js";

export const importModel = (
  config: Config,
  folder: string,
  { json, ...options }: ImportOptions & JsonOption,
) => withEngine(config, async (engine) => say(await modelsImport(folder, engine, options), json));

export async function exportNnunet(): Promise<number> {
  print((await readFile(exportScript(), "utf8")).trimEnd());
  return 0;
}
