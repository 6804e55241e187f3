/** The names of onnxruntime-node over the engine: sessions, tensors of every type, and refusals. */
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import t from "tap";
import { onnxModel, type ValueType } from "../../scripts/lib/onnx-model.js";
import { createEngine } from "../../src/graph/index.js";
import * as ort from "../../src/graph/onnxruntime/index.js";
import { refusedBy } from "../support/engine-errors.js";
import { writeModel } from "../support/tiny-models.js";

const engine = createEngine({ threads: 2 });
t.teardown(() => engine.close());
const folder = t.testdir();

const { InferenceSession, Tensor } = ort;
type Options = ort.InferenceSession.SessionOptions;

const floats = (name: string, shape: readonly (string | number)[] = ["n", 2]) => ({
  name,
  dtype: "float32" as const,
  shape,
});
const sums = writeModel(folder, {
  name: "sums",
  inputs: [floats("x"), floats("b", ["", 2])],
  outputs: [floats("y"), floats("z")],
  nodes: [
    { op: "Add", inputs: ["x", "b"], outputs: ["y"] },
    { op: "Mul", inputs: ["x", "b"], outputs: ["z"] },
  ],
});
const x = new Tensor("float32", Float32Array.of(1, 2), [1, 2]);
const b = new Tensor("float32", Float32Array.of(3, 5), [1, 2]);

t.test("a session says what it takes and gives, and runs", async (t) => {
  const session = await InferenceSession.create(sums);
  t.same(session.inputNames, ["x", "b"]);
  t.same(session.outputNames, ["y", "z"]);
  t.same(session.inputMetadata, [
    { name: "x", isTensor: true, type: "float32", shape: ["n", 2] },
    { name: "b", isTensor: true, type: "float32", shape: ["", 2] },
  ]);
  const { y, z } = await session.run({ x, b });
  t.ok(y instanceof Tensor);
  t.match(y, { type: "float32", dims: [1, 2], location: "cpu" });
  t.same([y?.data, z?.data], [Float32Array.of(4, 7), Float32Array.of(3, 10)]);
  t.same(await y?.getData(), y?.data);
  t.same(y?.reshape([2, 1]).dims, [2, 1]);
  t.same(Object.keys(await session.run({ x, b }, ["z"])), ["z"]);
  t.same(Object.keys(await session.run({ x, b, unknown: x }, { tag: "one" })), ["y", "z"]);
  const place = new Tensor("float32", new Float32Array(2), [1, 2]);
  const filled = await session.run({ x, b }, { y: place });
  t.same([filled["y"]?.data, place.data], [Float32Array.of(4, 7), Float32Array.of(4, 7)]);
  // Of another copy of onnxruntime-common, as packages have that bring their own
  const { type, dims, data, location } = x;
  t.same((await session.run({ x: { type, dims, data, location } as typeof x, b }))["y"], y);
  await session.release();
  t.match(await refusedBy(session.run({ x, b })), { code: "model_unavailable" });
  t.match(await refusedBy(session.release()), { code: "model_unavailable" });
});

t.test("a model comes as bytes in each of their forms", async (t) => {
  const bytes = readFileSync(sums);
  const whole = new Uint8Array(bytes).buffer;
  const sessions = await Promise.all([
    InferenceSession.create(bytes),
    InferenceSession.create(whole),
    InferenceSession.create(bytes.buffer, bytes.byteOffset, bytes.byteLength),
    InferenceSession.create(sums, { intraOpNumThreads: 1 }),
  ]);
  for (const session of sessions) {
    t.same((await session.run({ x, b }))["y"]?.data, Float32Array.of(4, 7));
    await session.release();
  }
});

t.test("tensors of every type that onnxruntime-common has", async (t) => {
  const given: [ValueType & ort.Tensor.Type, ort.Tensor.DataType][] = [
    ["float32", Float32Array.of(0.5, -2)],
    ["float64", Float64Array.of(0.5, -2)],
    ["float16", Uint16Array.of(0x3c00, 0xc000)],
    ["bool", Uint8Array.of(1, 0)],
    ["uint8", Uint8Array.of(1, 255)],
    ["int8", Int8Array.of(1, -128)],
    ["uint16", Uint16Array.of(1, 65535)],
    ["int16", Int16Array.of(1, -32768)],
    ["uint32", Uint32Array.of(1, 2 ** 32 - 1)],
    ["int32", Int32Array.of(1, -(2 ** 31))],
    ["int64", BigInt64Array.of(1n, -(2n ** 63n))],
    ["uint64", BigUint64Array.of(1n, 2n ** 64n - 1n)],
    ["string", ["ä", "b\0c"]],
  ];
  for (const [dtype, data] of given) {
    const value = (name: string) => ({ name, dtype, shape: [2] });
    const session = await InferenceSession.create(
      onnxModel({
        name: dtype,
        inputs: [value("x")],
        outputs: [value("y")],
        nodes: [{ op: "Identity", inputs: ["x"], outputs: ["y"] }],
      }),
    );
    // With a Float16Array, where there is one
    const x = new Tensor(dtype as "float32", data as Float32Array, [2]);
    const { y } = await session.run({ x });
    t.same([y?.type, y?.data], [dtype, x.data], dtype);
    await session.release();
  }
});

