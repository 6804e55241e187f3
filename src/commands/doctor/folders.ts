/** Folders and disks: roots, state, keys, clients' names of folders, room. */
import { constants, existsSync, readdirSync, statSync } from "node:fs";
import { realpath } from "node:fs/promises";
import path from "node:path";
import { auditPaths } from "../../audit/folders.js";
import type { Config } from "../../config.js";
import { freeBytes } from "../../files/disk.js";
import { holdsSomething } from "../../files/folder-mark.js";
import { exposures } from "../../files/own-folders.js";
import { isInside } from "../../files/roots.js";
import { roomFault, roomOf } from "../../files/usable.js";
import { READ, REMEDIES, WRITE } from "../../server/conditions.js";
import { readKeys, type FoundKeys } from "../../server/keys.js";
import { advice, bad, good, whyNot, wordsOf, type Finding } from "./finding.js";

const SIDES = [
  {
    key: "input_roots",
    name: "input root",
    variable: "RADSERVE_INPUT_ROOTS",
    mode: READ,
    can: "can be read",
    fix: "Create or mount it, and let the server's user read it.",
  },
  {
    key: "output_roots",
    name: "output root",
    variable: "RADSERVE_OUTPUT_ROOTS",
    mode: WRITE,
    can: "can be written",
    fix: "Create or mount it, and let the server's user write to it.",
  },
] as const;

export async function roots(config: Config): Promise<Finding[]> {
  const look = async (root: string, { key, name, mode, can, fix }: (typeof SIDES)[number]) => {
    const why = await whyNot(root, mode);
    if (why !== undefined) return bad(name, `${root}: ${why}`, fix);
    return key === "input_roots" && !(await holdsSomething(root))
      ? advice(name, `${root} is empty`, "If a share belongs there, it is not mounted: mount it.")
      : good(name, `${root} ${can}`);
  };
  const each = await Promise.all(
    SIDES.flatMap((side) => {
      const { key, name, variable } = side;
      if (config[key].length > 0) return config[key].map((root) => look(root, side));
      return [Promise.resolve(bad(name, "none", `Set ${variable} or ${key}; serving needs one.`))];
    }),
  );
  const exposed = (await exposures(config)).map(({ setting, found, fix }) =>
    bad(setting === "RADSERVE_INPUT_ROOTS" ? "input root" : "output root", found, fix),
  );
  return [...each, ...exposed, ...(await overlaps(config)), ...(await unreachable(config))];
}

/** A wanted layout for some: results beside their images. For others a slip, by which results lie among originals. */
async function overlaps({ input_roots, output_roots }: Config): Promise<Finding[]> {
  const real = (root: string) => realpath(root).catch(() => undefined);
  const inputs = await Promise.all(input_roots.map(real));
  const outputs = await Promise.all(output_roots.map(real));
  return inputs.flatMap((input) =>
    outputs.flatMap((output) =>
      input !== undefined && output !== undefined && (isInside(input, [output]) || isInside(output, [input]))
        ? [
            advice(
              "roots",
              `the input root ${input} and the output root ${output} overlap: whoever may write results may write among the images`,
              "Give results a folder apart, unless they are meant to lie beside their images.",
            ),
          ]
        : [],
    ),
  );
}

/** Clients' names of folders that lead to no root: every path under them would be refused. */
async function unreachable({ path_map, input_roots, output_roots }: Config): Promise<Finding[]> {
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
        `${from} leads to ${to}, which lies in no root: every path under it is refused`,
        "Correct RADSERVE_PATH_MAP, or add the folder to the roots.",
      ),
    ];
  });
}

const OTHERS_WRITE = 0o022;

function privacy(name: string, folder: string): Finding[] {
  const found = statSync(folder, { throwIfNoEntry: false });
  if (found === undefined || (found.mode & OTHERS_WRITE) === 0) return [];
  const mode = (found.mode & 0o777).toString(8);
  return [
    bad(
      name,
      `${folder}: other users may write to it (mode ${mode})`,
      `Run chmod 700 ${folder}, and look who wrote there.`,
    ),
  ];
}

/** Entries of a folder and of those in it that another user owns, as commands of root once left them. */
function strangers(folder: string): string[] {
  const owner = statSync(folder).uid;
  return readdirSync(folder, { withFileTypes: true, recursive: true })
    .map((entry) => path.join(entry.parentPath, entry.name))
    .filter((file) => statSync(file, { throwIfNoEntry: false })?.uid !== owner);
}

/** Keys, revocations, records of tokens and lines of the audit that the server's user could not read. */
function ownership(name: string, folder: string): Finding[] {
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

export async function state(config: Config): Promise<Finding[]> {
  const { state_dir } = config;
  const why = await whyNot(state_dir, WRITE);
  if (why !== undefined)
    return [bad("state directory", `${state_dir}: ${why}`, "Run radserve init as the user that serves.")];
  const audit = auditPaths(state_dir).folder;
  const open = [...privacy("state directory", state_dir), ...ownership("audit", audit)];
  return open.length > 0 ? open : [good("state directory", state_dir)];
}

/** The keys of tokens. A folder that somebody named may be a share: it has to be there. */
export async function keys(config: Config): Promise<{ findings: Finding[]; found: FoundKeys }> {
  const { keys_dir, keys_dir_is_default } = config;
  const none: FoundKeys = { keys: [], problems: [] };
  const why = await whyNot(keys_dir, READ);
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
    findings.push(
      usable === ""
        ? bad("keys", `none in ${keys_dir}`, "Run radserve init; serving creates the first one too.")
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

export async function disks(config: Config): Promise<Finding[]> {
  const looks = [...new Set([...config.output_roots, config.state_dir])].map(async (folder) => {
    if ((await whyNot(folder, constants.R_OK)) !== undefined) return [];
    const fault = await roomFault(folder, config.minimum_free_disk);
    if (fault !== undefined) return [bad("disk", `${folder}: ${fault.found}`, REMEDIES.disk_full)];
    const room = await roomOf(folder);
    const free = room === undefined ? Infinity : freeBytes(room);
    const said =
      free === Infinity ? "its file system does not say how much is" : `${(free / 2 ** 30).toFixed(1)} GiB`;
    return [good("disk", `${folder}: ${said} free`)];
  });
  return (await Promise.all(looks)).flat();
}
