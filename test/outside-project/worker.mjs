// @ts-check
/** A thread that uses the model that the main thread has loaded. */
import { parentPort, workerData } from "node:worker_threads";
import { createEngine } from "radserve-engine";

const engine = createEngine();
const model = await engine.load(workerData);
const { y } = await model.run({ x: { shape: [1, 2], data: Float32Array.of(3, 4) } });
parentPort?.postMessage({ data: [...(y?.data ?? [])], models: engine.stats().models.length });
