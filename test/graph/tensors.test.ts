/** Tensors of every type through graphs, and what is refused before anything runs. */
import t from "tap";
import { int, onnxModel, type ValueType } from "../../scripts/lib/onnx-model.js";
import {
  DATA_TYPES,
  lengthOf,
  type DataType,
  type TensorData,
} from "../../src/graph/data-types.js";
import { createEngine, EngineError, type Feeds } from "../../src/graph/index.js";
import { refusedBy } from "../support/engine-errors.js";

const engine = createEngine({ threads: 2 });
t.teardown(() => engine.close());

/** Numbers of these types can only be cast on a CPU. */
const CASTS: Partial<Record<ValueType, number>> = {
  uint4: 21,
  int4: 22,
  float8e8m0: 24,
  uint2: 25,
  int2: 26,
};

/** y = x, of one type. */
function same(dtype: ValueType, shape: readonly (number | string)[]): Uint8Array {
  const back = CASTS[dtype];
  const cast = (from: string, to: string, type: number) => ({
    op: "Cast",
    inputs: [from],
    outputs: [to],
    attributes: { to: int(type) },
  });
  return onnxModel({
    name: "same",
    opset: 25,
    inputs: [{ name: "x", dtype, shape }],
    outputs: [{ name: "y", dtype, shape }],
    nodes:
      back === undefined
        ? [{ op: "Identity", inputs: ["x"], outputs: ["y"] }]
        : [cast("x", "floats", 1), cast("floats", "y", back)],
  });
}

/** Numbers that differ from each other, as bits. */
function some(dtype: DataType, elements: number): TensorData {
  if (dtype === "string")
    return Array.from({ length: elements }, (_, i) => `${i} ${"ä\0💡".repeat(i)}`);
  const { bytes, make } = DATA_TYPES[dtype];
  const memory = new Uint8Array(lengthOf(dtype, elements) * bytes);
  memory.forEach((_, i) => (memory[i] = dtype === "bool" ? i % 2 : (i * 7) % 120));
  // Half a byte that holds no element
  if (dtype in CASTS && elements % 2 === 1) memory[memory.length - 1]! &= 15;
  return make(memory.buffer);
}

/** ONNX Runtime has no operator for a CPU that takes float4e2m1 or gives it. */
const ON_A_CPU = (Object.keys(DATA_TYPES) as DataType[]).filter((name) => name !== "float4e2m1");

for (const dtype of ON_A_CPU)
  t.test(`${dtype} goes in and comes out`, async (t) => {
    await using model = await engine.load(same(dtype, ["n", 3]));
    t.match(model.inputs, [{ name: "x", dtype, shape: [-1, 3], names: ["n", ""] }]);
    for (const rows of [0, 1, 5, 1001]) {
      const data = some(dtype, rows * 3);
      const { y } = await model.run({ x: { dtype, shape: [rows, 3], data } });
      t.same(y, { dtype, shape: [rows, 3], data }, `${rows} rows`);
    }
  });

t.test("half floats come in the array of JavaScript, too", async (t) => {
  const Half = Reflect.get(globalThis, "Float16Array") as
    (new (numbers: number[]) => Uint16Array) | undefined;
  if (Half === undefined) {
    t.comment("this Node.js has no Float16Array");
    return;
  }
  await using model = await engine.load(same("float16", [3]));
  const { y } = await model.run({ x: { shape: [3], data: new Half([1, -2, 0.5]) } });
  t.same(y?.data, new Uint16Array([0x3c00, 0xc000, 0x3800]));
});

t.test("a part of a larger buffer, and a single number", async (t) => {
  await using one = await engine.load(same("float32", [2]));
  const whole = Float32Array.of(1, 2, 3, 4);
  const { y } = await one.run({ x: { shape: [2], data: whole.subarray(1, 3) } });
  t.same(y?.data, Float32Array.of(2, 3));
  await using single = await engine.load(same("int64", []));
  t.same(await single.run({ x: { shape: [], data: BigInt64Array.of(-(2n ** 62n)) } }), {
    y: { dtype: "int64", shape: [], data: BigInt64Array.of(-(2n ** 62n)) },
  });
});

t.test("outputs are whoever's got them, and stay as they are", async (t) => {
  await using model = await engine.load(same("float32", ["n"]));
  const data = new Float32Array(5000).fill(1);
  const { y: first } = await model.run({ x: { shape: [5000], data } });
  const { y: second } = await model.run({ x: { shape: [5000], data: data.fill(2) } });
  const [ours, theirs] = [first!.data as Float32Array, second!.data as Float32Array];
  ours[0] = 7;
  t.same([ours[1], theirs[0], data[0]], [1, 2, 2]);
  t.equal(structuredClone(theirs)[4999], 2, "another thread gets a copy");
  const transfer = [theirs.buffer as ArrayBuffer];
  t.throws(() => structuredClone(theirs, { transfer }), { name: "DataCloneError" });
  t.equal(theirs[4999], 2);
});

