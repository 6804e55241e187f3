/**
 * Radserve's own folders, state and keys, and the roots that clients name paths in: neither may lie
 * in the other.
 */
import { stat } from "node:fs/promises";
import { isInside, realPathToBe } from "./roots.js";

export interface FoldersInUse {
  input_roots: readonly string[];
  output_roots: readonly string[];
  state_dir: string;
  keys_dir: string;
}

/** The fault of a root, and the remedy. */
export interface Exposure {
  setting: "RADSERVE_INPUT_ROOTS" | "RADSERVE_OUTPUT_ROOTS";
  found: string;
  fix: string;
}

const SIDES = [
  ["RADSERVE_INPUT_ROOTS", "input_roots", "read"],
  ["RADSERVE_OUTPUT_ROOTS", "output_roots", "write"],
] as const;

/**
 * Every root that holds a folder of Radserve's own or lies in one, after links are followed: keys
 * could be reached by a request, or results could be taken for state. Folders that do not exist yet
 * count where they would be made.
 */
export async function exposures(folders: FoldersInUse): Promise<Exposure[]> {
  const own = [
    ["RADSERVE_STATE_DIR", folders.state_dir],
    ["RADSERVE_KEYS_DIR", folders.keys_dir],
  ] as const;
  const all: Exposure[] = [];
  for (const [setting, side, what] of SIDES)
    for (const root of folders[side])
      for (const [name, folder] of own) {
        const [outer, inner] = await Promise.all([real(root), real(folder)]);
        // A state directory that is a file is refused where it is made.
        if (outer === undefined || inner === undefined) continue;
        const fix = `Set ${name} or ${setting} to a folder apart from the other.`;
        if (isInside(inner, [outer]))
          all.push({ setting, found: `${folder} lies inside one, where clients ${what}`, fix });
        else if (isInside(outer, [inner]))
          all.push({ setting, found: `${root} lies inside ${folder}`, fix });
      }
  return all;
}

/** Undefined for what is no folder. */
async function real(folder: string): Promise<string | undefined> {
  const found = await stat(folder).catch(() => undefined);
  return found?.isDirectory() === false ? undefined : realPathToBe(folder);
}
