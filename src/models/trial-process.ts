/**
 * A process in which a server loads a model and runs it for the first time, before it does so
 * itself: a graph that takes all memory, or ends its process, so ends this one. It ends with the
 * server.
 */
import { limitData, limitProcessorTime } from "../addon/confine.js";
import { durations } from "../base/durations.js";
import { asRadserveError } from "../base/errors.js";
import { forgetPeak, processBytes } from "../base/process-bytes.js";
import { createEngine } from "../engine/engine.js";
import { nativeIdsOf } from "./entry.js";
import { loadReport } from "./load.js";
import { judgeManifest, readModelFolder } from "./read.js";
import type { LookAnswer, LookOrder, TrialAnswer, TrialOrder } from "./trial-messages.js";

const NO_LIMIT = 0;

/**
 * To look at graphs writes out functions that call functions, which may multiply without end. What
 * it takes is counted in processor time, because a busy machine may let this process wait for long.
 */
const limitLook = (): void => limitProcessorTime(Math.ceil(durations.graphLook / 1000));
const endLook = (): void => limitProcessorTime(NO_LIMIT);

async function trial({ folder, manifest, provider, bytes, weights }: TrialOrder): Promise<void> {
  const engine = createEngine({ provider: "cpu" });
  engine.limitWeights(weights);
  const report = await (manifest === undefined
    ? readModelFolder(folder)
    : judgeManifest(folder, manifest));
  forgetPeak();
  const before = processBytes("VmRSS");
  limitData(processBytes("VmData") + bytes);
  limitLook();
  const { entry, error } = await loadReport(report, engine, [provider], { looked: endLook });
  // One that failed has not come to its end
  endLook();
  const took = Math.max(0, processBytes("VmHWM") - before);
  const runs = engine.runMemory();
  for (const id of entry === undefined ? [] : nativeIdsOf(entry)) await engine.unload(id);
  await engine.close();
  const answer: TrialAnswer = { bytes: took, runs, ...(error === undefined ? {} : { error }) };
  process.send?.(answer);
}

async function look({ graph, bytes }: LookOrder): Promise<void> {
  const engine = createEngine({ provider: "cpu" });
  limitData(processBytes("VmData") + bytes);
  limitLook();
  const answer: LookAnswer = await engine.inspectGraph(graph).then(
    (found) => ({ graph: found }),
    (thrown: unknown) => ({ error: asRadserveError(thrown).toObject() }),
  );
  endLook();
  await engine.close();
  process.send?.(answer);
}

process.on(
  "message",
  (order: TrialOrder | LookOrder) => void ("graph" in order ? look(order) : trial(order)),
);
process.on("disconnect", () => process.exit());
