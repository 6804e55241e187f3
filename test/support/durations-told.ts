/**
 * Prints how long a node's lease is here, in a thread, and in a program that this one starts (JSON,
 * milliseconds).
 */
import { execFileSync } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { isMainThread, parentPort, Worker } from "node:worker_threads";
import { durations } from "../../src/base/durations.js";

if (!isMainThread) parentPort?.postMessage(durations.nodeLease);
else if (process.argv[2] === "alone") process.stdout.write(String(durations.nodeLease));
else {
  const file = fileURLToPath(import.meta.url);
  const [thread] = (await once(new Worker(file), "message")) as [number];
  const program = Number(execFileSync(process.execPath, [file, "alone"], { encoding: "utf8" }));
  process.stdout.write(JSON.stringify([durations.nodeLease, thread, program]));
}
