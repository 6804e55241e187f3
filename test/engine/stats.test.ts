import { Registry } from "prom-client";
import t from "tap";
import { int, type ModelDescription } from "../../scripts/lib/onnx-model.js";
import { createEngine } from "../../src/engine/engine.js";
import { type Tensor } from "../../src/base/tensor.js";
import { engineMetrics, register } from "../../src/server/metrics.js";
import { RadserveError } from "../../src/base/errors.js";
import {
  heatmap,
  heavy,
  HEAVY_SIDE,
  input,
  loadOptions,
  neverEnds,
  plane,
  untilRunning,
  writeModel,
} from "../support/tiny-models.js";
import { failure } from "../support/expect.js";

const folder = t.testdir();
const engine = createEngine({ provider: "cpu", threads: 1 });
t.teardown(() => engine.close());

const load = (max: number, model = heavy, name = `heavy-${max}`, given = input) =>
  engine.load(
    loadOptions(writeModel(folder, model), {
      name,
      inputs: [{ ...given, size: { kind: "fixed", height: 1, width: HEAVY_SIDE } }],
      outputs: [heatmap],
      batching: { max },
    }),
  );
const statsOf = (id: number) => engine.stats().models.find((model) => model.id === id);
const total = ({ counts }: { counts: number[] }) => counts.reduce((sum, n) => sum + n, 0);
const image = (seed: number) =>
  plane(
    1,
    HEAVY_SIDE,
    Array.from({ length: HEAVY_SIDE }, (_, i) => (i * seed) % 1000),
  );

/** What a batch costs was measured while others used the machine: then it may never pay again. */
const NEVER_PAID = "the planner has found that batches do not pay here now";

/** Takes the only thread with a run that does not end. @returns ends it */
async function takeThread(neverEnding: number): Promise<() => Promise<void>> {
  const run = failure(engine.infer(neverEnding, [plane(2, 2)], { cancelId: 4242 }));
  await untilRunning(engine);
  return async () => {
    engine.cancel(4242);
    await run;
  };
}

/**
 * Asks for all at once while the only thread is taken, so that all wait for it; again until some of
 * them have run together. Whatever ran together or apart is checked. Gives the runs that the last
 * ones took.
 */
async function together<T>(
  id: number,
  ask: () => Promise<T>[],
  check: (results: T[]) => void,
): Promise<number> {
  const taken = await engine.load(loadOptions(writeModel(folder, neverEnds)));
  let asked: Promise<T>[];
  let runs: number;
  let round = 0;
  do {
    const free = await takeThread(taken.id);
    const before = total(statsOf(id)!.batchSizes);
    asked = ask();
    await free();
    check(await Promise.all(asked));
    runs = total(statsOf(id)!.batchSizes) - before;
  } while (runs === asked.length && ++round < 50);
  await engine.unload(taken.id);
  return runs;
}

t.test("a model that may not run in batches is counted image by image", async (t) => {
  const { id } = await load(1);
  const before = total(statsOf(id)!.runSeconds);
  await Promise.all([1, 2, 3].map((seed) => engine.infer(id, [image(seed)], { priority: "stat" })));
  const stats = statsOf(id)!;
  t.match(stats, { name: "heavy-1", version: "1", batched: false, completed: 3, failed: 0 });
  t.equal(stats.started.stat, 3);
  t.equal(total(stats.waitSeconds.stat), 3);
  t.equal(total(stats.waitSeconds.bulk), 0);
  t.equal(total(stats.runSeconds) - before, 3);
  t.equal(stats.batchSizes.counts[0], total(stats.batchSizes), "all of one");
  t.ok(stats.runSeconds.sum > 0);
  t.ok(stats.sessions.every(({ bytes }) => bytes >= HEAVY_SIDE ** 2 * 4));
  await engine.unload(id);
  t.equal(statsOf(id), undefined);
});

