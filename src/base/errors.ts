/**
 * The one table of errors. HTTP answers, receipts, bulk items and the command line all take their
 * codes, statuses and descriptions from here; the documents and OpenAPI publish it, and `radserve
 * explain` reads from it.
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
    description: "The request is not valid.",
    cause:
      "The body is not JSON, or a field is unknown, misspelt or of the wrong type. The message names the field.",
    remedy:
      "Correct the field that the message names. openapi.yaml has the exact form, with examples.",
  },
  unauthorized: {
    status: 401,
    description: "The token is missing, expired or invalid.",
    cause:
      "No token was sent, it follows the word `Bearer`, it has expired or was revoked, or another server signed it. The audit says which (`radserve explain REQUEST_ID`).",
    remedy:
      "Make a token on the server with `radserve token issue --subject NAME` and send it alone in `Authorization`. If all tokens fail at once, compare the clocks and the keys folder: `radserve doctor`.",
  },
  path_not_allowed: {
    status: 403,
    description: "The path is outside the folders that may be used.",
    cause:
      "With all links followed, the path is in no folder of `RADSERVE_INPUT_ROOTS` or `RADSERVE_OUTPUT_ROOTS`, or in none that this token allows; or the folder's share is not mounted; or the server's user may not open it.",
    remedy:
      "Check the roots with `radserve doctor`, and mount what is missing. Send the path as the server names it, or add the client's name of the share to `RADSERVE_PATH_MAP`. If the path is right, let the server's user read (or write) it.",
  },
  role_missing: {
    status: 403,
    description: "The signed-in person has no role that this server knows.",
    cause:
      "No role in the proxy's token is in the file of `RADSERVE_SIGN_IN`, or the token has no roles: the claim has another name, or the issuer leaves it out.",
    remedy:
      "Give the person a role, or add the role to that file and send SIGHUP. Check `roles_claim` there.",
  },
  other_site: {
    status: 403,
    description: "A page of another site made this request in the name of a signed-in person.",
    cause:
      "`Sec-Fetch-Site` or `Origin` names another site than `origin` in the file of `RADSERVE_SIGN_IN`; or a program changes something through the proxy without either.",
    remedy:
      "Open the page under the address that `origin` names, or correct it. Programs send a token of their own.",
  },
  not_found: {
    status: 404,
    description: "There is no such endpoint.",
    cause: "The address is misspelt, or belongs to another version of Radserve.",
    remedy: "Compare the address with openapi.yaml; a running server gives it at `/openapi.json`.",
  },
  input_not_found: {
    status: 404,
    description: "The input file or folder does not exist.",
    cause: "The file was moved, is not yet written, or its share is not mounted on the server.",
    remedy:
      "Look for the path on the server, as the user that the server runs as. If the share is missing, mount it and send the request again.",
  },
  file_not_found: {
    status: 404,
    description: "There is no such file to download.",
    cause: "The name is misspelt, the result is not yet written, or it was moved.",
    remedy:
      "Use the names in `outputs` and `receipt_path` of the answer or the receipt, unchanged.",
  },
  model_not_found: {
    status: 404,
    description: "There is no model of that name.",
    cause: "The name in `models` is misspelt, or the model's folder is not in the models folder.",
    remedy:
      "`radserve models list` shows the names. After a change of the folder: `radserve models reload`.",
  },
  destination_not_found: {
    status: 404,
    description: "There is no such destination, or none to send to.",
    cause:
      "A name in `destinations` is not in the file of `RADSERVE_GATEWAY`, or that file has no default destination, or `deliver` is `none`.",
    remedy: "Use destinations of that file, or omit `deliver` and `destinations`.",
  },
  job_not_found: {
    status: 404,
    description: "There is no such job for this subject.",
    cause:
      "The job belongs to another subject, was purged, ended more than 30 days ago, or is in another database.",
    remedy:
      "Use a token of the subject that sent the job, or one made with `--admin`. `radserve jobs list` shows the jobs.",
  },
  method_not_allowed: {
    status: 405,
    description: "The endpoint exists, with another method.",
    cause: "For example, GET was sent where POST is expected.",
    remedy: "Use the method that openapi.yaml names.",
  },
  output_name_taken: {
    status: 409,
    description: "The result of another image already has this name.",
    cause:
      "Two images with the same file name were sent to one output folder. The results of the first are never overwritten.",
    remedy:
      "Send the second image to another output folder, or rename it. To replace the first result, move its files away first, including the receipt `NAME.json`.",
  },
  file_exists: {
    status: 409,
    description:
      "A different file has this name; an upload replaces it only with `overwrite=true`.",
    cause: "Two images have one name, or the image was changed since it was first sent.",
    remedy:
      "Use another name, or `overwrite=true` to replace the file. Sending the same bytes again is not an error.",
  },
  result_changed: {
    status: 409,
    description:
      "A file of the result, or its image, has changed since the result was written; or another result has replaced the one that was opened (`details.reason` is `replaced`).",
    cause:
      "The file was changed or replaced after the result was written, or another image is at that path now. Or the image was sent again while somebody looked at its result.",
    remedy:
      "Load a result that was replaced again. Otherwise `radserve verify NAME.json` checks each file: send the image again for a new result.",
  },
  result_untrusted: {
    status: 409,
    description: "The result is not one that this server wrote, or was changed since.",
    cause:
      "Its receipt has no MAC (Radserve 0.6, or a command without keys), was changed or renamed after it was written, or was written with a key that this server does not have.",
    remedy:
      "If it is yours, run `radserve adopt NAME.json`: that computes it again and signs what is equal. Otherwise move it away and send the image again.",
  },
  idempotency_conflict: {
    status: 409,
    description: "The idempotency key was used for another request.",
    cause: "A client used one key for two different requests.",
    remedy: "Use a new key for a new request.",
  },
  job_state: {
    status: 409,
    description: "The state of the job does not allow this.",
    cause: "For example, a running job cannot be purged, and only a paused job can be resumed.",
    remedy: "`radserve jobs show JOB` shows its state. Wait, or cancel the job first.",
  },
  body_too_large: {
    status: 413,
    description: "The request body is larger than allowed.",
    cause:
      "A single request has more than 64 KiB, or a bulk request more than `RADSERVE_BODY_LIMIT`.",
    remedy: "Send a folder instead of a long list, split the request, or raise the limit.",
  },
  range_not_satisfiable: {
    status: 416,
    description: "The requested range begins after the end of the file.",
    cause: "The download is already complete, or the file has changed since it began.",
    remedy:
      "Compare the size with `Content-Range` of the answer. Send the `ETag` of the first part in `If-Range` to go on safely.",
  },
  unsupported_format: {
    status: 415,
    description: "The file format is not supported.",
    cause:
      "By its content the file is not DICOM, PNG, JPEG or TIFF, or it is a variant that is not supported.",
    remedy:
      "`radserve inspect FILE` says what it is. Send the original from the archive, not a report or a video.",
  },
  unsupported_transfer_syntax: {
    status: 415,
    description: "The DICOM transfer syntax cannot be decoded.",
    cause: "The file is compressed in a way for which there is no decoder, such as MPEG video.",
    remedy:
      "Let the archive send it in another transfer syntax, for example Explicit VR Little Endian. docs/reading.md lists the supported ones.",
  },
  no_pixel_data: {
    status: 422,
    description: "The DICOM object has no pixel data.",
    cause: "The object is a report, a presentation state or a plan.",
    remedy: "Nothing to do: the object holds no image. Bulk jobs skip such files.",
  },
  corrupt_image: {
    status: 422,
    description: "The file is damaged: it contradicts itself or cannot be decoded.",
    cause:
      "Elements contradict each other (size, bits, number of frames), or the compressed data is damaged: often a broken transfer or disk.",
    remedy:
      "`radserve inspect FILE` says where. Fetch the file again from its source and compare sizes.",
  },
  truncated_image: {
    status: 422,
    description: "The file ends before its pixels do.",
    cause: "The file was copied incompletely, or is still being written.",
    remedy: "Wait until the file is complete, or copy it again; then send the request again.",
  },
  decode_suspect: {
    status: 422,
    description: "The decoded pixels cannot be what the file holds, so no result was made.",
    cause:
      "Frames decoded to one constant value, or to values that the file's bits cannot hold: the decoder or the file is wrong.",
    remedy:
      "Look at the image in a viewer. If it looks right there, report it with the transfer syntax; convert it to an uncompressed one meanwhile.",
  },
  series_invalid: {
    status: 422,
    description: "The slices do not form one volume.",
    cause: "Slices are missing, duplicated or tilted, or belong to several series.",
    remedy:
      "Complete the series, or send a folder with one series only. The message names the slices or lists the series.",
  },
  no_model_accepts: {
    status: 422,
    description: "No active model takes this image.",
    cause:
      "No model is for this modality, body part, size or kind of pixels; or the model for it has release `off` or failed to load.",
    remedy:
      "`details` has the reasons of each model; `radserve inspect FILE` shows them again. Send another image, or activate the model for it.",
  },
  output_invalid: {
    status: 422,
    description:
      "A model could not compute this image, or its output failed its checks and was not written.",
    cause:
      "A node of the graph failed for this input, the model returned NaN or a wrong shape, or a DICOM object failed its check after writing.",
    remedy:
      "`radserve models check FOLDER` runs its canary. Report the image to the maker of the model. Other models of the request are not affected.",
  },
  memory_exceeded: {
    status: 422,
    description: "A model needs more memory for this image than the server may give it.",
    cause:
      "The network asks for more than all runs together may have: the image is large for it, the server has little memory, or the network is at fault. Nothing else was in its way.",
    remedy:
      "Send a smaller image. Give the server more memory (docs/operations.md, Sizing), or lower `RADSERVE_MEMORY`, which leaves more to networks; or report the network to its maker. Other models of the request are not affected.",
  },
  cancelled: {
    status: 499,
    description: "The work was cancelled, or the client closed the connection.",
    cause: "The client closed the connection, or the job was cancelled.",
    remedy:
      "Nothing, if that was intended. Otherwise raise the client's timeout and send the request again.",
  },
  rate_limited: {
    status: 429,
    description: "This subject exceeds its request rate, or has too many requests or open jobs.",
    retryAfter: 1,
    cause:
      "One subject sends faster than `RADSERVE_RATE_LIMIT`, or has more than `RADSERVE_REQUESTS_PER_SUBJECT` requests or `RADSERVE_JOBS_PER_SUBJECT` jobs at a time.",
    remedy:
      "Wait as `Retry-After` says. Give each program a subject of its own, or raise the limit.",
  },
  internal: {
    status: 500,
    description: "Internal error. The server's log has the cause under the request id.",
    cause: "An unexpected error in Radserve.",
    remedy:
      "Find the request id in the server's log and report that line. The request may be sent again.",
  },
  engine_crash: {
    status: 500,
    description:
      "The server crashed, or was ended for its memory, twice while this image of a bulk job ran alone, or was killed five times.",
    cause:
      "The process crashed, or took all memory, twice while it worked on this image alone: the image, the model or the runtime is at fault. The log says which (`memory`).",
    remedy:
      "Keep the image. Try it with `radserve infer` and each model in turn (`--model`); report it to the maker of the model and to Radserve.",
  },
  revocations_unavailable: {
    status: 503,
    description: "Tokens cannot be checked: the keys folder has lost its list of revoked tokens.",
    retryAfter: 10,
    cause:
      "The share of the keys folder is not mounted, or its folder `revoked` was removed. Until it is back, every token is refused.",
    remedy: "Mount the share or restore the folder; the server recovers by itself within seconds.",
  },
  keys_missing: {
    status: 503,
    description: "Tokens cannot be checked: this node has no keys.",
    retryAfter: 10,
    cause:
      "The keys folder is empty: its share is not mounted. No key was made there, because other nodes of the database have keys, or because it cannot be asked.",
    remedy:
      "Mount the share of `RADSERVE_KEYS_DIR`; the server finds the keys by itself. If this node is to have keys of its own, run `radserve key new` and `radserve key new --results`.",
  },
  sign_in_unavailable: {
    status: 503,
    description: "Who is signed in cannot be checked: the issuer's keys cannot be read.",
    retryAfter: 10,
    cause:
      "The address of `jwks` in the file of `RADSERVE_SIGN_IN` does not answer, or not with keys for RS256 or ES256. Known keys hold for an hour meanwhile.",
    remedy: "`radserve doctor` says what is wrong. Tokens work as before.",
  },
  overloaded: {
    status: 503,
    description: "The server is at capacity.",
    retryAfter: 2,
    cause:
      "More requests than `RADSERVE_MAX_QUEUE`, more connections, or larger images than fit in the memory for images at once.",
    remedy:
      "Wait as `Retry-After` says. If it persists, add nodes, run fewer clients at once, or raise `RADSERVE_MEMORY`. `/metrics` shows which limit is reached.",
  },
  model_unavailable: {
    status: 503,
    description: "The requested model is not loaded.",
    retryAfter: 30,
    cause: "The model failed to load, or its canary failed, or the models are still being loaded.",
    remedy:
      "`radserve status` says why; `radserve models check FOLDER` explains it. Correct the folder, then run `radserve models reload`.",
  },
  bulk_unavailable: {
    status: 503,
    description: "Bulk jobs are not available now.",
    cause:
      "PostgreSQL is down, full, read-only or does not answer. Single requests are not affected.",
    remedy:
      "`radserve doctor` says what is wrong with the database. Jobs continue by themselves once it is back.",
  },
  delivery_unavailable: {
    status: 503,
    description: "The delivery queue cannot be written, so no result was written.",
    retryAfter: 10,
    cause:
      "The spool of `RADSERVE_GATEWAY` (without one, the state directory) is missing, full or not writable; or this node has no destinations, and the node that took the job has.",
    remedy:
      "`radserve doctor` says what is wrong with the folder; give all nodes the same file of `RADSERVE_GATEWAY`. Jobs continue by themselves; send single requests again.",
  },
  shutting_down: {
    status: 503,
    description: "The server is stopping.",
    retryAfter: 10,
    cause: "The server is being stopped or restarted.",
    remedy: "Send the request again as `Retry-After` says, or to another node.",
  },
  deadline_exceeded: {
    status: 504,
    description: "The work did not finish within its time.",
    cause: "The image is large, the machine is busy, or `timeout_ms` is short.",
    remedy:
      "Send it again: the result may be there by now. If it happens often, raise `timeout_ms` or `RADSERVE_DEADLINE_SECONDS`, or run the model on a GPU.",
  },
  audit_failed: {
    status: 507,
    description: "The audit trail cannot be written, so nothing was done.",
    retryAfter: 10,
    cause:
      "The disk of the state directory is full, read-only or missing. Radserve does nothing that it cannot audit.",
    remedy: "Free space there (`radserve doctor`); the server tries again every two seconds.",
  },
  share_unavailable: {
    status: 503,
    description: "A disk or share does not answer, fails, or is not mounted on this node.",
    cause:
      "Reading or writing failed in a way that says nothing of the request: the share went away (ESTALE), or the disk has a fault (EIO). Or the root that the path lies in is not there on this node (`not_mounted`): it is gone, an empty mount point, or another folder.",
    remedy:
      "Look at the share and at the kernel's log (`dmesg`) of the server. Send the request again when it is mended; bulk jobs go on by themselves.",
    retryAfter: 30,
  },
  disk_full: {
    status: 507,
    description: "The disk of the output folder is full.",
    cause:
      "The disk of the output folder has less free space than `RADSERVE_MINIMUM_FREE_DISK`, or than the results need.",
    remedy: "Free space. Paused bulk jobs continue by themselves; send single requests again.",
  },
  spool_share_full: {
    status: 507,
    description: "The sender has used up its share of the spool.",
    cause:
      "One sender (a peer, or a subject of STOW-RS) holds as much of the spool as `peer_share` in the file of `RADSERVE_GATEWAY` allows. Other senders still have room.",
    remedy:
      "Find out why it sends so much. What it sent goes when `keep` is over, or when you remove it from the spool; `peer_share` changes the share.",
  },
} as const satisfies Record<string, ErrorKind>;

export type ErrorCode = keyof typeof ERRORS;

export const errorCode = z.enum(Object.keys(ERRORS) as [ErrorCode, ...ErrorCode[]]);

/**
 * Details are for programs: numbers, names of fields, limits. Never patient data, never a stack.
 */
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
 * The only error that the product raises on purpose. Its message tells the reader in a sentence or
 * two what was expected, what was found and what to do. The client may see it unchanged.
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
    const cause =
      errno === undefined ? undefined : Object.assign(new Error(errno), { code: errno });
    return new RadserveError(error, message, details, cause === undefined ? undefined : { cause });
  }
}

