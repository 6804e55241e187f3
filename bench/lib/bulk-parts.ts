/**
 * The parts of one image on one core, and the same images through the worker threads without the
 * queue; processes of their own, so that nothing else runs in them: `taskset -c 0 node
 * bulk-parts.js MODELS OUTPUT KINDS LIST` and `node bulk-parts.js --direct MODELS OUTPUT KINDS
 * LIST`. LIST is a file with the images as JSON. They print JSON.
 */
import { randomUUID } from "node:crypto";
import { readFileSync } from "node:fs";
import os from "node:os";
import { usualMemory } from "../../src/base/memory-limits.js";
import { join } from "node:path";
import { operateAtOnce } from "../../src/files/disk.js";
import { ELEMENT_TYPES } from "../../src/base/tensor.js";
import { createEngine, type Engine } from "../../src/engine/engine.js";
import { infer } from "../../src/inference/infer-image.js";
import { type InferTask } from "../../src/inference/task.js";
import { createLog } from "../../src/base/log.js";
import { imageInputs, type OutputKind } from "../../src/manifest/manifest.js";
import type { ModelEntry } from "../../src/models/entry.js";
import { loadModels, type ModelSet } from "../../src/models/set.js";
import { elementCount } from "../../src/engine/npy.js";
import { InferencePool } from "../../src/inference/worker-pool.js";
import type { Answer } from "../../src/results/receipt/receipt.js";
import { mean } from "./statistics.js";

export interface Parts {
  images: number;
  /**
   * Reading the file, parsing it and decoding its frame, with their hashes; means of milliseconds.
   */
  decode_ms: number;
  /** One run of ONNX Runtime alone. */
  ort_ms: number;
  /** Making the result files and committing them. */
  write_ms: number;
  /** Pixels to tensor, run and post-processing; not in the limit. */
  infer_ms: number;
  total_ms: number;
  /** Processor time of all threads, an image. */
  cpu_ms: number;
}

export interface Direct {
  images: number;
  seconds: number;
  failed: number;
}

/** WebAssembly runs at full speed only after its second compilation. */
const WARM_UP_MS = 3_000;
const ORT_ROUNDS = 15;

let cancelId = 0;
function taskOf(inputPath: string, outputFolder: string, outputs: OutputKind[]): InferTask {
  return {
    requestId: randomUUID(),
    inputPath,
    outputFolder,
    outputs,
    priority: "bulk",
    cancelId: (cancelId += 1),
    roots: { input: undefined, output: undefined },
  };
}

/** Milliseconds of one run of the graph that took this image, on a tensor of its size. */
async function ortOf(
  engine: Engine,
  entries: readonly ModelEntry[],
  answer: Answer,
  side: number,
): Promise<number> {
  const ran = answer.models.filter(({ status }) => status === "succeeded").map(({ name }) => name);
  let milliseconds = 0;
  for (const { manifest, nativeId } of entries.filter(({ name }) => ran.includes(name))) {
    const input = imageInputs(manifest)[0]!;
    const [height, width] =
      input.size.kind === "fixed" ? [input.size.height, input.size.width] : [side, side];
    const shape = [1, 1, height, width];
    const data = new Uint8Array(elementCount(shape) * ELEMENT_TYPES[input.dtype].bytes);
    const times: number[] = [];
    for (let i = 0; i < ORT_ROUNDS; i++) {
      const began = performance.now();
      await engine.runTensors(nativeId!, [{ name: input.tensor, dtype: input.dtype, shape, data }]);
      times.push(performance.now() - began);
    }
    milliseconds += times.sort((a, b) => a - b)[ORT_ROUNDS >> 1]!;
  }
  return milliseconds;
}

async function parts(
  models: ModelSet,
  engine: Engine,
  output: string,
  kinds: OutputKind[],
  files: string[],
): Promise<Parts> {
  const run = (file: string, folder: string) =>
    infer(taskOf(file, join(output, folder), kinds), { engine, models: models.entries });
  let first = await run(files[0]!, "warm-first");
  for (const began = performance.now(); performance.now() - began < WARM_UP_MS;)
    first = await run(files[0]!, `warm-${randomUUID()}`);
  const before = process.cpuUsage();
  const laps: Record<string, number[]> = {};
  for (const file of files) {
    const { timings_ms } = await run(file, "parts");
    for (const [name, value] of Object.entries(timings_ms)) (laps[name] ??= []).push(value);
  }
  const { user, system } = process.cpuUsage(before);
  const sum = (...names: string[]) =>
    names.reduce((total, name) => total + mean(laps[name] ?? [0]), 0);
  return {
    images: files.length,
    decode_ms: sum("read", "decode"),
    ort_ms: await ortOf(engine, models.entries, first, 512),
    write_ms: sum("render", "commit"),
    infer_ms: sum("infer"),
    total_ms: sum("total"),
    cpu_ms: (user + system) / 1000 / files.length,
  };
}

async function direct(
  models: ModelSet,
  engine: Engine,
  output: string,
  kinds: OutputKind[],
  files: string[],
): Promise<Direct> {
  const pool = new InferencePool({
    sending: () => undefined,
    resultParts: [],
    threads: os.availableParallelism(),
    itemMs: 300_000,
    memory: usualMemory(),
    maxQueue: files.length,
    models: () => models.entries,
    engine: { provider: "cpu" },
    cancelRunning: (id) => engine.cancel(id),
    log: createLog("error"),
  });
  const all = async (some: string[], folder: string) => {
    const answers = await Promise.allSettled(
      some.map((file) => pool.runForSummary(taskOf(file, join(output, folder), kinds), "bench")),
    );
    return answers.filter(({ status }) => status === "rejected").length;
  };
  // Every thread compiles for itself; now they are as warm as those of a server that has worked for
  // a while
  let began = performance.now();
  for (let i = 0; i === 0 || performance.now() - began < WARM_UP_MS; i++)
    await all(files.slice(0, Math.ceil(files.length / 10)), `warm-${i}`);
  began = performance.now();
  const failed = await all(files, "direct");
  const seconds = (performance.now() - began) / 1000;
  await pool.close();
  return { images: files.length, seconds, failed };
}

// The threads of bulk work do the same
operateAtOnce();
const words = process.argv.slice(2);
const withPool = words[0] === "--direct";
const [directory = "", output = "", kinds = "", list = ""] = withPool ? words.slice(1) : words;
const files = JSON.parse(readFileSync(list, "utf8")) as string[];
const engine = createEngine({ provider: "cpu" });
const models = await loadModels({ directory, engine, providers: ["cpu"], log: createLog("error") });
const work = withPool ? direct : parts;
console.log(
  JSON.stringify(await work(models, engine, output, kinds.split(",") as OutputKind[], files)),
);
await models.close();
await engine.close();
