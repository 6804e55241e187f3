/**
 * The measurements of `npm run bench -- engine`. Ours and theirs are taken by turns; ratios are
 * medians of the pairs.
 */
import { readFileSync, writeFileSync } from "node:fs";
import { availableParallelism } from "node:os";
import { join } from "node:path";
import type { Engine } from "../../src/engine/engine.js";
import type { InferResult, Plane } from "../../src/engine/types.js";
import type { Tensor } from "../../src/base/tensor.js";
import type { ModelSet } from "../../src/models/set.js";
import {
  idOf,
  mixedPictures,
  NETWORKS,
  picture,
  withVersion,
  type CpuNetwork,
} from "./engine-models.js";
import { closedLoop, plainInput, type LoadResult, type NodeRival } from "./node-rival.js";
import type { Raw, RawSetting } from "./raw.js";
import { median, quantile, sum } from "./statistics.js";

export interface Bench {
  engine: Engine;
  set: ModelSet;
  raws: Record<CpuNetwork, Raw>;
  graphs: Record<CpuNetwork, string>;
  manifests: Record<CpuNetwork, string>;
  folder: string;
  /** The directory of the networks' model folders. */
  models: string;
  /** How long one measurement lasts. */
  seconds: number;
  rounds: number;
}

/**
 * Each comparison takes this share of a measurement's time and this multiple of its rounds. The
 * shorter the turns are, the less the machine changes between the two of a pair.
 */
const TURN: Record<CpuNetwork, number> = { densenet121: 0.5, small_cnn: 0.15 };
const TURNS: Record<CpuNetwork, number> = { densenet121: 1.5, small_cnn: 3 };

/**
 * The same for onnxruntime-node: some of its calls and ours last half a millisecond and vary by a
 * tenth between turns.
 */
const CALLED_TURN: Record<CpuNetwork, number> = { densenet121: 0.25, small_cnn: 0.15 };
const CALLED_TURNS: Record<CpuNetwork, number> = { densenet121: 6, small_cnn: 10 };

/** The same bench with turns instead. */
const byTurns = (bench: Bench, turn: number, turns: number): Bench => ({
  ...bench,
  seconds: bench.seconds * turn,
  rounds: Math.ceil(bench.rounds * turns),
});

const cores = availableParallelism();
const ALL_AT_ONCE = 4 * cores;

async function repeat<T>(rounds: number, once: () => Promise<T>): Promise<T[]> {
  const results: T[] = [];
  for (let round = 0; round < rounds; round++) results.push(await once());
  return results;
}

const infer = (bench: Bench, name: CpuNetwork, plane: Plane) =>
  bench.engine.infer(idOf(bench.set, name), [plane], {});

const ours = (bench: Bench, name: CpuNetwork, concurrency: number, plane: Plane, watch = false) =>
  closedLoop(concurrency, bench.seconds, () => infer(bench, name, plane), watch);

/** What a plain loop does too: a tensor in, a tensor out, nothing prepared, nothing interpreted. */
function oursPlain(
  bench: Bench,
  name: CpuNetwork,
  concurrency: number,
  watch = false,
): Promise<LoadResult> {
  const id = idOf(bench.set, name);
  const { side } = NETWORKS[name];
  const data = new Uint8Array(plainInput(side, side).buffer);
  const x: Tensor = { name: "x", dtype: "float32", shape: [1, 1, side, side], data };
  return closedLoop(concurrency, bench.seconds, () => bench.engine.runTensors(id, [x]), watch);
}

/** Every setting of the plain loop that could be the best: lanes, threads, batch, spinning. */
function settings(name: CpuNetwork, seconds: number): RawSetting[] {
  const { side } = NETWORKS[name];
  const size = { height: side, width: side, seconds };
  const lanes = [...new Set([1, cores, 2 * cores])];
  return lanes.flatMap((l) =>
    [...new Set([1, cores])].flatMap((threads) =>
      (threads === 1 ? ([0] as const) : ([0, 1] as const)).flatMap((spin) =>
        [1, 4].map((batch) => ({ ...size, lanes: l, threads, spin, batch })),
      ),
    ),
  );
}

