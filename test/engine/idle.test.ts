/**
 * Models that leave while nobody uses them: their next use waits for them, and never finds other
 * weights.
 */
import { createHash } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { onnxModel, type ModelDescription } from "../../scripts/lib/onnx-model.js";
import { createEngine, type Engine } from "../../src/engine/engine.js";
import type { LoadOptions } from "../../src/engine/types.js";
import type { Tensor } from "../../src/base/tensor.js";
import type { ModelOutput } from "../../src/manifest/outputs/outputs.js";
import { endlessGraph } from "../support/endless.js";
import { failure } from "../support/expect.js";
import { ADDON, needs } from "../support/needs.js";
import {
  anySize,
  heavy,
  input,
  loadOptions,
  neverLoaded,
  plane,
  untilRunning,
  writeModel,
  HEAVY_SIDE,
} from "../support/tiny-models.js";
import { until } from "../support/until.js";

/** y = x + 10 or the like: other weights give other numbers. */
const adding = (name: string, what: number): ModelDescription => ({
  name,
  inputs: [{ name: "x", dtype: "float32", shape: ["n", 1, "h", "w"] }],
  outputs: [{ name: "y", dtype: "float32", shape: ["n", 1, "h", "w"] }],
  initializers: [{ name: "w", dtype: "float32", shape: [1], data: [what] }],
  nodes: [{ op: "Add", inputs: ["x", "w"], outputs: ["y"] }],
});

const pinned = (...files: string[]): Pick<LoadOptions, "files"> => ({
  files: files.map((file) => ({
    path: file,
    sha256: createHash("sha256").update(readFileSync(file)).digest("hex"),
  })),
});

