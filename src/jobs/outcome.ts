/**
 * Judges an item's end: the item failed, its job has to wait, or neither because the fault lies
 * elsewhere and passes.
 */
import { constants } from "node:fs";
import { access, realpath } from "node:fs/promises";
import path from "node:path";
import { durations } from "../base/durations.js";
import { errno as errnoOf } from "../base/errno.js";
import { DISK_FAULTS, RadserveError, type ErrorObject } from "../base/errors.js";
import { isSilent } from "../files/absent-roots.js";
import { withInput } from "../files/guarded-paths.js";
import { NOT_MOUNTED, REFUSED, type PathSide } from "../files/path-judgement.js";
import { isInside, isUnmountedNow, narrowRoots, type Root } from "../files/roots.js";
import { holdsSomething, isMarked, markName } from "../files/folder-mark.js";
import { OTHER_MODELS } from "../inference/task.js";
import type { LeasedItem, Settled } from "./leases.js";
import { OUTPUT_REPLACED } from "./mark-again.js";
import type { ItemOutcome } from "./messages.js";
import type { ItemPaths } from "./item-paths.js";

/** Why a job pauses of itself. */
export interface Pause {
  code: string;
  message: string;
}

export interface JudgedItem extends Pick<Settled, "ending" | "missing"> {
  pause?: Pause;
}

/** How often an item is tried again after a fault that says nothing about its image. */
const MOST_ATTEMPTS = 5;
/** An error that a missing output folder can cause is tried once more: the folder may be back. */
const MOST_TRIES_OF_FOLDER = 2;
const PERHAPS_BACK = new Set(["path_not_allowed", "bad_request"]);

/** Errors that also occur when a share is away. */
const MISSING = new Set([
  "input_not_found",
  "path_not_allowed",
  "bad_request",
  "internal",
  "series_invalid",
  "share_unavailable",
]);
/** In a scanned folder, a file that fails with one of these is not an input. */
const NO_INPUT = new Set(["no_model_accepts", "no_pixel_data"]);

/** The end of an attempt that says nothing about its item. */
export const NOT_RUN = { state: "queued", afterSeconds: 0, counts: false } as const;

/**
 * The models of this node were replaced after the item was taken. By the next time the database
 * knows that, and gives it to a node that has those of the job.
 */
const MODELS_CHANGED = { ...NOT_RUN, afterSeconds: 2 } as const;

const paused = (pause: Pause): JudgedItem => ({ ending: NOT_RUN, pause });

export interface Circumstances {
  item: LeasedItem;
  paths: ItemPaths;
  roots: { input: readonly string[]; output: readonly string[] };
}

export async function judge(outcome: ItemOutcome, where: Circumstances): Promise<JudgedItem> {
  const { item } = where;
  if (outcome.ok) {
    const { result } = outcome;
    return { ending: { state: result.status === "partial" ? "partial" : "succeeded", result } };
  }
  const { error, errno } = outcome;
  if (error.details?.["reason"] === OTHER_MODELS) return { ending: MODELS_CHANGED };
  switch (error.error) {
    case "cancelled":
      return { ending: { state: "cancelled" } };
    case "shutting_down":
      return { ending: NOT_RUN };
    case "overloaded":
      return { ending: { ...NOT_RUN, afterSeconds: 2, why: error.error } };
    case "disk_full":
    case "audit_failed":
    case "delivery_unavailable":
    case "model_unavailable":
    case "model_not_found":
      // It was there when the job was taken: another node may have it
      return paused({ code: error.error, message: error.message });
  }
  // Whatever image comes next would fail the same way; a bad place of an input's disk is one file's
  if (error.error === "share_unavailable" && error.details?.["side"] === "output")
    return paused({ code: error.error, message: error.message });
  if (error.details?.["reason"] === NOT_MOUNTED) return paused(INPUT_MISSING);
  if (item.output === null && NO_INPUT.has(error.error))
    return { ending: { state: "skipped", reason: reasonOf(error) } };
  if (await isOutputRefused(error, errno, where.paths)) return paused(OUTPUT_NOT_WRITABLE);
  const faulty = errno !== undefined && DISK_FAULTS.has(errno);
  if (faulty || MISSING.has(error.error)) {
    const missing = await missingShare(where);
    if (missing !== undefined) return paused(missing);
    if (await isOutsideHere(error, where)) return paused(outsideHere("input"));
    // The share was away when the image was opened, and has come back since
    if (error.error === "input_not_found" && (await isThere(where.paths.input)))
      return { ending: { ...NOT_RUN, afterSeconds: durations.itemRetry / 1000, why: error.error } };
  }
  const most =
    faulty || error.error === "internal"
      ? MOST_ATTEMPTS
      : PERHAPS_BACK.has(error.error)
        ? MOST_TRIES_OF_FOLDER
        : 1;
  if (item.attempts >= most)
    return { ending: { state: "failed", error }, missing: isOfThisNode(error) };
  const afterSeconds = (durations.itemRetry / 1000) * item.attempts;
  return { ending: { state: "queued", afterSeconds, counts: true, why: error.error } };
}

/** Whether an image failed by what this node sees of the folders: another may see it. */
const isOfThisNode = ({ error, details }: ErrorObject): boolean =>
  error === "input_not_found" || (error === "path_not_allowed" && details?.["side"] === "input");

