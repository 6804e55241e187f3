/**
 * A process in which a server loads a model and runs it for the first time, before it does so
 * itself: a graph that takes all memory, or ends its process, so ends this one. It ends with the
 * server.
 */
import { readFileSync, writeFileSync } from "node:fs";
import { limitData } from "../addon/confine.js";
import { tried } from "../base/errno.js";
import { createEngine } from "../engine/engine.js";
import { checkGraphs } from "./graph.js";
import { loadReport } from "./load.js";
import { graphPaths, readModelFolder } from "./read.js";
import { LOOKED, READ, type TrialAnswer, type TrialOrder } from "./trial-messages.js";

/** Bytes of this process, by the name of the line in /proc/PID/status (proc(5)). */
function bytesOf(name: "VmData" | "VmHWM" | "VmRSS"): number {
  const found = new RegExp(`^${name}:\\s+(\\d+) kB$`, "m").exec(
    readFileSync("/proc/self/status", "utf8"),
  );
  return Number(found?.[1] ?? 0) * 1024;
}

/** The most that it had counts from now on. */
function forgetPeak(): void {
  tried(() => writeFileSync("/proc/self/clear_refs", "5"));
}

async function trial({ folder, bytes }: TrialOrder): Promise<void> {
  const engine = createEngine({ provider: "cpu" });
  const report = await readModelFolder(folder);
  process.send?.(READ);
  forgetPeak();
  const before = bytesOf("VmRSS");
  limitData(bytesOf("VmData") + bytes);
  // Functions that call functions are written out here, which may take for ever
  if (report.model !== undefined)
    await checkGraphs(
      report.model.manifest,
      await graphPaths(folder, report.model.manifest),
      engine,
    ).catch(() => undefined);
  process.send?.(LOOKED);
  const { entry, error } = await loadReport(report, engine, ["cpu"]);
  const took = Math.max(0, bytesOf("VmHWM") - before);
  const runs = engine.runMemory();
  if (entry?.nativeId !== undefined) await engine.unload(entry.nativeId);
  await engine.close();
  const answer: TrialAnswer = { bytes: took, runs, ...(error === undefined ? {} : { error }) };
  process.send?.(answer);
}

process.on("message", (order: TrialOrder) => void trial(order));
process.on("disconnect", () => process.exit());
