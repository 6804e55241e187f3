/** `radserve models import` and `models export-nnunet`. */
import { readFile } from "node:fs/promises";
import { errors } from "../../base/errors.js";
import { withEngine } from "../../commands/engine.js";
import { say } from "../../commands/models.js";
import { print, type JsonOption } from "../../commands/run.js";
import type { Config } from "../../config.js";
import { exportScript, modelsImport, type ImportOptions } from "./import.js";
import { importTask, type TaskOptions } from "./totalsegmentator.js";

export const importModel = (
  config: Config,
  folder: string,
  {
    json,
    totalsegmentator: task,
    ...options
  }: ImportOptions & TaskOptions & { totalsegmentator?: string } & JsonOption,
) =>
  withEngine(config, async ({ trials }) => {
    checkOptions(task, options);
    const imported =
      task === undefined
        ? await modelsImport(folder, trials, options)
        : await importTask(task, folder, trials, options);
    return say(imported, json);
  });

/** Options of one kind of import mean nothing to the other. */
const OF_NETWORKS = ["configuration", "orientation", "modality", "single", "mirror"] as const;
const OF_FILES = ["roles", "previous", "onnx"] as const;
const OF_TASKS = ["fast", "fastest", "plans", "package"] as const;

/** @throws RadserveError bad_request for an option that would not count */
function checkOptions(task: string | undefined, options: ImportOptions & TaskOptions): void {
  const idle = task === undefined ? OF_TASKS : [...OF_NETWORKS, ...OF_FILES];
  const given = idle.filter((name) => options[name] !== undefined);
  if (given.length === 0) return;
  const kind = task === undefined ? "with --totalsegmentator alone" : "without --totalsegmentator";
  throw errors.bad_request(`Expected --${given.join(", --")} ${kind}.`);
}

export async function exportNnunet(): Promise<number> {
  print((await readFile(exportScript(), "utf8")).trimEnd());
  return 0;
}
