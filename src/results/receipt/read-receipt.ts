/**
 * The one place where a receipt is read back, with the verdict on whether this installation wrote
 * it. Its size, kind and form are checked before anything of it is used.
 */
import { closeSync, fstatSync } from "node:fs";
import path from "node:path";
import { errno, tried } from "../../base/errno.js";
import { storedJson } from "../../base/stored-json.js";
import { fillFrom, readAt } from "../../files/descriptor.js";
import { openPlain } from "../../files/disk.js";
import { ifMissing } from "../../files/durable-files.js";
import { belongsTo, receiptName } from "./names.js";
import { receiptSchema, type Receipt } from "./receipt.js";
import { checkPieces, checkSeal, LONGEST_MAC, macIn, type Trust } from "./seal.js";

/** No larger receipt is written. One that is trusted may be so large. */
export const LARGEST = 256 * 1024 * 1024;
/**
 * A larger file that is not trusted is not read: its text and its values take ten times as much
 * memory. A finding takes some 300 bytes.
 */
export const LARGEST_UNTRUSTED = 16 * 1024 * 1024;
/**
 * The same of one that lies among images, where strangers may put thousands: to parse 1 MiB takes
 * a third of a second.
 */
export const LARGEST_AMONG_IMAGES = 1024 * 1024;
const PIECE = 1 << 20;

export type Existing =
  | { kind: "none" }
  /** `why` where it could be a receipt by its name and kind. */
  | { kind: "foreign"; why?: "too_large" | "no_receipt" }
  | { kind: "receipt"; receipt: Receipt; trust: Trust };

/** NAME of the receipt at a path. */
export const nameOfReceipt = (file: string): string =>
  path.posix.basename(file).slice(0, -receiptName("").length);

/**
 * The thing that lies at a receipt's path. A link, a folder, or a file that does not obey the
 * schema is foreign.
 * @param name NAME, where the file has another name than its receipt: while it is staged
 * @param most bytes that are read of one that is not trusted
 */
export async function readReceipt(
  file: string,
  name = nameOfReceipt(file),
  most = LARGEST_UNTRUSTED,
): Promise<Existing> {
  let fd;
  try {
    fd = await openPlain(file);
  } catch (error) {
    const code = errno(error);
    if (code === "ELOOP" || code === "ENXIO") return { kind: "foreign" };
    return ifMissing<Existing>({ kind: "none" })(error);
  }
  try {
    const facts = fstatSync(fd);
    if (!facts.isFile()) return { kind: "foreign" };
    const { size } = facts;
    const mayBeRead = size <= most || (size <= LARGEST && (await isOurs(fd, size, name)));
    if (!mayBeRead) return { kind: "foreign", why: "too_large" };
    const bytes = Buffer.allocUnsafe(size);
    return await parsed(bytes.subarray(0, await fillFrom(fd, bytes)), name);
  } finally {
    closeSync(fd);
  }
}

/** The files a receipt lists, by name beside it, with their SHA-256. */
export function filesOf(receipt: Receipt): Map<string, string> {
  return new Map(receipt.models.flatMap((m) => m.outputs).map((o) => [o.path, o.sha256]));
}

/**
 * Names of files beside a receipt that are results and no images. Of a receipt that is not trusted
 * only the pictures of its NAME are: it could name images, which nobody would look at then.
 */
export function namesIn(
  { receipt, trust }: Extract<Existing, { kind: "receipt" }>,
  name: string,
): Set<string> {
  const names = [...filesOf(receipt).keys()];
  const isPicture = (file: string) => belongsTo(name, file) && file.endsWith(".png");
  return new Set(trust.trusted ? names : names.filter(isPicture));
}

/**
 * The MAC of an open receipt of this installation, hex; undefined of any other file. It need not be
 * in memory for that.
 */
export async function macOf(fd: number, name: string): Promise<string | undefined> {
  const { size } = fstatSync(fd);
  if (!(await isOurs(fd, size, name))) return undefined;
  return macIn(await endOf(fd, size));
}

const endOf = (fd: number, size: number): Promise<Buffer> => {
  const length = Math.min(size, LONGEST_MAC);
  return readAt(fd, length, size - length);
};

/** Checks a large file before it is in memory. */
async function isOurs(fd: number, size: number, name: string): Promise<boolean> {
  async function* pieces(field: number) {
    const end = size - field;
    for (let at = 0; at < end; at += PIECE) yield await readAt(fd, Math.min(PIECE, end - at), at);
  }
  return (await checkPieces("receipt", name, await endOf(fd, size), pieces)).trusted;
}

async function parsed(bytes: Buffer, name: string): Promise<Existing> {
  const trust = await checkSeal("receipt", name, bytes);
  // What this installation wrote was made by JSON.stringify, and may be long
  const value = trust.trusted
    ? tried(() => JSON.parse(bytes.toString("utf8")) as unknown)
    : storedJson(bytes);
  const found = receiptSchema.safeParse(value);
  return found.success
    ? { kind: "receipt", receipt: found.data, trust }
    : { kind: "foreign", why: "no_receipt" };
}