t.test(
  "where batches pay, many images run together, and each gets what it gets alone",
  async (t) => {
    const { id } = await load(8);
    if (!statsOf(id)!.batched) {
      t.comment("batches do not pay on this machine, or change bits");
      return;
    }
    const seeds = Array.from({ length: 24 }, (_, i) => i + 1);
    const alone: string[] = [];
    for (const seed of seeds) alone.push((await engine.infer(id, [image(seed)], {})).rawSha256);
    await together(
      id,
      () => seeds.map(async (seed) => (await engine.infer(id, [image(seed)], {})).rawSha256),
      (found) => t.strictSame(found, alone),
    );
    const feeds = seeds.map((seed) => {
      const data = new Uint8Array(
        Float32Array.from({ length: HEAVY_SIDE }, (_, i) => (i * seed) % 7).buffer,
      );
      return { name: "x", dtype: "float32" as const, shape: [1, 1, 1, HEAVY_SIDE], data };
    });
    const run = async (feed: (typeof feeds)[number]) => (await engine.runTensors(id, [feed]))[0]!;
    const apart: Tensor[] = [];
    for (const feed of feeds) apart.push(await run(feed));
    const runs = await together(
      id,
      () => feeds.map(run),
      (found) => {
        const same = found.every(({ data }, i) => Buffer.compare(data, apart[i]!.data) === 0);
        t.ok(same, "raw tensors, too");
        t.match(found[3], { name: apart[3]!.name, shape: apart[3]!.shape });
      },
    );
    await t.rejects(engine.runTensors(id, [{ ...feeds[0]!, name: "y" }]), { code: "bad_request" });
    const stats = statsOf(id)!;
    if (runs < feeds.length)
      t.ok(total(stats.batchSizes) > (stats.batchSizes.counts[0] ?? 0), "some of more than one");
    else t.comment(NEVER_PAID);
    t.ok(
      stats.gatheredBatches < total(stats.batchSizes) / 2,
      "most of them prepared in their place",
    );
    t.equal(engine.stats().parked, 0);
    await engine.unload(id);
    t.equal(statsOf(id), undefined, "its memory is back");
  },
);

t.test("images with numbers of their own run together, too", async (t) => {
  const model: ModelDescription = {
    ...heavy,
    name: "heavy-numbers",
    // The order of the graph is not that of the manifest.
    inputs: [{ name: "z", dtype: "float32", shape: ["n", 1] }, ...heavy.inputs],
    initializers: [
      ...heavy.initializers!,
      { name: "axes", dtype: "int64", shape: [2], data: [2, 3] },
    ],
    nodes: [
      { op: "MatMul", inputs: ["x", "w"], outputs: ["product"] },
      { op: "Unsqueeze", inputs: ["z", "axes"], outputs: ["wide"] },
      { op: "Add", inputs: ["product", "wide"], outputs: ["y"] },
    ],
  };
  const { id } = await engine.load(
    loadOptions(writeModel(folder, model), {
      name: "heavy-numbers",
      inputs: [
        { ...input, size: { kind: "fixed", height: 1, width: HEAVY_SIDE } },
        {
          kind: "attributes",
          tensor: "z",
          dtype: "float32",
          layout: "NC",
          values: [
            { tag: "KVP", encoding: "number", multiply: 1, add: 0, if_absent: { kind: "refuse" } },
          ],
        },
      ],
      outputs: [heatmap],
      batching: { max: 8 },
    }),
  );
  if (!statsOf(id)!.batched) {
    t.comment("batches do not pay on this machine, or change bits");
    return;
  }
  const seeds = Array.from({ length: 24 }, (_, i) => i + 1);
  const run = async (seed: number) =>
    (await engine.infer(id, [image(seed)], { numbers: [[seed * 1000]] })).rawSha256;
  const alone: string[] = [];
  for (const seed of seeds) alone.push(await run(seed));
  t.equal(new Set(alone).size, seeds.length);
  const runs = await together(
    id,
    () => seeds.map(run),
    (found) => t.strictSame(found, alone),
  );
  if (runs === seeds.length) t.comment(NEVER_PAID);
  await t.rejects(engine.infer(id, [image(1)], {}), { code: "bad_request" });
  await t.rejects(engine.infer(id, [image(1)], { numbers: [[1, 2]] }), { code: "bad_request" });
  await engine.unload(id);
});

