/** `radserve key new | list`. */
import { table } from "../base/table.js";
import { requireFolder, type Config } from "../config.js";
import { createKey, readKeys, signingKey, type Key } from "../files/key-file.js";
import { recordCommand } from "./recorded.js";
import { resultKeysIn } from "../results/receipt/seal.js";
import { print, remark, type ExitStatus, type JsonOption } from "./run.js";

interface KeyOption {
  /** The keys of results are meant. */
  results?: boolean;
}

const folderOf = ({ keys_dir }: Config, { results }: KeyOption): string =>
  results === true ? resultKeysIn(keys_dir) : keys_dir;

/**
 * The usable keys of the folder that the settings name; problems of the others are told. Throws
 * ConfigError.
 */
export function usableKeys(config: Config, option: KeyOption = {}): Key[] {
  if (!config.keys_dir_is_default) requireFolder(config.keys_dir, "RADSERVE_KEYS_DIR");
  const { keys, problems } = readKeys(folderOf(config, option));
  for (const problem of problems) remark(problem);
  return keys;
}

/**
 * Makes a key that signs from now on. What the others have signed stays valid until their key files
 * are removed.
 */
export async function keyNew(config: Config, option: KeyOption): Promise<ExitStatus> {
  const before = signingKey(usableKeys(config, option));
  const folder = folderOf(config, option);
  const key = await createKey(folder, before?.created);
  const command = option.results === true ? "key new --results" : "key new";
  await recordCommand(config, { command, kid: key.kid });
  const does = option.results === true ? "signs results" : "issues tokens";
  print(`${key.kid} (${key.algorithm}) in ${folder} ${does} from now on.`);
  if (before !== undefined)
    remark(
      option.results === true
        ? `Results of older keys stay trusted. To retire ${before.kid}, run radserve adopt, which signs them with the new key, and radserve results index, without which no PatientID finds them any more; then remove its file from that folder.`
        : `Tokens of older keys stay valid; to end those of ${before.kid}, remove its file from that folder.`,
    );
  return 0;
}

/** The keys, never what is secret in them. */
export function keyList(
  config: Config,
  { json, results = false }: JsonOption & KeyOption,
): Promise<ExitStatus> {
  const keys = usableKeys(config, { results });
  const issuing = signingKey(keys);
  const rows = keys.map((key) => ({
    kid: key.kid,
    algorithm: key.algorithm,
    created: key.created,
    use: key !== issuing ? "checks" : results ? "signs" : "issues",
  }));
  if (json === true) print(JSON.stringify(rows, null, 2));
  else
    print(
      table([["KID", "ALGORITHM", "CREATED", "USE"], ...rows.map((row) => Object.values(row))]),
    );
  return Promise.resolve(0);
}
