/**
 * `node returning-child.js MODE STEP COUNT`: thread pools that are closed while a thread of theirs
 * comes back (MODE idle: after it had nothing to do; ended: after it was ended), COUNT times, each
 * STEP milliseconds later than the one before. Prints how long that took, until the pool was
 * closed, to the time that a thread takes to load.
 */
import { setTimeout as delay } from "node:timers/promises";
import { MemoryPlaces } from "../../src/base/process-memory.js";
import { ThreadPool } from "../../src/inference/thread-pool.js";
import { newSigns, type InferTask } from "../../src/inference/task.js";
import { RESULT_FORMS } from "../../src/results/forms.js";
import { ModelSharer } from "../../src/models/shared.js";

const [mode, step, count] = process.argv.slice(2);
const models = new ModelSharer().share([]);
const IDLE_MS = 20;

/** It is refused at once, since there is no such file. */
const task: InferTask = {
  cancelId: 1,
  requestId: "r",
  inputPath: "/nowhere",
  outputFolder: "/nowhere",
  startedAt: new Date(0),
  priority: "bulk",
  roots: { input: undefined, output: undefined },
} as unknown as InferTask;

function poolOf(): ThreadPool {
  const idleMs = mode === "idle" ? IDLE_MS : 3_600_000;
  return new ThreadPool({
    threads: 1,
    forRequests: false,
    oneStays: false,
    idleMs,
    places: new MemoryPlaces(4, 1e9),
    workerData: {
      engine: { provider: "cpu" },
      outputs: undefined,
      threads: 1,
      running: new Int32Array(new SharedArrayBuffer(4)),
      niceness: 0,
      operatesAtOnce: false,
      forms: RESULT_FORMS,
      resultParts: [],
    },
    failed: (error) => console.error(error),
    owner: { willCommit: () => Promise.resolve(undefined), wasOf: () => undefined },
  });
}

const since = (start: number) => performance.now() - start;

const loading: number[] = [];
const closing: number[] = [];
for (let i = 0; i < Number(count); i++) {
  const pool = poolOf();
  const run = () =>
    pool
      .free({ stat: false, alone: false, subject: "a" })!
      .run({ task, models, signs: newSigns() }, false, "a")
      .catch(() => undefined);
  const start = performance.now();
  await run();
  loading.push(since(start));
  if (mode === "idle") await delay(5 * IDLE_MS);
  else pool.free({ stat: false, alone: false, subject: "a" })!.end();
  const again = run();
  await delay(i * Number(step));
  const stop = performance.now();
  await pool.close();
  closing.push(since(stop) + i * Number(step));
  await again;
}
// The shortest: a machine that stands still makes times longer alone
console.log((Math.min(...closing) / Math.min(...loading)).toFixed(2));
