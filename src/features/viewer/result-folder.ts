/**
 * A result as it lies in its folder: the receipt, and files that are checked against it before
 * anything of them is shown.
 */
import path from "node:path";
import { errors, type RadserveError } from "../../base/errors.js";
import { readWhole } from "../../files/descriptor.js";
import { sha256, withPlain } from "../../files/durable-files.js";
import { withInput, type OpenedInput } from "../../files/guarded-paths.js";
import type { Root } from "../../files/roots.js";
import { readReceipt } from "../../results/commit/reuse.js";
import type { OutputFile, Receipt } from "../../results/receipt/receipt.js";

export interface ResultFolder {
  /** Works for reading while the folder is open. */
  folder: string;
  receipt: Receipt;
  /** Name of the receipt in the folder. */
  name: string;
}

/**
 * @param roots real paths that the folder must lie inside of
 * @throws RadserveError path_not_allowed, file_not_found, bad_request
 */
export async function withResult<T>(
  receiptPath: string,
  roots: readonly Root[],
  use: (result: ResultFolder) => Promise<T>,
): Promise<T> {
  const read = async (opened: OpenedInput) => {
    const name = path.posix.basename(receiptPath);
    const found =
      opened.kind === "folder" && name !== "." && name !== ".."
        ? await readReceipt(`${opened.fdPath}/${name}`)
        : ({ kind: "none" } as const);
    if (found.kind === "none")
      throw errors.file_not_found(
        "Expected the path of a receipt (NAME.json); nothing is there. Take it from `receipt_path` of the answer.",
      );
    if (found.kind === "foreign")
      throw errors.bad_request(
        "Expected the path of a receipt (NAME.json); the file is not a receipt of Radserve, or was changed.",
      );
    return use({ folder: opened.fdPath, receipt: found.receipt, name });
  };
  return withInput(path.posix.dirname(receiptPath), roots, read, "output");
}

/**
 * The bytes of a file that the receipt lists.
 * @throws RadserveError result_changed where they are not those that were written
 */
export async function fileOf({ folder }: ResultFolder, file: OutputFile): Promise<Uint8Array> {
  const bytes = file.path.includes("/")
    ? undefined
    : await withPlain(`${folder}/${file.path}`, readWhole);
  if (bytes === undefined || sha256(bytes) !== file.sha256)
    throw changed(
      `${file.path} beside the receipt, with the SHA-256 that it lists; ${bytes === undefined ? "it is not there" : "it has another"}.`,
    );
  return bytes;
}

export function changed(expectation: string): RadserveError {
  return errors.result_changed(`Expected ${expectation}`);
}
