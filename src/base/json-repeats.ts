/**
 * Fields that an object of JSON has twice. RFC 8259, 4 leaves open which of them counts: JSON.parse takes the last, other
 * programs the first, and a proxy that inspects requests could see other paths than the server works with.
 */

/** A field that its object has already. */
export interface RepeatedField {
  /** Its name, unescaped. */
  field: string;
  /** Where the name begins in the text. */
  at: number;
}

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const OPEN_LIST = 0x5b;
const CLOSE_LIST = 0x5d;
const OPEN_OBJECT = 0x7b;
const CLOSE_OBJECT = 0x7d;

/**
 * The first field that an object at any depth has for the second time. One pass over the text without recursion: bodies
 * of bulk requests have megabytes.
 * @param text JSON that JSON.parse takes
 */
export function repeatedField(text: string): RepeatedField | undefined {
  /** The names met so far in each open object; undefined for each open list. */
  const open: (Set<string> | undefined)[] = [];
  for (let at = 0; at < text.length; at++) {
    const code = text.charCodeAt(at);
    if (code === OPEN_OBJECT) open.push(new Set());
    else if (code === OPEN_LIST) open.push(undefined);
    else if (code === CLOSE_OBJECT || code === CLOSE_LIST) open.pop();
    else if (code === QUOTE) {
      const end = endOfString(text, at);
      const names = open.at(-1);
      if (names !== undefined && isName(text, end)) {
        const field = nameAt(text, at, end);
        if (names.has(field)) return { field, at };
        names.add(field);
      }
      at = end - 1;
    }
  }
  return undefined;
}

/** @returns the place behind the closing quote of the string that begins at `start` */
export function endOfString(text: string, start: number): number {
  let at = start + 1;
  while (at < text.length && text.charCodeAt(at) !== QUOTE) at += text.charCodeAt(at) === BACKSLASH ? 2 : 1;
  return at + 1;
}

/** Whether a colon follows: only names of fields have one. */
function isName(text: string, end: number): boolean {
  let at = end;
  while (at < text.length && " \t\n\r".includes(text.charAt(at))) at += 1;
  return text.charAt(at) === ":";
}

function nameAt(text: string, start: number, end: number): string {
  const inner = text.slice(start + 1, end - 1);
  return inner.includes("\\") ? (JSON.parse(text.slice(start, end)) as string) : inner;
}