t.test(
  "batches are no larger than gives the bits of an image alone, whatever their size",
  async (t) => {
    const odd: ModelDescription = {
      ...heavy,
      name: "odd",
      initializers: [
        ...(heavy.initializers ?? []),
        { name: "three", dtype: "int64", shape: [1], data: [3] },
        { name: "first", dtype: "int64", shape: [1], data: [0] },
      ],
      // Three at a time are answered otherwise
      nodes: [
        { op: "MatMul", inputs: ["x", "w"], outputs: ["product"] },
        { op: "Shape", inputs: ["x"], outputs: ["sides"] },
        { op: "Gather", inputs: ["sides", "first"], outputs: ["count"] },
        { op: "Equal", inputs: ["count", "three"], outputs: ["is_three"] },
        { op: "Cast", inputs: ["is_three"], outputs: ["more"], attributes: { to: int(1) } },
        { op: "Add", inputs: ["product", "more"], outputs: ["y"] },
      ],
    };
    const { id } = await load(8, odd, "odd");
    if (!statsOf(id)!.batched) t.comment("batches do not pay on this machine");
    const one = async (seed: number) => (await engine.infer(id, [image(seed)], {})).rawSha256;
    const alone = [await one(1), await one(2), await one(3)];
    for (let round = 0; round < 10; round++)
      t.strictSame(await Promise.all([one(1), one(2), one(3)]), alone);
    const { ends, counts } = statsOf(id)!.batchSizes;
    t.ok(
      counts.every((batches, i) => batches === 0 || (ends[i] ?? Infinity) <= 2),
      "never three",
    );
    await engine.unload(id);
  },
);

t.test(
  "whether batches give the same bits is asked with numbers, of whole types too",
  async (t) => {
    const twice: ModelDescription = {
      ...heavy,
      name: "twice",
      inputs: [{ name: "x", dtype: "uint8", shape: ["n", 1, 1, HEAVY_SIDE] }],
      initializers: [
        ...(heavy.initializers ?? []),
        { name: "first", dtype: "int64", shape: [1], data: [0] },
      ],
      // As many times as much as there are images: of zeros that is zero
      nodes: [
        { op: "Cast", inputs: ["x"], outputs: ["values"], attributes: { to: int(1) } },
        { op: "MatMul", inputs: ["values", "w"], outputs: ["product"] },
        { op: "Shape", inputs: ["x"], outputs: ["sides"] },
        { op: "Gather", inputs: ["sides", "first"], outputs: ["count"] },
        { op: "Cast", inputs: ["count"], outputs: ["times"], attributes: { to: int(1) } },
        { op: "Mul", inputs: ["product", "times"], outputs: ["y"] },
      ],
    };
    const { id } = await load(8, twice, "twice", { ...input, dtype: "uint8" });
    t.match(statsOf(id), { batched: false });
    await engine.unload(id);
  },
);

t.test(
  "batches that change few results are found, though the first image that is tried is not among them",
  async (t) => {
    const rare: ModelDescription = {
      ...heavy,
      name: "rare",
      initializers: [
        ...(heavy.initializers ?? []),
        { name: "first", dtype: "int64", shape: [1], data: [0] },
        { name: "one", dtype: "int64", shape: [1], data: [1] },
        { name: "last", dtype: "int64", shape: [1], data: [3] },
      ],
      // Beside others, images whose first value is not 0 are answered otherwise
      nodes: [
        { op: "MatMul", inputs: ["x", "w"], outputs: ["product"] },
        { op: "Slice", inputs: ["product", "first", "one", "last"], outputs: ["alone"] },
        { op: "Shape", inputs: ["x"], outputs: ["sides"] },
        { op: "Gather", inputs: ["sides", "first"], outputs: ["count"] },
        { op: "Sub", inputs: ["count", "one"], outputs: ["others"] },
        { op: "Cast", inputs: ["others"], outputs: ["times"], attributes: { to: int(1) } },
        { op: "Slice", inputs: ["x", "first", "one", "last"], outputs: ["corner"] },
        { op: "Mul", inputs: ["corner", "times"], outputs: ["more"] },
        { op: "Add", inputs: ["alone", "more"], outputs: ["y"] },
      ],
    };
    const { id } = await load(8, rare, "rare");
    t.match(statsOf(id), { batched: false });
    await engine.unload(id);
  },
);

