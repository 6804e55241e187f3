/**
 * What a status means that a peer gives an object: of C-STORE (PS3.4 table B.2-1, PS3.7 annex C),
 * STOW-RS (PS3.18 table 10.5.3-1), and in a report of a commitment (PS3.3 section C.14.1.1).
 */
import { STATUS } from "../dimse/command.js";
import type { Sent } from "./destination.js";

const WORDS: Readonly<Record<number, string>> = {
  0x0107: "attribute list error",
  0x0110: "processing failure",
  0x0111: "an object of that UID is there already",
  0x0112: "no such object instance",
  0x0115: "invalid argument value",
  0x0116: "attribute value out of range",
  0x0117: "invalid object instance",
  0x0118: "no such SOP class",
  0x0119: "the object has another SOP class",
  0x0122: "SOP class not supported",
  0x0123: "no such action",
  0x0124: "not authorized",
  0x0131: "duplicate transaction UID",
  0x0210: "duplicate invocation",
  0x0211: "unrecognized operation",
  0x0212: "mistyped argument",
  0x0213: "resource limitation",
  0xa700: "out of resources",
  0xa900: "the data set does not match its SOP class",
  0xb000: "elements were coerced",
  0xb006: "elements were discarded",
  0xb007: "the data set does not match its SOP class",
  0xc000: "cannot be understood or processed",
  0xc122: "transfer syntax not supported",
};

/**
 * "0xA700, out of resources", and the peer's comment where it gave one, without what is no plain
 * text.
 */
export function statusText(status: number, comment = ""): string {
  const words = WORDS[status] ?? WORDS[status & 0xff00] ?? WORDS[status & 0xf000];
  const said = comment.trim().replace(/[^\x20-\x7e]/g, "?");
  const hex = `0x${status.toString(16).toUpperCase().padStart(4, "0")}`;
  return [hex, ...(words === undefined ? [] : [words]), ...(said === "" ? [] : [`"${said}"`])].join(
    ", ",
  );
}

/** Statuses of the general kind that say nothing about the object. */
const OF_THE_PEER = [STATUS.processingFailure, 0x0210, 0xfe00];
/** Statuses with which the object is there. */
const WARNINGS = [0x0001, 0x0107, 0x0116, STATUS.duplicateInstance];

/** @param status of a response, or Failure Reason (0008,1197) */
export function sentBy(status: number, comment?: string): Sent {
  if (status === STATUS.success) return { state: "stored" };
  const text = statusText(status, comment);
  const block = status & 0xf000;
  if (block === 0xb000 || WARNINGS.includes(status)) return { state: "stored", warning: text };
  if ((status & 0xff00) === 0xa700) return { state: "away", reason: text, full: true };
  const isRefusal =
    block === 0xa000 || block === 0xc000 || (block === 0 && !OF_THE_PEER.includes(status));
  return isRefusal
    ? { state: "refused", reason: text }
    : { state: "away", reason: text, answered: true };
}
