// @ts-check
/** A program over onnxruntime-node, whoever has that name: what it found is compared. */
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import * as ort from "onnxruntime-node";

const [, , network = ""] = process.argv;
assert.equal(createRequire(import.meta.url)("onnxruntime-node").Tensor, ort.Tensor);
assert.equal(ort.default.InferenceSession, ort.InferenceSession);
const names = Object.keys(ort).filter((name) => !["__esModule", "module.exports"].includes(name));

const session = await ort.InferenceSession.create(network, { executionProviders: ["cpu"] });
const data = Float32Array.from({ length: 256 * 256 }, (_, i) => (i % 255) / 127 - 1);
const x = new ort.Tensor("float32", data, [1, 1, 256, 256]);
const given = await session.run({ x }, session.outputNames, { tag: "one" });
const outputs = Object.entries(given).map(([name, { type, dims, data }]) => ({
  name,
  type,
  dims,
  data: [.../** @type {Float32Array} */ (data)],
}));
const found = {
  names: names.sort(),
  inputs: session.inputMetadata,
  outputs: session.outputMetadata,
};
await session.release();
console.log(JSON.stringify({ found, outputs, node: ort.env.versions.node }));
