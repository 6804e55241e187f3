/**
 * A stop that comes while a worker thread comes back: the thread is loaded first. Node.js 20
 * aborted otherwise.
 */
import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import t from "tap";
import { ADDON, needs } from "../support/needs.js";

const child = fileURLToPath(new URL("returning-child.js", import.meta.url));
const TRIES = 3;

for (const [mode, after] of [
  ["idle", "after it had nothing to do"],
  ["ended", "after it was ended"],
] as const)
  t.test(`a stop while a thread comes back ${after}`, { skip: needs(ADDON) }, async (t) => {
    const { stdout } = await promisify(execFile)(process.execPath, [
      child,
      mode,
      "5",
      String(TRIES),
    ]);
    t.ok(Number(stdout) > 0.3, `the stop waited ${stdout.trim()} of the time that loading takes`);
  });
