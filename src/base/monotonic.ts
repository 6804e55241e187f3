/** The clock for waits. */

/**
 * Milliseconds on a clock that nobody sets (CLOCK_MONOTONIC), the same for all threads and
 * processes of a machine. Every wait is measured with it. Measured by the time of day, a wait would
 * last for years after somebody set the clock back.
 */
export function monotonic(): number {
  const [seconds, nanoseconds] = process.hrtime();
  return seconds * 1000 + nanoseconds / 1e6;
}
