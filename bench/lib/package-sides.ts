/**
 * The two sides of the bench of the package, each in a process of its own, because a process has
 * one ONNX Runtime: `ours` or the folder of onnxruntime-node is the argument.
 */
import { createEngine } from "../../src/graph/index.js";
import { answer } from "./measured-process.js";
import { closedLoop, requireOrt, type LoadResult } from "./node-rival.js";

export interface SideSetting {
  model: string;
  shape: readonly number[];
  threads: number;
  concurrency: number;
  seconds: number;
}

export interface MemorySetting {
  model: string;
  shape: readonly number[];
  loads: number;
}

type Run = () => Promise<unknown>;
/** A model that is loaded, and what ends it. */
interface Side {
  run: Run;
  end: () => Promise<void>;
}

const elements = (shape: readonly number[]) => shape.reduce((a, b) => a * b, 1);
const numbers = (shape: readonly number[]) =>
  Float32Array.from({ length: elements(shape) }, (_, i) => (i % 255) / 127 - 1);

const engine = process.argv[2] === "ours" ? createEngine() : undefined;
const ort = engine === undefined ? requireOrt(process.argv[2] ?? "") : undefined;

async function load(model: string, shape: readonly number[], threads: number): Promise<Side> {
  const data = numbers(shape);
  if (ort !== undefined) {
    const session = await ort.InferenceSession.create(model, {
      intraOpNumThreads: threads,
      interOpNumThreads: 1,
      executionMode: "sequential",
    });
    const x = new ort.Tensor("float32", data, shape);
    return { run: () => session.run({ x }), end: () => session.release() };
  }
  const loaded = await engine!.load(model);
  const feeds = { x: { shape, data } };
  return { run: () => loaded.run(feeds), end: () => loaded.unload() };
}

/** Loaded once, so that turns measure runs alone. */
const sides = new Map<string, Side>();

async function measure(setting: SideSetting): Promise<LoadResult> {
  const { model, shape, threads, concurrency, seconds } = setting;
  const key = `${model}:${ort === undefined ? 0 : threads}`;
  const side = sides.get(key) ?? (await load(model, shape, threads));
  sides.set(key, side);
  await side.run();
  return closedLoop(concurrency, seconds, side.run);
}

/** Resident memory after so many loads, each with a run and its end, over that after the first. */
async function loads({ model, shape, loads }: MemorySetting): Promise<object> {
  const WARM = 50;
  const resident = () => {
    globalThis.gc?.();
    return process.memoryUsage().rss;
  };
  let first = 0;
  for (let i = 0; i < WARM + loads; i++) {
    if (i === WARM) first = resident();
    const { run, end } = await load(model, shape, 1);
    await run();
    await end();
  }
  const last = resident();
  return { first, last, ratio: last / first };
}

answer((setting: SideSetting | MemorySetting) =>
  "loads" in setting ? loads(setting) : measure(setting),
);
