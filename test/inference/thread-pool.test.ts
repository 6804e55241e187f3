/**
 * Threads that cannot load: what was given to them fails soon, and does not wait for its deadline.
 */
import t from "tap";
import type { EngineOptions } from "../../src/engine/types.js";
import { MemoryPlaces } from "../../src/base/process-memory.js";
import { ThreadPool, type ThreadPoolOptions } from "../../src/inference/thread-pool.js";
import { newSigns, type InferTask } from "../../src/inference/task.js";
import { ModelSharer } from "../../src/models/shared.js";

const TASK: InferTask = {
  requestId: "1",
  inputPath: "/nowhere/image.dcm",
  outputFolder: "/nowhere",
  priority: "routine",
  cancelId: 1,
  roots: { input: ["/nowhere"], output: ["/nowhere"] },
};

function poolOf(
  workerData: ThreadPoolOptions["workerData"],
  failed: (error: unknown) => void,
  threads = 1,
  forRequests = false,
): ThreadPool {
  return new ThreadPool({
    threads,
    forRequests,
    oneStays: false,
    idleMs: 1000,
    workerData,
    places: new MemoryPlaces(4, 2 ** 30),
    failed,
    owner: { willCommit: () => Promise.resolve(undefined), wasOf: () => undefined },
  });
}

const SOUND: ThreadPoolOptions["workerData"] = {
  engine: { provider: "cpu" },
  outputs: undefined,
  forms: undefined,
  resultParts: [],
  running: new Int32Array(new SharedArrayBuffer(4)),
  threads: 1,
  niceness: 0,
  operatesAtOnce: false,
};

const work = () => ({ task: TASK, models: new ModelSharer().share([]), signs: newSigns() });

t.test("a task whose thread cannot load fails, and so does the next one", async (t) => {
  const faults: unknown[] = [];
  // No engine can be made of it: the thread's module throws while it is evaluated
  const broken = poolOf({ ...SOUND, engine: undefined as unknown as EngineOptions }, (fault) =>
    faults.push(fault),
  );
  t.teardown(() => broken.close());
  for (let round = 1; round <= 2; round++) {
    const thread = broken.free({ stat: false, alone: false, subject: "a" });
    await t.rejects(async () => {
      await thread?.run(work(), false, "a");
    });
    t.equal(faults.length, round);
    t.equal(thread?.tasks, 0);
  }
});

t.test(
  "subjects share the threads: one that floods gets no more beside another's tasks",
  async (t) => {
    const faults: unknown[] = [];
    const both = poolOf(SOUND, (fault) => faults.push(fault), 2);
    t.teardown(() => both.close());
    const running: Promise<unknown>[] = [];
    // None ends before all have begun: their threads load first
    const begin = (subject: string) => {
      const thread = both.free({ stat: false, alone: false, subject });
      if (thread !== undefined)
        running.push(t.rejects(thread.run(work(), false, subject), { code: "path_not_allowed" }));
      return thread;
    };
    for (let task = 0; task < 7; task++) t.ok(begin("flood"), "alone, it has all places but one");
    const other = begin("other");
    t.ok(other, "which another gets");
    t.equal(begin("flood"), undefined, "and then all are taken");
    await Promise.all(running);
    running.length = 0;

    const thread = begin("other");
    for (let task = 0; task < 4; task++)
      t.ok(begin("flood"), "it has its share, half of the places");
    for (let next = begin("flood"); next !== undefined; next = begin("flood"))
      t.not(next, thread, "and no more of them beside the other's task");
    t.ok(begin("other"), "which it gets itself");
    await Promise.all(running);
    t.strictSame(faults, []);
  },
);

t.test("a task that runs alone gets a thread, however many others wait", async (t) => {
  const faults: unknown[] = [];
  const pool = poolOf(SOUND, (fault) => faults.push(fault), 2);
  t.teardown(() => pool.close());
  const running: Promise<unknown>[] = [];
  const begin = (alone: boolean, aloneWaits = false) => {
    const thread = pool.free({ stat: false, alone, aloneWaits, subject: "a" });
    if (thread !== undefined)
      running.push(t.rejects(thread.run(work(), alone, "a"), { code: "path_not_allowed" }));
    return thread;
  };
  const [first, second] = [begin(false), begin(false)];
  t.not(first, second);
  t.equal(begin(true), undefined, "none is empty");
  for (let task = 0; task < 3; task++) t.equal(begin(false, true), second, "one takes no more");
  t.equal(begin(false, true), undefined, "though it has room");
  await running[0];
  t.equal(begin(true), first, "and is empty soon");
  await Promise.all(running);
  t.strictSame(faults, []);
});

t.test(
  "no subject has every thread: what holds its threads for long keeps nobody else waiting",
  async (t) => {
    const faults: unknown[] = [];
    const pool = poolOf(SOUND, (fault) => faults.push(fault), 2, true);
    t.teardown(() => pool.close());
    const running: Promise<unknown>[] = [];
    const begin = (subject: string, stat = false) => {
      const thread = pool.free({ stat, alone: false, subject });
      if (thread !== undefined)
        running.push(t.rejects(thread.run(work(), false, subject), { code: "path_not_allowed" }));
      return thread;
    };
    const flooded = new Set(Array.from({ length: 8 }, () => begin("flood")));
    t.equal(flooded.size, 2);
    t.notOk(flooded.has(undefined), "alone, it has as many threads as there are cores");
    t.equal(begin("flood"), undefined, "and no more");
    const own = begin("other");
    t.ok(own !== undefined && !flooded.has(own), "another has one to itself");
    t.equal(begin("other"), own, "for all its tasks");
    t.equal(begin("flood"), undefined, "the flood gets nothing beside them");
    const urgent = Array.from({ length: 4 }, () => begin("flood", true));
    t.strictSame(
      [...new Set(urgent)].map((thread) => thread?.forStat),
      [true],
    );
    t.equal(
      begin("other", true),
      own,
      "an urgent task does not wait behind the flood's urgent ones",
    );
    await Promise.all(running);
    t.strictSame(faults, []);
  },
);
