/**
 * The serving process as the supervisor starts it. Little is imported here, so that it can be
 * started at once.
 */
import { fork, type ChildProcess } from "node:child_process";
import os from "node:os";
import { fileURLToPath } from "node:url";

/**
 * Flags of the serving process. V8 sets its next collection by the size of the heap, which is small
 * here, and counts the memory of array buffers towards it: each large image would make it collect.
 * With the first flag they may grow to twice the heap. The second lets a worker thread that has
 * nothing to do collect. Young objects get 4 MiB twice in each thread in place of 16, which costs
 * no time and saves up to a fifth of the memory under load.
 */
export const SERVING_FLAGS = [
  "--heap-growing-percent=200",
  "--expose-gc",
  "--max-semi-space-size=4",
];

/**
 * How many threads of libuv wait for the disk: each image syncs its files and folders up to seven
 * times, and a sync of a slow disk takes milliseconds in which its thread does nothing. libuv
 * itself would have four.
 */
const FILE_THREADS = Math.max(16, Math.min(64, 2 * os.availableParallelism()));

/**
 * It loads its modules and waits to be told to start; it ends when this process does. Its standard
 * error is a pipe: what Node.js, native libraries and decoder processes say there is no JSON.
 */
export function forkServing(): ChildProcess {
  const child = fork(fileURLToPath(new URL("../serving.js", import.meta.url)), {
    execArgv: [...process.execArgv, ...SERVING_FLAGS],
    // Whoever sets it knows why. libuv asks for it before any code of the child could set it.
    env: { UV_THREADPOOL_SIZE: String(FILE_THREADS), ...process.env },
    stdio: ["ignore", "inherit", "pipe", "ipc"],
  });
  // The supervisor listens for errors too, but not before it has taken the process over
  child.on("error", () => undefined);
  return child;
}
