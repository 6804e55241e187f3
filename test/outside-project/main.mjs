// @ts-check
/** What somebody does who installs the package: loads, runs, shares with a worker, and cancels. */
import assert from "node:assert/strict";
import { once } from "node:events";
import { setTimeout as delay } from "node:timers/promises";
import { Worker } from "node:worker_threads";
import { createEngine, EngineError } from "radserve-engine";

const [, , add = "", endless = ""] = process.argv;
const engine = createEngine({ threads: 2 });
const model = await engine.load(add);
assert.deepEqual(model.inputs, [{ name: "x", dtype: "float32", shape: [-1, 2], names: ["n", ""] }]);

const { y } = await model.run({ x: { shape: [1, 2], data: Float32Array.of(1, 2) } });
assert.deepEqual(y, { dtype: "float32", shape: [1, 2], data: Float32Array.of(2, 4) });

await assert.rejects(model.run({ x: { shape: [1, 3], data: new Float32Array(3) } }), (error) => {
  assert(error instanceof EngineError);
  assert.equal(error.code, "bad_request");
  assert.equal(error.expected, "[n,2]");
  assert.equal(error.found, "[1,3]");
  return true;
});

// The worker shares the model, and its end leaves it here
const worker = new Worker(new URL("worker.mjs", import.meta.url), { workerData: add });
// Both may come at once
const exited = once(worker, "exit");
const [answer] = await once(worker, "message");
assert.deepEqual(answer, { data: [6, 8], models: 1 });
await exited;
assert.equal(engine.stats().models.length, 1);

// A run without an end holds no event loop, and ends with its signal
const slow = await engine.load(endless);
const controller = new AbortController();
const running = slow.run(
  { x: { shape: [1, 2], data: Float32Array.of(0, 0) } },
  { signal: controller.signal },
);
const cancelled = assert.rejects(running, { code: "cancelled" });
// How long one turn takes depends on the machine; a loop that is held has none
for (let turns = 0; turns < 100 || engine.stats().running === 0; turns++) await delay(1);
controller.abort();
await cancelled;

await model.unload();
await assert.rejects(model.run({}), { code: "model_unavailable" });
await engine.close();
console.log(`ok on Node.js ${process.versions.node}`);
