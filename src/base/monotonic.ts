/** The clock for waits. */

/**
 * Milliseconds on a clock that nobody sets (CLOCK_MONOTONIC), the same for all threads and
 * processes of a machine. What waits, or is waited for, counts by it: by the time of day a wait
 * would last years after a clock was set back.
 */
export function monotonic(): number {
  const [seconds, nanoseconds] = process.hrtime();
  return seconds * 1000 + nanoseconds / 1e6;
}
