/** Receipts inside the roots: whether one is there, or cannot be read now. */
import path from "node:path";
import { RadserveError } from "../../base/errors.js";
import { holdsSomething } from "../../files/folder-mark.js";
import { withInput, type OpenedInput } from "../../files/guarded-paths.js";
import type { Root } from "../../files/roots.js";
import { readReceipt, type Existing } from "../../results/receipt/read-receipt.js";

const NONE = { kind: "none" } as const;

/** The receipt of a name in a folder that is held open. */
export async function readIn(opened: OpenedInput, name: string): Promise<Existing> {
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
