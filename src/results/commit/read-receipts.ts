/**
 * The receipts of a folder and of those below it, for the comparison of weeks and the list of
 * results.
 */
import { opendir } from "node:fs/promises";
import path from "node:path";
import { errno } from "../../base/errno.js";
import { isStagingName } from "../../files/helper-names.js";
import { receiptName } from "../receipt/names.js";
import { readReceipt } from "./reuse.js";
import type { Receipt } from "../receipt/receipt.js";

/** Takes receipts with their paths, and counts them. */
export interface Gathering {
  readonly receipts: number;
  add(receipt: Receipt, path: string): void;
}

export interface Reading {
  /** Receipts after which nothing more is read; without it there is no end. */
  most?: number;
  /** Told of folders that are left out. */
  unreadable?: (folder: string, why: string | undefined) => void;
}

/**
 * Links are not followed, and what is no receipt is left out.
 * @returns false where there is more than was read
 */
export async function readReceipts(
  folder: string,
  to: Gathering,
  reading: Reading = {},
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
      if (to.receipts >= most) return false;
      const found = await readReceipt(at).catch(() => undefined);
      if (found?.kind === "receipt") to.add(found.receipt, at);
    }
  }
  return true;
}
