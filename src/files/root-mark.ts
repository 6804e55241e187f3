/**
 * The mark of a root: a file whose text names the folder, wherever it is mounted. By it nodes know
 * whether they see the same folder, and a node knows one again that it has seen before. An output
 * root gets its mark from the first node that writes there; input roots are never written to, and
 * have one only where somebody made it.
 */
import { randomBytes, randomUUID } from "node:crypto";
import { closeSync, constants, fstat } from "node:fs";
import { link, unlink, writeFile } from "node:fs/promises";
import { promisify } from "node:util";
import { errno, ifThere } from "../base/errno.js";
import { descriptorPath } from "./descriptor.js";
import { openDescriptor } from "./disk.js";
import { textOfRegular } from "./regular-file.js";

export const ROOT_MARK = ".radserve-root";

/** As much of a mark as names a folder. */
const LONGEST_MARK = 64;
/** File systems without hard links (link(2)). */
const LINKS_NONE = new Set(["EPERM", "ENOTSUP", "EOPNOTSUPP", "ENOSYS", "EMLINK"]);

/**
 * The mark of a root; null where it has none.
 * @throws errors of the system but ENOENT
 */
export async function rootMark(root: string): Promise<string | null> {
  try {
    const [line = ""] = (await textOfRegular(`${root}/${ROOT_MARK}`)).split("\n");
    return line.trim().slice(0, LONGEST_MARK) || null;
  } catch (error) {
    if (errno(error) === "ENOENT") return null;
    throw error;
  }
}

/**
 * Gives a root its mark; of several nodes that do so at once, one does.
 * @param dev its device when it was looked at: of a share that has gone since, the mount point is
 * on another one, and a mark there would make a root of it
 * @throws errors of the system but EEXIST; an Error where it lies on another device by now
 */
export async function leaveRootMark(root: string, dev: number): Promise<void> {
  const fd = await openDescriptor(root, constants.O_RDONLY | constants.O_DIRECTORY);
  try {
    if ((await promisify(fstat)(fd)).dev !== dev)
      throw new Error("Expected the root on the device that it was on; it is on another.");
    await markIn(descriptorPath(fd));
  } finally {
    closeSync(fd);
  }
}

async function markIn(folder: string): Promise<void> {
  const whole = `${folder}/${ROOT_MARK}`;
  const part = `${whole}.${randomBytes(6).toString("hex")}`;
  const text = `${randomUUID()}\n`;
  const file = { flag: "wx", mode: 0o644, flush: true } as const;
  await writeFile(part, text, file);
  try {
    await link(part, whole);
  } catch (error) {
    if (errno(error) === "EEXIST") return;
    if (!LINKS_NONE.has(errno(error))) throw error;
    await writeFile(whole, text, file).catch(ifThere);
  } finally {
    await unlink(part);
  }
}
