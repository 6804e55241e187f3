/** A share that never answers (dead-mount.c). */
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync } from "node:fs";
import path from "node:path";
import type { Test } from "tap";
import { root } from "./server.js";

/**
 * Mounts one at a new folder until the test ends.
 * @param tools a folder for the program
 * @returns why it cannot be had on this machine; undefined where it is mounted
 */
export async function deadMount(
  t: Test,
  tools: string,
  folder: string,
): Promise<string | undefined> {
  const program = path.join(tools, "dead-mount");
  execFileSync("cc", ["-o", program, path.join(root, "test/support/dead-mount.c")]);
  mkdirSync(folder);
  const mounted = spawn(program, [folder], { stdio: ["pipe", "pipe", "inherit"] });
  const ended = once(mounted, "exit");
  const [said] = (await once(mounted.stdout.setEncoding("utf8"), "data")) as [string];
  t.teardown(async () => {
    mounted.stdin.end();
    await ended;
  });
  return said === "mounted\n" ? undefined : said.trim();
}
