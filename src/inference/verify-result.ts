/**
 * Checks that a result is as it was written: its receipt, its files, and the outputs of its models,
 * computed again.
 */
import { RadserveError } from "../base/errors.js";
import { receiptText, type Receipt } from "../results/receipt/receipt.js";
import {
  check,
  checkFaults,
  checkFiles,
  checkMac,
  type ReceiptCheck,
} from "../results/commit/verify.js";
import type { Trust } from "../results/receipt/seal.js";
import type { Reading } from "../results/receipt/unchanged.js";

export interface ResultVerification {
  /** The folder of the receipt. */
  folder: string;
  receipt: Receipt;
  /** What its MAC says. */
  trust: Trust;
  /** The receipt as it lies there. */
  text: string;
  /** Reads the source and computes the results again. */
  replayed: () => Promise<ReceiptCheck[]>;
  /** The detail of the check if there is no source. */
  missing: string;
  /** How its files are read. */
  reading?: Reading;
}

/**
 * @throws what reading throws where it says nothing of the source: a share that does not answer, no
 * memory
 */
export async function checkResult({
  folder,
  receipt,
  trust,
  text,
  replayed,
  missing,
  reading,
}: ResultVerification): Promise<ReceiptCheck[]> {
  const written =
    text === receiptText(receipt)
      ? check("receipt", "ok", `of Radserve ${receipt.radserve_version}`)
      : check("receipt", "differs", "the text is not as Radserve writes it");
  return [
    written,
    checkMac(trust),
    ...(await checkFiles(folder, receipt, reading)),
    ...(await replayedOr(receipt, replayed, missing)),
  ];
}

async function replayedOr(
  receipt: Receipt,
  replayed: ResultVerification["replayed"],
  missing: string,
): Promise<ReceiptCheck[]> {
  const all = (first: ReceiptCheck, reason: string) => [
    first,
    ...receipt.models.map(({ name }) => check(name, "not_replayed", reason)),
    ...checkFaults({ receipt }),
  ];
  try {
    return await replayed();
  } catch (error) {
    if (!(error instanceof RadserveError)) throw error;
    if (error.code === "input_not_found")
      return all(check("source", "missing", missing), "the source is missing");
    if (error.status !== 415 && error.status !== 422) throw error;
    return all(
      check("source", "differs", `cannot be read: ${error.message}`),
      "the source is another",
    );
  }
}
