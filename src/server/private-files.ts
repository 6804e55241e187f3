/** Files of the keys folder, which many machines may share: each change is one atomic file operation. */
import { randomBytes } from "node:crypto";
import { readdirSync } from "node:fs";
import { link, open, unlink } from "node:fs/promises";
import path from "node:path";
import { ConfigError } from "../base/errors.js";
import { errno } from "../base/errno.js";

/** The names in a folder, sorted; none if it does not exist. Throws ConfigError if it cannot be listed. */
export function namesIn(folder: string): string[] {
  try {
    return readdirSync(folder).sort();
  } catch (error) {
    if (errno(error) === "ENOENT") return [];
    throw new ConfigError(
      `${folder}: cannot be listed (${error instanceof Error ? error.message : "unknown"}).`,
    );
  }
}

/** Writes a file that appears whole or not at all, readable by its owner alone. Throws EEXIST where the name is taken. */
export async function createPrivately(file: string, text: string): Promise<void> {
  const temporary = path.join(
    path.dirname(file),
    `.${path.basename(file)}.${randomBytes(6).toString("hex")}`,
  );
  const handle = await open(temporary, "wx", 0o600);
  try {
    await handle.writeFile(text);
    await handle.sync();
  } finally {
    await handle.close();
  }
  try {
    await link(temporary, file);
  } finally {
    await unlink(temporary);
  }
}
