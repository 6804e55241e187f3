/** File systems of a test: a share that never answers (dead-mount.c), an odd one (odd-mount.c). */
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdirSync, mkdtempSync, rmSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import type { Test } from "tap";
import { root } from "./server.js";

/** Why a test of one is skipped. */
export const mountsNothing =
  process.geteuid?.() === 0 && existsSync("/dev/fuse")
    ? false
    : "a file system of its own needs root and FUSE";

/**
 * Mounts a share that never answers at a new folder until the test ends.
 * @param tools a folder for the program
 * @returns why it cannot be had on this machine; undefined where it is mounted
 */
export const deadMount = (t: Test, tools: string, folder: string): Promise<string | undefined> =>
  mounted(t, "dead-mount", tools, [folder]);

/** The same, at a folder of its own, of one that shows another folder as odd-mount.c says. */
export async function oddMount(
  t: Test,
  shown: string,
): Promise<{ folder: string; refused: string | undefined }> {
  const place = mkdtempSync(path.join(os.tmpdir(), "radserve-test-"));
  const folder = path.join(place, "share");
  const remove = () => rmSync(place, { recursive: true });
  return { folder, refused: await mounted(t, "odd-mount", place, [folder, shown], remove) };
}

async function mounted(
  t: Test,
  name: string,
  tools: string,
  [folder, ...others]: readonly [string, ...string[]],
  unmounted: () => void = () => undefined,
): Promise<string | undefined> {
  const program = path.join(tools, name);
  execFileSync("cc", ["-o", program, path.join(root, `test/support/${name}.c`)]);
  mkdirSync(folder, { recursive: true });
  const serving = spawn(program, [folder, ...others], { stdio: ["pipe", "pipe", "inherit"] });
  const ended = once(serving, "exit");
  const [said] = (await once(serving.stdout.setEncoding("utf8"), "data")) as [string];
  t.teardown(async () => {
    serving.stdin.end();
    await ended;
    unmounted();
  });
  return said === "mounted\n" ? undefined : said.trim();
}
