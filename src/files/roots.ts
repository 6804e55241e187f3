/** The folders that paths must lie in: those of the settings, and what a token leaves of them. */
import { lstat, realpath, stat } from "node:fs/promises";
import path from "node:path";
import { getEnvironmentData, setEnvironmentData } from "node:worker_threads";
import { errno } from "../base/errno.js";
import { ConfigError, PassingFault } from "../base/errors.js";
import * as disk from "./disk.js";
import { ifMissing } from "./durable-files.js";

/**
 * A folder that a token narrows a root of the server to. It need not exist yet; what is made for it
 * is made inside `within`, which does.
 */
export interface NarrowedRoot {
  path: string;
  within: string;
}

/**
 * An output folder of a job: nothing is written where the job's mark is missing (folder-mark.ts).
 */
export interface MarkedRoot {
  path: string;
  within: string;
  /** The mark's name in the folder. */
  mark: string;
}

/** An absolute real path, or one that a token narrows such a root to. */
export type Root = string | NarrowedRoot | MarkedRoot;

export const folderOf = (root: Root): string => (typeof root === "string" ? root : root.path);

/** Undefined where nothing is restricted (the command line). */
export interface Roots {
  input: readonly Root[] | undefined;
  output: readonly Root[] | undefined;
}

/** True where a real path is a root or lies under one. */
export function isInside(realPath: string, roots: readonly Root[] | undefined): boolean {
  if (roots === undefined) return true;
  return roots.some((root) => {
    const folder = folderOf(root);
    return realPath === folder || realPath.startsWith(folder === "/" ? "/" : `${folder}/`);
  });
}

/** The innermost of the roots that a real path lies in; undefined where it lies in none. */
export const innermostRoot = (realPath: string, roots: readonly string[]): string | undefined =>
  roots.filter((root) => isInside(realPath, [root])).sort((a, b) => b.length - a.length)[0];

/** Those of real paths of folders that lie in no other of them. */
export const outermost = (folders: readonly string[]): string[] =>
  [...new Set(folders)].filter(
    (folder, _i, all) => !all.some((other) => other !== folder && isInside(folder, [other])),
  );

/** The roots that some of the folders lie in, and those that lie in one of them. */
export const rootsAround = (roots: readonly string[], folders: readonly string[]): string[] =>
  roots.filter((root) => isInside(root, folders) || folders.some((one) => isInside(one, [root])));

/**
 * True where a folder lies inside the roots, or where the components to be made below it (no `..`,
 * no links) lead into a narrowed one that does not exist yet.
 */
export function leadsInside(
  realPath: string,
  below: readonly string[],
  roots: readonly Root[] | undefined,
): boolean {
  if (roots === undefined || isInside(realPath, roots)) return true;
  const end = path.posix.join(realPath, ...below);
  return roots.some(
    (root) =>
      typeof root !== "string" && isInside(realPath, [root.within]) && isInside(end, [root]),
  );
}

/**
 * Where a path leads, though its last components do not exist yet; undefined where that cannot be
 * said: a dead link, `..` behind what is missing, no permission.
 */
export async function realPathToBe(given: string): Promise<string | undefined> {
  const rest: string[] = [];
  for (let at = given; ; at = path.posix.dirname(at)) {
    try {
      return path.posix.join(await realpath(at), ...rest);
    } catch (error) {
      const part = path.posix.basename(at);
      const entry = await lstat(at).catch(() => undefined);
      if (errno(error) !== "ENOENT" || entry !== undefined || part === ".." || at === "/")
        return undefined;
      rest.unshift(part);
    }
  }
}

/**
 * The roots of one caller: those of the server, narrowed by the folders in the token, which need
 * not exist yet. A claim wider than a root gives the root; one that lies elsewhere gives nothing;
 * claims that take in all roots narrow nothing.
 */
export async function narrowRoots(
  roots: readonly string[],
  claims: readonly string[] | undefined,
): Promise<Root[]> {
  if (claims === undefined) return [...roots];
  const kept = new Map<string, NarrowedRoot>();
  for (const claim of claims) {
    const real = await realPathToBe(claim);
    if (real === undefined) continue;
    const within = roots.find((root) => isInside(real, [root]));
    if (within !== undefined) kept.set(real, { path: real, within });
    for (const root of roots)
      if (isInside(root, [real])) kept.set(root, { path: root, within: root });
  }
  if (roots.every((root) => kept.has(root))) return [...roots];
  return [...kept.values()];
}

/** A root that is a mount point, and the device of the folder that it lies in. */
interface MountPoint {
  root: string;
  below: number;
}

const MOUNT_POINTS = "mount points of Radserve";

/**
 * For this thread, and for all that it starts from now on: which of the roots are mount points now.
 */
export async function rememberMountPoints(roots: readonly string[]): Promise<void> {
  const found = await Promise.all(
    roots.map(async (root) => {
      const [own, above] = await Promise.all([stat(root), stat(path.dirname(root))]);
      return own.dev === above.dev ? [] : [{ root, below: above.dev } satisfies MountPoint];
    }),
  );
  setEnvironmentData(MOUNT_POINTS, found.flat());
}

/**
 * Whether a folder lies in a root that was a mount point when the server started, and on the disk
 * below it now: what is written there is hidden when the share is mounted again.
 * @param dev of the folder
 */
export function isUnmounted(realPath: string, dev: number): boolean {
  const points = getEnvironmentData(MOUNT_POINTS) as readonly MountPoint[] | undefined;
  return points?.some(({ root, below }) => dev === below && isInside(realPath, [root])) === true;
}

/** The same of what lies at the path now. @throws errors of the system */
export const isUnmountedNow = async (realPath: string): Promise<boolean> =>
  isUnmounted(realPath, (await disk.stat(realPath)).dev);

/**
 * Whether a folder, or the nearest one above it that is there, lies on another disk than its root:
 * a share that is mounted below a root is on another one, and its bare mount point is not.
 * @throws errors of the system
 */
export async function isOnOtherDisk(realPath: string, root: string): Promise<boolean> {
  for (let at = realPath; at !== root && isInside(at, [root]); at = path.dirname(at)) {
    const found = await disk.stat(at).catch(ifMissing(undefined));
    if (found !== undefined) return found.dev !== (await disk.stat(root)).dev;
  }
  return false;
}

/**
 * The real paths of configured roots.
 * @throws ConfigError naming the folder and the setting; PassingFault where a share may be missing
 */
export async function resolveRoots(roots: readonly string[], setting: string): Promise<string[]> {
  return Promise.all(
    roots.map(async (root) => {
      const found = await stat(root).catch((error: unknown) => errno(error));
      if (typeof found === "string")
        throw new PassingFault(
          `${setting}: expected a folder at ${root}; it cannot be opened (${found}). Create it or mount it.` +
            (root.includes(",/") ? " In the environment several are separated by a colon." : ""),
        );
      if (!found.isDirectory())
        throw new ConfigError(`${setting}: expected a folder at ${root}; found a file.`);
      return realpath(root);
    }),
  );
}
