/**
 * A result as it lies in its folder: the receipt, and files that are checked against it before
 * anything of them is shown.
 */
import path from "node:path";
import { errors } from "../../base/errors.js";
import { withInput, type OpenedInput } from "../../files/guarded-paths.js";
import type { OfResult } from "./messages.js";
import { readIn } from "./read-within.js";
import { distrust, TO_TRUST, type Trust } from "../../results/receipt/seal.js";
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

/**
 * The result, where it is this installation's: pictures and masks carry no word that they may be
 * anybody's.
 * @throws RadserveError result_untrusted
 */
export function trusted(result: ResultFolder): ResultFolder {
  if (result.trust.trusted) return result;
  throw errors.result_untrusted(
    `Expected the receipt NAME.json of this installation; ${distrust(result.trust)}. Nothing of it is shown. ${TO_TRUST}`,
  );
}
