/** Receipts that lie in an output folder: whose image they are of, and whether what they list can be used again. */
import { closeSync, fstatSync } from "node:fs";
import { fillFrom } from "../../files/descriptor.js";
import { openPlain } from "../../files/disk.js";
import { hashFile, ifMissing } from "../../files/durable-files.js";
import { receiptSchema, type Receipt } from "../receipt/receipt.js";
import { errno } from "../../base/errno.js";

/** Larger than any receipt; a file beyond it is not read into memory to find out what it is. */
const LARGEST_RECEIPT = 256 * 1024 * 1024;

export type Existing = { kind: "none" } | { kind: "foreign" } | { kind: "receipt"; receipt: Receipt };

/** What lies at a receipt's path. A link, a folder, a file of another schema or of none is foreign. */
export async function readReceipt(path: string): Promise<Existing> {
  let fd;
  try {
    fd = await openPlain(path);
  } catch (error) {
    const code = errno(error);
    if (code === "ELOOP" || code === "ENXIO") return { kind: "foreign" };
    return ifMissing<Existing>({ kind: "none" })(error);
  }
  try {
    const facts = fstatSync(fd);
    if (!facts.isFile() || facts.size > LARGEST_RECEIPT) return { kind: "foreign" };
    const text = Buffer.allocUnsafe(facts.size);
    const length = await fillFrom(fd, text);
    const parsed = receiptSchema.safeParse(parseJson(text.toString("utf8", 0, length)));
    return parsed.success ? { kind: "receipt", receipt: parsed.data } : { kind: "foreign" };
  } finally {
    closeSync(fd);
  }
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** The files a receipt lists, by name beside it, with their SHA-256. */
export function filesOf(receipt: Receipt): Map<string, string> {
  return new Map(receipt.models.flatMap((m) => m.outputs).map((o) => [o.path, o.sha256]));
}

/** What a source is called in DICOM; a series has no SOP Instance UID of its own, PNG and its like have neither. */
interface Called {
  sop_instance_uid?: string | undefined;
  series_instance_uid?: string | undefined;
}

/** Whether a receipt's source has this name: the same SOP Instance UID or, where neither has one, the same series. */
export function sameObject({ source }: Receipt, called: Called): boolean {
  return (
    source.sop_instance_uid === called.sop_instance_uid &&
    (source.sop_instance_uid !== undefined || source.series_instance_uid === called.series_instance_uid)
  );
}

/**
 * Whether a receipt is of this image: the same object or series, and the same pixels. The file may differ: a PACS may
 * add or correct attributes.
 */
export function sameImage(
  receipt: Receipt,
  source: Pick<Receipt["source"], "pixel_sha256"> & Called,
): boolean {
  return receipt.source.pixel_sha256 === source.pixel_sha256 && sameObject(receipt, source);
}

/** What a request would compute now. */
export interface Wanted {
  file_sha256: string;
  /** Every model that the request asks about, those that may not accept the image too. */
  models: readonly { name: string; sha256: string; site_thresholds: Readonly<Record<string, number>> }[];
  outputs_requested: readonly string[];
  outputs_from?: Receipt["outputs_from"];
  radserve_version?: string;
}

/**
 * Whether a receipt found in `dir` is what the request would write again: the same file, models, thresholds and
 * outputs, no model failed, and every file it lists lies there unchanged.
 */
export async function reusable(dir: string, receipt: Receipt, wanted: Wanted): Promise<boolean> {
  if (receipt.source.file_sha256 !== wanted.file_sha256) return false;
  if (wanted.radserve_version !== undefined && receipt.radserve_version !== wanted.radserve_version)
    return false;
  if (receipt.status !== "completed" || receipt.models.some((m) => m.status === "failed")) return false;
  if (!sameText(receipt.outputs_requested, wanted.outputs_requested)) return false;
  if (receipt.outputs_from !== wanted.outputs_from) return false;
  if (!sameText(receipt.models.map(identity), wanted.models.map(identity))) return false;
  for (const [file, hash] of filesOf(receipt)) {
    if (/[/\0]/.test(file) || (await hashFile(`${dir}/${file}`)) !== hash) return false;
  }
  return true;
}

function identity(model: Wanted["models"][number]): string {
  const thresholds = Object.entries(model.site_thresholds).sort(([a], [b]) => (a < b ? -1 : 1));
  return JSON.stringify([model.name, model.sha256, thresholds]);
}

function sameText(left: readonly string[], right: readonly string[]): boolean {
  return JSON.stringify([...new Set(left)].sort()) === JSON.stringify([...new Set(right)].sort());
}
