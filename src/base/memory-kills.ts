/** Processes that the system has ended because memory ran out. */
import { readFileSync } from "node:fs";
import { tried } from "./errno.js";

/**
 * How many there were on this machine since it started, in whatever control group (oom_kill of
 * /proc/vmstat); 0 where the kernel does not say.
 */
export function killsForMemory(): number {
  const text = tried(() => readFileSync("/proc/vmstat", "latin1")) ?? "";
  return Number(/^oom_kill (\d+)$/m.exec(text)?.[1] ?? 0);
}
