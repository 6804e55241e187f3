/** What an item's end means: for the item, for its job, or for neither because the fault lies elsewhere and passes. */
import { realpath } from "node:fs/promises";
import type { RadserveError, ErrorObject } from "../base/errors.js";
import { isInside, type MarkedRoot, type Root } from "../files/roots.js";
import { holdsSomething, isMarked, SHARE_MARK } from "../files/share-mark.js";
import type { Ending, LeasedItem } from "./leases.js";
import type { ItemOutcome } from "./messages.js";
import type { PlaceOfItem } from "./places.js";

/** Why a job waits. */
export interface Pause {
  code: string;
  message: string;
}

export interface Judged {
  ending: Ending;
  pause?: Pause;
}

/** Faults that are no word about the image: tried again, so many times. */
const MOST_ATTEMPTS = 5;
/** What an output folder that is away looks like is tried once more: it may have come back since. */
const MOST_LOOKS = 2;
const PERHAPS_BACK = new Set(["path_not_allowed", "bad_request"]);
const RETRY_SECONDS = 5;

/** A network share that went away, or a disk that fails (errno(3)). */
const SHARE_FAULTS = new Set(
  "EIO ESTALE ENOTCONN ETIMEDOUT EHOSTDOWN EHOSTUNREACH ENETUNREACH ENODEV EREMOTEIO ESHUTDOWN ECONNRESET".split(
    " ",
  ),
);
/** Errors that a share that is away looks like, too. */
const MISSING = new Set(["input_not_found", "path_not_allowed", "bad_request", "internal", "series_invalid"]);
/** Of a scanned folder, what these say is no input. */
const NO_INPUT = new Set(["no_model_accepts", "no_pixel_data"]);

const given = (afterSeconds: number, counts: boolean): Ending => ({ state: "queued", afterSeconds, counts });

export interface Circumstances {
  item: LeasedItem;
  place: PlaceOfItem;
  roots: { input: readonly string[]; output: readonly string[] };
}

export async function judge(outcome: ItemOutcome, where: Circumstances): Promise<Judged> {
  const { item } = where;
  if (outcome.ok) {
    const { result } = outcome;
    return { ending: { state: result.status === "partial" ? "partial" : "succeeded", result } };
  }
  const { error, errno } = outcome;
  switch (error.error) {
    case "cancelled":
      return { ending: { state: "cancelled" } };
    case "shutting_down":
      return { ending: given(0, false) };
    case "overloaded":
      return { ending: given(2, false) };
    case "disk_full":
    case "model_unavailable":
      return { ending: given(0, false), pause: { code: error.error, message: error.message } };
  }
  if (item.output === null && NO_INPUT.has(error.error))
    return { ending: { state: "skipped", reason: reasonOf(error) } };
  const faulty = errno !== undefined && SHARE_FAULTS.has(errno);
  if (faulty || MISSING.has(error.error)) {
    const away = await shareAway(where);
    if (away !== undefined) return { ending: given(0, false), pause: away };
  }
  const most =
    faulty || error.error === "internal" ? MOST_ATTEMPTS : PERHAPS_BACK.has(error.error) ? MOST_LOOKS : 1;
  if (item.attempts < most) return { ending: given(RETRY_SECONDS * item.attempts, true) };
  return { ending: { state: "failed", error } };
}

function reasonOf({ error, message, details }: ErrorObject) {
  return { code: error, message, ...(details === undefined ? {} : { details }) };
}

/** Whether a share is away: its folder is gone, cannot be read, or is empty, as a mount point without its mount is. */
async function shareAway({ item, place, roots }: Circumstances): Promise<Pause | undefined> {
  // The folder that has to be there whatever image is meant: the job's own, else the root that the path lies in.
  const input = place.inputBase ?? roots.input.find((root) => isInside(place.input, [root]));
  if (input !== undefined && !(await holdsSomething(input)))
    return {
      code: "share_unavailable",
      message:
        "The input folder is gone, empty or cannot be read: its share is probably not mounted. Work goes on when it is back.",
    };
  const output = await outputOf(item, place);
  return output === undefined ? OUTPUT_AWAY : undefined;
}

/** Where an item's results go by its job, really; undefined where the share is away. */
async function outputOf(
  { marked }: LeasedItem,
  { outputBase, clientOutputBase }: PlaceOfItem,
): Promise<string | MarkedRoot | undefined> {
  const real = await realpath(outputBase).catch(() => undefined);
  if (real === undefined || !marked.includes(clientOutputBase)) return real;
  return (await isMarked(real)) ? { path: real, within: real, marked: true } : undefined;
}

const OUTPUT_AWAY: Pause = {
  code: "share_unavailable",
  message: `The output folder is gone, cannot be read, or has lost its ${SHARE_MARK}: its share is probably not mounted. Work goes on when it is back; make the folder again if it was removed.`,
};

/**
 * Where an item may write: inside its job's output folder, which was made when the job was taken. So nothing makes
 * it anew where its share is not mounted.
 * @returns why the job has to wait where it is not there
 */
export async function withinBase(
  item: LeasedItem,
  place: PlaceOfItem,
  allowed: readonly Root[],
): Promise<Root[] | Pause> {
  const base = await outputOf(item, place);
  if (base === undefined) return OUTPUT_AWAY;
  return isInside(typeof base === "string" ? base : base.path, allowed) ? [base] : [];
}

/** For an item that never came to a worker thread. */
export function asOutcome(error: RadserveError): ItemOutcome {
  return { ok: false, error: error.toObject() };
}
