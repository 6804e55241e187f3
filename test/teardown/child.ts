/**
 * A process, or a worker thread of it, that ends in the way its argument says while the engine is
 * busy.
 */
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { isMainThread, parentPort, Worker, workerData } from "node:worker_threads";
import { createEngine, type Engine } from "../../src/engine/engine.js";
import { heatmap, input, loadOptions, plane, untilRunning } from "../support/tiny-models.js";

const [, , mode, quickPath, slowPath] = process.argv;
if (mode === undefined || quickPath === undefined || slowPath === undefined)
  throw new Error("Expected: child.js MODE QUICK.onnx SLOW.onnx");
const quick = loadOptions(quickPath, { inputs: [input], outputs: [heatmap] });
const slow = loadOptions(slowPath);

/**
 * More work than threads, so that some runs and some waits; how it ends is not this function's
 * concern.
 */
async function busy(engine: Engine): Promise<void> {
  const { id } = await engine.load(slow);
  for (let i = 0; i < 6; ++i) engine.infer(id, [plane(2, 2)], {}).catch(() => undefined);
  await untilRunning(engine);
}

async function answers(engine: Engine, id: number): Promise<void> {
  for (let i = 0; i < 10; ++i) {
    const { outputs } = await engine.infer(id, [plane(1, 2, [i, -i])], {});
    if (outputs[0]?.kind !== "heatmap" || outputs[0].values[1] !== -i)
      throw new Error("Wrong answer");
  }
}

function startWorker(what: string, id = 0): Worker {
  return new Worker(fileURLToPath(import.meta.url), {
    argv: process.argv.slice(2),
    workerData: { what, id },
  });
}

/** Not `once`, which fails on an "error" that comes first. */
const exitCode = (worker: Worker): Promise<number> =>
  new Promise((resolve) => {
    worker.on("error", () => undefined).on("exit", resolve);
  });

/** Short work without end, one after another: its answers come at any moment. */
async function answersForEver(engine: Engine): Promise<never> {
  const { id } = await engine.load(quick);
  await answers(engine, id);
  parentPort?.postMessage("busy");
  for (;;) await answers(engine, id);
}

async function inWorker(): Promise<void> {
  const engine = createEngine({ provider: "cpu", threads: 2 });
  const { what, id } = workerData as { what: string; id: number };
  if (what === "answer") return answers(engine, id);
  if (what === "short") return answersForEver(engine);
  await busy(engine);
  parentPort?.postMessage("busy");
  if (what === "exit") process.exit(5);
  if (what === "throw") throw new Error("on purpose");
}

/** Starts a busy worker, ends it in the given way, then asks the engine from this thread. */
async function endWorker(what: "terminate" | "exit" | "throw" | "short"): Promise<void> {
  const worker = startWorker(what);
  const ended = exitCode(worker);
  // Its error may overtake its message.
  await Promise.race([new Promise((resolve) => worker.once("message", resolve)), ended]);
  if (what === "terminate" || what === "short") await worker.terminate();
  const code = await ended;
  if (code !== (what === "exit" ? 5 : 1)) throw new Error(`The worker ended with ${code}`);
  const engine = createEngine({ provider: "cpu", threads: 2 });
  await answers(engine, (await engine.load(quick)).id);
  console.log("answered");
}

async function severalWorkers(): Promise<void> {
  const engine = createEngine({ provider: "cpu", threads: 2 });
  const { id } = await engine.load(quick);
  for (let round = 0; round < 2; ++round) {
    const dying = startWorker("terminate");
    const codes = [1, 2, 3].map(() => exitCode(startWorker("answer", id)));
    await once(dying, "message");
    await dying.terminate();
    if ((await Promise.all(codes)).some((code) => code !== 0)) throw new Error("A worker failed");
  }
  await engine.close();
  console.log("answered");
}

async function inMain(): Promise<void> {
  if (mode === "worker-terminate") return endWorker("terminate");
  if (mode === "worker-short") return endWorker("short");
  if (mode === "worker-exit") return endWorker("exit");
  if (mode === "worker-throw") return endWorker("throw");
  if (mode === "workers") return severalWorkers();
  const engine = createEngine({ provider: "cpu", threads: 2 });
  if (mode === "natural" || mode === "closed") {
    await answers(engine, (await engine.load(quick)).id);
    if (mode === "closed") await engine.close();
    console.log("answered");
    return;
  }
  await busy(engine);
  if (mode === "exit") process.exit(7);
  if (mode === "workers-exit") {
    await once(startWorker("terminate"), "message");
    process.exit(7);
  }
  setImmediate(() => {
    throw new Error("on purpose");
  });
}

await (isMainThread ? inMain() : inWorker());
