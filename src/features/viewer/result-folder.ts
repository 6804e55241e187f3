/**
 * A result as it lies in its folder: the receipt, and files that are checked against it before
 * anything of them is shown.
 */
import path from "node:path";
import { errors, RadserveError } from "../../base/errors.js";
import { holdsSomething } from "../../files/folder-mark.js";
import { withInput, type OpenedInput } from "../../files/guarded-paths.js";
import type { Root } from "../../files/roots.js";
import type { OfResult } from "./messages.js";
import { readReceipt, type Existing } from "../../results/receipt/read-receipt.js";
import type { Trust } from "../../results/receipt/seal.js";
import type { Receipt } from "../../results/receipt/receipt.js";

export interface ResultFolder {
  /** Works for reading while the folder is open. */
  folder: string;
  receipt: Receipt;
  trust: Trust;
  /** Name of the receipt in the folder. */
  name: string;
}

/**
 * @throws RadserveError path_not_allowed, file_not_found, bad_request; result_changed where another
 * receipt than the one that is looked at lies there by now
 */
export async function withResult<T>(
  { receiptPath, mac, roots }: OfResult,
  use: (result: ResultFolder) => Promise<T>,
): Promise<T> {
  const read = async (opened: OpenedInput) => {
    const name = path.posix.basename(receiptPath);
    const found = await readIn(opened, name);
    if (found.kind === "none")
      throw errors.file_not_found(
        "Expected the path of a receipt (NAME.json); nothing is there. Take it from `receipt_path` of the answer.",
      );
    if (found.kind === "foreign")
      throw errors.bad_request(
        found.why === "too_large"
          ? "Expected the path of a receipt (NAME.json); the file is larger than any that is not this installation's may be."
          : "Expected the path of a receipt (NAME.json); the file is not a receipt of Radserve, or was changed.",
      );
    const { receipt, trust } = found;
    if (mac !== undefined && !(trust.trusted && receipt.mac?.hmac_sha256 === mac))
      throw errors.result_changed(
        "The result was replaced since it was opened. Load it again: what is shown of the old one does not belong to the new one.",
        { reason: "replaced" },
      );
    return use({ folder: opened.fdPath, receipt, trust, name });
  };
  return withInput(path.posix.dirname(receiptPath), roots.output, read, "output");
}

const NONE = { kind: "none" } as const;

async function readIn(opened: OpenedInput, name: string): Promise<Existing> {
  const isName = opened.kind === "folder" && name !== "." && name !== "..";
  return isName ? readReceipt(`${opened.fdPath}/${name}`) : NONE;
}

/** Whether there is a receipt cannot be said now. */
export interface Away {
  kind: "away";
}
const AWAY: Away = { kind: "away" };

/**
 * The receipt at a path inside the roots. None is there only where the nearest folder above it that
 * is there can be read and holds something: the mount point of a share that is away is bare.
 */
export async function readWithin(
  receiptPath: string,
  roots: readonly Root[],
): Promise<Existing | Away> {
  const { dir, base } = path.posix.parse(receiptPath);
  for (let at = dir; ; at = path.posix.dirname(at)) {
    const read = async (opened: OpenedInput) => {
      const found = at === dir ? await readIn(opened, base) : NONE;
      return found.kind === "none" && !(await holdsSomething(opened.fdPath)) ? AWAY : found;
    };
    try {
      return await withInput(at, roots, read, "output");
    } catch (error) {
      if (!(error instanceof RadserveError) || error.code !== "file_not_found") return AWAY;
    }
  }
}
