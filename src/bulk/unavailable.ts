/** What the bulk queue says when its database cannot be used. */
import { RadserveError } from "../errors.js";

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

/** The system's or PostgreSQL's code of a fault, such as ECONNREFUSED or 57P03. */
export function codeOf(thrown: unknown): string | undefined {
  if (!(thrown instanceof Error) || !("code" in thrown)) return undefined;
  return typeof thrown.code === "string" ? thrown.code : undefined;
}
