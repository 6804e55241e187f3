/**
 * Memory that is refused, and memory that goes back: neither ends the process, nor holds up the
 * thread of JavaScript.
 */
import t from "tap";
import { type ModelDescription, tensor } from "../../scripts/lib/onnx-model.js";
import { createEngine, type Engine } from "../../src/engine/engine.js";
import type { ImageInput } from "../../src/manifest/manifest.js";
import { ADDON, needs } from "../support/needs.js";
import { identity, input, loadOptions, plane, writeModel } from "../support/tiny-models.js";

/**
 * On its way it makes an image whose sides are the 8th power of the given ones: of 8 x 8 pixels,
 * 2^50 bytes.
 */
const greedy: ModelDescription = {
  name: "greedy",
  inputs: [{ name: "x", dtype: "float32", shape: ["n", 1, "h", "w"] }],
  outputs: [{ name: "y", dtype: "float32", shape: ["n", 1, "h", "w"] }],
  nodes: [
    { op: "Shape", inputs: ["x"], outputs: ["s"] },
    { op: "Mul", inputs: ["s", "s"], outputs: ["s2"] },
    { op: "Mul", inputs: ["s2", "s2"], outputs: ["s4"] },
    { op: "Mul", inputs: ["s4", "s4"], outputs: ["s8"] },
    {
      op: "ConstantOfShape",
      inputs: ["s8"],
      outputs: ["huge"],
      attributes: { value: tensor({ dtype: "float32", shape: [1], data: [1] }) },
    },
    { op: "GlobalMaxPool", inputs: ["huge"], outputs: ["one"] },
    { op: "Mul", inputs: ["x", "one"], outputs: ["y"] },
  ],
};

const SIDE = 4096;

/** 128 MiB of weights, which take a while to give back. */
const large: ModelDescription = {
  name: "large",
  inputs: [{ name: "x", dtype: "float32", shape: ["n", 1, 1, SIDE] }],
  outputs: [{ name: "y", dtype: "float32", shape: ["n", 1, 1, SIDE] }],
  initializers: ["v", "w"].map((name) => ({
    name,
    dtype: "float32",
    shape: [SIDE, SIDE],
    data: new Uint8Array(4 * SIDE * SIDE).fill(1),
  })),
  nodes: [
    { op: "MatMul", inputs: ["x", "v"], outputs: ["m"] },
    { op: "MatMul", inputs: ["m", "w"], outputs: ["y"] },
  ],
};

t.test("memory", { skip: needs(ADDON) }, async (t) => {
  // With one thread, runs have no memory but the engine's own allocator's.
  const engine: Engine = createEngine({ provider: "cpu", threads: 1 });
  t.teardown(() => engine.close());
  const folder = t.testdir();

  await t.test("a run that cannot have its memory says so, and the next one goes on", async (t) => {
    const { id } = await engine.load(loadOptions(writeModel(folder, greedy)));
    const run = (side: number) => engine.infer(id, [plane(side, side)], {});
    for (let i = 0; i < 3; i++) {
      await t.rejects(run(8), { code: "memory_exceeded", message: /MiB/ });
      t.match(await run(1), { outputs: [{ kind: "heatmap", rows: 1, columns: 1 }] });
    }
    await engine.unload(id);
  });

  await t.test("what a graph gives goes back once it is hashed", async (t) => {
    const { id } = await engine.load(loadOptions(writeModel(folder, identity)));
    const image = plane(1024, 1024);
    const before = process.memoryUsage().external;
    const { outputs } = await engine.infer(id, [image], {});
    const [output] = outputs;
    const values = output?.kind === "heatmap" ? output.values.byteLength : 0;
    t.equal(values, 4 * 1024 * 1024);
    const more = process.memoryUsage().external - before;
    t.ok(
      more < 1.5 * values,
      `the answer has ${values} bytes, and ${more} are there more than before`,
    );
    await engine.unload(id);
  });

  await t.test("the weights of a model go back on a thread of the engine", async (t) => {
    const model = writeModel(folder, large);
    const wide: ImageInput = { ...input, size: { kind: "fixed", height: 1, width: SIDE } };
    const warm = await engine.load(loadOptions(model, { inputs: [wide] }));
    await engine.infer(warm.id, [plane(1, SIDE)], {});
    for (const way of ["unload", "unload under a request", "close"] as const) {
      const own = createEngine({ provider: "cpu" });
      const { id } = await own.load(loadOptions(model, { inputs: [wide] }));
      const running =
        way === "unload under a request" ? own.infer(id, [plane(1, SIDE)], {}) : undefined;
      // The one thread that frees weights is busy with a load: who frees them itself is done first.
      const loading = engine.load(loadOptions(model, { inputs: [wide] }));
      const gone = way === "close" ? own.close() : own.unload(id);
      // On a busy machine the thread of JavaScript hears of both at once: the load is then done
      // within the same turn.
      const aTurnLater = gone.then(() => new Promise((resolve) => setImmediate(resolve)));
      const first = await Promise.race([
        loading.then(() => "the load"),
        aTurnLater.then(() => "the unload"),
      ]);
      t.equal(first, "the load", way);
      await gone;
      t.match(await (running ?? {}), {});
      await own.close();
      await engine.unload((await loading).id);
    }
  });
});
