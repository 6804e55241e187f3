/** What a tree of processes takes of the machine, and how that changes with time. */
import { readdirSync, readFileSync } from "node:fs";
import { descendants } from "../crash/lib/processes.js";

export interface Sample {
  /** Milliseconds since the start. */
  at: number;
  /** Proportional set size of all processes together, in MiB (proc(5), smaps_rollup). */
  memory: number;
  descriptors: number;
}

function ofProcess(pid: number): { memory: number; descriptors: number } {
  try {
    const pss = /^Pss:\s+(\d+) kB/m.exec(readFileSync(`/proc/${pid}/smaps_rollup`, "utf8"))?.[1];
    return { memory: Number(pss ?? 0) / 1024, descriptors: readdirSync(`/proc/${pid}/fd`).length };
  } catch {
    // It has ended meanwhile
    return { memory: 0, descriptors: 0 };
  }
}

export function sampleTree(pid: number, at: number): Sample {
  const all = [pid, ...descendants(pid)].map(ofProcess);
  return {
    at,
    memory: all.reduce((sum, one) => sum + one.memory, 0),
    descriptors: all.reduce((sum, one) => sum + one.descriptors, 0),
  };
}

const median = (values: readonly number[]): number =>
  [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)] ?? NaN;

export interface Trend {
  /** Change an hour: the median of the slopes between all pairs of samples (Theil and Sen). */
  slope: number;
  first: number;
  last: number;
  most: number;
}

/** @param samples at least four; `first` and `last` are medians of the first and the last quarter */
export function trendOf(samples: readonly Sample[], of: "memory" | "descriptors"): Trend {
  const slopes = samples.flatMap((a, i) =>
    samples.slice(i + 1).map((b) => ((b[of] - a[of]) / (b.at - a.at)) * 3_600_000),
  );
  const values = samples.map((sample) => sample[of]);
  const quarter = Math.max(1, Math.floor(values.length / 4));
  return {
    slope: median(slopes),
    first: median(values.slice(0, quarter)),
    last: median(values.slice(-quarter)),
    most: Math.max(...values),
  };
}
