/** What the pool tells of an item of a job whose time ends while its result is being committed. */
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import t from "tap";
import { setDurations } from "../../src/base/durations.js";
import { createEngine } from "../../src/engine/engine.js";
import { InferencePool } from "../../src/inference/worker-pool.js";
import { writeSlice } from "../support/bulk.js";
import { ADDON, needs } from "../support/needs.js";
import { silent } from "../support/postgres.js";
import { modelsOf } from "../support/real-engine.js";
import { root } from "../support/server.js";

/** How long an item may take: a small slice takes much less. */
const ITEM_MS = 3_000;

t.test("an item that was written is told as written", { skip: needs(ADDON) }, async (t) => {
  // Threads whose tasks do not stop are ended at once
  setDurations({ lastMoment: 1 });
  const engine = createEngine({ provider: "cpu" });
  const models = await modelsOf(path.join(root, "models"), engine);
  const pool = new InferencePool({
    threads: 1,
    maxQueue: 1,
    itemMs: ITEM_MS,
    memory: 2 ** 30,
    models: () => models.entries,
    engine: { provider: "cpu" },
    resultParts: [],
    sending: () => undefined,
    cancelRunning: (cancelId) => engine.cancel(cancelId),
    log: silent,
  });
  t.teardown(async () => {
    await pool.close();
    await models.close();
    await engine.close();
  });
  const folder = t.testdir();
  const input = path.join(folder, "1.dcm");
  writeSlice(input);
  /** Runs the slice as an item. @param commits called when its result is to be committed */
  const run = (outputFolder: string, commits: (cancelId: number) => Promise<unknown>) => {
    const cancelId = pool.newCancelId();
    const task = {
      requestId: outputFolder,
      inputPath: input,
      outputFolder: path.join(folder, outputFolder),
      priority: "bulk",
      cancelId,
      roots: { input: undefined, output: undefined },
    } as const;
    return pool.runForSummary(task, "x", {
      wasOf: () => undefined,
      willCommit: async () => {
        await commits(cancelId);
        return undefined;
      },
    });
  };
  // From then on all that it needs is loaded
  await run("first", () => Promise.resolve());
  const overtime = () => delay(ITEM_MS + 200);
  const told = await Promise.all([
    run("late", overtime),
    run("cancelled", (cancelId) => {
      pool.cancel(cancelId);
      return overtime();
    }),
  ]);
  t.match(
    told,
    [0, 1].map(() => ({ status: "completed", reused: false })),
  );
});
