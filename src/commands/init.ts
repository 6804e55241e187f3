/**
 * `radserve init`: state directory, first key, example configuration. Changes nothing that is there
 * already.
 */
import { writeFileSync } from "node:fs";
import path from "node:path";
import { requireFolder, type Config } from "../config.js";
import { firstKey, firstResultKey } from "../server/keys.js";
import { resultKeysIn } from "../results/receipt/seal.js";
import { makeStateDirectory } from "../files/state-lock.js";
import { print, remark, type ExitStatus } from "./run.js";
import { errno } from "../base/errno.js";

export interface InitOptions {
  inputRoot?: string[];
  outputRoot?: string[];
}

/** True where the file was written; false where one was there. */
function writeNew(file: string, value: unknown): boolean {
  try {
    writeFileSync(file, `${JSON.stringify(value, null, 2)}\n`, { flag: "wx", mode: 0o600 });
    return true;
  } catch (error) {
    if (errno(error) === "EEXIST") return false;
    throw error;
  }
}

export async function init(config: Config, options: InitOptions): Promise<ExitStatus> {
  makeStateDirectory(config.state_dir);
  if (!config.keys_dir_is_default) requireFolder(config.keys_dir, "RADSERVE_KEYS_DIR");
  const { key, isNew, problems } = await firstKey(config.keys_dir);
  const results = await firstResultKey(config.keys_dir);
  for (const problem of [...problems, ...results.problems]) remark(problem);
  print(`State directory: ${config.state_dir}`);
  print(
    `${isNew ? "First key, created now" : "Keys are there; the first"}: ${key.kid} (${key.algorithm}) in ${config.keys_dir}`,
  );
  print(
    `Key of results, ${results.isNew ? "created now" : "there already"}: ${results.key.kid} in ${resultKeysIn(config.keys_dir)}`,
  );

  const named = options.inputRoot !== undefined && options.outputRoot !== undefined;
  // An example that names folders nobody has would be read at the next start: it gets a name that
  // is not read.
  const file = path.join(
    config.state_dir,
    named ? "radserve.config.json" : "radserve.config.example.json",
  );
  const written = writeNew(file, {
    port: config.port,
    host: config.host,
    input_roots: (options.inputRoot ?? ["/srv/images"]).map((folder) => path.resolve(folder)),
    output_roots: (options.outputRoot ?? ["/srv/results"]).map((folder) => path.resolve(folder)),
  });
  print(`${written ? "Written" : "Left as it is"}: ${file}`);
  const serves = named || (config.input_roots.length > 0 && config.output_roots.length > 0);
  print(
    serves
      ? "Next: radserve serve"
      : `Next: set the roots in a copy named ${path.join(config.state_dir, "radserve.config.json")}, then radserve serve`,
  );
  return 0;
}
