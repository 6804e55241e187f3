/** Folders and disks: roots, state, keys, clients' names of folders, room. */
import { existsSync, readdirSync, statSync } from "node:fs";
import { realpath } from "node:fs/promises";
import path from "node:path";
import { auditPaths } from "../../audit/folders.js";
import type { Config } from "../../config.js";
import { freeBytes } from "../../files/disk.js";
import { holdsSomething } from "../../files/folder-mark.js";
import { exposures } from "../../files/own-folders.js";
import { isInside } from "../../files/roots.js";
import { roomOf } from "../../files/usable.js";
import { neededFolders, READ, REMEDIES, type NeededFolder } from "../../server/conditions.js";
import { unmountedRoot } from "../../server/shares.js";
import { readKeys, signingKey, type FoundKeys } from "../../files/key-file.js";
import { resultKeysIn } from "../../results/receipt/seal.js";
import { advice, bad, good, whyUnusable, wordsOf, type Diagnosis } from "./finding.js";

/**
 * Folders and their disks as the server looks at them, and what only doctor says of them.
 * @param config with the folders that answer
 * @param given with all of them
 */
export async function folders(config: Config, given = config): Promise<Diagnosis[]> {
  const missing = (["input_roots", "output_roots"] as const).filter(
    (key) => given[key].length === 0,
  );
  const exposed = await exposures(config);
  const needed = await Promise.all(
    (await neededFolders(config)).map((one) => findingsOf(one, config)),
  );
  return [
    ...missing.map((key) =>
      bad(nameOf(key), "none", `Set RADSERVE_${key.toUpperCase()} or ${key}; serving needs one.`),
    ),
    ...needed.flat(),
    ...exposed.map(({ setting, found, fix }) => bad(nameOf(setting), found, fix)),
    ...(await overlaps(config)),
    ...(await unreachable(config)),
  ];
}

const nameOf = (setting: string) => (/input/i.test(setting) ? "input root" : "output root");

async function findingsOf(
  { folder, name, fault }: NeededFolder,
  config: Config,
): Promise<Diagnosis[]> {
  const away = name.endsWith("root") ? await unmountedRoot(config, folder) : undefined;
  if (away !== undefined) return [bad(name, `${folder}: ${away}`, REMEDIES.share_unavailable)];
  if (fault !== undefined) {
    const { condition, found } = fault;
    const isUnmade = name === "state directory" && condition === "share_unavailable";
    const fix = isUnmade ? "Run radserve init as the user that serves." : REMEDIES[condition];
    return [bad(condition === "disk_full" ? "disk" : name, `${folder}: ${found}`, fix)];
  }
  if (name === "input root")
    return (await holdsSomething(folder))
      ? [good(name, `${folder} can be read`)]
      : [
          advice(
            name,
            `${folder} is empty`,
            "If a share belongs there, it is not mounted: mount it.",
          ),
        ];
  const room = await roomOf(folder);
  const free = room === undefined ? Infinity : freeBytes(room);
  const said =
    free === Infinity
      ? "its file system does not say how much is"
      : `${(free / 2 ** 30).toFixed(1)} GiB`;
  const disk = good("disk", `${folder}: ${said} free`);
  if (name === "output root") return [good(name, `${folder} can be written`), disk];
  const open = [...privacy(name, folder), ...ownership("audit", auditPaths(folder).folder)];
  return [...(open.length > 0 ? open : [good(name, folder)]), disk];
}

/**
 * A wanted layout for some: results beside their images. For others a slip, by which results lie
 * among originals.
 */
async function overlaps({ input_roots, output_roots }: Config): Promise<Diagnosis[]> {
  const real = (root: string) => realpath(root).catch(() => undefined);
  const inputs = await Promise.all(input_roots.map(real));
  const outputs = await Promise.all(output_roots.map(real));
  return inputs.flatMap((input) =>
    outputs.flatMap((output) =>
      input !== undefined &&
      output !== undefined &&
      (isInside(input, [output]) || isInside(output, [input]))
        ? [
            advice(
              "roots",
              `the input root ${input} and the output root ${output} overlap: results may be written among the images`,
              "Use a separate folder for results, unless they belong beside their images.",
            ),
          ]
        : [],
    ),
  );
}

