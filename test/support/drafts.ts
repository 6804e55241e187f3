/** Model folders of drafts, which need neither a canary nor a history. */
import { mkdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import { onnxModel, type ModelDescription } from "../../scripts/lib/onnx-model.js";
import { sha256 } from "../../src/files/durable-files.js";
import type { Manifest } from "../../src/manifest/manifest.js";
import type { ModelOutput } from "../../src/manifest/outputs/outputs.js";
import { stretched } from "./model-parts.js";
import { ABOUT } from "./test-models.js";

const CT = { formats: ["dicom" as const], modality: ["CT"], dimensions: "2d" as const };

/** A draft of a model of single images. */
export function writeDraft(
  models: string,
  graph: ModelDescription,
  outputs: ModelOutput[],
  accepts: Manifest["accepts"] = CT,
  release?: Manifest["release"],
): void {
  const folder = path.join(models, graph.name);
  mkdirSync(folder);
  const bytes = onnxModel(graph);
  writeFileSync(path.join(folder, "model.onnx"), bytes);
  const manifest: Manifest = {
    ...ABOUT,
    stage: "draft",
    ...(release === undefined ? {} : { release }),
    name: graph.name,
    version: "1.0.0",
    accepts,
    files: [{ path: "model.onnx", sha256: sha256(bytes) }],
    inputs: [stretched(32, 32)],
    outputs,
    batching: { max: 1 },
    execution: { providers: ["cpu"], precision: "float32" },
    results: { outputs: ["json", "png"] },
  };
  writeFileSync(path.join(folder, "model.json"), JSON.stringify(manifest));
}
