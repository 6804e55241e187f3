/** Memory that a burst took, given back when its thread rests. */
import { durations } from "../base/durations.js";
import { giveBack } from "./bytes.js";

/** @returns to be called whenever work has ended; memory goes back when none followed for a moment */
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
