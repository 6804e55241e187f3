/** What the bulk queue says when its database cannot be used. */
import { RadserveError } from "../base/errors.js";

const RETRY_AFTER_SECONDS = 5;

/** `bulk_unavailable` in two sentences: what was found, and what to do. `radserve doctor` shows them apart. */
export class BulkUnavailable extends RadserveError {
  /** A code: why jobs wait meanwhile. */
  readonly reason: string;

  constructor(
    readonly found: string,
    readonly fix: string,
    options: ErrorOptions & { reason?: string } = {},
  ) {
    const { reason } = options;
    const details = { retry_after: RETRY_AFTER_SECONDS, ...(reason === undefined ? {} : { reason }) };
    super("bulk_unavailable", `${found} ${fix}`, details, options);
    this.reason = reason ?? "database_unavailable";
  }
}
