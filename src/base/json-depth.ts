/**
 * How deep lists and objects of JSON lie within each other. The parsers take any depth, and seconds for megabytes of
 * brackets; a look at the brackets alone takes milliseconds.
 */
import { endOfString } from "./json-repeats.js";

const QUOTE = 0x22;
const OPEN_LIST = 0x5b;
const CLOSE_LIST = 0x5d;
const OPEN_OBJECT = 0x7b;
const CLOSE_OBJECT = 0x7d;

/** Whether more than `deepest` lists and objects are open at some place of a text, which need not be JSON. */
export function isDeeper(text: string, deepest: number): boolean {
  let depth = 0;
  for (let at = 0; at < text.length; at++) {
    const code = text.charCodeAt(at);
    if (code === QUOTE) at = endOfString(text, at) - 1;
    else if (code === CLOSE_LIST || code === CLOSE_OBJECT) depth -= 1;
    else if (code === OPEN_LIST || code === OPEN_OBJECT) {
      depth += 1;
      if (depth > deepest) return true;
    }
  }
  return false;
}
