/** onnxruntime-node in a process of its own, which measures itself as the bench asks. */
import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { monitorEventLoopDelay } from "node:perf_hooks";
import { fileURLToPath } from "node:url";
import { answer, MeasuredProcess } from "./measured-process.js";
import { root } from "./server.js";

const VERSION = "1.29.0";

/** What is used of it; it is no dependency, so its types are not there. */
export interface Ort {
  InferenceSession: { create(path: string, options: object): Promise<OrtSession> };
  Tensor: new (type: "float32", data: Float32Array, dims: readonly number[]) => unknown;
}

export interface OrtSession {
  readonly inputNames: readonly string[];
  readonly outputNames: readonly string[];
  run(feeds: object): Promise<Record<string, { data: Float32Array | Uint8Array | BigInt64Array }>>;
  release(): Promise<void>;
}

export interface RivalSetting {
  model: string;
  threads: number;
  concurrency: number;
  seconds: number;
  height: number;
  width: number;
}

export interface LoadResult {
  /** Images a second. */
  rate: number;
  /** Median latency in ms. */
  p50: number;
  /** Processor time of the whole process for one image, in microseconds. */
  cpuUs: number;
  /** 99th percentile of the event loop's delay in ms; NaN where nobody watched. */
  delayP99: number;
}

/** What every plain loop is fed, raw_ort.cc's too. */
export const plainInput = (height: number, width: number): Float32Array =>
  Float32Array.from({ length: height * width }, (_, i) => (i % 255) / 127 - 1);

/**
 * Calls `work` from `concurrency` loops until the time is over. To `watch` the event loop costs
 * time itself.
 */
export async function closedLoop(
  concurrency: number,
  seconds: number,
  work: () => Promise<unknown>,
  watch = true,
): Promise<LoadResult> {
  const delay = monitorEventLoopDelay({ resolution: 1 });
  const latencies: number[] = [];
  const used = process.cpuUsage();
  const start = performance.now();
  if (watch) delay.enable();
  const loop = async () => {
    while (performance.now() - start < seconds * 1000) {
      const began = performance.now();
      await work();
      latencies.push(performance.now() - began);
      // Answers are settled in microtasks; without this the loop's timers never run, whoever is
      // measured.
      if (watch) await new Promise((resolve) => setImmediate(resolve));
    }
  };
  await Promise.all(Array.from({ length: concurrency }, loop));
  delay.disable();
  const elapsed = performance.now() - start;
  const { user, system } = process.cpuUsage(used);
  latencies.sort((a, b) => a - b);
  return {
    rate: (latencies.length * 1000) / elapsed,
    cpuUs: (user + system) / latencies.length,
    p50: latencies[latencies.length >> 1] ?? NaN,
    // The histogram counts its own resolution of 1 ms.
    delayP99: watch ? Math.max(0, delay.percentile(99) / 1e6 - 1) : NaN,
  };
}

async function measure(ort: Ort, s: RivalSetting): Promise<LoadResult> {
  const options = {
    intraOpNumThreads: s.threads,
    interOpNumThreads: 1,
    executionMode: "sequential",
  };
  const session = await ort.InferenceSession.create(s.model, options);
  const data = plainInput(s.height, s.width);
  const x = new ort.Tensor("float32", data, [1, 1, s.height, s.width]);
  await session.run({ x });
  const result = await closedLoop(s.concurrency, s.seconds, () => session.run({ x }));
  await session.release();
  return result;
}

/**
 * The folder that has the package: gpu/ where setup:gpu has put it, else `folder`, freshly
 * installed; its install script stays off.
 */
export function installOrt(folder: string): string {
  for (const there of [join(root, "gpu"), folder])
    if (existsSync(join(there, "node_modules/onnxruntime-node"))) return there;
  const parameters = ["install", "--prefix", folder, "--ignore-scripts", "--no-audit", "--no-fund"];
  const { status, stderr } = spawnSync("npm", [...parameters, `onnxruntime-node@${VERSION}`], {
    encoding: "utf8",
  });
  if (status !== 0) throw new Error(`onnxruntime-node cannot be installed: ${stderr}`);
  return folder;
}

/** onnxruntime-node from the folder that has it. */
export const requireOrt = (folder: string): Ort =>
  createRequire(join(folder, "package.json"))("onnxruntime-node") as Ort;

export type NodeRival = MeasuredProcess<RivalSetting, LoadResult>;

/** @param folder where the package may be installed */
export const startNodeRival = (folder: string): NodeRival =>
  new MeasuredProcess(fileURLToPath(import.meta.url), [installOrt(folder)]);

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const ort = requireOrt(process.argv[2] ?? "");
  answer((setting: RivalSetting) => measure(ort, setting));
}
