/**
 * Work that has time steps aside while single requests run. Its threads yield the processor already (setpriority(2)),
 * but what it leaves to threads that all share does not: inference, drawing, V8's collector, the disk.
 */
import { setTimeout as delay } from "node:timers/promises";

/** Between two steps, as long again as this many times what the step took: so it goes on under any load. */
const PATIENCE = 4;
const LONGEST_MS = 500;
const LOOK_EVERY_MS = 4;

/**
 * For one task, to be awaited between its steps.
 * @param others how many single requests run, shared by all threads
 */
export function givingWayTo(others: Int32Array): () => Promise<void> {
  let since = performance.now();
  return async () => {
    const until = performance.now() + Math.min(LONGEST_MS, PATIENCE * (performance.now() - since));
    while (Atomics.load(others, 0) > 0 && performance.now() < until) await delay(LOOK_EVERY_MS);
    since = performance.now();
  };
}
