/** The addon's figures in the face's words. */
import type { NativeClasses, NativeModelStats } from "./graph-addon.js";
import type { ModelStats, Priority } from "./types.js";

const classes = <T>({ stat, routine, bulk }: NativeClasses<T>): Record<Priority, T> => ({
  high: stat,
  normal: routine,
  low: bulk,
});

export const modelStatsOf = (native: NativeModelStats): ModelStats => ({
  name: native.name,
  ...(native.gpu === undefined ? {} : { gpu: native.gpu }),
  queued: classes(native.queued),
  started: classes(native.started),
  completed: native.completed,
  failed: native.failed,
  waitSeconds: classes(native.waitSeconds),
  runSeconds: native.runSeconds,
  batchSizes: native.batchSizes,
  bytes: native.sessions.reduce((sum, { bytes }) => sum + bytes, 0),
});
