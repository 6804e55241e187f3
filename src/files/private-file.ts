/**
 * Files and folders that only their owner reads: keys, tokens, revocations, the audit. What a
 * command of root makes belongs to the owner of the folder that it is made in: the server's user
 * could not read it otherwise.
 */
import { randomBytes } from "node:crypto";
import { chownSync, renameSync, statSync, writeFileSync } from "node:fs";
import { link, unlink, writeFile } from "node:fs/promises";
import path from "node:path";
import { errno } from "../base/errno.js";
import { ConfigError } from "../base/errors.js";
import { makeWithParents } from "./folders.js";

/**
 * @throws ConfigError where the system does not let root give the file away, as on a share that
 * takes root for nobody
 */
export function giveToOwnerOf(folder: string, file: string): void {
  if (process.geteuid?.() !== 0) return;
  const { uid, gid } = statSync(folder);
  const found = statSync(file);
  if (found.uid === uid && found.gid === gid) return;
  try {
    chownSync(file, uid, gid);
  } catch (error) {
    throw new ConfigError(
      `${folder} belongs to the user ${uid}, and root cannot give a file to that user there (${errno(error)}). ` +
        `Run the command as that user: sudo -u '#${uid}' radserve ...`,
    );
  }
}

/** Makes a folder, and those above it that are missing. */
export function makePrivateFolder(folder: string): void {
  const first = makeWithParents(folder, 0o700);
  if (first === undefined) return;
  const owned = path.dirname(first);
  for (let made = path.resolve(folder); made !== owned; made = path.dirname(made))
    giveToOwnerOf(owned, made);
}

/**
 * Writes a file that appears whole or not at all, readable by its owner alone.
 * @throws EEXIST where the name is taken, ConfigError as `giveToOwnerOf`
 */
export async function createPrivately(file: string, text: string): Promise<void> {
  const temporary = path.join(
    path.dirname(file),
    `.${path.basename(file)}.${randomBytes(6).toString("hex")}`,
  );
  await writeFile(temporary, text, { flag: "wx", mode: 0o600, flush: true });
  try {
    giveToOwnerOf(path.dirname(file), temporary);
    await link(temporary, file);
  } finally {
    await unlink(temporary);
  }
}

/**
 * Writes a small file of the state directory anew: whoever reads finds the text of before or this
 * one, whole, and its owner alone reads it. Only one process writes such a file.
 * @throws errors of the system
 */
export function replacePrivately(file: string, text: string): void {
  const helper = `${file}.new`;
  writeFileSync(helper, text, { mode: 0o600 });
  renameSync(helper, file);
}