interface Swept extends RawSetting {
  rate: number;
  p50: number;
}

const described = ({ lanes, threads, spin, batch, rate, p50 }: Swept) => ({
  lanes,
  threads,
  batch,
  spin: spin === 1,
  images_per_second: rate,
  latency_ms: p50,
});

async function sweep(raw: Raw, name: CpuNetwork, seconds: number): Promise<Swept[]> {
  const found: Swept[] = [];
  for (const setting of settings(name, seconds))
    found.push({ ...setting, ...(await raw.run(setting)) });
  return found;
}

/**
 * Throughput under full load and latency of one request alone, each over the best plain loop of the
 * sweep.
 */
export async function againstRaw(all: Bench, name: CpuNetwork) {
  const raw = all.raws[name];
  const { side } = NETWORKS[name];
  const plane = picture(side, side);
  const swept = await sweep(raw, name, all.seconds);
  const bench = byTurns(all, TURN[name], TURNS[name]);
  const fastest = swept.reduce((a, b) => (b.rate > a.rate ? b : a));
  const quickest = swept
    .filter(({ lanes, batch }) => lanes === 1 && batch === 1)
    .reduce((a, b) => (b.p50 < a.p50 ? b : a));
  const compare = async (setting: RawSetting, concurrency: number) =>
    repeat(bench.rounds, async () => ({
      theirs: await raw.run({ ...setting, seconds: bench.seconds }),
      tensors: await oursPlain(bench, name, concurrency),
      images: await ours(bench, name, concurrency, plane),
    }));
  const full = await compare(fastest, ALL_AT_ONCE);
  const alone = await compare(quickest, 1);
  const row = (kind: "tensors" | "images") => ({
    throughput: median(full.map((round) => round[kind].rate / round.theirs.rate)),
    /** What the machine's other work disturbs least. */
    processor_time: median(full.map((round) => round[kind].cpuUs / round.theirs.cpu_us)),
    /** 0.3 ms are for the way in and out. */
    latency: median(alone.map((round) => (round[kind].p50 - 0.3) / round.theirs.p50)),
    per_second: median(full.map((round) => round[kind].rate)),
    latency_ms: median(alone.map((round) => round[kind].p50)),
    /** What a call that is alone takes more. */
    lone_call_more_ms: median(alone.map((round) => round[kind].p50 - round.theirs.p50)),
  });
  return {
    /** The same work as the plain loop's. */
    tensors: row("tensors"),
    /** And prepared from 16-bit pixels before, interpreted and hashed after. */
    images: row("images"),
    their_latency_ms: median(alone.map((round) => round.theirs.p50)),
    best_raw: { throughput: described(fastest), latency: described(quickest) },
    sweep: swept.map(described),
  };
}

/**
 * Throughput over the better of onnxruntime-node with one thread and with all, and the delay of
 * both event loops.
 */
export async function againstNode(all: Bench, name: CpuNetwork, rival: NodeRival) {
  const bench = byTurns(all, CALLED_TURN[name], CALLED_TURNS[name]);
  const { side } = NETWORKS[name];
  const plane = picture(side, side);
  const theirs = (concurrency: number, threads: number) =>
    rival.run({
      model: bench.graphs[name],
      threads,
      concurrency,
      seconds: bench.seconds,
      height: side,
      width: side,
    });
  const at = async (concurrency: number) => {
    const rounds = await repeat(bench.rounds, async () => ({
      one: await theirs(concurrency, 1),
      all: await theirs(concurrency, cores),
      tensors: await oursPlain(bench, name, concurrency, true),
      images: await ours(bench, name, concurrency, plane, true),
    }));
    const rateOf = (kind: "one" | "all") => median(rounds.map((round) => round[kind].rate));
    const better = rateOf("one") > rateOf("all") ? "one" : "all";
    const pairs = rounds.map((round) => ({ ...round, best: round[better] }));
    return {
      tensors: median(pairs.map((pair) => pair.tensors.rate / pair.best.rate)),
      images: median(pairs.map((pair) => pair.images.rate / pair.best.rate)),
      delay_p99_ms: median(
        pairs.map((pair) => Math.max(pair.tensors.delayP99, pair.images.delayP99)),
      ),
      their_delay_p99_ms: median(pairs.map((pair) => pair.best.delayP99)),
    };
  };
  return { 1: await at(1), 4: await at(4), 16: await at(16) };
}