t.test("a model with a type that onnxruntime-common lacks is refused by its name", async (t) => {
  const value = (name: string) => ({ name, dtype: "bfloat16" as const, shape: [2] });
  const before = engine.stats().models.length;
  const error = await refusedBy(
    InferenceSession.create(
      onnxModel({
        name: "brain",
        inputs: [value("x")],
        outputs: [value("y")],
        nodes: [{ op: "Identity", inputs: ["x"], outputs: ["y"] }],
      }),
    ),
  );
  t.match(error, { code: "model_unavailable", found: "bfloat16" });
  t.equal(engine.stats().models.length, before, "and it is not in memory");
});

t.test("options that mean something else are refused by their names", async (t) => {
  const refuse = async (options: object, name: string, found: string) => {
    const error = await refusedBy(InferenceSession.create(sums, options));
    t.match(error, { code: "bad_request", found }, error.message);
    t.match(error.message, `"${name}"`);
  };
  await refuse({ executionMode: "parallel" }, "executionMode", '"parallel"');
  await refuse({ graphOptimizationLevel: "basic" }, "graphOptimizationLevel", '"basic"');
  await refuse({ enableProfiling: true }, "enableProfiling", "true");
  await refuse({ optimizedModelFilePath: "a.onnx" }, "optimizedModelFilePath", '"a.onnx"');
  await refuse(
    { preferredOutputLocation: "gpu-buffer" },
    "preferredOutputLocation",
    '"gpu-buffer"',
  );
  await refuse(
    { preferredOutputLocation: { y: "texture" } },
    "preferredOutputLocation",
    '{"y":"texture"}',
  );
  await refuse({ externalData: ["weights"] }, "externalData", '["weights"]');
  await refuse({ extra: { session: {} } }, "extra", '{"session":{}}');
  await refuse({ intraOpNumThreads: -1 }, "intraOpNumThreads", "-1");
  await refuse({ logSeverityLevel: 5 }, "logSeverityLevel", "5");
  await refuse({ enableMemPattern: 1 }, "enableMemPattern", "1");
  await t.rejects(InferenceSession.create(sums, { executionProviders: ["coreml"] }), /coreml/);
  const harmless: Options = {
    executionProviders: ["cpu"],
    executionMode: "sequential",
    graphOptimizationLevel: "all",
    enableProfiling: false,
    preferredOutputLocation: { y: "cpu" },
    externalData: [],
    extra: {},
    interOpNumThreads: 4,
    logSeverityLevel: 3,
    enableCpuMemArena: true,
    freeDimensionOverrides: { n: 1 },
  };
  const session = await InferenceSession.create(sums, harmless);
  const run = async (options: object, feeds: object = { x, b }, fetches: object = { y: null }) =>
    refusedBy(session.run(feeds as { x: typeof x }, fetches as { y: null }, options));
  t.match(await run({ tag: 1 }), { found: "1", message: /"tag"/ });
  t.match(await run({ logVerbosityLevel: "all" }), { message: /"logVerbosityLevel"/ });
  const whole = new Tensor("int32", Int32Array.of(1, 2), [1, 2]);
  t.match(await run({}, { x: whole, b }), { expected: "float32", found: "int32" });
  t.match(await run({}, { x, b }, { y: whole }), { expected: "int32 [1,2]" });
  const gone = new Tensor("float32", Float32Array.of(1, 2), [1, 2]);
  gone.dispose();
  t.match(await run({}, { x: gone, b }), { expected: '"cpu"', found: '"none"' });
  await t.rejects(session.run({ x }), /'b' is missing/);
  t.throws(() => session.startProfiling(), /startProfiling/);
  t.throws(() => session.endProfiling(), /endProfiling/);
  await session.release();
});

t.test("its names are those of onnxruntime-node", (t) => {
  t.same(ort.listSupportedBackends(), [
    { name: "cpu", bundled: true },
    { name: "cuda", bundled: false },
  ]);
  t.equal(ort.env.versions.node, engine.onnxRuntimeVersion);
  t.equal(ort.default.InferenceSession, InferenceSession);
  const required = createRequire(import.meta.url)(
    "../../src/graph/onnxruntime/index.js",
  ) as typeof ort;
  t.equal(required.Tensor, Tensor, "also where it is required");
  t.end();
});