t.test("what waits in a batch is cancelled and keeps its deadline", async (t) => {
  const { id } = await load(8);
  const code = (promise: Promise<unknown>) =>
    promise.then(
      () => "done",
      (thrown: unknown) => (thrown instanceof RadserveError ? thrown.code : "other"),
    );
  const ask = () =>
    Array.from({ length: 30 }, (_, i) =>
      code(
        engine.infer(
          id,
          [image(i)],
          i % 3 === 0 ? { cancelId: 77 } : i % 3 === 1 ? { timeoutMs: 20 } : {},
        ),
      ),
    );
  const taken = await engine.load(loadOptions(writeModel(folder, neverEnds)));
  const free = await takeThread(taken.id);
  const waiting = ask();
  engine.cancel(77);
  const ends = ["cancelled", "deadline_exceeded", "done"];
  const late = await Promise.all(waiting.filter((_, i) => i % 3 < 2));
  t.ok(late.includes("cancelled"));
  await free();
  // The device may have had some of them before its thread was taken
  const held = await Promise.all(waiting);
  t.ok(held.every((c, i) => c === "done" || c === ends[i % 3]));
  await engine.unload(taken.id);
  // While they are prepared, gathered and run, any may end before it is cancelled or late
  const running = ask();
  engine.cancel(77);
  const codes = await Promise.all(running);
  t.ok(codes.every((c, i) => c === "done" || c === ends[i % 3]));
  t.match(engine.stats(), { running: 0, parked: 0 });
});

t.test("work that comes after its deadline is refused, and counted", async (t) => {
  const { id } = await engine.load(loadOptions(writeModel(folder, neverEnds), { name: "slow" }));
  // Less than a microsecond is over when the work arrives
  const late = engine.infer(id, [plane(2, 2)], { timeoutMs: 1e-4 });
  await t.rejects(late, { code: "deadline_exceeded" });
  t.strictSame(statsOf(id)?.refused, { deadline: 1 });
});

t.test(
  "figures for Prometheus: histograms add up, labels are models, classes and reasons",
  async (t) => {
    const { id } = await load(1);
    await engine.infer(id, [image(1)], { priority: "bulk" });
    const registry = new Registry();
    register(
      registry,
      engineMetrics(() => engine.stats()),
    );
    const text = await registry.metrics();
    t.match(
      text,
      /radserve_engine_wait_seconds_bucket\{model="heavy-1",class="bulk",le="\+Inf"\} 1\n/,
    );
    t.match(text, /radserve_engine_wait_seconds_count\{model="heavy-1",class="bulk"\} 1\n/);
    t.match(text, /radserve_engine_queued\{model="heavy-1",class="stat"\} 0\n/);
    t.match(text, /radserve_engine_inferences_total\{model="heavy-1",outcome="completed"\} 1\n/);
    t.match(text, /radserve_engine_refused_total\{model="slow",reason="deadline"\} 1\n/);
    t.match(text, /# TYPE radserve_engine_run_seconds histogram/);
    const labels = new Set([...text.matchAll(/[{,](\w+)=/g)].map(([, label]) => label));
    t.strictSame([...labels].sort(), ["class", "le", "model", "outcome", "reason"]);
    const counts = [
      ...text.matchAll(/run_seconds_bucket\{model="heavy-1",le="[^"]+"\} (\d+)/g),
    ].map(([, n]) => Number(n));
    t.ok(
      counts.length > 10 && counts.every((n, i) => i === 0 || n >= counts[i - 1]!),
      "cumulative",
    );
  },
);
