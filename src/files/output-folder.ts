/**
 * The folder that results go to: whether it can be used, and the making of what is missing of it.
 */
import { closeSync, constants, fstatSync, mkdirSync } from "node:fs";
import { isMainThread } from "node:worker_threads";
import { errors, type RadserveError } from "../base/errors.js";
import { errno } from "../base/errno.js";
import { descriptorPath } from "./descriptor.js";
import { access, isLocal, mkdir, noteOwnFolder } from "./disk.js";
import { explainedFault, requireRoom } from "./durable-files.js";
import { isStagingName } from "./helper-names.js";
import {
  FORBIDDEN,
  noPermission,
  notAllowed,
  notMounted,
  pin,
  type Pinned,
  type PathSide,
} from "./path-judgement.js";
import { isAway } from "./absent-roots.js";
import { isInside, leadsInside, type Root } from "./roots.js";
import { isMarked, markMissing } from "./folder-mark.js";

/**
 * Bytes of a path that Linux takes, without the NUL at its end (PATH_MAX), and of a name that file
 * systems do (NAME_MAX).
 */
const LONGEST_PATH = 4095;
const LONGEST_NAME = 255;

/**
 * @param folder the nearest one that exists
 * @param missing what is to be made below it Throws bad_request (a name of ours), path_not_allowed
 * (too long, not writable, not mounted, its mark missing), disk_full.
 */
export async function checkUsable(
  folder: Pinned,
  missing: readonly string[],
  roots: readonly Root[] | undefined,
  side: PathSide,
  minimumFreeBytes: number | undefined,
): Promise<void> {
  if ([...folder.realPath.split("/"), ...missing].some(isStagingName))
    throw errors.bad_request(
      `Expected an ${side} path without folders called .NAME.radserve: Radserve works in these and removes them. Use another name.`,
      { side, reason: "reserved" },
    );
  const whole = [folder.realPath, ...missing].join("/");
  if (
    Buffer.byteLength(whole) > LONGEST_PATH ||
    missing.some((part) => Buffer.byteLength(part) > LONGEST_NAME)
  )
    throw tooLong(side);
  if (roots !== undefined && isAway(side, folder.realPath, fstatSync(folder.fd).dev))
    throw notMounted(side);
  await checkMarks(folder.realPath, roots);
  const here = descriptorPath(folder.fd);
  await checkWritable(here, side);
  if (minimumFreeBytes !== undefined) await requireRoom(here, minimumFreeBytes, side);
}

/**
 * 403 as for any folder that cannot be made there: the form of the request is right, and Linux has
 * no such path.
 */
export function tooLong(side: PathSide): RadserveError {
  return errors.path_not_allowed(
    `Expected an ${side} path of at most ${LONGEST_PATH} bytes, and ${LONGEST_NAME} in each part; found a longer one. Use shorter names.`,
    { side, reason: "too_long" },
  );
}

/** The folder is pinned already: if its share is unmounted from here on, the results go with it. */
async function checkMarks(realPath: string, roots: readonly Root[] = []): Promise<void> {
  for (const root of roots)
    if (typeof root !== "string" && "mark" in root && isInside(realPath, [root]))
      if (!(await isMarked(root.path, root.mark))) throw markMissing(root.mark);
}

async function checkWritable(here: string, side: PathSide): Promise<void> {
  await access(here, constants.W_OK | constants.X_OK).catch((error: unknown) => {
    if (errno(error) === "EROFS")
      throw errors.path_not_allowed(
        `The ${side} folder is on a file system that is mounted read-only. Mount it for writing, or use another folder.`,
        { side, reason: "read_only" },
      );
    throw noPermission(side, "write to this folder");
  });
}

/** @returns false where something has the name already */
async function make(path: string, atOnce: boolean): Promise<boolean> {
  try {
    if (atOnce) mkdirSync(path);
    else await mkdir(path);
    return true;
  } catch (error) {
    if (errno(error) !== "EEXIST") throw error;
    return false;
  }
}

/**
 * Creates one folder after the other, each opened without following links before the next is made
 * inside it.
 * @param folder the one to begin in; afterwards the last one, or the one where it failed
 */
export async function createBelow(
  folder: Pinned,
  parts: readonly string[],
  roots: readonly Root[] | undefined,
  side: PathSide,
): Promise<void> {
  const atOnce = isLocal(folder.fd) && !isMainThread;
  for (const [index, part] of parts.entries()) {
    const child = `${descriptorPath(folder.fd)}/${part}`;
    try {
      const made = await make(child, atOnce);
      const next = await pin(child, constants.O_DIRECTORY | constants.O_NOFOLLOW, atOnce);
      if (made) noteOwnFolder(next.fd);
      closeSync(folder.fd);
      Object.assign(folder, next);
    } catch (error) {
      if (errno(error) === "ENOTDIR")
        throw errors.bad_request(`Expected the ${side} path to name a folder; found a file.`);
      if (errno(error) === "ELOOP") throw notAllowed(side, roots);
      if (errno(error) === "ENOENT")
        throw errors.bad_request(
          `The ${side} folder was moved or removed while it was made. Send the request again when it stays.`,
        );
      if (FORBIDDEN.has(errno(error))) throw noPermission(side, "create this folder");
      // Some file systems hold shorter names than others
      if (errno(error) === "ENAMETOOLONG") throw tooLong(side);
      throw explainedFault(error, side);
    }
    if (!leadsInside(folder.realPath, parts.slice(index + 1), roots)) throw notAllowed(side, roots);
  }
}
