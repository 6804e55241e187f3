import { errors, type RadserveError } from "../../base/errors.js";

/** @param fault why slices are no volume: `details.reason` of series_invalid */
export function seriesInvalid(
  fault: string,
  message: string,
  details: Record<string, unknown> = {},
): RadserveError {
  return errors.series_invalid(message, { reason: fault, ...details });
}
