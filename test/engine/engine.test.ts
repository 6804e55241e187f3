import { createHash } from "node:crypto";
import { writeFileSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { int, type ModelDescription } from "../../scripts/lib/onnx-model.js";
import { inferenceOf } from "../../src/engine/engine-addon.js";
import { createEngine } from "../../src/engine/engine.js";
import { type InferOptions, type EngineOutput, type Plane } from "../../src/engine/types.js";
import type { ImageInput } from "../../src/manifest/manifest.js";
import type { ModelOutput } from "../../src/manifest/outputs/outputs.js";
import {
  identity,
  input,
  loadOptions,
  neverEnds,
  neverLoaded,
  plane,
  untilRunning,
  writeModel,
} from "../support/tiny-models.js";
import { RadserveError } from "../../src/base/errors.js";
import { failure } from "../support/expect.js";

const folder = t.testdir();
const engine = createEngine({ provider: "cpu", threads: 2 });
t.teardown(() => engine.close());
const identityPath = writeModel(folder, identity);
const endlessPath = writeModel(folder, neverEnds);

const floats = (bytes: Uint8Array) => [...new Float32Array(bytes.slice().buffer)];

/** Three planes: 10, the pixel, and the pixel doubled. */
const three: ModelDescription = {
  name: "three",
  inputs: [{ name: "x", dtype: "float32", shape: ["n", 1, "h", "w"] }],
  outputs: [{ name: "y", dtype: "float32", shape: ["n", 3, "h", "w"] }],
  initializers: [
    { name: "zero", dtype: "float32", shape: [1], data: [0] },
    { name: "ten", dtype: "float32", shape: [1], data: [10] },
    { name: "two", dtype: "float32", shape: [1], data: [2] },
  ],
  nodes: [
    { op: "Mul", inputs: ["x", "zero"], outputs: ["none"] },
    { op: "Add", inputs: ["none", "ten"], outputs: ["tens"] },
    { op: "Mul", inputs: ["x", "two"], outputs: ["doubled"] },
    {
      op: "Concat",
      inputs: ["tens", "x", "doubled"],
      outputs: ["y"],
      attributes: { axis: int(1) },
    },
  ],
};

const labels = (...names: string[]) => names.map((label) => ({ label }));

t.test("says what it is", (t) => {
  t.match(engine.info(), { onnxRuntimeVersion: /^1\./, threads: 2 });
  t.ok(engine.info().providers.includes("CPUExecutionProvider"));
  t.end();
});

t.test("inspects graphs, and refuses what is none", async (t) => {
  t.strictSame(await engine.inspectGraph(identityPath), {
    inputs: [{ name: "x", dtype: "float32", shape: [-1, 1, -1, -1], names: ["n", "", "h", "w"] }],
    outputs: [{ name: "y", dtype: "float32", shape: [-1, 1, -1, -1], names: ["n", "", "h", "w"] }],
    float16: false,
    activations: {},
    metadata: {},
  });
  const half = writeModel(folder, {
    ...identity,
    name: "half",
    initializers: [{ name: "unused", dtype: "float16", shape: [2], data: [1, 2] }],
  });
  t.equal((await engine.inspectGraph(half)).float16, true);
  const recast = writeModel(folder, {
    name: "recast",
    inputs: [{ name: "x", dtype: "float16", shape: ["n", 4] }],
    outputs: [{ name: "y", dtype: "float16", shape: ["n", 4] }],
    nodes: [
      { op: "Add", inputs: ["x", "x"], outputs: ["sum"] },
      { op: "Cast", inputs: ["sum"], outputs: ["same"], attributes: { to: int(10) } },
      { op: "Softmax", inputs: ["same"], outputs: ["y"] },
    ],
  });
  t.match(await engine.inspectGraph(recast), { outputs: [{ name: "y", dtype: "float16" }] });
  const broken = path.join(folder, "broken.onnx");
  writeFileSync(broken, "no model");
  t.equal((await failure(engine.inspectGraph(broken))).code, "bad_request");
});

t.test("outputs that are no tensors of numbers need not be read", async (t) => {
  const beside = (name: string, others: ModelDescription["outputs"]): string =>
    writeModel(folder, {
      name,
      inputs: identity.inputs,
      outputs: [...others, { name: "count", dtype: "uint64", shape: ["n", 1, "h", "w"] }],
      nodes: [
        ...identity.nodes,
        { op: "Cast", inputs: ["x"], outputs: ["count"], attributes: { to: int(13) } },
      ],
    });
  const read = beside("beside", identity.outputs);
  t.strictSame(
    (await engine.inspectGraph(read)).outputs.map(({ name }) => name),
    ["y"],
  );
  const { id } = await engine.load(loadOptions(read));
  const { outputs } = await engine.infer(id, [plane(1, 2, [3, 4])], {});
  t.match(outputs, [{ kind: "heatmap", values: new Float32Array([3, 4]) }]);
  const failed = await failure(engine.inspectGraph(beside("alone", [])));
  t.match(failed.message, /"count" is of a type that is not offered; expected a tensor of float32/);
});

t.test("a load has an end, by its time and by its number", async (t) => {
  const folding = writeModel(folder, neverLoaded);
  const late = failure(engine.load({ ...loadOptions(folding), timeoutMs: 20 }));
  t.equal((await late).code, "deadline_exceeded");
  const unwanted = failure(engine.load({ ...loadOptions(folding), cancelId: 77 }));
  engine.cancel(77);
  t.equal((await unwanted).code, "cancelled");
  t.equal((await engine.load(loadOptions(identityPath))).inputs.length, 1, "others go on");
});

t.test("stored values come back as modality values, with the hash of the raw output", async (t) => {
  const { id } = await engine.load(loadOptions(identityPath));
  const frame = plane(2, 3, [-3, -2, -1, 0, 1, 32767]);
  frame.interpretation.modality = { kind: "rescale", slope: 0.5, intercept: -1024 };
  const result = await engine.infer(id, [frame], { dump: true });
  const expected = [-1025.5, -1025, -1024.5, -1024, -1023.5, 15359.5];
  t.match(result.outputs, [{ kind: "heatmap", tensor: "y", rows: 2, columns: 3 }]);
  const [output] = result.outputs;
  t.strictSame(output?.kind === "heatmap" && [...output.values], expected);
  t.strictSame(floats(result.tensors!.inputs[0]!.data), expected);
  t.strictSame(result.tensors!.inputs[0]!.shape, [1, 1, 2, 3]);
  const bytes = new Uint8Array(Float32Array.from(expected).buffer);
  t.equal(result.rawSha256, createHash("sha256").update(bytes).digest("hex"));
  await engine.unload(id);
  t.equal((await failure(engine.infer(id, [frame], {}))).code, "model_unavailable");
});

t.test("what the preparation found comes with the result", async (t) => {
  const found = async (more: Partial<ImageInput>, given: Plane) => {
    const inputs = [{ ...input, ...more }];
    const model = await engine.load(loadOptions(identityPath, { inputs }));
    const { preparation } = await engine.infer(model.id, [given], {});
    await engine.unload(model.id);
    return preparation;
  };
  const wide = plane(2, 4, [-5, 1, 2, 3, 4, 5, 6, 30]);
  wide.interpretation = { ...wide.interpretation, padding: { from: -5, to: -5 } };
  const size = { kind: "fixed" as const, height: 8, width: 8 };
  t.strictSame(
    await found(
      { size, fit: "letterbox", normalisation: { kind: "min_max", over: "image", to: [0, 1] } },
      wide,
    ),
    {
      placement: {
        rows: 8,
        columns: 8,
        top: 2,
        left: 0,
        height: 4,
        width: 8,
        sourceTop: 0,
        sourceLeft: 0,
        sourceHeight: 2,
        sourceWidth: 4,
      },
      found: {
        min: 1,
        max: 30,
        mean: 51 / 7,
        std: Math.sqrt(991 / 7 - (51 / 7) ** 2),
        low: 1,
        high: 30,
      },
    },
    "a letterbox, and what was measured outside the padding",
  );
  const values = { kind: "voi" as const, index: 0, if_absent: "min_max" as const };
  t.match(await found({ values, size, fit: "crop" }, wide), {
    placement: { sourceLeft: 1, sourceWidth: 2, width: 8 },
    observed: { low: 1, high: 30 },
  });
});

t.test("argmax, padding and mask steps", async (t) => {
  const output: ModelOutput = {
    kind: "segmentation",
    tensor: "y",
    activation: "argmax",
    labels: labels("low", "high"),
    postprocess: [{ step: "drop_border_connected", labels: ["high"] }],
    measurements: [],
  };
  const { id } = await engine.load(loadOptions(writeModel(folder, three), { outputs: [output] }));
  // -30 is below ten both ways; 8 doubled is over ten; at the border it goes, and -2000 is padding.
  const samples = [
    -30, -30, -30, -30, -30, -30, 8, 8, -30, -30, -30, 8, 8, -30, 8, -30, -30, -30, -30, -2000,
  ];
  const frame = plane(4, 5, samples);
  frame.interpretation.padding = { from: -2000, to: -2000 };
  const { outputs } = await engine.infer(id, [frame], {});
  const [found] = outputs;
  t.match(found, { kind: "segmentation", overlapping: false, rows: 4, columns: 5, counts: [0, 4] });
  t.strictSame(
    found?.kind === "segmentation" && [...found.mask],
    [0, 0, 0, 0, 0, 0, 2, 2, 0, 0, 0, 2, 2, 0, 0, 0, 0, 0, 0, 0],
  );
});

t.test("probabilities are judged as they are, and logits are not taken for them", async (t) => {
  const output: ModelOutput = {
    kind: "segmentation",
    tensor: "y",
    activation: "none",
    labels: [{ label: "spot", threshold: 0.5 }],
    postprocess: [],
    measurements: [],
  };
  const { id } = await engine.load(
    loadOptions(writeModel(folder, identity), { outputs: [output] }),
  );
  const options = { thresholds: [[0.5]] };
  const frame = plane(1, 4, [0, 4, 5, 10]);
  frame.interpretation.modality = { kind: "rescale", slope: 0.1, intercept: 0 };
  const { outputs } = await engine.infer(id, [frame], options);
  const [found] = outputs;
  t.match(found, { kind: "segmentation", overlapping: true, counts: [2] });
  t.strictSame(found?.kind === "segmentation" && [...found.mask], [0, 0, 1, 1]);
  const logits = plane(1, 4, [0, 4, 5, 10]);
  t.equal((await failure(engine.infer(id, [logits], options))).code, "output_invalid");
});

t.test("thresholds come from the manifest or from the call", async (t) => {
  const output: ModelOutput = {
    kind: "probability_map",
    tensor: "y",
    activation: "none",
    threshold: 0.3,
    minimum_area: 1,
    unclip: 0,
    max_boxes: 10,
    label: { label: "text", threshold: 0.9 },
  };
  const scaled = { ...input, normalisation: { kind: "scale", multiply: 0.1, add: 0 } as const };
  const { id } = await engine.load(
    loadOptions(identityPath, { inputs: [scaled], outputs: [output] }),
  );
  const frame = plane(2, 4, [0, 0, 0, 0, 0, 8, 8, 0]);
  const none = await engine.infer(id, [frame], {});
  t.strictSame(none.outputs, [{ kind: "boxes", tensor: "y", boxes: [] }]);
  const some = await engine.infer(id, [frame], { thresholds: [[0.5]] });
  t.match(some.outputs, [{ kind: "boxes", boxes: [{ x0: 1, y0: 1, x1: 3, y1: 2, label: 0 }] }]);
  t.equal((await failure(engine.infer(id, [frame], { thresholds: [] }))).code, "bad_request");
});

t.test("raw tensors run as they are", async (t) => {
  const { id } = await engine.load(loadOptions(identityPath));
  const data = new Uint8Array(Float32Array.of(1, 2, 3, 4).buffer);
  const [y] = await engine.runTensors(id, [
    { name: "x", dtype: "float32", shape: [1, 1, 2, 2], data },
  ]);
  t.match(y, { name: "y", dtype: "float32", shape: [1, 1, 2, 2] });
  t.strictSame(floats(y!.data), [1, 2, 3, 4]);
  const aside = new Uint8Array(17).subarray(1);
  aside.set(data);
  const feed = { name: "x", dtype: "float32" as const, shape: [1, 1, 2, 2] };
  const [same] = await engine.runTensors(id, [{ ...feed, data: aside }]);
  t.strictSame(floats(same!.data), [1, 2, 3, 4], "wherever the bytes lie");
  const shared = new Uint8Array(new SharedArrayBuffer(16));
  t.match(await failure(engine.runTensors(id, [{ ...feed, data: shared }])), {
    code: "bad_request",
    message: /not shared/,
  });
  const short = { name: "x", dtype: "float32", shape: [1, 1, 2, 3], data } as const;
  t.match(await failure(engine.runTensors(id, [{ ...short, shape: [1, 1, 2, 3] }])), {
    code: "bad_request",
    message: /Expected 24 bytes.*found 16/,
  });
});

t.test("planes are checked before they are read", async (t) => {
  const { id } = await engine.load(loadOptions(identityPath));
  const short = plane(2, 2);
  short.data = short.data.subarray(2);
  t.match(await failure(engine.infer(id, [short], {})), {
    code: "truncated_image",
    message: /Expected 8 bytes.*found 6/,
  });
  t.equal((await failure(engine.infer(id, [], {}))).code, "bad_request");
  const colour = plane(1, 2, [0, 0, 0]);
  Object.assign(colour.format, {
    samplesPerPixel: 3,
    bitsAllocated: 8,
    bitsStored: 8,
    highBit: 7,
    signed: false,
  });
  colour.format.photometricInterpretation = "RGB";
  t.match(await failure(engine.infer(id, [colour], {})), {
    code: "no_model_accepts",
    message: /colour/,
  });
});

t.test("pictures: window, inversion, padding, size", async (t) => {
  const frame = plane(1, 4, [0, 50, 100, -2000]);
  frame.interpretation.padding = { from: -2000, to: -2000 };
  const red = (rgb: Uint8Array) => [...rgb].filter((_, i) => i % 3 === 0);
  t.strictSame(
    red(await engine.render(frame, { voiIndex: 0, width: 4, height: 1 })),
    [0, 128, 255, 0],
  );
  frame.interpretation.voi = [{ kind: "window", center: 50, width: 50, function: "LINEAR_EXACT" }];
  t.strictSame(red(await engine.render(frame, { voiIndex: 0, width: 2, height: 1 })), [64, 128]);
  frame.format.photometricInterpretation = "MONOCHROME1";
  t.strictSame(
    red(await engine.render(frame, { voiIndex: 0, width: 4, height: 1 })),
    [255, 128, 0, 0],
  );
  t.equal((await engine.render(frame, { voiIndex: 0, width: 9, height: 7 })).length, 9 * 7 * 3);
});

t.test("running and waiting work is cancelled, deadlines hold", async (t) => {
  const { id } = await engine.load(loadOptions(endlessPath));
  const frame = plane(2, 2);
  const start = (cancelId: number, timeoutMs?: number) =>
    failure(
      engine.infer(id, [frame], { cancelId, ...(timeoutMs === undefined ? {} : { timeoutMs }) }),
    );
  const late = start(1, 30);
  t.equal((await late).code, "deadline_exceeded", "while it runs");
  const running = [start(2), start(3)];
  await untilRunning(engine, 2);
  const waiting = [start(4), start(4), start(4), start(5, 20)];
  t.equal((await waiting[3]!).code, "deadline_exceeded", "while it waits");
  engine.cancel(4);
  t.strictSame(
    (await Promise.all(waiting.slice(0, 3))).map((e) => e.code),
    Array(3).fill("cancelled"),
  );
  engine.cancel(2);
  engine.cancel(3);
  t.strictSame(
    (await Promise.all(running)).map((e) => e.code),
    ["cancelled", "cancelled"],
  );
  t.equal((await start(7, 0)).code, "deadline_exceeded", "before it began");
});

t.test(
  "unload lets running work end, refuses more, and resolves when the memory is back",
  async (t) => {
    const { id } = await engine.load(loadOptions(endlessPath));
    const events: string[] = [];
    const running = failure(engine.infer(id, [plane(2, 2)], { cancelId: 11 })).then((e) =>
      events.push(e.code),
    );
    await untilRunning(engine);
    const unloaded = engine.unload(id).then(() => events.push("unloaded"));
    t.equal((await failure(engine.infer(id, [plane(2, 2)], {}))).code, "model_unavailable");
    t.strictSame(events, []);
    engine.cancel(11);
    await Promise.all([running, unloaded]);
    t.strictSame(events.sort(), ["cancelled", "unloaded"]);
  },
);

t.test("many at once all get their own answer", async (t) => {
  const { id } = await engine.load(loadOptions(identityPath));
  const other = createEngine({ provider: "cpu" });
  const one = async (value: number): Promise<EngineOutput | undefined> =>
    (await other.infer(id, [plane(2, 2, Array<number>(4).fill(value))], {})).outputs[0];
  for (let round = 0; round < 20; ++round) {
    const found = await Promise.all([1, 2, 3, 4].map((k) => one(round * 10 + k)));
    found.forEach((o, k) => {
      if (o?.kind !== "heatmap" || o.values[3] !== round * 10 + k + 1)
        t.fail(`round ${round}, request ${k}`);
    });
  }
  await other.close();
  t.equal((await failure(other.infer(id, [plane(1, 1)], {}))).code, "shutting_down");
});

t.test("work that was handed over runs while its thread of JavaScript is busy", async (t) => {
  const { id } = await engine.load(loadOptions(identityPath));
  const one = (options: InferOptions = {}) =>
    engine.infer(id, [plane(2, 2, [1, 2, 3, 4])], options);
  for (let i = 0; i < 3; ++i) {
    const found = await answeredBeside((timeoutMs) => one({ timeoutMs }));
    t.match(found.outputs[0], { kind: "heatmap", rows: 2, columns: 2 });
  }
});

/** How late a deadline may be at most: it is that of a machine which does next to nothing. */
const LONGEST_DEADLINE_MS = 60_000;

/**
 * What work gives whose deadline passes while this thread is busy. The work has to be done before
 * it: where the machine had no time for that, the next one has twice as much.
 */
async function answeredBeside<T>(begin: (timeoutMs: number) => Promise<T>): Promise<T> {
  for (let timeoutMs = 50; ; timeoutMs *= 2) {
    const answer = begin(timeoutMs);
    const end = performance.now() + timeoutMs * 1.5;
    while (performance.now() < end);
    try {
      return await answer;
    } catch (error) {
      const isLate = error instanceof RadserveError && error.code === "deadline_exceeded";
      if (!isLate || timeoutMs > LONGEST_DEADLINE_MS) throw error;
    }
  }
}

t.test("CUDA that is not there is refused", async (t) => {
  if (engine.info().providers.includes("CUDAExecutionProvider")) {
    t.comment("this runtime has CUDA");
    return;
  }
  t.throws(() => createEngine({ provider: "cuda" }), {
    code: "model_unavailable",
    message: /CUDA execution provider is not in this ONNX Runtime build/,
  });
  const load = engine.load(loadOptions(identityPath, { provider: "cuda" }));
  t.equal((await failure(load)).code, "model_unavailable");
});

t.test("tensors that are longer than Node.js hashes at once have their hash", (t) => {
  const { rawSha256 } = inferenceOf({
    outputs: [],
    raw: [new Uint8Array(2 ** 31)],
    timings: [0, 0, 0, 0],
  });
  t.equal(rawSha256, "a7c744c13cc101ed66c29f672f92455547889cc586ce6d44fe76ae824958ea51");
  t.end();
});
