/**
 * A process in which a server loads a model and runs it for the first time, before it does so
 * itself: a graph that takes all memory, or ends its process, so ends this one. It ends with the
 * server.
 */
import { limitData } from "../addon/confine.js";
import { asRadserveError } from "../base/errors.js";
import { forgetPeak, processBytes } from "../base/process-bytes.js";
import { createEngine } from "../engine/engine.js";
import { nativeIdsOf } from "./entry.js";
import { loadReport } from "./load.js";
import { judgeManifest, readModelFolder } from "./read.js";
import {
  LOOKED,
  READ,
  type LookAnswer,
  type LookOrder,
  type TrialAnswer,
  type TrialOrder,
} from "./trial-messages.js";

async function trial({ folder, manifest, provider, bytes, weights }: TrialOrder): Promise<void> {
  const engine = createEngine({ provider: "cpu" });
  engine.limitWeights(weights);
  const report = await (manifest === undefined
    ? readModelFolder(folder)
    : judgeManifest(folder, manifest));
  process.send?.(READ);
  forgetPeak();
  const before = processBytes("VmRSS");
  limitData(processBytes("VmData") + bytes);
  // To look at graphs writes out functions that call functions, which may take for ever
  const looked = () => void process.send?.(LOOKED);
  const { entry, error } = await loadReport(report, engine, [provider], { looked });
  const took = Math.max(0, processBytes("VmHWM") - before);
  const runs = engine.runMemory();
  for (const id of entry === undefined ? [] : nativeIdsOf(entry)) await engine.unload(id);
  await engine.close();
  const answer: TrialAnswer = { bytes: took, runs, ...(error === undefined ? {} : { error }) };
  process.send?.(answer);
}

async function look({ graph, bytes }: LookOrder): Promise<void> {
  const engine = createEngine({ provider: "cpu" });
  process.send?.(READ);
  limitData(processBytes("VmData") + bytes);
  const answer: LookAnswer = await engine.inspectGraph(graph).then(
    (found) => ({ graph: found }),
    (thrown: unknown) => ({ error: asRadserveError(thrown).toObject() }),
  );
  await engine.close();
  process.send?.(answer);
}

process.on(
  "message",
  (order: TrialOrder | LookOrder) => void ("graph" in order ? look(order) : trial(order)),
);
process.on("disconnect", () => process.exit());
