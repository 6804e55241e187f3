/** Waiting with an end. */
import { monotonic } from "./monotonic.js";

/** A timer of Node.js that is to run for longer ends at once. */
export const LONGEST_TIMER_MS = 2 ** 31 - 1;
/** A timer that is so much too late tells that the process stood still, or its machine did. */
const STOOD_STILL_MS = 20;
/** Within it the process sees what came meanwhile. */
const MOMENT_MS = 250;

/**
 * Whether work has ended within some milliseconds; it goes on either way. Throws what the work
 * throws until then; a failure after that is handled, and told to nobody.
 *
 * A process that stood still sees the end of the time before what had come by then: it looks once
 * more, a moment later.
 */
export async function within(work: Promise<unknown>, milliseconds: number): Promise<boolean> {
  const end = monotonic() + milliseconds;
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<false>((resolve) => {
    timer = setTimeout(() => {
      const stoodStill = monotonic() - end > STOOD_STILL_MS;
      if (!stoodStill) resolve(false);
      else timer = setTimeout(() => resolve(false), Math.min(milliseconds, MOMENT_MS));
    }, milliseconds);
  });
  return Promise.race([work.then(() => true), late]).finally(() => clearTimeout(timer));
}
