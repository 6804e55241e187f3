/**
 * The output folders of bulk jobs. A folder whose share is not mounted is there all the same, as
 * the bare mount point; one that was moved away may have an empty one in its place. What is written
 * there is lost, or parted from the rest. So each job leaves a mark of its own in each of its
 * output folders when it is taken, and nothing is written where the mark is missing. The mark lies
 * in the folder itself: it holds on every node and under every mount, whatever device and inode the
 * folder has there. It is an empty file, which a full disk has room for, and goes when its job
 * ends.
 */
import { closeSync } from "node:fs";
import { opendir } from "node:fs/promises";
import path from "node:path";
import { ifThere } from "../base/errno.js";
import { errors, type RadserveError } from "../base/errors.js";
import { lstat, openDescriptor, unlink } from "./disk.js";
import { explained, ifMissing, syncFolder } from "./durable-files.js";

export const markName = (jobId: string): string => `.radserve-job-${jobId}`;

/** Whether an entry of a folder is a mark: of a job, of a root, or as earlier versions left it. */
export const isMarkName = (entry: string): boolean =>
  /^\.radserve-(?:share|spool|job-[0-9a-f-]{36}|root(?:\.[0-9a-f]{12})?)$/.test(entry);

/**
 * Lies in the spool of a gateway: also a node that has none, and shares the folder, knows by it
 * that a name there says who sent an object.
 */
export const SPOOL_MARK = ".radserve-spool";

/**
 * Whether a folder is a spool, or lies in one.
 * @param folder a real path
 * @throws what the system says where that cannot be seen
 */
export async function isInSpool(folder: string): Promise<boolean> {
  for (let at = folder; ; at = path.dirname(at)) {
    const mark = await lstat(path.join(at, SPOOL_MARK)).catch(ifMissing(undefined));
    if (mark !== undefined) return true;
    if (at === path.dirname(at)) return false;
  }
}

/**
 * Leaves a mark in a folder, durably; one that is there stays.
 * @throws RadserveError disk_full, path_not_allowed
 */
export async function leaveMark(folder: string, mark: string): Promise<void> {
  await explained(async () => {
    await openDescriptor(`${folder}/${mark}`, "wx", 0o644).then(closeSync, ifThere);
    await syncFolder(folder);
  });
}

/** False also where the share cannot be asked. */
export async function isMarked(folder: string, mark: string): Promise<boolean> {
  return lstat(`${folder}/${mark}`).then(
    () => true,
    () => false,
  );
}

/** One that is not there is as good as removed. */
export async function removeMark(folder: string, mark: string): Promise<void> {
  await unlink(`${folder}/${mark}`).catch(ifMissing(undefined));
}

/**
 * False for a folder that is gone, cannot be read, or is empty, as a mount point without its mount
 * is.
 */
export async function holdsSomething(folder: string): Promise<boolean> {
  try {
    const open = await opendir(folder);
    const first = await open.read();
    await open.close();
    return first !== null;
  } catch {
    return false;
  }
}

export function markMissing(mark: string): RadserveError {
  return errors.path_not_allowed(
    `The output folder is not the one that its job began with: ${mark}, which was left there when the job was taken, is missing. Mount its share again, or put the folder back.`,
    { side: "output", reason: "mark" },
  );
}
