/** What this process takes of the machine's memory (proc(5)). */
import { readFileSync, writeFileSync } from "node:fs";
import { tried } from "./errno.js";

/** Bytes of this process, by the name of the line in /proc/PID/status. */
export function processBytes(name: "VmData" | "VmHWM" | "VmRSS"): number {
  const found = new RegExp(`^${name}:\\s+(\\d+) kB$`, "m").exec(
    readFileSync("/proc/self/status", "utf8"),
  );
  return Number(found?.[1] ?? 0) * 1024;
}

/** Sets the peak (VmHWM) back to what the process has now: 5 in clear_refs. */
export function forgetPeak(): void {
  tried(() => writeFileSync("/proc/self/clear_refs", "5"));
}
