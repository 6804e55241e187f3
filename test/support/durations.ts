/**
 * Shorter lengths of time for programs that a test starts; for the test's own process and its
 * threads: setDurations().
 */
import type { Durations } from "../../src/base/durations.js";

/**
 * What a program's environment needs so that it, its threads and the programs it starts have these
 * milliseconds.
 */
export function withDurations(others: Partial<Durations>): Record<string, string> {
  const first = new URL("./set-durations.js", import.meta.url).href;
  return { NODE_OPTIONS: `--import=${first}`, TEST_DURATIONS: JSON.stringify(others) };
}
