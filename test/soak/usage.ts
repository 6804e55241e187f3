/** What a tree of processes takes of the machine, and how that changes with time. */
import { readdirSync, readFileSync } from "node:fs";
import { commandOf, descendants } from "../crash/lib/processes.js";

/** What the processes of a server are for. */
export const PARTS = ["supervisor", "serving", "decoders", "postgresql"] as const;
export type Part = (typeof PARTS)[number];

export interface Sample {
  /** Milliseconds since the start. */
  at: number;
  /** Proportional set size of all processes together, in MiB (proc(5), smaps_rollup). */
  memory: number;
  /** Of that, each part's. */
  parts: Record<Part, number>;
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

function partOf(pid: number): Part {
  const command = commandOf(pid);
  if (command.at(-1) === "serve") return "supervisor";
  const runs = (file: string) => command.some((word) => word.endsWith(file));
  if (runs("serving.js")) return "serving";
  return runs("decoder-process.js") ? "decoders" : "postgresql";
}

export const sampleTree = (pid: number, at: number): Sample => sampleTrees([pid], at);

/** @param pids the first processes of all that are looked at */
export function sampleTrees(pids: readonly number[], at: number): Sample {
  const sample: Sample = {
    at,
    memory: 0,
    parts: { supervisor: 0, serving: 0, decoders: 0, postgresql: 0 },
    descriptors: 0,
  };
  for (const each of pids.flatMap((pid) => [pid, ...descendants(pid)])) {
    const { memory, descriptors } = ofProcess(each);
    sample.memory += memory;
    sample.parts[partOf(each)] += memory;
    sample.descriptors += descriptors;
  }
  return sample;
}

export const median = (values: readonly number[]): number =>
  [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)] ?? NaN;

export interface Trend {
  /** Change an hour: the median of the slopes between all pairs of samples (Theil and Sen). */
  slope: number;
  first: number;
  last: number;
  most: number;
}

/**
 * @param samples at least four; `first` and `last` are medians of the first and the last quarter
 */
export function trendOf(samples: readonly Sample[], of: (sample: Sample) => number): Trend {
  const slopes = samples.flatMap((a, i) =>
    samples.slice(i + 1).map((b) => ((of(b) - of(a)) / (b.at - a.at)) * 3_600_000),
  );
  const values = samples.map(of);
  const quarter = Math.max(1, Math.floor(values.length / 4));
  return {
    slope: median(slopes),
    first: median(values.slice(0, quarter)),
    last: median(values.slice(-quarter)),
    most: Math.max(...values),
  };
}
