/** What the bulk queue says when its database cannot be used. */
import { RadserveError } from "../base/errors.js";

const RETRY_AFTER_SECONDS = 5;

/** `bulk_unavailable` in two sentences: what was found, and what to do. `radserve doctor` shows them apart. */
export class BulkUnavailable extends RadserveError {
  constructor(
    readonly found: string,
    readonly fix: string,
    options?: ErrorOptions,
  ) {
    super("bulk_unavailable", `${found} ${fix}`, { retry_after: RETRY_AFTER_SECONDS }, options);
  }
}
