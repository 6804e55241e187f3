/** A thread that loads a model, runs it once, and holds it. */
import { parentPort, workerData } from "node:worker_threads";
import { createEngine } from "../../src/graph/index.js";

const model = await createEngine().load(workerData as string);
const { y } = await model.run({ x: { shape: [1, 1, 1, 2], data: Float32Array.of(3, 4) } });
parentPort?.postMessage([...((y?.data ?? []) as Float32Array)]);
parentPort?.on("message", () => undefined);
