/**
 * The pool of worker threads in a process of its own, whose limits a test sets: runs as many tasks
 * at once as it is told to, and tells what became of each. Their image is in no folder that they
 * may read.
 */
import { pino } from "pino";
import { InferencePool } from "../../src/inference/worker-pool.js";
import type { InferTask } from "../../src/inference/task.js";
import type { RadserveError } from "../../src/base/errors.js";

export interface PoolTasks {
  count: number;
  priority: InferTask["priority"];
}

const pool = new InferencePool({
  threads: 2,
  maxQueue: 1_000,
  itemMs: 600_000,
  memory: 2 ** 30,
  models: () => [],
  engine: { provider: "cpu" },
  resultParts: [],
  sending: () => undefined,
  cancelRunning: () => undefined,
  log: pino({ level: "silent" }),
});

async function run(priority: InferTask["priority"]): Promise<string> {
  const task = {
    requestId: "r",
    inputPath: "/nowhere/image.dcm",
    outputFolder: "/nowhere",
    priority,
    cancelId: pool.newCancelId(),
    roots: { input: ["/nowhere"], output: ["/nowhere"] },
  };
  try {
    await (priority === "bulk" ? pool.runForSummary(task, "x") : pool.run(task, "x"));
    return "completed";
  } catch (error) {
    return (error as RadserveError).code;
  }
}

async function perform({ count, priority }: PoolTasks): Promise<void> {
  process.send?.(await Promise.all(Array.from({ length: count }, () => run(priority))));
}

process.on("message", (tasks: PoolTasks) => void perform(tasks));
process.on("disconnect", () => process.exit());
process.send?.("ready");
