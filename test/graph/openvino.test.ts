/** Graphs on OpenVINO, where npm run setup:openvino has put it. */
import { execFileSync } from "node:child_process";
import {
  copyFileSync,
  existsSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";
import t from "tap";
import { ints, onnxModel, type ModelDescription } from "../../scripts/lib/onnx-model.js";
import { createEngine, type Feeds, type Model } from "../../src/graph/index.js";
import { openAddon } from "../../src/addon/open-addon.js";
import type { GraphAddon } from "../../src/graph/graph-addon.js";
import { needs, OPENVINO } from "../support/needs.js";
import { refusedBy } from "../support/engine-errors.js";
import { writeModel } from "../support/tiny-models.js";
import { until } from "../support/until.js";

const folder = t.testdir();
const engine = createEngine({ threads: 2 });
t.teardown(() => engine.close());
t.setTimeout(300_000);

const CHANNELS = 16;

/** Two convolutions over volumes, whose sums are long enough for bfloat16 to show. */
const convolutions: ModelDescription = {
  name: "convolutions",
  inputs: [{ name: "x", dtype: "float32", shape: ["n", 1, "d", "h", "w"] }],
  outputs: [{ name: "y", dtype: "float32", shape: ["n", CHANNELS, "d", "h", "w"] }],
  initializers: [1, CHANNELS].map((from, layer) => ({
    name: `w${layer}`,
    dtype: "float32",
    shape: [CHANNELS, from, 3, 3, 3],
    data: Array.from({ length: CHANNELS * from * 27 }, (_, i) => Math.sin(i * (layer + 1.7))),
  })),
  nodes: ["x", "a"].map((input, layer) => ({
    op: "Conv",
    inputs: [input, `w${layer}`],
    outputs: [layer === 0 ? "a" : "y"],
    attributes: { pads: ints([1, 1, 1, 1, 1, 1]) },
  })),
};

/** Alike, and so many layers that a run is told to stop long before its end. */
const LAYERS = 40;
const long: ModelDescription = {
  ...convolutions,
  name: "long",
  initializers: convolutions.initializers!.slice(1),
  inputs: [{ name: "x", dtype: "float32", shape: ["n", CHANNELS, "d", "h", "w"] }],
  nodes: Array.from({ length: LAYERS }, (_, layer) => ({
    op: "Conv",
    inputs: [layer === 0 ? "x" : `a${layer}`, "w1"],
    outputs: [layer === LAYERS - 1 ? "y" : `a${layer + 1}`],
    attributes: { pads: ints([1, 1, 1, 1, 1, 1]) },
  })),
};

function volume(side: number, channels = 1): Feeds {
  const data = Float32Array.from({ length: channels * side ** 3 }, (_, i) => Math.cos(i * 0.31));
  return { x: { shape: [1, channels, side, side, side], data } };
}

async function numbersOf(model: Model, feeds: Feeds): Promise<Float32Array> {
  const { y } = await model.run(feeds);
  return y!.data as Float32Array;
}

/** The largest difference, as a share of the largest number. */
function distance(a: Float32Array, b: Float32Array): number {
  let most = 0;
  let difference = 0;
  a.forEach((value, i) => {
    most = Math.max(most, Math.abs(value));
    difference = Math.max(difference, Math.abs(value - b[i]!));
  });
  return difference / most;
}

/** A copy of the addon, which looks for OpenVINO beside itself. */
function addonIn(folder: string): string {
  for (const name of ["addon.node", "libonnxruntime.so.1"])
    (name.endsWith(".node") ? copyFileSync : symlinkSync)(
      path.resolve("build/Release", name),
      path.join(folder, name),
    );
  return path.join(folder, "addon.node");
}

t.test("where it is not installed a load is refused by name", async (t) => {
  const addon = createRequire(import.meta.url)(addonIn(t.testdir())) as GraphAddon;
  t.strictSame(addon.openvino(), { version: "", problem: "it is not installed" });
  addon.start({ threads: 1 });
  const loading = addon.loadGraph({
    path: writeModel(folder, convolutions),
    bytes: undefined,
    name: "convolutions",
    maxBatch: 1,
    provider: "openvino",
    precision: "float32",
    threads: 0,
    gpus: [],
    gpuMemory: 0,
    hashes: [],
    timeoutMs: undefined,
    cancelId: undefined,
  });
  await t.rejects(loading, {
    code: "model_unavailable",
    message: /OpenVINO cannot be used: it is not installed. Run npm run setup:openvino/,
  });
});

t.test("a library that is missing or cut is named", { skip: needs(OPENVINO) }, async (t) => {
  const whole = path.resolve(path.dirname(OPENVINO));
  for (const victim of ["libopenvino_onnx_frontend.so.2641", "libopenvino_intel_cpu_plugin.so"])
    for (const fault of ["missing", "cut or damaged"])
      await t.test(`${victim} is ${fault}`, (t) => {
        const copy = t.testdir({ openvino: {} });
        const at = path.join(copy, "openvino", victim);
        for (const name of readdirSync(whole))
          symlinkSync(path.join(whole, name), path.join(copy, "openvino", name));
        rmSync(at);
        if (fault !== "missing")
          writeFileSync(at, readFileSync(path.join(whole, victim)).subarray(0, 1_000_000));
        // In a process of its own: one that has opened OpenVINO keeps to the first folder.
        const asked = `require(${JSON.stringify(addonIn(copy))}).openvino().problem`;
        const problem = execFileSync(process.execPath, ["--print", asked], { encoding: "utf8" });
        t.equal(problem.trim(), `${victim} is ${fault}`);
        t.end();
      });
});

t.test("bfloat16 is OpenVINO's alone", async (t) => {
  const loading = engine.load(writeModel(folder, convolutions), { precision: "bfloat16" });
  t.match(await refusedBy(loading), { code: "bad_request" });
});

t.test("graphs on OpenVINO", { skip: needs(OPENVINO) }, async (t) => {
  t.ok(engine.providers.includes("openvino"));
  t.match((openAddon("addon") as GraphAddon).openvino(), { version: /^2026\./, problem: "" });
  const file = writeModel(folder, convolutions);
  await using cpu = await engine.load(file);
  await using openvino = await engine.load(file, { provider: "openvino", batching: { max: 4 } });

  await t.test("it takes and gives what the graph does", (t) => {
    t.strictSame(openvino.inputs, cpu.inputs);
    t.strictSame(openvino.outputs, cpu.outputs);
    t.equal(openvino.provider, "openvino");
    t.equal(openvino.batching, 1, "each run goes alone");
    t.end();
  });

  await t.test("float32 is asked for, whatever the processor is faster in", async (t) => {
    // bfloat16 is off by more than a thousandth here
    for (const side of [12, 16, 12]) {
      const expected = await numbersOf(cpu, volume(side));
      t.ok(distance(expected, await numbersOf(openvino, volume(side))) < 1e-5, `side ${side}`);
    }
  });

  await t.test("bfloat16 where it is named, or not at all", async (t) => {
    const options = { provider: "openvino", precision: "bfloat16" } as const;
    const loading = engine.load(file, options);
    const refused = await loading.then(
      () => undefined,
      (error: unknown) => error,
    );
    if (refused !== undefined) {
      t.match(refused, { message: /Expected OpenVINO to compute the model in bf16, found/ });
      return;
    }
    await using model = await loading;
    const off = distance(await numbersOf(cpu, volume(16)), await numbersOf(model, volume(16)));
    t.ok(off > 1e-4 && off < 0.1, `off by ${off}`);
  });

  await t.test("equal inputs give equal bits: again, at once, and loaded anew", async (t) => {
    const expected = await numbersOf(openvino, volume(16));
    const several = await Promise.all(
      [16, 12, 16, 16].map((side) => numbersOf(openvino, volume(side))),
    );
    for (const i of [0, 2, 3]) t.strictSame(several[i], expected);
    await using other = await engine.load(onnxModel(convolutions), { provider: "openvino" });
    t.strictSame(await numbersOf(other, volume(16)), expected);
  });

  await t.test("a run ends when it is told to, and the next is right", async (t) => {
    await using model = await engine.load(writeModel(folder, long), { provider: "openvino" });
    const feeds = volume(24, CHANNELS);
    const stopped = async () => {
      const stop = new AbortController();
      const began = performance.now();
      const running = model.run(feeds, { signal: stop.signal });
      const waiting = model.run(feeds, { signal: stop.signal });
      stop.abort();
      for (const refusal of await Promise.all([running, waiting].map(refusedBy)))
        t.match(refusal, { code: "cancelled" });
      return performance.now() - began;
    };
    // A machine may stand still while one of them ends; runs that went on would never be sooner
    await until("it ends sooner than a run takes", async () => {
      const ended = await stopped();
      const whole = performance.now();
      await model.run(feeds);
      return ended < performance.now() - whole;
    });
    const first = await numbersOf(model, feeds);
    t.strictSame(await numbersOf(model, feeds), first);
    const late = model.run(feeds, { timeoutMs: 1 });
    t.match(await refusedBy(late), { code: "deadline_exceeded" });
  });

  await t.test("what it cannot compile is refused, and says what to do", async (t) => {
    const unknown: ModelDescription = {
      name: "unknown",
      inputs: [{ name: "x", dtype: "float32", shape: [3, 3] }],
      outputs: [{ name: "y", dtype: "float32", shape: [] }],
      nodes: [{ op: "Det", inputs: ["x"], outputs: ["y"] }],
    };
    const unknownFile = writeModel(folder, unknown);
    await (await engine.load(unknownFile)).unload();
    t.match(await refusedBy(engine.load(unknownFile, { provider: "openvino" })), {
      code: "model_unavailable",
      message: /read the model: it has no operator Det-\d+\. To run it .* to \["cpu"\]\.$/,
    });
    const noGraph = engine.load(Buffer.from("no graph"), { provider: "openvino" });
    t.match(await refusedBy(noGraph), { code: "model_unavailable" });
  });
});

t.test("it is only looked for where it lies", (t) => {
  t.equal(engine.providers.includes("openvino"), existsSync(OPENVINO));
  t.end();
});
