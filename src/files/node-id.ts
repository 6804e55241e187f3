/** The number of a state directory. By it nodes know which processes followed one another. */
import { randomUUID } from "node:crypto";
import { readFile, stat } from "node:fs/promises";
import path from "node:path";
import { ifThere } from "../base/errno.js";
import { ifMissing } from "./durable-files.js";
import { makeWithParents } from "./folders.js";
import { createPrivately } from "./private-file.js";

const FILE = "node-id";
/** Where the version before kept the number; it stays there for the way back. */
const EARLIER_FILE = "box";

const numberIn = async (stateDir: string, name: string): Promise<string> =>
  (await readFile(path.join(stateDir, name), "utf8").catch(ifMissing(""))).trim();

/**
 * The number that a state directory has; undefined where none was made yet.
 * @throws errors of the system
 */
export const knownNodeId = async (stateDir: string): Promise<string | undefined> =>
  (await numberIn(stateDir, FILE)) || (await numberIn(stateDir, EARLIER_FILE)) || undefined;

/** @throws errors of the system */
export async function nodeId(stateDir: string): Promise<string> {
  const known = await numberIn(stateDir, FILE);
  if (known !== "") return known;
  makeWithParents(stateDir, 0o700);
  const id = (await knownNodeId(stateDir)) ?? randomUUID();
  // Two threads may ask at one moment
  await createPrivately(path.join(stateDir, FILE), `${id}\n`).catch(ifThere);
  return numberIn(stateDir, FILE);
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
