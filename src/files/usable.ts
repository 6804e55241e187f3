/**
 * Whether a folder can be used. A share that does not answer does not hold up the look at the other
 * folders.
 */
import { constants, type StatsFs } from "node:fs";
import { access, stat } from "node:fs/promises";
import { durations } from "../base/durations.js";
import { errno } from "../base/errno.js";
import { within } from "../base/waiting.js";
import { freeBytes, statfs } from "./disk.js";
import { tryMakingLater } from "./durable-files.js";
import { REFUSED } from "./path-judgement.js";

/** Why a folder cannot be used, in the words of paused jobs. */
export interface FolderFault {
  condition: "share_unavailable" | "forbidden" | "disk_full";
  found: string;
  /** It did not answer in time, so that nobody knows what it is. */
  silent?: true;
}

export const SILENT: FolderFault = {
  condition: "share_unavailable",
  found: "its share or disk does not answer",
  silent: true,
};

const FOUND: Readonly<Record<string, string>> = {
  ENOENT: "the folder does not exist",
  EACCES: "this user may not (EACCES)",
  EPERM: "this user may not (EPERM)",
  EROFS: "its file system is mounted read-only (EROFS)",
  ENOSPC: "its disk is full, or has no inodes left (ENOSPC)",
  EDQUOT: "the quota of this user is used up (EDQUOT)",
  ESTALE: "the share is not mounted (ESTALE)",
  EIO: "the disk or the share fails (EIO)",
};
const FULL = new Set(["ENOSPC", "EDQUOT"]);

/** Looks that have not ended: each holds a thread, so none is begun beside one. */
const asked = new Map<string, Promise<unknown>>();

/**
 * Looks at a folder, by a key of its own for each kind of look.
 * @throws what the look throws; undefined where it takes too long
 */
export async function patiently<T>(key: string, look: () => Promise<T>): Promise<T | undefined> {
  const answer =
    (asked.get(key) as Promise<T> | undefined) ?? look().finally(() => asked.delete(key));
  // Nobody may wait for it any more when it fails
  answer.catch(() => undefined);
  asked.set(key, answer);
  return (await within(answer, durations.folderLook)) ? answer : undefined;
}

/**
 * The statistics of the file system of a folder; undefined where it does not answer. Throws errors
 * of the system.
 */
export function roomOf(folder: string): Promise<StatsFs | undefined> {
  return patiently(`room ${folder}`, async () => statfs(folder));
}

async function isFolder(folder: string, mode: number): Promise<boolean> {
  const facts = await stat(folder);
  if (facts.isDirectory()) {
    await access(folder, mode);
    if ((mode & constants.W_OK) !== 0) await tryMakingLater(folder);
  }
  return facts.isDirectory();
}

/** @param mode of access(2) @returns undefined where this user can use the folder so */
export async function folderFault(folder: string, mode: number): Promise<FolderFault | undefined> {
  try {
    const found = await patiently(`use ${mode} ${folder}`, () => isFolder(folder, mode));
    if (found === true) return undefined;
    return found === undefined
      ? SILENT
      : { condition: "share_unavailable", found: "it is not a folder" };
  } catch (error) {
    return faultOfError(error);
  }
}

/** What an error of the system says of a folder. */
export function faultOfError(error: unknown): FolderFault {
  const code = errno(error);
  const condition = REFUSED.has(code)
    ? "forbidden"
    : FULL.has(code)
      ? "disk_full"
      : "share_unavailable";
  return { condition, found: FOUND[code] ?? (code || "it cannot be used") };
}

/**
 * @param least bytes that must be free @returns undefined where there is room, or the folder's
 * other faults tell
 */
export async function roomFault(folder: string, least: number): Promise<FolderFault | undefined> {
  const room = await roomOf(folder).catch(() => undefined);
  if (room === undefined) return undefined;
  const gibibytes = (bytes: number, digits: number) => `${(bytes / 2 ** 30).toFixed(digits)} GiB`;
  const free = freeBytes(room);
  if (free < least)
    return {
      condition: "disk_full",
      found: `${gibibytes(free, 1)} free, and ${gibibytes(least, 2)} are wanted`,
    };
  if (room.files > 0 && room.ffree === 0)
    return { condition: "disk_full", found: "its file system has no room for more files (inodes)" };
  return undefined;
}
