/** `radserve key new | list`. */
import { signingKey } from "../server/tokens.js";
import { table } from "../base/table.js";
import { requireFolder, type Config } from "../config.js";
import type { Key } from "../server/key-file.js";
import { createKey, readKeys } from "../server/keys.js";
import { recordCommand } from "./recorded.js";
import { print, remark, type ExitStatus, type JsonOption } from "./run.js";

/**
 * The usable keys of the folder that the settings name; problems of the others are told. Throws
 * ConfigError.
 */
export function usableKeys(config: Config): Key[] {
  if (!config.keys_dir_is_default) requireFolder(config.keys_dir, "RADSERVE_KEYS_DIR");
  const { keys, problems } = readKeys(config.keys_dir);
  for (const problem of problems) remark(problem);
  return keys;
}

/**
 * Makes a key that issues from now on. Tokens of the others stay valid until their key files are
 * removed.
 */
export async function keyNew(config: Config): Promise<ExitStatus> {
  const before = signingKey(usableKeys(config));
  const key = await createKey(config.keys_dir, before?.created);
  await recordCommand(config, { command: "key new", kid: key.kid });
  print(`${key.kid} (${key.algorithm}) in ${config.keys_dir} issues tokens from now on.`);
  if (before !== undefined)
    remark(
      `Tokens of older keys stay valid; to end those of ${before.kid}, remove its file from that folder.`,
    );
  return 0;
}

/** The keys, never what is secret in them. */
export function keyList(config: Config, { json }: JsonOption): Promise<ExitStatus> {
  const keys = usableKeys(config);
  const issuing = signingKey(keys);
  const rows = keys.map((key) => ({
    kid: key.kid,
    algorithm: key.algorithm,
    created: key.created,
    use: key === issuing ? "issues" : "checks",
  }));
  if (json === true) print(JSON.stringify(rows, null, 2));
  else
    print(
      table([["KID", "ALGORITHM", "CREATED", "USE"], ...rows.map((row) => Object.values(row))]),
    );
  return Promise.resolve(0);
}
