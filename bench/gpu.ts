/**
 * What bench/gpu.sh runs: `node dist/bench/gpu.js --raw PROGRAM [--torch FILE] [--quick]
 * [--provider cpu]`, eight minutes; fewer with `--seconds 0.5` (of each row, 1.5 else), `--memory
 * 8` (at most, of each row about memory, 40 else) and `--only throughput,shapes` (these parts).
 * With --provider cpu the same measurements are taken on the CPU, which shows that the script works
 * where there is no GPU. Rows as they are known, and last a line of pass or fail for each goal;
 * status 1 where CPU and GPU disagree by more than the tolerance. With --graphs FOLDER it writes
 * the graphs of native/bench/gpu_check.cc and their list, and measures nothing.
 */
import { spawn, spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { copyFile } from "node:fs/promises";
import { availableParallelism, tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { createEngine, type Engine } from "../src/engine/engine.js";
import { type Tensor } from "../src/base/tensor.js";
import { compareTensors } from "../src/models/compare.js";
import { samples } from "../scripts/demo/samples.js";
import {
  idOf,
  load,
  mixedPictures,
  NETWORKS,
  picture,
  writeFolder,
  type Network,
} from "./lib/engine-models.js";
import type { LoadOptions } from "../src/engine/types.js";
import type { Manifest } from "../src/manifest/manifest.js";
import { manyLabels } from "../test/support/many-labels.js";
import { geometryOf, slicesOf } from "../test/support/volumes.js";
import { scaled, smallCnn, smallDenseNet, unet3d } from "./lib/models.js";
import { closedLoop } from "./lib/node-rival.js";
import { cpuSeconds } from "./lib/process-tree.js";
import { Raw } from "./lib/raw.js";
import { startServer } from "./lib/server.js";
import { sum } from "./lib/statistics.js";

const { values } = parseArgs({
  options: {
    raw: { type: "string" },
    torch: { type: "string" },
    quick: { type: "boolean" },
    provider: { type: "string", default: "cuda" },
    seconds: { type: "string", default: "1.5" },
    memory: { type: "string", default: "40" },
    only: { type: "string" },
    graphs: { type: "string" },
  },
});
const provider = values.provider === "cpu" ? "cpu" : "cuda";
const seconds = values.quick === true ? 0.2 : Number(values.seconds);
/** The largest batch that models of this bench run in. */
const LARGEST = values.quick === true ? 8 : 128;
const networks = Object.keys(NETWORKS) as Network[];

/**
 * Float32 sums in another order; TF32 and float16 round factors to 10 bits (NVIDIA, Ampere
 * architecture white paper).
 */
const TOLERANCE = {
  float32: { absolute: 1e-3, relative: 1e-3 },
  tf32: { absolute: 5e-2, relative: 5e-2 },
  float16: { absolute: 5e-2, relative: 5e-2 },
} as const;
type Precision = keyof typeof TOLERANCE;

const precisionsOf = (name: Network): Precision[] =>
  name === "densenet121_float16" ? ["float16"] : ["float32", "tf32"];

type Row = [what: string, setting: string, value: string];

/** Least shares of the plain loop, at so many requests at once. */
const LEAST: Record<Network, { full: number[]; least: number; alone?: number; of16?: number }> = {
  densenet121: { full: [64, 128], least: 1, alone: 1.05, of16: 0.9 },
  densenet121_float16: { full: [64, 128], least: 1, alone: 1.5, of16: 0.9 },
  small_cnn: { full: [64], least: 0.6 },
};

const ofBestLoop = (name: Network, concurrency: number) =>
  `${name}, ${concurrency} at once, of the best plain loop`;
const ofPlainCall = (name: Network, concurrency: number) =>
  `${name}, ${concurrency} at once, of a plain call`;
const ofLoopWithGraphs = (name: Network) => `${name}, 16 at once, of the plain loop with graphs`;
const firstSize = (name: string) => `${name}: 2 s by the seconds to its first size`;
const allSizes = (name: string) => `${name}: 10 s by the seconds to all sizes`;
const flat = (where: "host" | "device", what: string) =>
  `memory of the ${where} is flat (2 %), ${what}`;
const BUSY = "GPU busy, 128 at once";
const BY_TURNS = "shapes by turns, of what each alone predicts";
const WINDOWS = "windows of nnU-Net, of a plain loop over as many";
const LOADED = ["densenet121", "densenet121_float16"] as const;
const RUNS = "runs over which memory was looked at, of 100,000";
const RELOADS = "reloads over which memory was looked at, of 100";

/**
 * Least shares, mostly of what a plain loop gives in the same run. What was not measured has not
 * passed.
 */
const GOALS = new Map<string, number>([
  ...networks.flatMap((name) => {
    const { full, least, alone, of16 } = LEAST[name];
    return [
      ...full.map((concurrency) => [ofBestLoop(name, concurrency), least] as const),
      ...(alone === undefined ? [] : [1, 2].map((few) => [ofPlainCall(name, few), alone] as const)),
      ...(of16 === undefined ? [] : [[ofLoopWithGraphs(name), of16] as const]),
    ];
  }),
  [BUSY, 0.9],
  [BY_TURNS, 0.9],
  ...(["mixed shapes", "two models by turns", "reloads"] as const).flatMap((what) =>
    (["host", "device"] as const).map((where) => [flat(where, what), 1 / 1.02] as const),
  ),
  [RUNS, 1],
  [RELOADS, 1],
  ...LOADED.flatMap((name) => [[firstSize(name), 1] as const, [allSizes(name), 1] as const]),
  [WINDOWS, 0.95],
]);
const shares = new Map<string, { share: number; of: string }>();

/** @param of how often it was done, where that counts */
function reached(goal: string, share: number, of = ""): void {
  shares.set(goal, { share, of });
}

function tellGoals(): void {
  for (const [goal, least] of GOALS) {
    const { share, of } = shares.get(goal) ?? { share: NaN, of: "" };
    const said = Number.isNaN(share) ? "not measured" : share.toFixed(3);
    console.log(
      `${share >= least ? "pass" : "FAIL"}  ${said} (at least ${least.toFixed(2)})  ${goal}${of}`,
    );
  }
}

function randomFeed(side: number, seed: number): Tensor {
  const data = Float32Array.from({ length: side * side }, (_, i) =>
    Math.sin(i * 12.9898 + seed * 78.233),
  );
  return {
    name: "x",
    dtype: "float32",
    shape: [1, 1, side, side],
    data: new Uint8Array(data.buffer),
  };
}

/**
 * The way that images go: one at a time, and so many at once that they run in batches with padding.
 */
async function agreement(engine: Engine, folder: string): Promise<boolean> {
  let agree = true;
  const set = await load(folder, engine);
  for (const name of networks) {
    const { manifest } = set.entries.find((entry) => entry.name === name)!;
    const model = {
      modelPath: join(folder, name, "model.onnx"),
      name,
      version: "1",
      batching: manifest.batching,
      inputs: manifest.inputs,
      outputs: manifest.outputs,
    };
    const feeds = Array.from({ length: 13 }, (_, seed) => randomFeed(NETWORKS[name].side, seed));
    const run = async (id: number, feed: Tensor) => (await engine.runTensors(id, [feed]))[0]!;
    const cpu = await engine.load({ ...model, provider: "cpu" });
    const expected = await Promise.all(feeds.map((feed) => run(cpu.id, feed)));
    await engine.unload(cpu.id);
    for (const precision of precisionsOf(name)) {
      const gpu = await engine.load({ ...model, provider, precision });
      const alone: Tensor[] = [];
      for (const feed of feeds) alone.push(await run(gpu.id, feed));
      const together = await Promise.all(feeds.map((feed) => run(gpu.id, feed)));
      for (const [how, found] of [
        ["one at a time", alone],
        ["all at once", together],
      ] as const) {
        const wrong = found
          .map((tensor, i) => compareTensors(expected[i]!, tensor, TOLERANCE[precision]))
          .filter(({ equal }) => !equal);
        agree &&= wrong.length === 0;
        const [first] = wrong;
        const said = first === undefined ? "agree" : `${wrong.length} differ: ${first.text}`;
        tell([`${name}: CPU and ${provider}`, `${precision}, ${feeds.length} inputs ${how}`, said]);
      }
      await engine.unload(gpu.id);
    }
  }
  await set.close();
  return agree;
}

/** Images and batches that a model has run, and how many of them may run beside each other. */
function batches(engine: Engine, id: number): { images: number; all: number; lanes: number } {
  const model = engine.stats().models.find((one) => one.id === id);
  const { counts = [], sum: images = 0 } = model?.batchSizes ?? {};
  return { images, all: sum(counts), lanes: model?.lanes ?? 0 };
}

/** Images a second of a plain loop by batch, the better of one lane and two. */
async function plainLoop(
  name: Network,
  raw: Raw,
  what: string,
  batches: readonly number[],
  lanes: readonly number[],
): Promise<Map<number, number>> {
  const { side } = NETWORKS[name];
  const rates = new Map<number, number>();
  for (const batch of batches.filter((one) => one <= LARGEST))
    for (const lane of batch === 1 ? [1] : lanes) {
      const setting = {
        lanes: lane,
        threads: 1,
        spin: 0 as const,
        batch,
        height: side,
        width: side,
        seconds,
      };
      const { rate, p95 } = await raw.run(setting);
      rates.set(batch, Math.max(rates.get(batch) ?? 0, rate));
      const value = `${rate.toFixed(1)}/s, p95 ${p95.toFixed(1)} ms`;
      tell([`${name}: ${what}`, `batch ${batch}, lanes ${lane}`, value]);
    }
  return rates;
}

/** The plain loops first: a session of the engine takes memory and, on a CPU, threads. */
async function loops(
  folder: string,
  name: Network,
): Promise<{ best: number; alone: number; graphs: number }> {
  const graph = join(folder, name, "model.onnx");
  const raw = new Raw(values.raw ?? "", graph, provider);
  const plain = await plainLoop(name, raw, "plain loop", [1, 16, 32, 64, 128], [1, 2]);
  raw.stop();
  const best = Math.max(...plain.values());
  const alone = plain.get(1)!;
  if (provider === "cpu") return { best, alone, graphs: best };
  const captured = new Raw(values.raw ?? "", graph, provider, ["enable_cuda_graph=1"]);
  // Sixteen in flight, one way and the other.
  const one = await plainLoop(name, captured, "plain loop, graphs", [1, 16, 64, 128], [1]);
  const two = await plainLoop(name, captured, "plain loop, graphs", [8, 64], [2]);
  captured.stop();
  if (name === "densenet121_float16") {
    const nhwc = new Raw(values.raw ?? "", graph, provider, [
      "enable_cuda_graph=1",
      "prefer_nhwc=1",
    ]);
    await plainLoop(name, nhwc, "plain loop, graphs, prefer_nhwc", [1, 32, 128], [1]);
    nhwc.stop();
  }
  return { best, alone, graphs: Math.max(one.get(16) ?? best, two.get(8) ?? 0) };
}

async function throughput(
  engine: Engine,
  id: number,
  name: Network,
  plain: { best: number; alone: number; graphs: number },
): Promise<void> {
  const { side } = NETWORKS[name];
  const plane = picture(side, side);
  for (const concurrency of [1, 2, 16, 64, 128]) {
    const before = batches(engine, id);
    const gpu = watchGpu();
    const used = process.cpuUsage();
    const began = performance.now();
    const { rate, p50 } = await closedLoop(concurrency, 2 * seconds, () =>
      engine.infer(id, [plane], {}),
    );
    const { user, system } = process.cpuUsage(used);
    const took = (performance.now() - began) / 1000;
    const cores = (user + system) / 1e6 / took;
    const hostMicroseconds = (user + system) / (rate * took);
    const busy = gpu();
    const after = batches(engine, id);
    const size = (after.images - before.images) / (after.all - before.all);
    tell([
      `${name}: radserve`,
      `${concurrency} at once`,
      `${rate.toFixed(1)}/s, p50 ${p50.toFixed(1)} ms, ${(rate / plain.best).toFixed(2)} of the best plain loop, ` +
        `GPU ${busy.toFixed(0)} %, ${cores.toFixed(1)} cores, ${hostMicroseconds.toFixed(0)} us of host an image, ` +
        `${size.toFixed(1)} in a batch, lanes ${after.lanes}`,
    ]);
    reached(ofBestLoop(name, concurrency), rate / plain.best);
    reached(ofPlainCall(name, concurrency), rate / plain.alone);
    if (concurrency === 16) reached(ofLoopWithGraphs(name), rate / plain.graphs);
    if (concurrency === 128 && name === "densenet121") reached(BUSY, busy / 100);
  }
}

async function mixedShapes(engine: Engine, id: number): Promise<Row> {
  const pictures = mixedPictures();
  const rates: number[] = [];
  let first = 0;
  // Outside of the time: the sizes of each shape are planned and captured.
  await closedLoop(16, 2 * seconds, () => engine.infer(id, [pictures[first++ % 4]!], {}));
  for (const plane of pictures)
    rates.push((await closedLoop(16, seconds, () => engine.infer(id, [plane], {}))).rate);
  let next = 0;
  const mixed = await closedLoop(16, 2 * seconds, () =>
    engine.infer(id, [pictures[next++ % 4]!], {}),
  );
  const predicted = rates.length / sum(rates.map((rate) => 1 / rate));
  reached(BY_TURNS, mixed.rate / predicted);
  const value = `${mixed.rate.toFixed(1)}/s, ${(mixed.rate / predicted).toFixed(2)} of what each alone predicts`;
  return ["small_cnn: mixed shapes", "192, 256, 384, 512 by turns", value];
}

/** What nvidia-smi says of the first GPU. */
const query = (what: string): string[] => [
  `--query-gpu=${what}`,
  "--format=csv,noheader,nounits",
  "--id=0",
];

/**
 * Looks at how busy the first GPU is until it is asked: the mean in percent, NaN where nobody
 * knows.
 */
function watchGpu(): () => number {
  const seen: number[] = [];
  const watch = spawn("nvidia-smi", [...query("utilization.gpu"), "--loop-ms=200"], {
    stdio: ["ignore", "pipe", "ignore"],
  });
  watch.on("error", () => undefined);
  watch.stdout.on("data", (text: Buffer) => {
    for (const line of text.toString().split("\n"))
      if (/^\d/.test(line)) seen.push(Number.parseInt(line, 10));
  });
  return () => {
    watch.kill();
    // The first look falls into the time before the load
    return sum(seen.slice(1)) / Math.max(1, seen.length - 1) || NaN;
  };
}

/** Files to answers over HTTP: images a second, and which of GPU and cores is the limit. */
async function endToEnd(folder: string, name: Network): Promise<Row> {
  const gpuOfServer = { RADSERVE_MODELS_DIR: folder, RADSERVE_PROVIDERS: provider };
  const server = await startServer(
    provider === "cuda" ? gpuOfServer : { ...gpuOfServer, RADSERVE_GPUS: "" },
  );
  try {
    const { ct } = await samples();
    const output = join(server.output, "bench");
    mkdirSync(output);
    const seed = join(server.input, "seed.dcm");
    writeFileSync(seed, ct);
    const count = values.quick === true ? 40 : 2000;
    const inputs = Array.from({ length: count }, (_, i) => join(server.input, `image-${i}.dcm`));
    // A client that is busy for seconds would not see that a connection was closed.
    for (const input of inputs) await copyFile(seed, input);
    const ask = async (input: string) => {
      const paths = { input_image_path: input, output_folder_path: output };
      const { status, body } = await server.post({ ...paths, models: [name], outputs: ["json"] });
      if (status !== 200) throw new Error(`The server answered ${status}: ${JSON.stringify(body)}`);
    };
    await ask(seed);
    const gpu = watchGpu();
    const cpu = cpuSeconds(server.process.pid!);
    const began = performance.now();
    let next = 0;
    const one = async () => {
      while (next < inputs.length) await ask(inputs[next++]!);
    };
    let busy = NaN;
    try {
      await Promise.all(Array.from({ length: 4 * availableParallelism() }, one));
    } finally {
      // Else the program that it runs would keep this one alive.
      busy = gpu();
    }
    const took = (performance.now() - began) / 1000;
    const cores = (cpuSeconds(server.process.pid!) - cpu) / took;
    const value = `${(count / took).toFixed(1)}/s, GPU ${busy.toFixed(0)} %, ${cores.toFixed(1)} of ${availableParallelism()} cores`;
    return [`${name}: files to answers`, `${4 * availableParallelism()} at once, JSON`, value];
  } finally {
    await server.stop();
  }
}

/** Two models by turns: what one leaves on the device must not add up (onnxruntime issue 29351). */
async function byTurns(engine: Engine, ids: readonly (readonly [number, Network])[]): Promise<Row> {
  const planes = ids.map(([, name]) => picture(NETWORKS[name].side, NETWORKS[name].side));
  const rounds = values.quick === true ? 10 : 2500;
  const [count, grown] = await growth(rounds / 5, rounds, async () => {
    await Promise.all(
      Array.from({ length: AT_ONCE }, (_, i) =>
        engine.infer(ids[i % ids.length]![0], [planes[i % ids.length]!], {}),
      ),
    );
  });
  const runs = `${AT_ONCE * count} runs`;
  return ["two models by turns: memory", runs, told(grown, "two models by turns", runs)];
}

/**
 * Seconds after which a row about memory ends, however many runs it has seen: the whole bench fits
 * into eight minutes.
 */
const MOST_SECONDS = Number(values.memory);

/** Runs at once of a round whose memory is looked at. */
const AT_ONCE = 20;

/** Memory afterwards as a share of before, of the host and of the GPU. */
type Growth = [host: number, device: number];

function told([host, device]: Growth, what: string, times: string): string {
  reached(flat("host", what), 1 / host, `: ${times}`);
  reached(flat("device", what), 1 / device, `: ${times}`);
  return `host ${host.toFixed(3)}, device ${device.toFixed(3)} of before`;
}

/** What so many runs add to the memory after some first ones, and how many there were. */
async function growth(
  first: number,
  most: number,
  run: (i: number) => Promise<void>,
): Promise<[count: number, grown: Growth]> {
  for (let i = 0; i < first; i++) await run(i);
  const [host, device] = memory();
  const ends = performance.now() + MOST_SECONDS * 1000;
  let count = 0;
  while (count < most && performance.now() < ends) await run(count++);
  const [hostAfter, deviceAfter] = memory();
  return [count, [hostAfter / host, deviceAfter / device]];
}

/** MiB of this process and of the first GPU (of all its users). */
function memory(): [number, number] {
  const { stdout } = spawnSync("nvidia-smi", query("memory.used"), { encoding: "utf8" });
  return [process.memoryUsage.rss() / 2 ** 20, Number.parseInt(stdout, 10)];
}

async function flatMemory(engine: Engine, id: number): Promise<Row> {
  const pictures = mixedPictures();
  const rounds = values.quick === true ? 25 : 5000;
  const [count, grown] = await growth(rounds / 50, rounds, async () => {
    await Promise.all(
      Array.from({ length: AT_ONCE }, (_, i) => engine.infer(id, [pictures[i % 4]!], {})),
    );
  });
  const runs = `${AT_ONCE * count} runs`;
  reached(RUNS, (AT_ONCE * count) / 100_000);
  return ["small_cnn: memory", `${runs} of mixed shapes`, told(grown, "mixed shapes", runs)];
}

function optionsOf(folder: string, name: Network, manifest: Manifest): LoadOptions {
  return {
    modelPath: join(folder, name, "model.onnx"),
    name,
    version: "1",
    batching: { max: LARGEST },
    inputs: manifest.inputs,
    outputs: manifest.outputs,
    provider,
    precision: name === "densenet121_float16" ? "float16" : "float32",
  };
}

/** Loads again and again, with work in flight each time. */
async function reloads(engine: Engine, options: LoadOptions): Promise<Row> {
  const plane = picture(256, 256);
  const [count, grown] = await growth(3, values.quick === true ? 3 : 100, async () => {
    const { id } = await engine.load(options);
    const work = Array.from({ length: 32 }, () => engine.infer(id, [plane], {}));
    await Promise.all([...work, engine.unload(id)].map((one) => one.catch(() => undefined)));
  });
  reached(RELOADS, count / 100);
  return [
    "small_cnn: reloads",
    `${count} with 32 images in flight`,
    told(grown, "reloads", `${count} times`),
  ];
}

/** How long a model takes until its first size is warm, and until all are. */
async function ready(engine: Engine, options: LoadOptions): Promise<Row> {
  const seconds = async (max: number): Promise<number> => {
    const began = performance.now();
    const { id } = await engine.load({ ...options, batching: { max } });
    const took = (performance.now() - began) / 1000;
    await engine.unload(id);
    return took;
  };
  const [one, all] = [await seconds(1), await seconds(LARGEST)];
  reached(firstSize(options.name), 2 / one);
  reached(allSizes(options.name), 10 / all);
  const value = `first size ${one.toFixed(1)} s, all ${all.toFixed(1)} s`;
  return [`${options.name}: load`, `sizes up to ${LARGEST}`, value];
}

/** nnU-Net's windows over a volume, beside a plain loop over as many. */
async function windows(engine: Engine, folder: string): Promise<Row> {
  const [window, slices, side] = values.quick === true ? [32, 48, 64] : [96, 192, 240];
  const classes = 4;
  const graph = join(folder, "unet.onnx");
  writeFileSync(graph, unet3d(classes));
  const raw = new Raw(values.raw ?? "", graph, provider);
  let best = 0;
  for (const batch of [1, 2, 4])
    for (const lanes of [1, 2]) {
      const box = { height: window, width: window, depth: window };
      const { rate } = await raw.run({ lanes, threads: 1, spin: 0, batch, seconds, ...box });
      tell([
        "windows of nnU-Net: plain loop",
        `batch ${batch}, lanes ${lanes}`,
        `${rate.toFixed(1)}/s`,
      ]);
      best = Math.max(best, rate);
    }
  raw.stop();
  const base = manyLabels(graph, window, [1, 1, 1]);
  const [output] = base.outputs;
  if (output?.kind !== "segmentation") throw new Error("The network segments");
  const outputs = [{ ...output, labels: output.labels.slice(0, classes - 1) }];
  const { id } = await engine.load({ ...base, outputs, provider, batching: { max: 4 } });
  const planes = slicesOf(new Uint16Array(slices * side * side), [slices, side, side]);
  const geometry = geometryOf("SPL", [1, 1, 1]);
  let count = 0;
  const watch = async () => {
    const began = performance.now();
    const { timings } = await engine.infer(id, planes, { geometry });
    return [timings.runMs / 1000, (performance.now() - began) / 1000] as const;
  };
  await watch();
  const [run, whole] = await watch();
  await engine.unload(id);
  for (const length of [slices, side, side])
    count = (count || 1) * (Math.ceil((length - window) / (window / 2)) + 1);
  reached(WINDOWS, count / run / best);
  const value = `${count} windows in ${run.toFixed(1)} s of ${whole.toFixed(1)}, ${(count / run).toFixed(1)}/s, plain loop ${best.toFixed(1)}/s`;
  return ["windows of nnU-Net", `${window} a side, ${slices} x ${side} x ${side}`, value];
}

/** PyTorch with a CUDA graph on the same card, where python3 has it. */
function torch(file: string): void {
  const { status, stdout } = spawnSync("python3", [file], { encoding: "utf8", timeout: 90_000 });
  if (status !== 0)
    tell(["PyTorch", "CUDA graph, channels last", "was not run: python3 has no torch that works"]);
  for (const line of stdout.split("\n").filter((one) => one !== "")) {
    const [dtype, batch, rate] = line.split(" ");
    tell([`DenseNet-121 in PyTorch, ${dtype}`, `CUDA graph, batch ${batch}`, `${rate}/s`]);
  }
}

/** Rows are told as soon as they are known: whoever ends the bench early has those. */
function tell([what, setting, value]: Row): void {
  console.log(`${what.padEnd(34)}  ${setting.padEnd(36)}  ${value}`);
}

/** The parts of the bench, of which `--only` names some. */
type Part =
  | ("loops" | "agreement" | "throughput" | "shapes" | "memory")
  | ("reloads" | "load" | "windows" | "files" | "torch");
const wanted = (part: Part) => values.only === undefined || values.only.split(",").includes(part);

/** False where CPU and GPU disagree. */
async function measure(engine: Engine, folder: string): Promise<boolean> {
  const none = { best: NaN, alone: NaN, graphs: NaN };
  const plain = new Map<Network, Awaited<ReturnType<typeof loops>>>();
  for (const name of networks) plain.set(name, wanted("loops") ? await loops(folder, name) : none);
  const agree = !wanted("agreement") || (await agreement(engine, folder));
  const set = await load(folder, engine, [provider]);
  const manifest = (name: Network) => set.entries.find((entry) => entry.name === name)!.manifest;
  const small = idOf(set, "small_cnn");
  if (wanted("throughput"))
    for (const name of networks) await throughput(engine, idOf(set, name), name, plain.get(name)!);
  if (wanted("shapes")) tell(await mixedShapes(engine, small));
  if (wanted("memory")) {
    tell(await flatMemory(engine, small));
    const large = idOf(set, "densenet121");
    tell(await byTurns(engine, [[large, "densenet121"] as const, [small, "small_cnn"] as const]));
  }
  if (wanted("reloads"))
    tell(await reloads(engine, optionsOf(folder, "small_cnn", manifest("small_cnn"))));
  if (wanted("load"))
    for (const name of LOADED) tell(await ready(engine, optionsOf(folder, name, manifest(name))));
  await set.close();
  if (wanted("windows")) tell(await windows(engine, folder));
  if (wanted("files")) tell(await endToEnd(folder, "densenet121"));
  if (values.torch !== undefined && wanted("torch")) torch(values.torch);
  return agree;
}

/** What gpu_check is run with: small graphs of several kinds and types of elements. */
function writeGraphs(folder: string): void {
  mkdirSync(folder, { recursive: true });
  const graphs: [name: string, bytes: Uint8Array, lines: string[]][] = [
    [
      "small_cnn.onnx",
      smallCnn(),
      ["float32 1e-3", "tf32 5e-2"].map((how) => `${how} 1x192x192 1x256x256 1x384x384`),
    ],
    ["small_densenet.onnx", smallDenseNet(), ["float32 1e-3 1x64x64"]],
    ["small_cnn_float16.onnx", smallCnn("float16"), ["float16 5e-2 1x192x192 1x256x256"]],
    ...(["float32", "float16", "uint8", "int16", "int32"] as const).map(
      (dtype): [string, Uint8Array, string[]] => [
        `scaled_${dtype}.onnx`,
        scaled(dtype),
        [`${dtype === "float16" ? "float16" : "float32"} 1e-3 3x17 64x64`],
      ],
    ),
  ];
  for (const [name, bytes] of graphs) writeFileSync(join(folder, name), bytes);
  const lines = graphs.flatMap(([name, , hows]) => hows.map((how) => `${name} ${how}\n`));
  writeFileSync(join(folder, "graphs.txt"), lines.join(""));
}

async function main(): Promise<void> {
  if (values.graphs !== undefined) {
    writeGraphs(values.graphs);
    return;
  }
  const folder = mkdtempSync(join(tmpdir(), "radserve-bench-gpu-"));
  for (const name of networks) {
    const { manifest } = writeFolder(folder, name);
    const text = JSON.parse(readFileSync(manifest, "utf8")) as object;
    writeFileSync(manifest, JSON.stringify({ ...text, batching: { max: LARGEST } }));
  }
  const engine = createEngine({ provider });
  try {
    if (!(await measure(engine, folder))) process.exitCode = 1;
  } finally {
    tellGoals();
    await engine.close();
    rmSync(folder, { recursive: true, force: true });
  }
}

try {
  await main();
} catch (error) {
  console.error(error);
  process.exitCode = 2;
}
