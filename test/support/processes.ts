/** Other processes of this machine, as /proc shows them. */
import { readdirSync, readFileSync } from "node:fs";

/** The command line of a process; undefined if it has gone, empty if it is a zombie. */
export function commandOf(pid: number): string | undefined {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, "utf8");
  } catch {
    return undefined;
  }
}

function parentOf(pid: number): number | undefined {
  try {
    // The name in parentheses may hold anything
    return Number(readFileSync(`/proc/${pid}/stat`, "utf8").split(") ").at(-1)?.split(" ")[1]);
  } catch {
    return undefined;
  }
}

/** The decoder processes that a process has started and that live. */
export function decodersOf(parent: number): number[] {
  return readdirSync("/proc")
    .map(Number)
    .filter(
      (pid) => parentOf(pid) === parent && commandOf(pid)?.includes("decoder-process.js") === true,
    );
}
