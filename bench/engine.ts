/**
 * `npm run bench -- engine [--quick]`: the engine against ONNX Runtime in a plain C++ loop, and
 * against onnxruntime-node, on this machine's CPU. Everything is a ratio or in the unit that its
 * name ends with; at the end stand the goals. Alone on a quiet machine it takes ten to twenty
 * minutes; --quick shows in two that it works, and its figures mean nothing.
 */
import { mkdtempSync, rmSync } from "node:fs";
import { availableParallelism, cpus, tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { createEngine } from "../src/engine/engine.js";
import { fileSha256 } from "../src/models/files.js";
import { engineGoals } from "./lib/engine-goals.js";
import { measureMemory } from "./lib/engine-memory.js";
import { load, writeFolder } from "./lib/engine-models.js";
import {
  againstNode,
  againstRaw,
  firstRequest,
  mixedShapes,
  optimisedModel,
  statAmongRoutine,
  type Bench,
} from "./lib/engine-parts.js";
import { startNodeRival, type NodeRival } from "./lib/node-rival.js";
import { buildRaw, Raw } from "./lib/raw.js";

const { values } = parseArgs({ options: { quick: { type: "boolean" } } });
const quick = values.quick === true;

async function measure(bench: Bench, rival: NodeRival) {
  const part = async <T>(name: string, work: () => Promise<T> | T): Promise<T> => {
    const result = await work();
    console.log(`${name}: ${JSON.stringify(result, null, 2)}`);
    return result;
  };
  return {
    densenet121: await part("DenseNet-121 over the best plain loop", () =>
      againstRaw(bench, "densenet121"),
    ),
    small_cnn: await part("small CNN over the best plain loop", () =>
      againstRaw(bench, "small_cnn"),
    ),
    densenet121_onnxruntime_node: await part("DenseNet-121 over onnxruntime-node", () =>
      againstNode(bench, "densenet121", rival),
    ),
    small_cnn_onnxruntime_node: await part("small CNN over onnxruntime-node", () =>
      againstNode(bench, "small_cnn", rival),
    ),
    mixed_shapes: await part("mixed shapes over predicted", () => mixedShapes(bench)),
    stat_p95: await part("stat among routine", () => statAmongRoutine(bench)),
    first_request: await part("first request over steady", () => firstRequest(bench)),
    optimised_model: await part("optimised model", () => optimisedModel(bench, fileSha256)),
    memory: await part("memory", () => measureMemory(quick)),
  };
}

async function main(): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), "radserve-bench-engine-"));
  const program = buildRaw();
  const models = join(folder, "models");
  const dense = writeFolder(models, "densenet121");
  const small = writeFolder(models, "small_cnn");
  const engine = createEngine({ provider: "cpu" });
  const raws = {
    densenet121: new Raw(program, dense.graph),
    small_cnn: new Raw(program, small.graph),
  };
  const rival = startNodeRival(join(folder, "rival"));
  try {
    const bench: Bench = {
      engine,
      set: await load(models, engine),
      raws,
      graphs: { densenet121: dense.graph, small_cnn: small.graph },
      manifests: { densenet121: dense.manifest, small_cnn: small.manifest },
      folder,
      models,
      ...(quick ? { seconds: 0.25, rounds: 1 } : { seconds: 2, rounds: 5 }),
    };
    const measured = await measure(bench, rival);
    const machine = {
      cpu: cpus()[0]?.model,
      cores: availableParallelism(),
      node: process.versions.node,
    };
    const { onnxRuntimeVersion } = engine.info();
    const { densenet121, small_cnn, densenet121_onnxruntime_node, small_cnn_onnxruntime_node } =
      measured;
    const goals = engineGoals(
      { densenet121, small_cnn },
      {
        densenet121: densenet121_onnxruntime_node[1].tensors,
        small_cnn: small_cnn_onnxruntime_node[1].tensors,
      },
    );
    const all = { machine: { ...machine, onnxRuntimeVersion, quick }, goals, ...measured };
    console.log(`all: ${JSON.stringify(all, null, 2)}`);
    console.table(goals);
    await bench.set.close();
  } finally {
    rival.stop();
    for (const one of Object.values(raws)) one.stop();
    await engine.close();
    rmSync(folder, { recursive: true, force: true });
  }
}

await main();