/** An error of each code of the table: `errors.bad_request("Expected ...")`. */
export const errors = Object.fromEntries(
  Object.keys(ERRORS).map((code) => [
    code,
    (...args: ErrorArguments) => new RadserveError(code as ErrorCode, ...args),
  ]),
) as Record<ErrorCode, (...args: ErrorArguments) => RadserveError>;

type ErrorArguments = [message: string, details?: ErrorDetails, options?: ErrorOptions];

/** The process, or the machine, has as many files open as it may (open(2)). */
const NO_DESCRIPTOR: ReadonlySet<string> = new Set(["EMFILE", "ENFILE"]);

/** Faults of a disk or of the share that it is on (errno(3)), and of nothing else. */
const OF_DISKS = [
  "EIO",
  "ESTALE",
  "EREMOTEIO",
  "ENXIO",
  "ENODEV",
  "ENOMEDIUM",
  "EUCLEAN",
  "EBADMSG",
];
/** The same for whoever knows that it was a file that was used; connections have them, too. */
export const DISK_FAULTS: ReadonlySet<string> = new Set([
  ...OF_DISKS,
  ..."ENOTCONN ETIMEDOUT EHOSTDOWN EHOSTUNREACH ENETUNREACH ESHUTDOWN ECONNRESET ENOLINK".split(
    " ",
  ),
]);

