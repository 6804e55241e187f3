/** A row of the table of routes, and what many rows share. */
import type { Interaction } from "../audit/interaction.js";
import type { ErrorCode } from "../base/errors.js";
import type { Handler } from "./services.js";
import type { DescribedRoute } from "./openapi.js";

/** Errors of what opens an input and an output folder. */
export const PATH_ERRORS = [
  "path_not_allowed",
  "input_not_found",
  "disk_full",
  "share_unavailable",
] as const;
/** Errors of what reads an image. */
export const READ_ERRORS = [
  "unsupported_format",
  "unsupported_transfer_syntax",
  "no_pixel_data",
  "corrupt_image",
  "truncated_image",
  "decode_suspect",
  "series_invalid",
] as const satisfies readonly ErrorCode[];

/** Errors of what shows results to people. */
export const VIEW_ERRORS = [
  "path_not_allowed",
  "not_found",
  "file_not_found",
  "overloaded",
  "deadline_exceeded",
  "shutting_down",
] as const;

/**
 * What an endpoint asks of a token that is valid. `subject`: it is of what its subject asked for,
 * or of all with the claim admin. `admin`: it needs that claim, or a subject of its own. The
 * others narrow what it does to folders and destinations.
 */
export const CLAIMS = ["subject", "admin", "input_roots", "output_roots", "destinations"] as const;
export type TokenClaim = (typeof CLAIMS)[number];

export interface Route extends DescribedRoute {
  handler: Handler;
  /** None where there is nothing of anybody. What is asked stands in docs/security.md. */
  claims: readonly TokenClaim[];
  /** Served if the role is worker, too. */
  onWorkers?: true;
  /** A body of megabytes: few of them are in memory at a time, and the bulk thread parses it. */
  hasLargeBody?: true;
  /** The kind of its lines in the audit; "page" if absent. */
  auditedAs?: "inference" | "reconcile";
  /**
   * The interaction of FHIR that the audit's export calls it; "read" for GET and else "patch" if
   * absent.
   */
  interaction?: Interaction;
}

export const at = (
  endpoint: `${Route["method"]} /${string}`,
  id: string,
  more: Omit<Route, "method" | "path" | "id">,
): Route => {
  const [method, path] = endpoint.split(" ") as [Route["method"], string];
  return { method, path, id, ...more };
};
