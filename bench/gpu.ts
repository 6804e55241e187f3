/**
 * What bench/gpu.sh runs: `node dist/bench/gpu.js --raw PROGRAM [--quick] [--provider cpu]`. With --provider cpu the same
 * measurements are taken on the CPU, which shows that the script works where there is no GPU. One table; status 1 where
 * CPU and GPU disagree by more than the tolerance. With --graphs FOLDER it writes the graphs of native/bench/gpu_check.cc
 * and their list, and measures nothing.
 */
import { spawn, spawnSync } from "node:child_process";
import { copyFileSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
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
import { scaled, smallCnn } from "./lib/models.js";
import { closedLoop } from "./lib/node-rival.js";
import { cpuSeconds } from "./lib/process-tree.js";
import { Raw } from "./lib/raw.js";
import { startServer } from "./lib/server.js";
import { sum } from "./lib/statistics.js";

const { values } = parseArgs({
  options: {
    raw: { type: "string" },
    quick: { type: "boolean" },
    provider: { type: "string", default: "cuda" },
    graphs: { type: "string" },
  },
});
const provider = values.provider === "cpu" ? "cpu" : "cuda";
const seconds = values.quick === true ? 0.3 : 3;
const networks = Object.keys(NETWORKS) as Network[];

/** Float32 sums in another order; TF32 and float16 round factors to 10 bits (NVIDIA, Ampere architecture white paper). */
const TOLERANCE = {
  float32: { absolute: 1e-3, relative: 1e-3 },
  tf32: { absolute: 5e-2, relative: 5e-2 },
  float16: { absolute: 5e-2, relative: 5e-2 },
} as const;
type Precision = keyof typeof TOLERANCE;

const precisionsOf = (name: Network): Precision[] =>
  name === "densenet121_float16" ? ["float16"] : ["float32", "tf32"];

type Row = [what: string, setting: string, value: string];

function randomFeed(side: number, seed: number): Tensor {
  const data = Float32Array.from({ length: side * side }, (_, i) => Math.sin(i * 12.9898 + seed * 78.233));
  return { name: "x", dtype: "float32", shape: [1, 1, side, side], data: new Uint8Array(data.buffer) };
}

/** The way that images go: one at a time, and so many at once that they run in batches with padding. */
async function agreement(engine: Engine, folder: string): Promise<boolean> {
  let agree = true;
  const set = await load(folder, engine);
  for (const name of networks) {
    const { manifest } = set.entries.find((entry) => entry.name === name)!;
    const model = {
      ...{ modelPath: join(folder, name, "model.onnx"), name, version: "1", batching: manifest.batching },
      ...{ inputs: manifest.inputs, outputs: manifest.outputs },
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

/** Batches that a model has run, and how many of them had to be copied together. */
function batches(engine: Engine, id: number): { all: number; gathered: number } {
  const model = engine.stats().models.find((one) => one.id === id);
  return { all: sum(model?.batchSizes.counts ?? []), gathered: model?.gatheredBatches ?? 0 };
}

async function throughput(engine: Engine, id: number, name: Network, raw: Raw): Promise<void> {
  const { side } = NETWORKS[name];
  const plane = picture(side, side);
  let best = 0;
  for (const batch of [1, 2, 4, 8, 16, 32])
    for (const lanes of [1, 2]) {
      const setting = { lanes, threads: 1, spin: 0 as const, batch, height: side, width: side, seconds };
      const { rate, p95 } = await raw.run(setting);
      best = Math.max(best, rate);
      tell([
        `${name}: plain loop`,
        `batch ${batch}, lanes ${lanes}`,
        `${rate.toFixed(1)}/s, p95 ${p95.toFixed(1)} ms`,
      ]);
    }
  for (const concurrency of [1, 2, 4, 8, 16, 32, 64]) {
    const before = batches(engine, id);
    const { rate, p50 } = await closedLoop(concurrency, seconds, () => engine.infer(id, [plane], {}));
    const after = batches(engine, id);
    const ratio = (rate / best).toFixed(2);
    const gathered = ((after.gathered - before.gathered) / (after.all - before.all)) * 100;
    tell([
      `${name}: radserve`,
      `concurrency ${concurrency}`,
      `${rate.toFixed(1)}/s, p50 ${p50.toFixed(1)} ms, ${ratio} of the best plain loop, ${gathered.toFixed(0)} % of batches copied together`,
    ]);
  }
}

async function mixedShapes(engine: Engine, id: number): Promise<Row> {
  const pictures = mixedPictures();
  const rates: number[] = [];
  for (const plane of pictures)
    rates.push((await closedLoop(16, seconds, () => engine.infer(id, [plane], {}))).rate);
  let next = 0;
  const mixed = await closedLoop(16, 2 * seconds, () => engine.infer(id, [pictures[next++ % 4]!], {}));
  const predicted = rates.length / sum(rates.map((rate) => 1 / rate));
  const value = `${mixed.rate.toFixed(1)}/s, ${(mixed.rate / predicted).toFixed(2)} of what each alone predicts`;
  return ["small_cnn: mixed shapes", "192, 256, 384, 512 by turns", value];
}

/** What nvidia-smi says of the first GPU. */
const query = (what: string): string[] => [`--query-gpu=${what}`, "--format=csv,noheader,nounits", "--id=0"];

/** Looks at how busy the first GPU is until it is asked: the mean in percent, NaN where nobody knows. */
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

/** Bulk's way: many images at once for a while, and how busy they keep the GPU and the cores. */
async function busy(engine: Engine, id: number, name: Network): Promise<Row> {
  const plane = picture(NETWORKS[name].side, NETWORKS[name].side);
  const gpu = watchGpu();
  const before = process.cpuUsage();
  const began = performance.now();
  const { rate } = await closedLoop(128, 4 * seconds, () => engine.infer(id, [plane], {}));
  const { user, system } = process.cpuUsage(before);
  const cores = (user + system) / 1000 / (performance.now() - began);
  const value = `${rate.toFixed(1)}/s, GPU ${gpu().toFixed(0)} %, ${cores.toFixed(1)} of ${availableParallelism()} cores`;
  return [`${name}: busy`, "128 at once", value];
}

/** Files to answers over HTTP: images a second, and which of GPU and cores is the limit. */
async function endToEnd(folder: string, name: Network): Promise<Row> {
  const gpuOfServer = { RADSERVE_MODELS_DIR: folder, RADSERVE_PROVIDERS: provider };
  const server = await startServer(provider === "cuda" ? gpuOfServer : { ...gpuOfServer, RADSERVE_GPUS: "" });
  try {
    const { ct } = await samples();
    const output = join(server.output, "bench");
    mkdirSync(output);
    const seed = join(server.input, "seed.dcm");
    writeFileSync(seed, ct);
    const count = values.quick === true ? 40 : 2000;
    const inputs = Array.from({ length: count }, (_, i) => join(server.input, `image-${i}.dcm`));
    for (const input of inputs) copyFileSync(seed, input);
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
    await Promise.all(Array.from({ length: 4 * availableParallelism() }, one));
    const took = (performance.now() - began) / 1000;
    const cores = (cpuSeconds(server.process.pid!) - cpu) / took;
    const value = `${(count / took).toFixed(1)}/s, GPU ${gpu().toFixed(0)} %, ${cores.toFixed(1)} of ${availableParallelism()} cores`;
    return [`${name}: files to answers`, `${4 * availableParallelism()} at once, JSON`, value];
  } finally {
    await server.stop();
  }
}

/** Two models by turns: what one leaves on the device must not add up (onnxruntime issue 29351). */
async function byTurns(engine: Engine, ids: readonly [number, Network][]): Promise<Row> {
  const planes = ids.map(([, name]) => picture(NETWORKS[name].side, NETWORKS[name].side));
  const total = values.quick === true ? 200 : 100_000;
  const [count, grown] = await growth(total / 20, total, async (i) => {
    await engine.infer(ids[i % ids.length]![0], [planes[i % ids.length]!], {});
  });
  return ["two models by turns: memory", `${count} runs`, grown];
}

/** Seconds after which a row about memory ends, however many runs it has seen: the whole bench fits into ten minutes. */
const MOST_SECONDS = 60;

/** What so many runs add to the memory after some first ones, and how many there were. */
async function growth(
  first: number,
  most: number,
  run: (i: number) => Promise<void>,
): Promise<[count: number, grown: string]> {
  for (let i = 0; i < first; i++) await run(i);
  const [host, device] = memory();
  const ends = performance.now() + MOST_SECONDS * 1000;
  let count = 0;
  while (count < most && performance.now() < ends) await run(count++);
  const [hostAfter, deviceAfter] = memory();
  return [
    count,
    `host ${(hostAfter / host).toFixed(3)}, device ${(deviceAfter / device).toFixed(3)} of before`,
  ];
}

/** MiB of this process and of the first GPU (of all its users). */
function memory(): [number, number] {
  const { stdout } = spawnSync("nvidia-smi", query("memory.used"), { encoding: "utf8" });
  return [process.memoryUsage.rss() / 2 ** 20, Number.parseInt(stdout, 10)];
}

async function flatMemory(engine: Engine, id: number): Promise<Row> {
  const pictures = mixedPictures();
  const rounds = values.quick === true ? 25 : 500;
  const [count, grown] = await growth(rounds / 5, rounds, async () => {
    await Promise.all(Array.from({ length: 20 }, (_, i) => engine.infer(id, [pictures[i % 4]!], {})));
  });
  return ["small_cnn: memory", `${20 * count} runs of mixed shapes`, grown];
}

/** Rows are told as soon as they are known: whoever ends the bench early has those. */
function tell([what, setting, value]: Row): void {
  console.log(`${what.padEnd(34)}  ${setting.padEnd(36)}  ${value}`);
}

/** False where CPU and GPU disagree. */
async function measure(engine: Engine, folder: string): Promise<boolean> {
  const agree = await agreement(engine, folder);
  const set = await load(folder, engine, [provider]);
  for (const name of networks) {
    const raw = new Raw(values.raw ?? "", join(folder, name, "model.onnx"), provider);
    await throughput(engine, idOf(set, name), name, raw);
    raw.stop();
    tell(await busy(engine, idOf(set, name), name));
  }
  const small = idOf(set, "small_cnn");
  tell(await mixedShapes(engine, small));
  tell(await flatMemory(engine, small));
  const dense = idOf(set, "densenet121");
  const turns = await byTurns(engine, [
    [dense, "densenet121"],
    [small, "small_cnn"],
  ]);
  tell(turns);
  await set.close();
  tell(await endToEnd(folder, "densenet121"));
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
  for (const name of networks) writeFolder(folder, name);
  const engine = createEngine({ provider });
  try {
    if (!(await measure(engine, folder))) process.exitCode = 1;
  } finally {
    await engine.close();
    rmSync(folder, { recursive: true, force: true });
  }
}

try {
  await main();
} catch (error) {
  console.error(error instanceof Error ? error.message : String(error));
  process.exitCode = 2;
}
