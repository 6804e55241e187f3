/** The serving process as the supervisor starts it. Little is imported here, so that it can be started at once. */
import { fork, type ChildProcess } from "node:child_process";
import { fileURLToPath } from "node:url";

/**
 * Flags of the serving process. V8 sets its next collection by the size of the heap, which is small here, and counts
 * the memory of array buffers towards it: each large image would make it collect. With the first flag they may grow to
 * twice the heap. The second lets a worker thread that has nothing to do collect. Young objects get 4 MiB twice in each
 * thread in place of 16, which costs no time and saves up to a fifth of the memory under load.
 */
export const SERVING_FLAGS = ["--heap-growing-percent=200", "--expose-gc", "--max-semi-space-size=4"];

/**
 * It loads its modules and waits to be told to start; it ends when this process does. Its standard error is a pipe: what
 * Node.js, native libraries and decoder processes say there is no JSON.
 */
export function forkServing(): ChildProcess {
  const child = fork(fileURLToPath(new URL("../main.js", import.meta.url)), ["serving-process"], {
    execArgv: [...process.execArgv, ...SERVING_FLAGS],
    stdio: ["ignore", "inherit", "pipe", "ipc"],
  });
  // The supervisor listens for errors too, but not before it has taken the process over
  child.on("error", () => undefined);
  return child;
}
