/** Control groups that bound the memory of processes, where a test may make one (root). */
import { existsSync, mkdirSync, rmdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import type { Test } from "tap";
import { tried } from "../../src/base/errno.js";
import { until } from "./until.js";

/** Version 1 has a tree for memory alone; version 2 has one tree for all. */
const TREES = [
  { root: "/sys/fs/cgroup/memory", limit: "memory.limit_in_bytes" },
  { root: "/sys/fs/cgroup", limit: "memory.max" },
] as const;

/**
 * A group whose processes may have so many bytes together of what they take from now on.
 * @returns puts a process into it; undefined where no group can be made
 */
export function memoryGroup(t: Test, bytes: number): ((pid: number) => void) | undefined {
  for (const { root, limit } of TREES) {
    const folder = path.join(root, `radserve-test-${process.pid}`);
    if (tried(() => mkdirSync(folder)) === undefined && !existsSync(folder)) continue;
    t.teardown(() =>
      until("the group is empty", () => tried(() => rmdirSync(folder)) === undefined),
    );
    if (!existsSync(path.join(folder, limit))) continue;
    writeFileSync(path.join(folder, limit), String(bytes));
    return (pid) => writeFileSync(path.join(folder, "cgroup.procs"), String(pid));
  }
  return undefined;
}
