/**
 * `node returning-child.js MODE STEP COUNT`: crews that are closed while a thread of theirs comes back (MODE idle: after it
 * had nothing to do; ended: after it was ended), COUNT times, each STEP milliseconds later than the one before. Prints
 * how long that took, until the crew was closed, to the time that a thread takes to load.
 */
import { setTimeout as delay } from "node:timers/promises";
import { MemoryPlaces } from "../../src/base/process-memory.js";
import { Crew } from "../../src/inference/crew.js";
import { newSigns, type InferTask } from "../../src/inference/task.js";
import { RESULT_FORMS } from "../../src/results/forms.js";
import { ModelSharer } from "../../src/models/shared.js";

const [mode, step, count] = process.argv.slice(2);
const models = new ModelSharer().share([]);
const IDLE_MS = 20;

/** It is refused at once, since there is no such file. */
const task: InferTask = {
  ...{ cancelId: 1, requestId: "r", inputPath: "/nowhere", outputFolder: "/nowhere", startedAt: new Date(0) },
  ...{ priority: "bulk", roots: { input: undefined, output: undefined } },
} as unknown as InferTask;

function crewOf(): Crew {
  const idleTimeout = mode === "idle" ? IDLE_MS : 3_600_000;
  return new Crew({
    ...{ threads: 1, keepsOneForStat: false, oneStays: false, idleTimeout, places: new MemoryPlaces(4) },
    workerData: {
      ...{ engine: { provider: "cpu" }, outputs: undefined, threads: 1 },
      ...{
        memory: 1e9,
        running: new Int32Array(new SharedArrayBuffer(4)),
      },
      ...{ niceness: 0, operatesAtOnce: false, forms: RESULT_FORMS },
    },
    failed: (error) => console.error(error),
    record: () => Promise.resolve(undefined),
  });
}

const median = (times: number[]) => times.sort((a, b) => a - b)[times.length >> 1]!;
const since = (start: number) => performance.now() - start;

const loading: number[] = [];
const closing: number[] = [];
for (let i = 0; i < Number(count); i++) {
  const crew = crewOf();
  const run = () =>
    crew
      .free({ stat: false, alone: false, subject: "a" })!
      .run({ task, models, signs: newSigns() }, false, "a");
  const start = performance.now();
  await run();
  loading.push(since(start));
  if (mode === "idle") await delay(5 * IDLE_MS);
  else crew.free({ stat: false, alone: false, subject: "a" })!.end();
  const again = run().catch(() => undefined);
  await delay(i * Number(step));
  const stop = performance.now();
  await crew.close();
  closing.push(since(stop) + i * Number(step));
  await again;
}
console.log((median(closing) / median(loading)).toFixed(2));