function reasonOf({ error, message, details }: ErrorObject) {
  return { code: error, message, ...(details === undefined ? {} : { details }) };
}

const isThere = (file: string): Promise<boolean> =>
  access(file).then(
    () => true,
    () => false,
  );

/**
 * Whether a share is away: its folder is gone, cannot be read, or is empty, as a mount point
 * without its mount is.
 */
async function missingShare({ item, paths, roots }: Circumstances): Promise<Pause | undefined> {
  // The folder that has to be there whatever image is meant: the job's own, else the root that the
  // path lies in.
  if (isSilent("input", paths.input)) return SHARE_SILENT;
  const root = roots.input.find((one) => isInside(paths.input, [one]));
  const input = paths.inputBase ?? root;
  if (input !== undefined && !(await holdsSomething(input))) return INPUT_MISSING;
  if (root !== undefined && (await isUnmountedNow(root).catch(() => true))) return INPUT_MISSING;
  const output = await outputOf(item, paths);
  return "code" in output ? output : undefined;
}

/** The share of an item's folders was asked, and did not answer in time. */
export const SHARE_SILENT: Pause = {
  code: "share_unavailable",
  message:
    "A folder of the job does not answer: its share or disk is away, or very slow. Work continues by itself when it answers.",
};

const INPUT_MISSING: Pause = {
  code: "share_unavailable",
  message:
    "The input folder is missing, empty or cannot be read: its share is probably not mounted. Work continues by itself when it is back.",
};

/**
 * Whether the folder of an item lies in no root of this node, or in none that is left of the job's
 * token here. Where the job was taken it did, so other nodes have it; a link in it that leads
 * elsewhere is its item's own fault.
 */
async function isOutsideHere(
  { error, details }: ErrorObject,
  { item, paths, roots }: Circumstances,
): Promise<boolean> {
  const reason = details?.["reason"];
  if (error !== "path_not_allowed" || details?.["side"] !== "input") return false;
  if (reason !== undefined && reason !== "token") return false;
  const allowed = await narrowRoots(roots.input, item.input_roots ?? undefined);
  const folder = paths.inputBase ?? path.posix.dirname(paths.input);
  return withInput(folder, allowed, () => Promise.resolve(false)).catch(
    (thrown: unknown) => thrown instanceof RadserveError && thrown.code === "path_not_allowed",
  );
}

const outsideHere = (side: PathSide): Pause => ({
  code: "path_not_allowed",
  message: `The ${side} folder lies in none of the ${side} folders of this node (RADSERVE_${side.toUpperCase()}_ROOTS, RADSERVE_PATH_MAP). Work continues by itself once it does.`,
});

/** The folder that an item's job writes to, or why the job has to wait for it. */
async function outputOf(
  { job_id, marked }: LeasedItem,
  { outputBase, clientOutputBase }: ItemPaths,
): Promise<{ path: string; root: Root } | Pause> {
  if (isSilent("output", outputBase)) return SHARE_SILENT;
  const real = await realpath(outputBase).catch(() => undefined);
  if (real === undefined) return OUTPUT_MISSING;
  if (!marked) return { path: real, root: real };
  const mark = markName(job_id);
  if (!(await isMarked(real, mark))) return outputReplaced(clientOutputBase, mark);
  return { path: real, root: { path: real, within: real, mark } };
}

const OUTPUT_NOT_WRITABLE: Pause = {
  code: "output_not_writable",
  message:
    "The server's user may not write to the output folder, or its file system is mounted read-only. Work continues by itself once that is corrected.",
};

/**
 * Whether the item failed because nothing can be written to the folder of its job: the next item
 * would fail the same way. A folder below it that nobody may write to is its item's own fault.
 */
async function isOutputRefused(
  { error, details }: ErrorObject,
  errno: string | undefined,
  { outputBase }: ItemPaths,
): Promise<boolean> {
  // Then it is the whole file system's, which access(2) does not tell after a fault of the disk.
  if (errno === "EROFS") return true;
  const refused = error === "path_not_allowed" && details?.["side"] === "output";
  if (!refused && !(errno !== undefined && REFUSED.has(errno))) return false;
  return access(outputBase, constants.W_OK | constants.X_OK).then(
    () => false,
    (why: unknown) => REFUSED.has(errnoOf(why)),
  );
}

const OUTPUT_MISSING: Pause = {
  code: "share_unavailable",
  message:
    "The output folder is missing or cannot be read: its share is probably not mounted. Work continues by itself when it is back.",
};

/** @param folder as the client named it */
const outputReplaced = (folder: string, mark: string): Pause => ({
  code: OUTPUT_REPLACED,
  message: `The output folder ${folder} is not the one that the job began with: ${mark} is missing in it. Its share is probably not mounted, or another folder is in its place. Work continues by itself when the folder is back; if this one is to be used, make an empty file of that name in it.`,
});

/**
 * Where an item may write: inside its job's output folder, which was made when the job was taken.
 * So nothing makes it anew if its share is not mounted.
 * @returns why the job has to wait if it is not there
 */
export async function withinBase(
  item: LeasedItem,
  paths: ItemPaths,
  allowed: readonly Root[],
): Promise<Root[] | Pause> {
  const base = await outputOf(item, paths);
  if ("code" in base) return base;
  return isInside(base.path, allowed) ? [base.root] : outsideHere("output");
}