t.test("an output that is an input is a copy of what was fed", async (t) => {
  const x = { name: "x", dtype: "float32", shape: ["n"] } as const;
  await using model = await engine.load(
    onnxModel({
      name: "passed",
      inputs: [x],
      outputs: [{ ...x, name: "y" }, x],
      nodes: [{ op: "Neg", inputs: ["x"], outputs: ["y"] }],
    }),
  );
  const data = new Float32Array(5000).fill(1);
  const { x: passed, y } = await model.run({ x: { shape: [5000], data } });
  data.fill(2);
  t.same([passed?.data[0], y?.data[0]], [1, -1], "what is fed may be written into again");
});

t.test("names that every object of JavaScript has", async (t) => {
  const value = (name: string) => ({ name, dtype: "float32" as const, shape: [1] });
  await using model = await engine.load(
    onnxModel({
      name: "names",
      inputs: [value("constructor")],
      outputs: [value("__proto__")],
      nodes: [{ op: "Identity", inputs: ["constructor"], outputs: ["__proto__"] }],
    }),
  );
  const feed = { shape: [1], data: Float32Array.of(3) };
  const outputs = await model.run({ constructor: feed });
  t.match(Object.entries(outputs), [["__proto__", { data: Float32Array.of(3) }]]);
  t.match(await refusedBy(model.run({})), { code: "bad_request", found: "no feeds" });
});

t.test("what does not fit is refused before anything runs, with what was found", async (t) => {
  const model = await engine.load(
    onnxModel({
      name: "two",
      inputs: [
        { name: "x", dtype: "float32", shape: ["n", 2] },
        { name: "k", dtype: "bool", shape: [1] },
      ],
      outputs: [{ name: "y", dtype: "float32", shape: ["n", 2] }],
      nodes: [{ op: "Where", inputs: ["k", "x", "x"], outputs: ["y"] }],
    }),
  );
  const k = { shape: [1], data: Uint8Array.of(1) };
  const x = { shape: [1, 2], data: Float32Array.of(1, 2) };
  const before = model.stats()!;
  const textless: unknown = Object.create(null);
  const refuse = async (feeds: unknown, expected: string, found: string) => {
    const error = await refusedBy(model.run(feeds as Feeds));
    t.match(error, { code: "bad_request", expected, found }, error.message);
    t.match(error.message, `expected ${expected}, found ${found}.`);
  };
  const withX = (more: object) => ({ k, x: { ...x, ...more } });
  await refuse(null, 'an object with "x", "k"', "null");
  await refuse({}, 'the input "x"', "no feeds");
  await refuse({ x }, 'the input "k"', '"x"');
  await refuse({ x: null, k }, "an object", "null");
  await refuse({ x: 5, k }, "an object", "number");
  await refuse({ x, k, z: k, q: k }, 'inputs of the graph ("x", "k")', '"z"');
  await refuse(withX({ shape: undefined }), "a list of whole numbers", "undefined");
  await refuse(withX({ shape: [2] }), "[n,2]", "[2]");
  await refuse(withX({ shape: [1, 3] }), "[n,2]", "[1,3]");
  await refuse(withX({ shape: [-1, 2] }), "whole numbers from 0", "[-1,2]");
  await refuse(withX({ shape: [0.5, 2] }), "whole numbers from 0", "[0.5,2]");
  await refuse(withX({ shape: [Symbol("side"), 2] }), "whole numbers from 0", "[Symbol(side),2]");
  await refuse(withX({ shape: [textless, 2] }), "whole numbers from 0", "[an object,2]");
  await refuse(withX({ dtype: textless }), "float32", "an object");
  await refuse(withX({ dtype: "float64" }), "float32", "float64");
  await refuse(withX({ dtype: Symbol("type") }), "float32", "Symbol(type)");
  await refuse(withX({ data: new Float64Array(2) }), "Float32Array for float32", "Float64Array");
  await refuse(withX({ data: [1, 2] }), "Float32Array for float32", "a list");
  await refuse(withX({ data: undefined }), "Float32Array for float32", "undefined");
  await refuse(withX({ shape: [2, 2] }), "4 elements for float32 [2,2]", "2");
  await refuse(
    withX({ shape: [2 ** 31, 2] }),
    `${2 ** 32} elements for float32 [2147483648,2]`,
    "2",
  );
  await refuse(
    withX({ shape: [2 ** 53 - 1, 2] }),
    "fewer than 2^53 elements",
    "[9007199254740991,2]",
  );
  await refuse(
    withX({ data: new Float32Array(new SharedArrayBuffer(8)) }),
    "an ArrayBuffer of this thread",
    "a SharedArrayBuffer",
  );
  const Resizable = ArrayBuffer as unknown as new (n: number, o: object) => ArrayBuffer;
  await refuse(
    withX({ data: new Float32Array(new Resizable(8, { maxByteLength: 16 })) }),
    "a buffer of fixed length",
    "a resizable one",
  );
  const gone = Float32Array.of(1, 2);
  structuredClone(gone.buffer, { transfer: [gone.buffer] });
  await refuse(withX({ data: gone }), "memory that is here", "a detached buffer");
  t.equal(model.stats()!.failed, before.failed, "nothing has run");
  for (const [options, expected] of [
    [{ outputs: [] }, "names of at least one output"],
    [{ outputs: ["z"] }, '"y"'],
    [{ outputs: [Symbol("y")] }, '"y"'],
    [{ outputs: [textless] }, '"y"'],
    [{ timeoutMs: textless }, "milliseconds, at most 2^40"],
    [null, "an object"],
    [5, "an object"],
    [{ priority: "urgent" }, "high, normal, low"],
    [{ priority: Symbol("high") }, "high, normal, low"],
    [{ signal: null }, "an AbortSignal"],
    [{ signal: new AbortController() }, "an AbortSignal"],
    [{ timeoutMs: NaN }, "milliseconds, at most 2^40"],
  ] as const)
    t.match(await refusedBy(model.run({ x, k }, options as object)), {
      code: "bad_request",
      expected,
    });
  t.equal((await refusedBy(model.run({ x, k }, { timeoutMs: -1 }))).code, "deadline_exceeded");
  const flags = await refusedBy(model.run({ x, k: { shape: [1], data: Uint8Array.of(2) } }));
  t.match(flags, { code: "bad_request", message: /Expected 0 or 1 .* "k", found 2/ });
  t.same((await model.run({ x, k })).y?.data, x.data, "and what fits runs on");
  await model.unload();
  t.equal((await refusedBy(model.run({ x, k }))).code, "model_unavailable");
});

