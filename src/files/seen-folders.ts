/**
 * What a narrowed token may see and steer: what was sent for folders that all lie where it may read
 * and write. What a wider token of the same subject has sent is like another subject's to it.
 */
import path from "node:path";
import { cached } from "../base/cached.js";
import { translateIn, type PathMapping } from "./path-map.js";
import { isInside, narrowRoots, realPathToBe } from "./roots.js";

/** The folders that a token names; none where it is not narrowed. */
export interface NarrowedBy {
  inputRoots?: readonly string[] | null | undefined;
  outputRoots?: readonly string[] | null | undefined;
}

/** In the client's names. */
interface NamedFolders {
  inputs: readonly string[];
  outputs: readonly string[];
}

/**
 * Tells whether all of some folders, in the client's names, lie inside roots that a token narrowed.
 */
function folderCheck(
  roots: readonly string[],
  ofToken: NarrowedBy["inputRoots"],
  pathMap: readonly PathMapping[],
) {
  const narrowed = narrowRoots(roots, ofToken ?? undefined);
  const includes = cached(async (folder: string) => {
    const here = translateIn(folder, pathMap).path;
    const real = (await realPathToBe(here)) ?? path.posix.normalize(here);
    return isInside(real, await narrowed);
  });
  return async (folders: readonly string[]) => {
    for (const folder of folders) if (!(await includes(folder))) return false;
    return true;
  };
}

/** What was sent with a token of the same folders lies inside for certain. */
function coveredBy(ofToken: NarrowedBy["inputRoots"], ofSender: NarrowedBy["inputRoots"]): boolean {
  if (ofToken === undefined || ofToken === null) return true;
  return ofSender?.join("\0") === ofToken.join("\0");
}

/**
 * Tells whether a token may see what a sender named; each folder is looked at once.
 * @param roots real paths
 */
export function seesFolders(
  { inputRoots, outputRoots }: NarrowedBy,
  roots: { input: readonly string[]; output: readonly string[] },
  pathMap: readonly PathMapping[],
) {
  const inputsInside = folderCheck(roots.input, inputRoots, pathMap);
  const outputsInside = folderCheck(roots.output, outputRoots, pathMap);
  return async (
    sender: NarrowedBy,
    named: () => NamedFolders | Promise<NamedFolders>,
  ): Promise<boolean> => {
    const input = coveredBy(inputRoots, sender.inputRoots);
    const output = coveredBy(outputRoots, sender.outputRoots);
    if (input && output) return true;
    const { inputs, outputs } = await named();
    return (output || (await outputsInside(outputs))) && (input || (await inputsInside(inputs)));
  };
}
