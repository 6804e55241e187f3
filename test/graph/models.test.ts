/** Models of a process: who loads, shares, runs and ends them. */
import { execFileSync } from "node:child_process";
import { once } from "node:events";
import { copyFileSync, utimesSync, writeFileSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { Worker } from "node:worker_threads";
import t from "tap";
import { int, onnxModel } from "../../scripts/lib/onnx-model.js";
import { createEngine, type Feeds } from "../../src/graph/index.js";
import { refusedBy } from "../support/engine-errors.js";
import {
  HEAVY_SIDE,
  heavy,
  identity,
  neverEnds,
  neverLoaded,
  writeModel,
} from "../support/tiny-models.js";
import { until } from "../support/until.js";

const folder = t.testdir();
const engine = createEngine({ threads: 2 });
t.teardown(() => engine.close());
const identityPath = writeModel(folder, identity);
const endlessPath = writeModel(folder, neverEnds);
const image: Feeds = { x: { shape: [1, 1, 1, 2], data: Float32Array.of(3, 4) } };
const loaded = () => engine.stats().models.length;

t.test("says what it is", (t) => {
  t.match(engine, { threads: 2, onnxRuntimeVersion: /^1\./, providers: { 0: "cpu" } });
  t.throws(() => createEngine({ threads: 3 }), { code: "bad_request", found: "3" });
  t.throws(() => createEngine({ threads: 0 }), { code: "bad_request" });
  t.throws(() => createEngine(null as unknown as object), { code: "bad_request", found: "null" });
  t.throws(() => engine.limitRuns(-1), { code: "bad_request", found: "-1" });
  t.equal(createEngine().threads, 2, "without a number it takes what is there");
  t.end();
});

t.test("the package's own name leads here", async (t) => {
  const name = "radserve/engine";
  const face = (await import(name)) as { createEngine: unknown };
  t.equal(face.createEngine, createEngine);
});

t.test("one file is one model, however often it is loaded, until the last lets go", async (t) => {
  const [first, second] = await Promise.all([engine.load(identityPath), engine.load(identityPath)]);
  t.equal(loaded(), 1);
  t.equal(first.name, "identity.onnx");
  await first.unload();
  await first.unload();
  t.same((await second.run(image)).y?.data, Float32Array.of(3, 4));
  const other = await engine.load(identityPath, { batching: { max: 2 } });
  t.equal(loaded(), 2, "with other options it is another");
  await Promise.all([second.unload(), other.unload()]);
  t.equal(loaded(), 0);
});

t.test("a file that has changed is another model", async (t) => {
  const file = path.join(folder, "changing.onnx");
  copyFileSync(identityPath, file);
  const before = await engine.load(file);
  writeFileSync(
    file,
    onnxModel({ ...identity, nodes: [{ op: "Neg", inputs: ["x"], outputs: ["y"] }] }),
  );
  utimesSync(file, 1, 1);
  const after = await engine.load(file);
  t.same((await after.run(image)).y?.data, Float32Array.of(-3, -4));
  t.same((await before.run(image)).y?.data, Float32Array.of(3, 4));
  await Promise.all([before.unload(), after.unload()]);
});

t.test("equal bytes are one model, too", async (t) => {
  const bytes = onnxModel(identity);
  await using first = await engine.load(bytes, { name: "mine" });
  await using second = await engine.load(Buffer.concat([bytes]));
  t.equal(loaded(), 1);
  t.same(await first.run(image), await second.run(image));
});

t.test("a worker's model is that of all, and goes with its thread", async (t) => {
  const worker = new Worker(fileURLToPath(import.meta.resolve("./holding-worker.js")), {
    workerData: identityPath,
  });
  const [said] = (await once(worker, "message")) as [unknown];
  t.same(said, [3, 4]);
  t.equal(loaded(), 1);
  const own = await engine.load(identityPath);
  t.equal(loaded(), 1);
  await own.unload();
  t.equal(loaded(), 1, "the worker holds it");
  await worker.terminate();
  await until("the model goes with the worker", () => loaded() === 0);
});

t.test("a run ends with its signal, and with its time", async (t) => {
  await using model = await engine.load(endlessPath);
  const controller = new AbortController();
  const running = refusedBy(model.run(image, { signal: controller.signal }));
  await until("it runs", () => engine.stats().running > 0, setImmediate);
  controller.abort(new Error("no longer wanted"));
  t.match(await running, { code: "cancelled", cause: { message: "no longer wanted" } });
  const late = await refusedBy(model.run(image, { signal: controller.signal }));
  t.equal(late.code, "cancelled", "one that was aborted before starts nothing");
  t.equal((await refusedBy(model.run(image, { timeoutMs: 20 }))).code, "deadline_exceeded");
});

t.test("so does a load", async (t) => {
  const file = writeModel(folder, neverLoaded);
  t.equal((await refusedBy(engine.load(file, { timeoutMs: 20 }))).code, "deadline_exceeded");
  const controller = new AbortController();
  const loading = refusedBy(engine.load(file, { signal: controller.signal }));
  controller.abort();
  t.equal((await loading).code, "cancelled");
  t.equal(loaded(), 0);
});

t.test("what is under way when a model is unloaded is finished", async (t) => {
  const model = await engine.load(identityPath);
  const runs = Array.from({ length: 20 }, () => model.run(image));
  const gone = model.unload();
  t.equal((await refusedBy(model.run(image))).code, "model_unavailable");
  for (const { y } of await Promise.all(runs)) t.same(y?.data, Float32Array.of(3, 4));
  await gone;
  t.equal(loaded(), 0);
});

t.test("some outputs, in any order", async (t) => {
  const bytes = onnxModel({
    ...identity,
    outputs: [...identity.outputs, { name: "z", dtype: "float32", shape: ["n", 1, "h", "w"] }],
    nodes: [...identity.nodes, { op: "Neg", inputs: ["x"], outputs: ["z"] }],
  });
  await using model = await engine.load(bytes);
  const both = await model.run(image, { outputs: ["z", "y"] });
  t.same(Object.keys(both), ["z", "y"]);
  t.same(both.z?.data, Float32Array.of(-3, -4));
  t.same(Object.keys(await model.run(image, { outputs: ["z"] })), ["z"]);
  t.same(Object.keys(await model.run(image)), ["y", "z"]);
});

t.test("runs in batches give what they give alone", async (t) => {
  await using model = await engine.load(writeModel(folder, heavy), { batching: { max: 8 } });
  t.ok([1, 8].includes(model.batching), "as it pays here");
  const feeds = Array.from({ length: 24 }, (_, i) => ({
    x: {
      shape: [1, 1, 1, HEAVY_SIDE],
      data: Float32Array.from({ length: HEAVY_SIDE }, (_value, at) => (at * i) % 5),
    },
  }));
  const alone = [];
  for (const feed of feeds) alone.push(await model.run(feed));
  t.same(await Promise.all(feeds.map((feed) => model.run(feed))), alone);
  t.equal(model.stats()!.completed, 48);
});

t.test("a graph that measures its whole batch runs alone", async (t) => {
  const mixing = {
    ...heavy,
    nodes: [
      { op: "ReduceMin", inputs: ["x"], outputs: ["low"], attributes: { keepdims: int(1) } },
      { op: "ReduceMax", inputs: ["x"], outputs: ["high"], attributes: { keepdims: int(1) } },
      { op: "Sub", inputs: ["x", "low"], outputs: ["above"] },
      { op: "Sub", inputs: ["high", "low"], outputs: ["range"] },
      { op: "Div", inputs: ["above", "range"], outputs: ["within"] },
      { op: "MatMul", inputs: ["within", "w"], outputs: ["y"] },
    ],
  };
  await using model = await engine.load(writeModel(folder, mixing), { batching: { max: 8 } });
  t.equal(model.batching, 1);
});

t.test("loads that cannot be", async (t) => {
  const code = async (source: unknown, options = {}) =>
    (await refusedBy(engine.load(source as string, options))).code;
  t.equal(await code(path.join(folder, "none.onnx")), "model_unavailable");
  t.equal(await code(folder), "model_unavailable");
  t.equal(await code(new TextEncoder().encode("no model")), "model_unavailable");
  t.equal(await code(""), "bad_request");
  t.equal(await code(7), "bad_request");
  t.equal(await code(new Uint8Array()), "bad_request");
  t.equal(await code(identityPath, { provider: "tpu" }), "bad_request");
  t.equal(await code(identityPath, { batching: { max: 0 } }), "bad_request");
  t.equal(await code(identityPath, { precision: "int8" }), "bad_request");
  t.equal(await code(identityPath, { gpus: [] }), "bad_request");
  for (const options of [
    null,
    { batching: null },
    { batching: 5 },
    { gpus: 0 },
    { gpus: null },
    { name: 5 },
    { precision: Symbol("float32") },
    { provider: Object.create(null) as unknown },
    { gpus: [Object.create(null) as unknown] },
    { signal: {} },
  ])
    t.equal(await code(identityPath, options as object), "bad_request");
  t.equal(await code(identityPath, { gpuMemory: -1 }), "bad_request");
  if (!engine.providers.includes("cuda"))
    t.equal(await code(identityPath, { provider: "cuda" }), "model_unavailable");
  const noModel = await refusedBy(engine.load(new TextEncoder().encode("no model")));
  t.notMatch(noModel.message, "/proc/", "bytes have no path that anybody knows");
  t.equal(loaded(), 0);
});

t.test("what is no regular file is refused, and not waited for", async (t) => {
  const pipe = path.join(folder, "pipe.onnx");
  execFileSync("mkfifo", [pipe]);
  for (const [file, found] of [
    [pipe, "no regular file"],
    ["/dev/zero", "no regular file"],
    [folder, "no regular file"],
    [path.join(folder, "none.onnx"), "no file"],
  ] as const)
    t.match(await refusedBy(engine.load(file)), {
      code: "model_unavailable",
      message: `Expected a model at ${file}; found ${found} there.`,
    });
});

t.test("weights beside the graph: by its path alone, and from regular files", async (t) => {
  const add = onnxModel({
    name: "beside",
    inputs: [{ name: "x", dtype: "float32", shape: [2] }],
    outputs: [{ name: "y", dtype: "float32", shape: [2] }],
    initializers: [
      { name: "w", dtype: "float32", shape: [2], data: new Uint8Array(8), location: "w.bin" },
    ],
    nodes: [{ op: "Add", inputs: ["x", "w"], outputs: ["y"] }],
  });
  t.match(await refusedBy(engine.load(add)), {
    code: "model_unavailable",
    message: /has weights in a file beside it \("w.bin"\), which its bytes do not bring/,
  });
  const file = path.join(folder, "beside.onnx");
  const weights = path.join(folder, "w.bin");
  writeFileSync(file, add);
  t.match(await refusedBy(engine.load(file)), {
    message: `Expected the model's weights at ${weights}; found no file there.`,
  });
  execFileSync("mkfifo", [weights]);
  t.match(await refusedBy(engine.load(file)), {
    message: `Expected the model's weights at ${weights}; found no regular file there.`,
  });
});

t.test("more bytes than a file of ONNX holds are refused before they are read", async (t) => {
  const bytes = new Uint8Array(2 ** 31);
  const error = await refusedBy(engine.load(bytes));
  t.match(error, { code: "bad_request", found: "2147483648 bytes" });
});

t.test("an engine that is closed takes nothing", async (t) => {
  const own = createEngine();
  const model = await own.load(identityPath);
  await own.close();
  t.equal((await refusedBy(model.run(image))).code, "shutting_down");
  t.equal((await refusedBy(own.load(identityPath))).code, "shutting_down");
  t.equal(loaded(), 0);
  await model.unload();
  t.pass("and the end of a scope, which unloads what is gone already, is no error");
});
