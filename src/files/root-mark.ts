/**
 * The mark of a root: a file whose text names the folder, wherever it is mounted. By it nodes know
 * whether they see the same folder, and a node knows one again that it has seen before. An output
 * root gets its mark from the first node that writes there; input roots are never written to, and
 * have one only where somebody made it.
 */
import { randomBytes, randomUUID } from "node:crypto";
import { link, unlink, writeFile } from "node:fs/promises";
import { errno, ifThere } from "../base/errno.js";
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
 * @throws errors of the system but EEXIST
 */
export async function leaveRootMark(root: string): Promise<void> {
  const whole = `${root}/${ROOT_MARK}`;
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