/** A word of small letters: other details may name a patient, and must not come into the log. */
const REASON = /^[a-z_]{1,40}$/;

/**
 * Which of several reasons an error has, as its details say it; undefined where it has one alone.
 */
export function reasonOf({ details }: Pick<RadserveError, "details">): string | undefined {
  const reason = details?.["reason"];
  return typeof reason === "string" && REASON.test(reason) ? reason : undefined;
}

/**
 * Any thrown value as a RadserveError; what was not raised on purpose is `internal` and keeps its
 * cause for the log.
 */
export function asRadserveError(thrown: unknown): RadserveError {
  if (thrown instanceof RadserveError) return thrown;
  if (NO_DESCRIPTOR.has(errno(thrown)))
    return new RadserveError(
      "overloaded",
      "Expected room for another open file; the server's process or machine has as many open as it may. Send the request again after the time in Retry-After.",
      undefined,
      { cause: thrown },
    );
  const fault = errno(thrown);
  if (OF_DISKS.includes(fault))
    return new RadserveError(
      "share_unavailable",
      `A disk or share that this request needs fails (${fault}). Look at it on the server, and send the request again.`,
      { errno: fault },
      { cause: thrown },
    );
  return new RadserveError(
    "internal",
    "The server failed on this request. Its log has the reason under the request id.",
    undefined,
    { cause: thrown },
  );
}

/**
 * A setting that is missing or wrong. The command says so in one line and ends with status 2;
 * nothing is retried.
 */
export class ConfigError extends Error {
  override readonly name = "ConfigError";
}

/**
 * What keeps the server from starting as things are now, although its settings may be right: a
 * share that is not mounted yet, a full disk, a GPU or a clock that comes later. `serve` ends with
 * status 1, after which a unit of systemd tries again.
 */
export class PassingFault extends ConfigError {}

/** Room that may come back while the settings stay as they are (errno(3)). */
export const NO_ROOM: ReadonlySet<string> = new Set(["ENOSPC", "EDQUOT"]);

/**
 * The error of a file that the server cannot do without.
 * @param why the system's own code: a full or failing disk passes, anything else is for people
 */
export const refusalFor = (why: string, message: string, options?: ErrorOptions): ConfigError =>
  NO_ROOM.has(why) || DISK_FAULTS.has(why)
    ? new PassingFault(message, options)
    : new ConfigError(message, options);
