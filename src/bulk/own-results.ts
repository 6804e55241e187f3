/** What Radserve itself has written into a folder and must never take as an input. */
import { filesOf, readReceipt } from "../results/commit/reuse.js";
import { SHARE_MARK } from "../files/share-mark.js";
import { receiptName } from "../results/commit/names.js";
import { nameOfHelper, stagingName } from "../files/helper-names.js";

/** Locks and staging folders of results, and the marks of shares. */
export function isHelper(name: string): boolean {
  return name === SHARE_MARK || nameOfHelper(name) !== undefined;
}

/** Whether a file that begins so is a receipt. */
export function isReceipt(head: Uint8Array): boolean {
  return /^\s*\{\s*"schema"\s*:\s*"radserve\.receipt\//.test(Buffer.from(head).toString("latin1"));
}

/**
 * Whether a receipt beside a file lists it. Its result's NAME is the beginning of its own name, up to some dot. The
 * staged receipt is looked at first: it is renamed into place, so that of the two one is always there.
 * @param folder a path that names the folder
 */
export async function isListed(folder: string, file: string): Promise<boolean> {
  for (let dot = file.indexOf(".", 1); dot !== -1; dot = file.indexOf(".", dot + 1)) {
    const name = file.slice(0, dot);
    const staging = `${folder}/${stagingName(name)}`;
    for (const receipt of [
      `${staging}/receipt.json`,
      `${staging}/previous.json`,
      `${folder}/${receiptName(name)}`,
    ]) {
      const found = await readReceipt(receipt).catch(() => undefined);
      if (found?.kind === "receipt" && filesOf(found.receipt).has(file)) return true;
    }
  }
  return false;
}
