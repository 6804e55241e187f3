/** What a model took goes back with it, however often models are loaded again. */
import { createHash } from "node:crypto";
import { readFileSync, statSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import t from "tap";
import { onnxModel } from "../../scripts/lib/onnx-model.js";
import { copyModel } from "../support/manifests.js";
import { ADDON, needs } from "../support/needs.js";
import { engine, modelsOf } from "../support/real-engine.js";

/** A model with 4 MB of weights, which it adds to its image. */
function wideModel(directory: string): string {
  const data = new Uint8Array(new Float32Array(256 * 256).fill(1e-3).buffer);
  const layers = Array.from({ length: 16 }, (_, i) => i);
  const graph = onnxModel({
    name: "wide",
    inputs: [{ name: "hu", dtype: "float32", shape: ["batch", 1, 256, 256] }],
    outputs: [{ name: "y16", dtype: "float32", shape: ["batch", 1, 256, 256] }],
    initializers: layers.map((i) => ({ name: `w${i}`, dtype: "float32", shape: [256, 256], data })),
    nodes: layers.map((i) => ({
      op: "Add",
      inputs: [i === 0 ? "hu" : `y${i}`, `w${i}`],
      outputs: [`y${i + 1}`],
    })),
  });
  const folder = copyModel(directory, "ct-tissue", "wide", (m) => {
    const sha256 = createHash("sha256").update(graph).digest("hex");
    m.stage = "draft";
    delete m.canary;
    m.results.outputs = ["json"];
    m.files = [{ path: "model.onnx", sha256 }];
    Object.assign(m.inputs[0]!, {
      size: { kind: "fixed", height: 256, width: 256 },
      fit: "stretch",
    });
    m.outputs = [{ kind: "heatmap", tensor: "y16", activation: "none", label: { label: "value" } }];
  });
  writeFileSync(join(folder, "model.onnx"), graph);
  return join(folder, "model.json");
}

t.test("a hundred reloads leave the memory where it was", { skip: needs(ADDON) }, async (t) => {
  t.teardown(() => engine().close());
  const directory = t.testdir();
  const file = wideModel(directory);
  const manifest = readFileSync(file, "utf8");
  const set = await modelsOf(directory);
  t.strictSame(set.problems, []);
  const reload = async (n: number) => {
    writeFileSync(file, manifest.replace('"version":"1.0.0"', `"version":"1.0.${n}"`));
    t.equal((await set.reload()).replaced[0], "wide");
  };
  // What waits for a collection is no session
  const beyondHeap = () => {
    const { rss, heapTotal, external } = process.memoryUsage();
    return rss - heapTotal - external;
  };
  for (let n = 1; n <= 20; n++) await reload(n);
  const before = beyondHeap();
  for (let n = 21; n <= 120; n++) await reload(n);
  const after = beyondHeap();
  // Sessions that stay would take a hundred times as much as its weights. What the allocator
  // keeps for itself depends on the machine, and is less than a tenth of that.
  const weights = statSync(join(dirname(file), "model.onnx")).size;
  t.ok(after - before < 25 * weights, `${after} bytes after, ${before} before`);
  await set.close();
});
