/** What loading a model takes is counted like images, so that images wait for it. */
import { createHash } from "node:crypto";
import { writeFileSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { onnxModel } from "../../scripts/lib/onnx-model.js";
import { sampleTree } from "../soak/usage.js";
import { copyModel } from "../support/manifests.js";
import { ADDON, needs } from "../support/needs.js";
import { makePlace, radserve, startServer } from "../support/server.js";
import { until } from "../support/until.js";

const SIDE = 256;
const WIDTH = 4096;
const MIB = 2 ** 20;

/** y = hu a b c, with 64 MiB of weights in b. */
function wideModel(): Uint8Array {
  const weights = (name: string, rows: number, columns: number) => ({
    name,
    dtype: "float32" as const,
    shape: [rows, columns],
    data: new Uint8Array(new Float32Array(rows * columns).fill(1e-3).buffer),
  });
  return onnxModel({
    name: "wide",
    inputs: [{ name: "hu", dtype: "float32", shape: ["batch", 1, SIDE, SIDE] }],
    outputs: [{ name: "y", dtype: "float32", shape: ["batch", 1, SIDE, SIDE] }],
    initializers: [
      weights("a", SIDE, WIDTH),
      weights("b", WIDTH, WIDTH),
      weights("c", WIDTH, SIDE),
    ],
    nodes: [
      { op: "MatMul", inputs: ["hu", "a"], outputs: ["d"] },
      { op: "MatMul", inputs: ["d", "b"], outputs: ["e"] },
      { op: "MatMul", inputs: ["e", "c"], outputs: ["y"] },
    ],
  });
}

function addWide(directory: string, name: string, graph: Uint8Array): void {
  const folder = copyModel(directory, "ct-tissue", name, (m) => {
    m.stage = "draft";
    delete m.canary;
    m.results.outputs = ["json"];
    m.files = [{ path: "model.onnx", sha256: createHash("sha256").update(graph).digest("hex") }];
    Object.assign(m.inputs[0]!, {
      size: { kind: "fixed", height: SIDE, width: SIDE },
      fit: "stretch",
    });
    m.outputs = [{ kind: "heatmap", tensor: "y", activation: "none", label: { label: "value" } }];
  });
  writeFileSync(path.join(folder, "model.onnx"), graph);
}

t.test("loading a model while it serves", { skip: needs(ADDON) }, async (t) => {
  const server = await startServer(makePlace());
  t.teardown(() => server.stop());
  const held = () => sampleTree(server.process.pid!, 0).memory;
  const counted = async () => {
    const text = await (await fetch(`${server.url}/metrics`)).text();
    return Number(/\nradserve_image_memory_bytes (\d+)/.exec(text)?.[1]) / MIB;
  };
  const graph = wideModel();
  const most = { counted: 0, held: 0 };
  // The model is loaded between two looks at what is counted, or no look sees it: then another is
  let models = 0;
  await until("a model is loaded under the eyes of the test", async () => {
    const name = `wide-${(models += 1)}`;
    addWide(server.place.environment["RADSERVE_MODELS_DIR"]!, name, graph);
    const before = held();
    const reload = { open: true };
    const loaded = radserve(server.place, "models", "reload").finally(() => (reload.open = false));
    let last = 0;
    while (reload.open) {
      const taken = held() - before;
      const now = await counted();
      if (last > 0 && now > 0) {
        most.held = Math.max(most.held, taken);
        most.counted = Math.max(most.counted, last, now);
      }
      last = now;
    }
    t.match(await loaded, { status: 0, stdout: new RegExp(name) });
    return most.counted > 0;
  });
  t.ok(most.held < most.counted, `${most.held} MiB were taken, ${most.counted} counted`);
  t.equal(await counted(), 0, "it is given back when the model serves");
});