t.test("idle models", { skip: needs(ADDON) }, async (t) => {
  const engine: Engine = createEngine({ provider: "cpu", threads: 2, modelsLeave: true });
  t.teardown(() => engine.close());
  const folder = t.testdir();
  const residence = (id: number) =>
    engine.stats().models.find((model) => model.id === id)!.residence;

  /** Asks a model to leave until it is gone: a use may have ended a moment ago. */
  async function leave(id: number): Promise<void> {
    const isIdle = () => {
      engine.leaveIdle(0);
      return residence(id).state === "idle";
    };
    await until("the model has left", isIdle, setImmediate);
  }

  async function load(model: ModelDescription, more: Partial<LoadOptions> = {}) {
    const file = writeModel(folder, model);
    const { id } = await engine.load(loadOptions(file, { ...pinned(file), ...more }));
    return { id, file };
  }

  const ask = async (id: number, pixel = 1) => {
    const { outputs } = await engine.infer(id, [plane(2, 2, [pixel, pixel, pixel, pixel])], {});
    const [output] = outputs;
    return output?.kind === "heatmap" ? output.values[0] : undefined;
  };

  await t.test(
    "a model gives its memory back, comes back at its next use, and says how long that took",
    async (t) => {
      const { id } = await load(adding("ten", 10));
      t.match(residence(id), { state: "loaded", loads: 1 });
      t.equal(await ask(id), 11);
      await leave(id);
      t.strictSame(engine.stats().models.find((model) => model.id === id)!.sessions, []);
      t.equal(await ask(id), 11);
      t.match(residence(id), { state: "loaded", loads: 2 });
      t.ok(residence(id).loadSeconds > 0);
      t.equal(
        engine.stats().models.find((model) => model.id === id)!.completed,
        2,
        "it goes on counting",
      );
      await engine.unload(id);
    },
  );

  await t.test("a model that was used since stays", async (t) => {
    const { id } = await load(adding("stays", 1));
    engine.leaveIdle(3_600_000);
    t.equal(await ask(id), 2);
    t.match(residence(id), { state: "loaded", loads: 1 });
    await engine.unload(id);
  });

  await t.test("tensors, too, wait for a model that comes back", async (t) => {
    const { id } = await load(adding("tensors", 5));
    await leave(id);
    const data = new Uint8Array(new Float32Array([1]).buffer);
    const [output] = await engine.runTensors(id, [
      { name: "x", dtype: "float32", shape: [1, 1, 1, 1], data },
    ]);
    t.strictSame([...new Float32Array(output!.data.slice().buffer)], [6]);
    await engine.unload(id);
  });

  await t.test("requests never fail because their model leaves", async (t) => {
    const { id } = await load(adding("busy", 10));
    const both = [id, (await load(adding("other", 20))).id] as const;
    const asked = new AbortController();
    const pestering = (async () => {
      while (!asked.signal.aborted) {
        engine.leaveIdle(0);
        await new Promise((resolve) => setImmediate(resolve));
      }
    })();
    // Between two rounds both models are gone for certain; within one they may leave whenever
    // nobody asks.
    const rounds = 4;
    for (let round = 0; round < rounds; round++) {
      const clients = Array.from({ length: 16 }, async (_, client) => {
        for (let i = 0; i < 15; i++) {
          const which = (client + i) % 2;
          const found = await ask(both[which]!, i);
          if (found !== i + [10, 20][which]!)
            throw new Error(`Expected another number than ${found}`);
        }
      });
      await Promise.all(clients);
      for (const one of both) await leave(one);
    }
    asked.abort();
    await pestering;
    t.ok(residence(id).loads >= rounds, `it was loaded ${residence(id).loads} times`);
    for (const one of both) await engine.unload(one);
  });

  await t.test("batches wait for their model as single images do", async (t) => {
    const size = { kind: "fixed", height: 1, width: HEAVY_SIDE } as const;
    const file = writeModel(folder, heavy);
    const { id } = await engine.load(
      loadOptions(file, { ...pinned(file), batching: { max: 4 }, inputs: [{ ...input, size }] }),
    );
    const wide = plane(
      1,
      HEAVY_SIDE,
      Array.from({ length: HEAVY_SIDE }, (_, i) => i % 7),
    );
    const { rawSha256 } = await engine.infer(id, [wide], {});
    for (let round = 0; round < 3; round++) {
      await leave(id);
      const results = await Promise.all(
        Array.from({ length: 12 }, () => engine.infer(id, [wide], {})),
      );
      t.ok(
        results.every((result) => result.rawSha256 === rawSha256),
        "the same bits",
      );
    }
    await engine.unload(id);
  });

  await t.test(
    "a file that is another one now is refused by name, until it is put back",
    async (t) => {
      const { id, file } = await load(adding("swapped", 10));
      const before = readFileSync(file);
      await leave(id);
      writeFileSync(file, onnxModel(adding("swapped", 11)));
      const refused = await failure(ask(id));
      t.equal(refused.code, "model_unavailable");
      t.match(
        refused.message,
        /expected swapped\.onnx with the sha256 [0-9a-f]{64} .* found [0-9a-f]{64}/,
      );
      t.match(residence(id), { state: "idle", problem: refused.message });
      t.match([...engine.missing()], [[id, refused.message]]);
      writeFileSync(file, before);
      t.equal(await ask(id), 11);
      t.equal(residence(id).problem, undefined);
      t.equal(engine.missing().size, 0);
      await engine.unload(id);
    },
  );

  await t.test("the same of weights in a file of their own", async (t) => {
    const data = path.join(folder, "outside.data");
    writeFileSync(data, new Uint8Array(new Float32Array([10]).buffer));
    const weight = {
      name: "w",
      dtype: "float32",
      shape: [1],
      data: [10],
      location: "outside.data",
    } as const;
    const file = writeModel(folder, { ...adding("outside", 10), initializers: [weight] });
    const { id } = await engine.load(loadOptions(file, pinned(file, data)));
    t.equal(await ask(id), 11);
    const before = readFileSync(data);
    await leave(id);
    writeFileSync(data, new Uint8Array(before.length));
    t.match(await failure(ask(id)), {
      code: "model_unavailable",
      message: new RegExp(path.basename(data)),
    });
    writeFileSync(data, before);
    t.equal(await ask(id), 11);
    await engine.unload(id);
  });

  await t.test("a canary that gives something else keeps the model away", async (t) => {
    const { id } = await load(adding("canary", 10));
    const one = (value: number, name: string): Tensor => ({
      name,
      dtype: "float32",
      shape: [1, 1, 1, 1],
      data: new Uint8Array(new Float32Array([value]).buffer),
    });
    const canary = (y: number) => ({
      feeds: [one(1, "x")],
      expected: [one(y, "y")],
      absolute: 0.01,
      relative: 0,
      timeoutMs: 600_000,
    });
    engine.keepCanary(id, canary(11.02));
    await leave(id);
    const refused = await failure(ask(id));
    t.match(refused, {
      code: "model_unavailable",
      message: /canary's output "y" is wrong .* 1 of 1 elements/,
    });
    engine.keepCanary(id, canary(11.005));
    t.equal(await ask(id), 11);
    await engine.unload(id);
  });

  await t.test("a canary runs by windows where its model does", async (t) => {
    const sides = [1, 1, 4, 4];
    const fixed = (name: string) => ({ name, dtype: "float32", shape: sides }) as const;
    const weights = { name: "w", dtype: "float32", shape: [1, 1, 1, 4], data: [1, 2, 3, 4] };
    const marked: ModelOutput = {
      kind: "segmentation",
      tensor: "y",
      activation: "sigmoid",
      labels: [{ label: "marked", threshold: 0.5 }],
      postprocess: [],
      measurements: [],
    };
    // What comes out depends on where in a window, and which way round, it lies.
    const { id } = await load(
      {
        name: "windows",
        inputs: [fixed("x")],
        outputs: [fixed("y")],
        initializers: [weights as NonNullable<ModelDescription["initializers"]>[number]],
        nodes: [{ op: "Mul", inputs: ["x", "w"], outputs: ["y"] }],
      },
      {
        outputs: [marked],
        tiling: {
          window: [4, 4],
          overlap: 0.5,
          steps: "even",
          weights: { kind: "gaussian", sigma: 0.125, centre: "half", least: 0.001 },
          padding: 0,
          mirror: ["width"],
        },
      },
    );
    const whole = Float32Array.from({ length: 42 }, (_, i) => (i % 5) - 2);
    const feeds: Tensor[] = [
      { name: "x", dtype: "float32", shape: [1, 1, 6, 7], data: new Uint8Array(whole.buffer) },
    ];
    const expected = await engine.runTensors(id, feeds);
    engine.keepCanary(id, { feeds, expected, absolute: 0, relative: 0, timeoutMs: 600_000 });
    await leave(id);
    t.strictSame(await engine.runTensors(id, feeds), expected, "it comes back, and is the same");
    const wrong = expected.map((one) => ({ ...one, data: new Uint8Array(one.data.length) }));
    engine.keepCanary(id, {
      feeds,
      expected: wrong,
      absolute: 0,
      relative: 0,
      timeoutMs: 600_000,
    });
    await leave(id);
    t.match(await failure(engine.runTensors(id, feeds)), {
      code: "model_unavailable",
      message: /of 42 elements/,
    });
    await engine.unload(id);
  });

  await t.test("a canary that does not end keeps the model away", async (t) => {
    const { id } = await load({ name: "ends", ...endlessGraph(anySize("x"), anySize("y"), 1) });
    const feed: Tensor = {
      name: "x",
      dtype: "float32",
      shape: [1, 1, 1, 1],
      data: new Uint8Array(new Float32Array([2]).buffer),
    };
    const canary = { feeds: [feed], expected: [{ ...feed, name: "y" }] };
    engine.keepCanary(id, { ...canary, absolute: 0, relative: 0, timeoutMs: 50 });
    await leave(id);
    t.match(await failure(ask(id)), {
      code: "model_unavailable",
      message: /canary did not end within 50 ms/,
    });
    await engine.unload(id);
  });

  await t.test(
    "a request that waits for its model ends at its deadline and when it is cancelled",
    async (t) => {
      const { id } = await load(adding("waited", 10));
      await leave(id);
      // Loads come one at a time: the idle model waits for its turn behind this one.
      const other = writeModel(folder, neverLoaded);
      const endless = { ...loadOptions(other), ...pinned(other), cancelId: 78 };
      const inTheWay = failure(engine.load(endless));
      const late = failure(engine.infer(id, [plane(2, 2)], { timeoutMs: 1 }));
      const cancelled = failure(engine.infer(id, [plane(2, 2)], { cancelId: 77 }));
      engine.cancel(77);
      t.equal((await late).code, "deadline_exceeded");
      t.equal((await cancelled).code, "cancelled");
      engine.cancel(78);
      await inTheWay;
      t.equal(await ask(id), 11, "the next one is served");
      await engine.unload(id);
    },
  );

  await t.test("models make room for each other where memory does not hold all", async (t) => {
    const unlimited = () => engine.limitWeights(Number.MAX_SAFE_INTEGER);
    t.teardown(unlimited);
    const stays: Engine = createEngine({ provider: "cpu", threads: 2 });
    t.teardown(() => stays.close());
    /** Weights of 4 bytes, in an engine whose models stay but where one may leave. */
    const part = async (what: number) => {
      const file = writeModel(folder, adding(`part-${what}`, what));
      const options = { ...loadOptions(file), ...pinned(file), mayLeave: true };
      return (await stays.load(options)).id;
    };
    const fixed = writeModel(folder, adding("fixed", 1));
    const { id: other } = await stays.load({ ...loadOptions(fixed), ...pinned(fixed) });
    const states = (ids: readonly number[]) => ids.map((id) => residence(id).state);
    engine.limitWeights(8);
    const ids = [await part(10), await part(20)];
    t.strictSame(states(ids), ["loaded", "loaded"], "what fits stays");
    ids.push(await part(30));
    t.strictSame(states(ids), ["idle", "loaded", "loaded"], "that not used for longest goes");
    t.equal(await ask(ids[0]!), 11);
    t.strictSame(states(ids), ["loaded", "idle", "loaded"]);
    t.strictSame(states([other]), ["loaded"], "others stay, whatever they weigh");
    engine.limitWeights(0);
    for (const at of [1, 2, 0]) {
      t.equal(await ask(ids[at]!), 10 * at + 11);
      t.equal(states(ids).filter((one) => one === "loaded").length, 1, "one alone may be there");
    }
    // All at once: nobody fails, and what is in use is not taken away
    const asked = Array.from({ length: 60 }, async (_, i) => ask(ids[i % 3]!, i));
    t.strictSame(
      await Promise.all(asked),
      asked.map((_, i) => i + 10 * ((i % 3) + 1)),
    );
    // Whoever waits for another model has its turn next, however many want the one that is there:
    // while a run holds that one, all that come for it after the other's request have to wait.
    const held = writeModel(folder, {
      name: "held",
      ...endlessGraph(anySize("x"), anySize("y"), 99),
    });
    const { id: there } = await stays.load({
      ...loadOptions(held),
      ...pinned(held),
      mayLeave: true,
    });
    t.equal(await ask(there), 1);
    const holding = failure(engine.infer(there, [plane(1, 1, [100])], { cancelId: 79 }));
    await untilRunning(engine);
    const wanted = ask(ids[1]!);
    const clients = 16;
    let allWait = false;
    const pestering = Array.from({ length: clients }, async () => {
      while (!allWait) await ask(there);
    });
    await until("they all wait", () => engine.stats().parked === clients + 1, setImmediate);
    allWait = true;
    engine.cancel(79);
    t.equal((await holding).code, "cancelled");
    t.equal(await wanted, 21);
    await Promise.all(pestering);
    await stays.unload(there);
    unlimited();
    for (const id of ids) await ask(id);
    t.strictSame(states(ids), ["loaded", "loaded", "loaded"]);
    for (const id of ids) await stays.unload(id);
  });

  await t.test("a model that is unloaded while it is idle or wanted goes", async (t) => {
    const idle = await load(adding("gone", 10));
    await leave(idle.id);
    await engine.unload(idle.id);
    const wanted = await load(adding("wanted", 10));
    await leave(wanted.id);
    const answer = ask(wanted.id);
    await engine.unload(wanted.id);
    t.equal(await answer, 11, "what was asked before is answered");
  });
});

t.test("without the setting models stay", { skip: needs(ADDON) }, async (t) => {
  const engine = createEngine({ provider: "cpu", threads: 2 });
  t.teardown(() => engine.close());
  const file = writeModel(t.testdir(), adding("stays", 10));
  const { id } = await engine.load(loadOptions(file, pinned(file)));
  engine.leaveIdle(0);
  await engine.infer(id, [plane(2, 2)], {});
  t.match(
    engine.stats().models.find((model) => model.id === id),
    {
      residence: { state: "loaded", loads: 1 },
    },
  );
});
