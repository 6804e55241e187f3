/** When something that is received or delivered is tried again. */
import type { BackOff } from "../../base/back-off.js";
import { durations } from "../../base/durations.js";

export const gatewayRetry = (): BackOff => ({
  first: durations.gatewayRetry,
  most: durations.gatewayRetryMost,
});
