/** The number of a state directory. By it nodes know which processes followed one another. */
import { randomUUID } from "node:crypto";
import { mkdir, readFile, stat } from "node:fs/promises";
import path from "node:path";
import { ifThere } from "../base/errno.js";
import { ifMissing } from "./durable-files.js";
import { createPrivately } from "./private-file.js";

/** @throws errors of the system */
export async function nodeId(stateDir: string): Promise<string> {
  const file = path.join(stateDir, "node-id");
  const known = await readFile(file, "utf8").catch(ifMissing(""));
  if (known !== "") return known.trim();
  await mkdir(stateDir, { recursive: true, mode: 0o700 });
  // Where the version before kept the number; it stays there for the way back
  const earlier = await readFile(path.join(stateDir, "box"), "utf8").catch(ifMissing(""));
  const id = earlier.trim() || randomUUID();
  // Two threads may ask at one moment
  await createPrivately(file, `${id}\n`).catch(ifThere);
  return (await readFile(file, "utf8")).trim();
}

/**
 * Where a state directory lies: which machine, since its start, and which folder of it. A process
 * there has the lock of that folder, so that all before it have ended; one with the same number in
 * another place has a copy.
 */
export async function nodePlace(stateDir: string): Promise<string> {
  const boot = await readFile("/proc/sys/kernel/random/boot_id", "utf8").catch(() => randomUUID());
  const { dev, ino } = await stat(stateDir);
  return `${boot.trim()} ${dev}:${ino}`;
}
