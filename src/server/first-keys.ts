/**
 * The first keys of a node. They are made where the folder has none, but not where other nodes of
 * the database have some: then the folder is a share that is not mounted, and tokens of a key of
 * this node's own would be refused by all others, and theirs here. Where the database does not
 * answer, a folder that somebody named may be such a share; one in the state directory is none.
 */
import type { Config } from "../config.js";
import { readKeys } from "../files/key-file.js";
import { resultKeysIn } from "../results/receipt/seal.js";
import { firstKey, firstResultKey } from "./keys.js";

export interface FirstKeys {
  /** The first key of tokens was made now. */
  isNew: boolean;
  /** Why none was made, although there is none; in words. */
  withheld?: string;
}

const lacksKeys = (folder: string): boolean => {
  const { keys, problems } = readKeys(folder);
  return keys.length === 0 && problems.length === 0;
};

/**
 * @throws ConfigError where all files of a folder are bad, or it cannot be written
 */
export async function firstKeys(config: Config): Promise<FirstKeys> {
  const { keys_dir: folder, keys_dir_is_default: isOwn, database_url: url } = config;
  const lacking = lacksKeys(folder) || lacksKeys(resultKeysIn(folder));
  if (url !== undefined && lacking) {
    const { nodesWithKeys } = await import("../jobs/key-holders.js");
    const holders = await nodesWithKeys(url);
    if (holders === undefined && !isOwn)
      return {
        isNew: false,
        withheld: "the database, which knows whether other nodes have some, does not answer",
      };
    const [some] = holders ?? [];
    if (some !== undefined) return { isNew: false, withheld: `the node ${some} has some` };
  }
  const { isNew } = await firstKey(folder);
  await firstResultKey(folder);
  return { isNew };
}
