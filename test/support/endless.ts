import { createHash } from "node:crypto";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { graph, onnxModel, type ModelDescription } from "../../scripts/lib/onnx-model.js";
import { copyModel } from "./manifests.js";

const shape = ["batch", 1, 64, 64];
const image = (name: string) => ({ name, dtype: "float32", shape }) as const;

/** A model, not needed by its server, that takes `hu` and gives `y`. */
function optional(
  directory: string,
  name: string,
  description: Omit<ModelDescription, "name">,
): void {
  const file = onnxModel({ name, ...description });
  const folder = copyModel(directory, "ct-tissue", name, (m) => {
    m.stage = "draft";
    m.required = false;
    delete m.canary;
    m.results.outputs = ["json"];
    m.files = [{ path: "model.onnx", sha256: createHash("sha256").update(file).digest("hex") }];
    Object.assign(m.inputs[0]!, { size: { kind: "fixed", height: 64, width: 64 }, fit: "stretch" });
    m.outputs = [{ kind: "heatmap", tensor: "y", activation: "none", label: { label: "value" } }];
  });
  writeFileSync(join(folder, "model.onnx"), file);
}

/** It gives its input back after a loop that has no end. */
export function endless(directory: string): void {
  const goOn = (name: string) => ({ name, dtype: "bool", shape: [] }) as const;
  const body = {
    name: "body",
    inputs: [{ name: "i", dtype: "int64", shape: [] }, goOn("c"), image("v")] as const,
    outputs: [goOn("c2"), image("v2")],
    nodes: [
      { op: "Identity", inputs: ["c"], outputs: ["c2"] },
      { op: "Identity", inputs: ["v"], outputs: ["v2"] },
    ],
  };
  optional(directory, "endless", {
    inputs: [image("hu")],
    outputs: [image("y")],
    nodes: [
      { op: "Loop", inputs: ["", "", "hu"], outputs: ["y"], attributes: { body: graph(body) } },
    ],
  });
}

/**
 * A constant that takes an hour of products to compute, which ONNX Runtime does while it makes a
 * session.
 */
export function foldsForLong(directory: string): void {
  const side = 1024;
  const products = Array.from({ length: 20_000 }, (_, i) => ({
    op: "MatMul",
    inputs: [i === 0 ? "a" : `a${i - 1}`, "a"],
    outputs: [`a${i}`],
  }));
  optional(directory, "folds-for-long", {
    inputs: [image("hu")],
    outputs: [image("y")],
    initializers: [
      { name: "a", dtype: "float32", shape: [side, side], data: new Uint8Array(4 * side * side) },
    ],
    nodes: [
      ...products,
      { op: "ReduceSum", inputs: [`a${products.length - 1}`], outputs: ["sum"] },
      { op: "Add", inputs: ["hu", "sum"], outputs: ["y"] },
    ],
  });
}
