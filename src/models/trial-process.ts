/**
 * A process in which a server loads a model and runs it for the first time, before it does so
 * itself: a graph that takes all memory, or ends its process, so ends this one. It ends with the
 * server.
 */
import { readFileSync, writeFileSync } from "node:fs";
import { limitData } from "../addon/confine.js";
import { tried } from "../base/errno.js";
import { asRadserveError } from "../base/errors.js";
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

/** Bytes of this process, by the name of the line in /proc/PID/status (proc(5)). */
function bytesOf(name: "VmData" | "VmHWM" | "VmRSS"): number {
  const found = new RegExp(`^${name}:\\s+(\\d+) kB$`, "m").exec(
    readFileSync("/proc/self/status", "utf8"),
  );
  return Number(found?.[1] ?? 0) * 1024;
}

/** Sets the peak (VmHWM) back to what the process has now: 5 in clear_refs, proc(5). */
function forgetPeak(): void {
  tried(() => writeFileSync("/proc/self/clear_refs", "5"));
}

async function trial({ folder, manifest, bytes, weights }: TrialOrder): Promise<void> {
  const engine = createEngine({ provider: "cpu" });
  engine.limitWeights(weights);
  const report = await (manifest === undefined
    ? readModelFolder(folder)
    : judgeManifest(folder, manifest));
  process.send?.(READ);
  forgetPeak();
  const before = bytesOf("VmRSS");
  limitData(bytesOf("VmData") + bytes);
  // To look at graphs writes out functions that call functions, which may take for ever
  const looked = () => void process.send?.(LOOKED);
  const { entry, error } = await loadReport(report, engine, ["cpu"], { looked });
  const took = Math.max(0, bytesOf("VmHWM") - before);
  const runs = engine.runMemory();
  for (const id of entry === undefined ? [] : nativeIdsOf(entry)) await engine.unload(id);
  await engine.close();
  const answer: TrialAnswer = { bytes: took, runs, ...(error === undefined ? {} : { error }) };
  process.send?.(answer);
}

async function look({ graph, bytes }: LookOrder): Promise<void> {
  const engine = createEngine({ provider: "cpu" });
  process.send?.(READ);
  limitData(bytesOf("VmData") + bytes);
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
