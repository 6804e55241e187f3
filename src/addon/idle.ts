/** Memory that a burst took, given back when its thread rests. */
import { durations } from "../base/durations.js";
import { giveBack } from "./bytes.js";

/**
 * @returns to be called whenever work has ended; where none follows for a moment, memory goes back
 */
export function givingBack(): () => void {
  let timer: NodeJS.Timeout | undefined;
  return () => {
    clearTimeout(timer);
    timer = setTimeout(
      () => void giveBack().catch(() => undefined),
      durations.threadMoment,
    ).unref();
  };
}
