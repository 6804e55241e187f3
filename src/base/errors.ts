/**
 * The one table of errors. HTTP answers, receipts, bulk items and the command line all take their codes,
 * statuses and descriptions from here; the pages and OpenAPI publish it, and `radserve explain` reads from it.
 */
import { z } from "zod";
import { errno } from "./errno.js";

interface ErrorKind {
  readonly status: number;
  readonly description: string;
  /** The usual cause, for the person who runs the server. */
  readonly cause: string;
  /** The remedy. Words between backticks are commands, settings and names of files. */
  readonly remedy: string;
  /** Seconds after which the same request may succeed; absent where waiting does not help. */
  readonly retryAfter?: number;
}

export const ERRORS = {
  bad_request: {
    status: 400,
    description: "The request is not of the documented form.",
    cause:
      "The body is no JSON, has an unknown or misspelt field, or a value of another type. The message names the field.",
    remedy: "Correct the field that the message names. openapi.yaml has the exact form, with examples.",
  },
  unauthorized: {
    status: 401,
    description: "The token is missing, expired or invalid.",
    cause:
      "No token was sent, or `Bearer ` stands before it; it has expired or was revoked; or another server's key has signed it. The audit says which (`radserve explain REQUEST_ID`).",
    remedy:
      "Make a token on the server with `radserve token issue --subject NAME` and send it alone in `Authorization`. If all tokens fail at once, compare the clocks and the keys folder: `radserve doctor`.",
  },
  path_not_allowed: {
    status: 403,
    description: "A path lies outside the allowed roots.",
    cause:
      "The path, after all links are followed, lies in no folder of `RADSERVE_INPUT_ROOTS` or `RADSERVE_OUTPUT_ROOTS`, or the token is narrowed to others; or that folder is not there now, because its share is not mounted; or the server's user may not open it.",
    remedy:
      "Look whether each root is there (`radserve doctor`), and mount what is missing. Send a path as the server names it, or add the client's name of the share to `RADSERVE_PATH_MAP`. If the path is right, let the server's user read (or write) it.",
  },
  not_found: {
    status: 404,
    description: "There is no such page.",
    cause: "The address is misspelt, or the client speaks to another version.",
    remedy: "Compare the address with openapi.yaml; a running server gives it at `/openapi.json`.",
  },
  input_not_found: {
    status: 404,
    description: "The input file or folder does not exist.",
    cause: "The file was moved, is not written yet, or its share is not mounted on the server.",
    remedy:
      "On the server, look for the path as its user. If the share is away, mount it and send the request again.",
  },
  file_not_found: {
    status: 404,
    description: "There is no such file to download.",
    cause: "The name is misspelt, the result is not written yet, or somebody moved it away.",
    remedy:
      "Take the names from `outputs` and `receipt_path` of the answer or the receipt, and send them as they stand there.",
  },
  model_not_found: {
    status: 404,
    description: "There is no model of that name.",
    cause: "The name in `models` is misspelt, or the model's folder is not in the models folder.",
    remedy: "`radserve models list` shows the names. After a change of the folder: `radserve models reload`.",
  },
  destination_not_found: {
    status: 404,
    description: "There is no such destination, or none is left to send to.",
    cause:
      "A name in `destinations` is not in the file of RADSERVE_DOORS, or that has no usual ones, or `deliver` says none beside it.",
    remedy: "Name destinations of that file, or leave `deliver` and `destinations` out.",
  },
  job_not_found: {
    status: 404,
    description: "This subject has no such job.",
    cause:
      "The job is another subject's, was purged, ended more than 30 days ago, or is of another database.",
    remedy:
      "Use a token of the subject that sent the job, or one with `--admin`. `radserve jobs list` shows what there is.",
  },
  method_not_allowed: {
    status: 405,
    description: "The page exists, with another method.",
    cause: "A GET was sent where a POST is expected, or the other way round.",
    remedy: "Use the method that openapi.yaml names.",
  },
  output_name_taken: {
    status: 409,
    description: "Another image's result lies under that name.",
    cause:
      "Two images with the same file name were sent to one output folder. The results of the first are never overwritten.",
    remedy:
      "Send the second to another output folder, or rename it. If the first result is not wanted any more, move its files away, the receipt `NAME.json` too.",
  },
  file_exists: {
    status: 409,
    description: "Another file of that name is there, and an upload does not replace it unless it says so.",
    cause: "Two images have one name, or the image was changed since it was first sent.",
    remedy:
      "Send it under another name, or with `overwrite=true` if the old one is not wanted. The same bytes again are no error.",
  },
  result_changed: {
    status: 409,
    description: "A file of a result, or its image, is not the one that the receipt names.",
    cause:
      "The file was changed or exchanged since the result was written, or another image lies at that path now.",
    remedy:
      "`radserve verify NAME.json` says of each file whether it is as it was written. Send the image again if the result is still wanted.",
  },
  idempotency_conflict: {
    status: 409,
    description: "The idempotency key was used for another request.",
    cause: "A client used one key for two different requests.",
    remedy: "Use a new key for a new request.",
  },
  job_state: {
    status: 409,
    description: "The job is in a state in which this cannot be done.",
    cause: "For example a job is to be purged that still runs, or to be resumed that is not paused.",
    remedy: "`radserve jobs show JOB` says its state; cancel or wait first.",
  },
  body_too_large: {
    status: 413,
    description: "The request body is larger than allowed.",
    cause: "A single request has more than 64 KiB, or a bulk request more than `RADSERVE_BODY_LIMIT`.",
    remedy: "Send a folder instead of a long list, several requests, or raise the limit.",
  },
  range_not_satisfiable: {
    status: 416,
    description: "The file ends before the first byte that was asked for.",
    cause: "The client goes on with a download that is whole already, or the file is another one by now.",
    remedy:
      "Compare the size with `Content-Range` of the answer. Send the `ETag` of the first part in `If-Range` to go on safely.",
  },
  unsupported_format: {
    status: 415,
    description: "The file is of no format that can be read.",
    cause:
      "The file is no DICOM, PNG, JPEG or TIFF, whatever its name says, or a kind of these that is not read.",
    remedy:
      "`radserve inspect FILE` says what it is. Send the original from the archive, not a report or a video.",
  },
  unsupported_transfer_syntax: {
    status: 415,
    description: "The DICOM transfer syntax cannot be decoded.",
    cause: "The file is compressed in a way for which there is no decoder, such as MPEG video.",
    remedy:
      "Let the archive send it in another transfer syntax, for example Explicit VR Little Endian. docs/reading.md lists those that are read.",
  },
  no_pixel_data: {
    status: 422,
    description: "The DICOM object holds no image.",
    cause: "The object is a report, a presentation state or a plan.",
    remedy: "Nothing is wrong: there is no image in it. In bulk jobs such files are skipped.",
  },
  corrupt_image: {
    status: 422,
    description: "The file contradicts itself or cannot be decoded.",
    cause:
      "Elements contradict each other (size, bits, number of frames), or the compressed data is damaged: often a broken transfer or disk.",
    remedy: "`radserve inspect FILE` says where. Fetch the file again from its source and compare sizes.",
  },
  truncated_image: {
    status: 422,
    description: "The file ends before its pixels do.",
    cause: "The file was copied only in part, or is still being written.",
    remedy: "Wait until it is whole, or copy it again; then send the request again.",
  },
  decode_suspect: {
    status: 422,
    description: "The decoder's output cannot be what the file holds.",
    cause:
      "Frames came out constant or with values that the file's bits cannot hold: the decoder or the file is wrong, so no result was made.",
    remedy:
      "Look at the image in a viewer. If it looks right there, report it with the transfer syntax; convert it to an uncompressed one meanwhile.",
  },
  series_invalid: {
    status: 422,
    description: "The slices do not form one volume.",
    cause: "Slices are missing, lie twice, are tilted, or belong to several series.",
    remedy:
      "The message names the slices or lists the series. Complete the series, or send a folder that holds one series alone.",
  },
  no_model_accepts: {
    status: 422,
    description: "No active model takes this image.",
    cause:
      "No model is made for this modality, body part, size or kind of pixels; or the model that is has release `off` or failed to load.",
    remedy:
      "`details` has each model's reasons; `radserve inspect FILE` shows them again. Send another image, or activate the model that is meant for it.",
  },
  output_invalid: {
    status: 422,
    description: "A model's output failed its checks; nothing of it was written.",
    cause: "The model gave no number (NaN), a wrong shape, or a DICOM object failed its check after writing.",
    remedy:
      "`radserve models check FOLDER` runs its canary. Tell the model's maker which image it was; other models of the request are not touched.",
  },
  cancelled: {
    status: 499,
    description: "The caller cancelled the work or went away.",
    cause: "The client closed the connection, or the job was cancelled.",
    remedy: "Nothing, if that was wanted. Else raise the client's own time limit and send it again.",
  },
  rate_limited: {
    status: 429,
    description: "This subject sends more than its rate, or has too many requests or open jobs at a time.",
    retryAfter: 1,
    cause:
      "One subject sends faster than `RADSERVE_RATE_LIMIT`, or has more in work than `RADSERVE_REQUESTS_PER_SUBJECT` or `RADSERVE_JOBS_PER_SUBJECT`.",
    remedy: "Wait as `Retry-After` says. Give each program a subject of its own, or raise the limit.",
  },
  internal: {
    status: 500,
    description: "A fault of the server; look the request id up in its log.",
    cause: "A fault of the program that nobody foresaw.",
    remedy:
      "Look the request id up in the server's log and report the line of the fault. The request may be sent again.",
  },
  engine_crash: {
    status: 500,
    description:
      "The server crashed twice while this image of a bulk job ran alone, or was killed five times.",
    cause:
      "The process crashed twice while it worked on this image alone: the image, the model or the runtime is at fault.",
    remedy:
      "Keep the image. Try it with `radserve infer` and each model in turn (`--model`); report it to who made the model and to Radserve.",
  },
  revocations_unavailable: {
    status: 503,
    description: "Nobody can say whether the token was revoked: the keys folder has lost its revocations.",
    retryAfter: 10,
    cause:
      "The keys folder is a share that is away, or its folder `revoked` was removed. No token is trusted meanwhile.",
    remedy: "Mount the share or put the folder back; the server goes on by itself within seconds.",
  },
  overloaded: {
    status: 503,
    description: "The server has all the work it can hold.",
    retryAfter: 2,
    cause:
      "More requests than `RADSERVE_MAX_QUEUE`, more connections, or larger images than fit in the memory for images at once.",
    remedy:
      "Wait as `Retry-After` says. If it lasts: more boxes, fewer clients at once, or a larger `RADSERVE_MEMORY`. `/metrics` says which limit it is.",
  },
  model_unavailable: {
    status: 503,
    description: "The model asked for is not loaded.",
    retryAfter: 30,
    cause: "The model failed to load, or its canary failed, or the models are still being loaded.",
    remedy:
      "`radserve status` says why; `radserve models check FOLDER` explains it. Mend the folder, then `radserve models reload`.",
  },
  bulk_unavailable: {
    status: 503,
    description: "Bulk work cannot be taken now.",
    cause: "PostgreSQL is down, full, read-only or does not answer. Single requests are not touched.",
    remedy:
      "`radserve doctor` names what is wrong with the database. Jobs go on by themselves once it is back.",
  },
  delivery_unavailable: {
    status: 503,
    description: "What is to be delivered cannot be kept now, so no result was written.",
    retryAfter: 10,
    cause:
      "The spool of `RADSERVE_DOORS` (without one, the state directory) is away, full or may not be written to; or this box has no destinations, and the one that took the job has.",
    remedy:
      "`radserve doctor` says what is wrong with the folder; give all boxes the same file of doors. Jobs go on by themselves; single requests have to be sent again.",
  },
  shutting_down: {
    status: 503,
    description: "The server is stopping.",
    retryAfter: 10,
    cause: "The server is being stopped or restarted.",
    remedy: "Send the request again as `Retry-After` says, or to another box.",
  },
  deadline_exceeded: {
    status: 504,
    description: "The work did not finish within its time.",
    cause: "The image is large, the machine is busy, or `timeout_ms` is short.",
    remedy:
      "Repeat it: results may have been written meanwhile. If it happens often, raise `timeout_ms` or `RADSERVE_DEADLINE_SECONDS`, or give the model a GPU.",
  },
  audit_failed: {
    status: 507,
    description: "What was asked for could not be written down in the audit, so nothing was done.",
    retryAfter: 10,
    cause:
      "The disk of the state directory is full, read-only or gone. Nothing is done that cannot be written down.",
    remedy: "Make room there (`radserve doctor`); the server tries again every two seconds.",
  },
  disk_full: {
    status: 507,
    description: "The output folder's disk has too little room.",
    cause:
      "Less room than `RADSERVE_MINIMUM_FREE_DISK`, or than the results need, is left on the output folder's disk.",
    remedy: "Make room. Bulk jobs pause and go on by themselves; single requests have to be sent again.",
  },
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

/** The process, or the machine, has as many files open as it may (open(2)). */
const NO_DESCRIPTOR: ReadonlySet<string> = new Set(["EMFILE", "ENFILE"]);

/** Any thrown value as a RadserveError; what was not raised on purpose is `internal` and keeps its cause for the log. */
export function asRadserveError(thrown: unknown): RadserveError {
  if (thrown instanceof RadserveError) return thrown;
  if (NO_DESCRIPTOR.has(errno(thrown)))
    return new RadserveError(
      "overloaded",
      "Expected room for another open file; the server's process or machine has as many open as it may. Send the request again after the time in Retry-After.",
      undefined,
      { cause: thrown },
    );
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