t.test("texts alone are text", async (t) => {
  await using model = await engine.load(same("string", [2]));
  for (const data of [["a", 1], ["a", undefined], "ab", new Uint8Array(2)])
    t.equal(
      (await refusedBy(model.run({ x: { shape: [2], data: data as string[] } }))).code,
      "bad_request",
    );
});

t.test("a buffer that is transferred while a run reads it is an error, and no crash", async (t) => {
  await using model = await engine.load(same("float32", ["n"]));
  const side = 2 ** 20;
  for (let turn = 0; turn < 20; turn++) {
    const data = new Float32Array(side).fill(turn);
    const running = refusedBy(model.run({ x: { shape: [side], data } }));
    structuredClone(data.buffer, { transfer: [data.buffer] });
    t.match(await running, { code: "bad_request", found: "one that was transferred meanwhile" });
  }
});

t.test("a graph that fails on what it is fed", async (t) => {
  await using model = await engine.load(
    onnxModel({
      name: "beyond",
      inputs: [
        { name: "x", dtype: "float32", shape: ["n"] },
        { name: "at", dtype: "int64", shape: [1] },
      ],
      outputs: [{ name: "y", dtype: "float32", shape: [1] }],
      nodes: [{ op: "Gather", inputs: ["x", "at"], outputs: ["y"] }],
    }),
  );
  const x = { shape: [2], data: Float32Array.of(1, 2) };
  const error = await refusedBy(model.run({ x, at: { shape: [1], data: BigInt64Array.of(5n) } }));
  t.match(error, { code: "output_invalid", message: /out of data bounds/ });
  t.notMatch(error.message, /onnxruntime|\.(cc|h):\d/, "and where in ONNX Runtime helps nobody");
});

t.test("graphs whose tensors are none", async (t) => {
  const sequence = onnxModel({
    name: "sequence",
    inputs: [{ name: "x", dtype: "complex64", shape: [2] }],
    outputs: [{ name: "y", dtype: "float32", shape: [2] }],
    nodes: [{ op: "Identity", inputs: ["x"], outputs: ["y"] }],
  });
  t.type(await refusedBy(engine.load(sequence)), EngineError);
});
