/**
 * The one table of errors. HTTP answers, receipts, bulk items and the command line all take their codes,
 * statuses and descriptions from here; README and OpenAPI publish it.
 */
import { z } from "zod";

interface ErrorKind {
  readonly status: number;
  readonly description: string;
  /** Seconds after which the same request may succeed; absent where waiting does not help. */
  readonly retryAfter?: number;
}

export const ERRORS = {
  bad_request: { status: 400, description: "The request is not of the documented form." },
  unauthorized: { status: 401, description: "The token is missing, expired or invalid." },
  path_not_allowed: { status: 403, description: "A path lies outside the allowed roots." },
  not_found: { status: 404, description: "There is no such page." },
  input_not_found: { status: 404, description: "The input file or folder does not exist." },
  model_not_found: { status: 404, description: "There is no model of that name." },
  job_not_found: { status: 404, description: "This subject has no such job." },
  method_not_allowed: { status: 405, description: "The page exists, with another method." },
  output_name_taken: { status: 409, description: "Another image's result lies under that name." },
  idempotency_conflict: { status: 409, description: "The idempotency key was used for another request." },
  job_state: { status: 409, description: "The job is in a state in which this cannot be done." },
  body_too_large: { status: 413, description: "The request body is larger than allowed." },
  unsupported_format: { status: 415, description: "The file is of no format that can be read." },
  unsupported_transfer_syntax: { status: 415, description: "The DICOM transfer syntax cannot be decoded." },
  no_pixel_data: { status: 422, description: "The DICOM object holds no image." },
  corrupt_image: { status: 422, description: "The file contradicts itself or cannot be decoded." },
  truncated_image: { status: 422, description: "The file ends before its pixels do." },
  decode_suspect: { status: 422, description: "The decoder's output cannot be what the file holds." },
  series_invalid: { status: 422, description: "The slices do not form one volume." },
  no_model_accepts: { status: 422, description: "No active model takes this image." },
  output_invalid: {
    status: 422,
    description: "A model's output failed its checks; nothing of it was written.",
  },
  cancelled: { status: 499, description: "The caller cancelled the work or went away." },
  rate_limited: {
    status: 429,
    description: "This subject sends more than its rate, or has too many requests or open jobs at a time.",
    retryAfter: 1,
  },
  internal: { status: 500, description: "A fault of the server; look the request id up in its log." },
  engine_crash: {
    status: 500,
    description:
      "The server crashed twice while this image of a bulk job ran alone, or was killed five times.",
  },
  revocations_unavailable: {
    status: 503,
    description: "Nobody can say whether the token was revoked: the keys folder has lost its revocations.",
    retryAfter: 10,
  },
  overloaded: { status: 503, description: "The server has all the work it can hold.", retryAfter: 2 },
  model_unavailable: { status: 503, description: "The model asked for is not loaded.", retryAfter: 30 },
  bulk_unavailable: { status: 503, description: "Bulk work cannot be taken now." },
  shutting_down: { status: 503, description: "The server is stopping.", retryAfter: 10 },
  deadline_exceeded: { status: 504, description: "The work did not finish within its time." },
  audit_failed: {
    status: 507,
    description: "What was asked for could not be written down in the audit, so nothing was done.",
    retryAfter: 10,
  },
  disk_full: { status: 507, description: "The output folder's disk has too little room." },
} as const satisfies Record<string, ErrorKind>;

export type ErrorCode = keyof typeof ERRORS;

export const errorCode = z.enum(Object.keys(ERRORS) as [ErrorCode, ...ErrorCode[]]);

/** Details are for programs: numbers, names of fields, limits. Never patient data, never a stack. */
export type ErrorDetails = Record<string, unknown>;

/** An error as it crosses threads and as it leaves the server (there with the request id). */
export const errorObjectSchema = z.object({
  error: errorCode,
  message: z.string(),
  details: z.record(z.string(), z.unknown()).optional(),
});

export interface ErrorObject {
  error: ErrorCode;
  message: string;
  details?: ErrorDetails;
}

/**
 * The only error the product raises on purpose. The message is one sentence or two for a person:
 * what was expected, what was found, what to do; it may be shown to the client as it is.
 */
export class RadserveError extends Error {
  override readonly name = "RadserveError";
  readonly status: number;

  constructor(
    readonly code: ErrorCode,
    message: string,
    readonly details?: ErrorDetails,
    options?: ErrorOptions,
  ) {
    super(message, options);
    this.status = ERRORS[code].status;
  }

  /** Seconds for Retry-After, or undefined where waiting does not help. */
  get retryAfter(): number | undefined {
    const kind: ErrorKind = ERRORS[this.code];
    return kind.retryAfter;
  }

  toObject(): ErrorObject {
    return {
      error: this.code,
      message: this.message,
      ...(this.details === undefined ? {} : { details: this.details }),
    };
  }

  /** @param errno the system's own code behind it, for its cause */
  static fromObject({ error, message, details }: ErrorObject, errno?: string): RadserveError {
    const cause = errno === undefined ? undefined : Object.assign(new Error(errno), { code: errno });
    return new RadserveError(error, message, details, cause === undefined ? undefined : { cause });
  }
}

/** Any thrown value as a RadserveError; what was not raised on purpose is `internal` and keeps its cause for the log. */
export function asRadserveError(thrown: unknown): RadserveError {
  if (thrown instanceof RadserveError) return thrown;
  return new RadserveError(
    "internal",
    "The server failed on this request. Its log has the reason under the request id.",
    undefined,
    { cause: thrown },
  );
}

/** A setting that is missing or wrong. The command says so in one line and ends with status 2; nothing is retried. */
export class ConfigError extends Error {
  override readonly name = "ConfigError";
}
