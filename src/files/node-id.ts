/** The number of a state directory. By it nodes know which processes followed one another. */
import { randomUUID } from "node:crypto";
import { link, mkdir, readFile, unlink, writeFile } from "node:fs/promises";
import path from "node:path";
import { ifThere } from "../base/errno.js";
import { ifMissing } from "./durable-files.js";

/** @throws errors of the system */
export async function nodeId(stateDir: string): Promise<string> {
  const file = path.join(stateDir, "node-id");
  const known = await readFile(file, "utf8").catch(ifMissing(""));
  if (known !== "") return known.trim();
  await mkdir(stateDir, { recursive: true, mode: 0o700 });
  // Where the version before kept the number; it stays there for the way back
  const earlier = await readFile(path.join(stateDir, "box"), "utf8").catch(ifMissing(""));
  const id = earlier.trim() || randomUUID();
  // Whole or not at all: two threads may ask at one moment
  const draft = `${file}.${randomUUID()}`;
  await writeFile(draft, `${id}\n`);
  await link(draft, file).catch(ifThere);
  await unlink(draft);
  return (await readFile(file, "utf8")).trim();
}
