/**
 * Shares that are mounted exactly at an output folder. Such a folder is there without its share too, as the bare mount
 * point, and what is written into that disappears below the next mount. So the share gets a mark when work is taken
 * for it, and nothing is written where the mark is missing. The mark lies on the share itself: it holds on every box
 * and under every mount, also for a box on which the folder is no mount point, and whatever device it gets next time.
 */
import { lstat, opendir, readFile } from "node:fs/promises";
import { errno } from "../base/errno.js";
import { RadserveError } from "../base/errors.js";
import { explained, syncFolder, writeDurably } from "./durable-files.js";

export const SHARE_MARK = ".radserve-share";
const TEXT =
  "Radserve tells by this file that the share is mounted here. While it is missing, bulk jobs for this folder wait.\n";

/** Real paths of all mount points that this process sees (proc_pid_mountinfo(5): the fifth field, escaped in octal). */
export async function mountPoints(): Promise<Set<string>> {
  const lines = (await readFile("/proc/self/mountinfo", "latin1")).split("\n");
  const bytes = (field: string) =>
    field.replace(/\\([0-7]{3})/g, (_, octal: string) => String.fromCharCode(parseInt(octal, 8)));
  return new Set(lines.map((line) => Buffer.from(bytes(line.split(" ")[4] ?? ""), "latin1").toString()));
}

/**
 * Leaves the mark in a folder, durably; one that is there stays.
 * @throws RadserveError disk_full
 */
export async function markShare(folder: string): Promise<void> {
  await explained(() =>
    writeDurably(`${folder}/${SHARE_MARK}`, Buffer.from(TEXT)).catch((error: unknown) => {
      if (errno(error) !== "EEXIST") throw error;
    }),
  );
  await syncFolder(folder);
}

/** False also where the share cannot be asked. */
export async function isMarked(folder: string): Promise<boolean> {
  return lstat(`${folder}/${SHARE_MARK}`).then(
    () => true,
    () => false,
  );
}

/** False for a folder that is gone, cannot be read, or is empty, as a mount point without its mount is. */
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

/** What is said where the mark is missing at the moment of writing. */
export function shareMissing(): RadserveError {
  return new RadserveError(
    "path_not_allowed",
    `The output folder's share is not mounted: ${SHARE_MARK}, which was left there when the job was taken, is missing. Mount the share again.`,
    { side: "output", reason: "share" },
  );
}
