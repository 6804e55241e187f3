/** When something of a door or of a destination is tried again. */
import type { BackOff } from "../../base/back-off.js";
import { durations } from "../../base/durations.js";

export const doorRetry = (): BackOff => ({
  first: durations.doorRetry,
  most: durations.doorRetryMost,
});
