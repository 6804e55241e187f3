/** Files that only their owner reads: keys, tokens, revocations. */
import { randomBytes } from "node:crypto";
import { link, open, unlink } from "node:fs/promises";
import path from "node:path";

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
