/**
 * The receipts of a folder and of those below it, for the comparison of weeks and the list of
 * results.
 */
import { opendir } from "node:fs/promises";
import path from "node:path";
import { errno } from "../../base/errno.js";
import { isStagingName } from "../../files/helper-names.js";
import { receiptName } from "../receipt/names.js";
import { readReceipt } from "../receipt/read-receipt.js";
import type { Receipt } from "../receipt/receipt.js";
import type { Trust } from "../receipt/seal.js";

/** Gets receipts with their paths, and counts all that it got. */
export interface ReceiptGathering {
  readonly looked: number;
  add(receipt: Receipt, path: string, trust: Trust): void;
}

export interface ReceiptReading {
  /** Receipts after which nothing more is read; without it there is no end. */
  most?: number;
  /** Told of folders and files that are left out. */
  unreadable?: (left: string, why: string | undefined) => void;
}

/**
 * Links are not followed, and what is no receipt is left out.
 * @returns false where there is more than was read
 */
export async function readReceipts(
  folder: string,
  to: ReceiptGathering,
  reading: ReceiptReading = {},
): Promise<boolean> {
  const { most = Infinity, unreadable } = reading;
  const entries = await opendir(folder).catch((error: unknown) => {
    unreadable?.(folder, errno(error));
  });
  if (entries === undefined) return true;
  for await (const entry of entries) {
    const at = path.join(folder, entry.name);
    if (entry.isDirectory() && !isStagingName(entry.name)) {
      if (!(await readReceipts(at, to, reading))) return false;
    } else if (entry.isFile() && entry.name.endsWith(receiptName(""))) {
      if (to.looked >= most) return false;
      const found = await readReceipt(at).catch((error: unknown) => {
        unreadable?.(at, errno(error));
      });
      if (found?.kind === "receipt") to.add(found.receipt, at, found.trust);
    }
  }
  return true;
}