/** Clients' names of folders that lead to no root: every path under them would be refused. */
async function unreachable({ path_map, input_roots, output_roots }: Config): Promise<Diagnosis[]> {
  const all = await Promise.all(
    [...input_roots, ...output_roots].map((root) => realpath(root).catch(() => root)),
  );
  const targets = await Promise.all(path_map.map(({ to }) => realpath(to).catch(() => to)));
  return path_map.flatMap(({ from, to }, i) => {
    const target = targets[i] ?? to;
    if (isInside(target, all) || all.some((root) => isInside(root, [target]))) return [];
    return [
      bad(
        "path map",
        `${from} maps to ${to}, which is in no root: every path below it is refused`,
        "Correct RADSERVE_PATH_MAP, or add the folder to the roots.",
      ),
    ];
  });
}

const OTHERS_WRITE = 0o022;

function privacy(name: string, folder: string): Diagnosis[] {
  const found = statSync(folder, { throwIfNoEntry: false });
  if (found === undefined || (found.mode & OTHERS_WRITE) === 0) return [];
  const mode = (found.mode & 0o777).toString(8);
  return [
    bad(
      name,
      `${folder}: other users may write to it (mode ${mode})`,
      `Run chmod 700 ${folder}, and check who has written there.`,
    ),
  ];
}

/**
 * Entries of a folder and of those in it that another user owns, as commands of root once left
 * them.
 */
function strangers(folder: string): string[] {
  const owner = statSync(folder).uid;
  return readdirSync(folder, { withFileTypes: true, recursive: true })
    .map((entry) => path.join(entry.parentPath, entry.name))
    .filter((file) => statSync(file, { throwIfNoEntry: false })?.uid !== owner);
}

/**
 * Keys, revocations, records of tokens and lines of the audit that the server's user could not
 * read.
 */
function ownership(name: string, folder: string): Diagnosis[] {
  const found = existsSync(folder) ? strangers(folder) : [];
  if (found.length === 0) return [];
  const one = found.length === 1 ? "entry belongs" : "entries belong";
  return [
    bad(
      name,
      `${found.length} ${one} to another user than ${folder}, for example ${found[0]}: the server may not read ${found.length === 1 ? "it" : "them"}`,
      `Run chown -R --reference=${folder} ${folder} as root.`,
    ),
  ];
}

/** The keys of results, which lie in a folder below those of tokens. */
function keysOfResults(keysDir: string): Diagnosis[] {
  const folder = resultKeysIn(keysDir);
  const { keys, problems } = readKeys(folder);
  const signing = signingKey(keys);
  return [
    ...problems.map((problem) => bad("keys of results", problem, "Correct or remove that file.")),
    signing === undefined
      ? good("keys of results", `none yet in ${folder}: radserve init or serving makes the first`)
      : good("keys of results", `${keys.length}; ${signing.kid} signs`),
  ];
}

/** The keys of tokens. A folder that somebody named may be a share: it has to be there. */
export async function keys(config: Config): Promise<{ findings: Diagnosis[]; found: FoundKeys }> {
  const { keys_dir, keys_dir_is_default } = config;
  const none: FoundKeys = { keys: [], problems: [] };
  const why = await whyUnusable(keys_dir, READ);
  if (why !== undefined && !keys_dir_is_default)
    return {
      found: none,
      findings: [
        bad(
          "keys",
          `${keys_dir}: ${why}`,
          "Mount the shared folder, or correct RADSERVE_KEYS_DIR. No key is made there.",
        ),
      ],
    };
  try {
    const found = readKeys(keys_dir);
    const findings = [
      ...privacy("keys", keys_dir),
      ...ownership("keys", keys_dir),
      ...found.problems.map((problem) => bad("keys", problem, "Correct or remove that file.")),
    ];
    const usable = found.keys.map((key) => `${key.kid} (${key.algorithm})`).join(", ");
    findings.push(...keysOfResults(keys_dir));
    findings.push(
      usable === ""
        ? bad(
            "keys",
            `none in ${keys_dir}`,
            "Run radserve init; serving creates the first one too.",
          )
        : good("keys", usable),
    );
    return { found, findings };
  } catch (error) {
    return {
      found: none,
      findings: [bad("keys", wordsOf(error), "Let the server's user list that folder.")],
    };
  }
}
