import { createHash } from "node:crypto";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { graph, onnxModel } from "../../scripts/lib/onnx-model.js";
import { copyModel } from "./manifests.js";

/** A model, not needed by its server, that gives its input back after a loop that has no end. */
export function endless(directory: string): void {
  const shape = ["batch", 1, 64, 64];
  const image = (name: string) => ({ name, dtype: "float32", shape }) as const;
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
  const file = onnxModel({
    name: "endless",
    inputs: [image("hu")],
    outputs: [image("y")],
    nodes: [{ op: "Loop", inputs: ["", "", "hu"], outputs: ["y"], attributes: { body: graph(body) } }],
  });
  const folder = copyModel(directory, "ct-tissue", "endless", (m) => {
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
