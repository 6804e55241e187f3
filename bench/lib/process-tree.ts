/** Processor time and memory of a process and all below it, as /proc shows them (proc(5)). */
import { readFileSync } from "node:fs";
import { descendants } from "../../test/crash/lib/processes.js";
import { sum } from "./statistics.js";

/**
 * Ticks a second, the unit of the times in /proc/PID/stat (USER_HZ): 100 on every architecture that
 * Node.js runs on.
 */
const TICKS = 100;

const tree = (root: number): number[] => [root, ...descendants(root)];

function readOf(pid: number, file: string): string {
  try {
    return readFileSync(`/proc/${pid}/${file}`, "utf8");
  } catch {
    return "";
  }
}

/**
 * Seconds of user and system time; of children that have ended, those whose parent has taken note.
 */
export function cpuSeconds(root: number): number {
  const times = tree(root).map((pid) => {
    const stat = readOf(pid, "stat");
    // The command in parentheses may hold anything: the fields are counted behind it
    const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
    return sum(fields.slice(11, 15).map(Number));
  });
  return sum(times) / TICKS;
}

/** MiB of proportional set size: what is shared counts once over all that share it. */
export function pss(root: number): number {
  const kib = tree(root).map((pid) =>
    Number(/^Pss:\s+(\d+)/m.exec(readOf(pid, "smaps_rollup"))?.[1] ?? 0),
  );
  return sum(kib) / 1024;
}

/** Looks at the memory again and again until it is stopped; gives all that it saw, in MiB. */
export function samplePss(root: number, everyMs = 500): () => number[] {
  const seen = [pss(root)];
  const timer = setInterval(() => seen.push(pss(root)), everyMs);
  return () => {
    clearInterval(timer);
    return [...seen, pss(root)];
  };
}

/** The most of it. */
export function watchPss(root: number, everyMs?: number): () => number {
  const stop = samplePss(root, everyMs);
  return () => Math.max(...stop());
}