/** Several sizes at once over what the rates of each alone predict. */
export async function mixedShapes(bench: Bench): Promise<number> {
  const pictures = mixedPictures();
  const ratios = await repeat(bench.rounds, async () => {
    const alone: number[] = [];
    for (const plane of pictures)
      alone.push((await ours(bench, "small_cnn", ALL_AT_ONCE, plane)).rate);
    let next = 0;
    const { rate } = await closedLoop(
      ALL_AT_ONCE,
      bench.seconds * 2,
      () => infer(bench, "small_cnn", pictures[next++ % pictures.length]!),
      false,
    );
    const predicted = pictures.length / sum(alone.map((rate) => 1 / rate));
    return rate / predicted;
  });
  return median(ratios);
}

/** Stat requests among more routine ones than there are cores: p95 over what it may be. */
export async function statAmongRoutine(bench: Bench) {
  const id = idOf(bench.set, "densenet121");
  const plane = picture(224, 224);
  const end = performance.now() + bench.seconds * 1000 * bench.rounds;
  const running = () => performance.now() < end;
  const routine: InferResult[] = [];
  const stat: { latency: number; result: InferResult }[] = [];
  const load = async () => {
    while (running()) routine.push(await bench.engine.infer(id, [plane], {}));
  };
  const ask = async () => {
    while (running()) {
      const began = performance.now();
      const result = await bench.engine.infer(id, [plane], { priority: "stat" });
      stat.push({ latency: performance.now() - began, result });
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
  };
  await Promise.all([...Array.from({ length: ALL_AT_ONCE }, load), ask()]);
  const runs = routine.map(({ timings }) => timings.runMs);
  const own = median(
    stat.map(({ result: { timings } }) => timings.prepareMs + timings.postprocessMs),
  );
  const allowed = Math.max(...runs) + median(runs) + own;
  const p95 = quantile(
    stat.map(({ latency }) => latency),
    0.95,
  );
  return { ratio: p95 / allowed, p95_ms: p95, allowed_ms: allowed, requests: stat.length };
}

/** The first request after a model was loaded and warmed, over the steady ones after it. */
export async function firstRequest(bench: Bench): Promise<number> {
  const path = bench.manifests.densenet121;
  const manifest = readFileSync(path, "utf8");
  const plane = picture(224, 224);
  let version = 0;
  const ratios = await repeat(bench.rounds, async () => {
    writeFileSync(path, withVersion(manifest, `1.1.${++version}`));
    await bench.set.reload();
    const times: number[] = [];
    for (let i = 0; i < 12; i++) {
      const began = performance.now();
      await infer(bench, "densenet121", plane);
      times.push(performance.now() - began);
    }
    return times[0]! / median(times.slice(2));
  });
  return median(ratios);
}

/**
 * What a cache of optimised models would save, and what checking one would cost: why there is none.
 */
export async function optimisedModel(bench: Bench, hash: (path: string) => Promise<string>) {
  const file = join(bench.folder, "optimised.onnx");
  const raw = bench.raws.densenet121;
  await raw.load("model", file);
  const rows = await repeat(Math.max(3, bench.rounds), async () => {
    const from = { model: await raw.load("model", join(bench.folder, "again.onnx")) };
    const optimised = await raw.load("optimised", file);
    const began = performance.now();
    await hash(file);
    return { ...from, optimised, check: performance.now() - began };
  });
  return {
    from_model_and_writing_ms: median(rows.map((row) => row.model)),
    from_optimised_ms: median(rows.map((row) => row.optimised)),
    sha256_ms: median(rows.map((row) => row.check)),
  };
}
