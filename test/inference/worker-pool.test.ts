/**
 * What the pool tells of an item of a job whose time ends while its result is being committed, and
 * of tasks for which the system gives no thread.
 */
import { fork } from "node:child_process";
import { once } from "node:events";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import t from "tap";
import { setDurations } from "../../src/base/durations.js";
import { createEngine } from "../../src/engine/engine.js";
import { InferencePool } from "../../src/inference/worker-pool.js";
import { writeSlice } from "../support/bulk.js";
import { lowerLimit } from "../support/limits.js";
import { ADDON, needs, reachedByAll } from "../support/needs.js";
import type { PoolTasks } from "../support/pool-child.js";
import { isRoot, silent } from "../support/postgres.js";
import { modelsOf } from "../support/real-engine.js";
import { root } from "../support/server.js";
import { inTime } from "../support/until.js";

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

const NOBODY = 65_534;
const skip = needs(ADDON) || (isRoot && reachedByAll());

t.test("tasks for which the system gives no thread", { skip }, async (t) => {
  const program = fileURLToPath(new URL("../support/pool-child.js", import.meta.url));
  // Root may have as many threads as there are
  const account = isRoot ? { uid: NOBODY, gid: NOBODY } : {};
  const child = fork(program, { ...account, cwd: "/" });
  t.teardown(() => child.kill("SIGKILL"));
  const ended = once(child, "exit").then(([status, signal]) => {
    throw new Error(`the process of the pool ended: ${String(status ?? signal)}`);
  });
  ended.catch(() => undefined);
  const told = async () => {
    const message = Promise.race([once(child, "message"), ended]);
    return ((await inTime("the process of the pool tells", message)) as unknown[])[0];
  };
  const outcomes = async (count: number, priority: PoolTasks["priority"]) => {
    child.send({ count, priority } satisfies PoolTasks);
    const all = (await told()) as string[];
    t.equal(all.length, count);
    return [...new Set(all)];
  };
  await told();
  t.strictSame(await outcomes(1, "routine"), ["path_not_allowed"], "a thread has the task");
  const allow = lowerLimit(child.pid!, "nproc", 1, account);
  // More than the places in which threads count their memory
  t.strictSame(await outcomes(200, "bulk"), ["internal"], "none is left waiting");
  t.strictSame(await outcomes(200, "routine"), ["path_not_allowed"], "the thread has them all");
  allow();
  t.strictSame(await outcomes(8, "bulk"), ["path_not_allowed"], "as soon as there are threads");
});
