/**
 * JSON of files that somebody else may have written or changed. Programs differ over some texts: of
 * two fields with one name some take the first, JSON.parse takes the last, and what a check saw is
 * then not what is used (RFC 8259, 4 and 8). Such texts are not read at all.
 */
import { tried } from "./errno.js";
import { jsonFault } from "./json-fault.js";

/** Lists and objects within each other; a receipt has nine, and details of errors a few more. */
const DEEPEST = 32;

/** A byte order mark stays, and is a fault; so are bytes that are no UTF-8. */
const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/**
 * The value of a text that all readers understand alike.
 * @returns undefined where it is none: it is no UTF-8, has a byte order mark, is no JSON, has a
 * field twice or one named `__proto__`, is nested more than 32 deep, or has a number that no double
 * holds
 */
export function storedJson(bytes: Uint8Array | string): unknown {
  const text = typeof bytes === "string" ? bytes : tried(() => decoder.decode(bytes));
  if (text === undefined || jsonFault(text, DEEPEST) !== undefined) return undefined;
  return tried(
    () =>
      JSON.parse(text, (_, one: unknown) => {
        if (typeof one === "number" && !Number.isFinite(one)) throw new Error("No double holds it");
        return one;
      }) as unknown,
  );
}
