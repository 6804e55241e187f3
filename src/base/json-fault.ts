/** The place of a fault in JSON, as people count: the parser's own message says it only at times, and quotes the text. */

/** The place where JSON.parse would stop in a text that is not JSON: line and column, from 1. */
export function jsonFaultAt(text: string): Place {
  return placeIn(text, firstFault(text));
}

/** A place in a text: line and column, from 1. */
export interface Place {
  line: number;
  column: number;
}

/** The line and column of a character. */
export function placeIn(text: string, at: number): Place {
  const before = text.slice(0, at).split("\n");
  return { line: before.length, column: (before.at(-1)?.length ?? 0) + 1 };
}

const STRING = String.raw`"(?:[^"\\\u0000-\u001f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"`;
const NUMBER = String.raw`-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?`;
const TOKEN = new RegExp(`[\\t\\n\\r ]*([{}\\[\\],:]|${STRING}|${NUMBER}|true|false|null)`, "y");

type Awaited = "value" | "value or ]" | "key" | "key or }" | ":" | ", or end";

/** The tokens that may come after a token, or undefined where it may not stand here. `open` holds the closing brackets. */
function after(token: string, awaited: Awaited, open: string[]): Awaited | undefined {
  const inList = open.at(-1) === "]";
  if (awaited === ":") return token === ":" ? "value" : undefined;
  if (token === open.at(-1) && (awaited === ", or end" || awaited.endsWith(token))) {
    open.pop();
    return ", or end";
  }
  if (awaited === ", or end") {
    if (token !== "," || open.length === 0) return undefined;
    return inList ? "value" : "key";
  }
  if (awaited === "key" || awaited === "key or }") return token.startsWith('"') ? ":" : undefined;
  if (token === "{" || token === "[") {
    open.push(token === "{" ? "}" : "]");
    return token === "{" ? "key or }" : "value or ]";
  }
  return "]},:".includes(token) ? undefined : ", or end";
}

/** A walk over the tokens of RFC 8259 with a stack of its own, so that deep nesting cannot exhaust ours. */
function firstFault(text: string): number {
  const open: string[] = [];
  let awaited: Awaited = "value";
  TOKEN.lastIndex = 0;
  for (;;) {
    const at = TOKEN.lastIndex;
    const token = TOKEN.exec(text)?.[1];
    const next: Awaited | undefined = token === undefined ? undefined : after(token, awaited, open);
    if (next === undefined) return at + (/^[\t\n\r ]*/.exec(text.slice(at))?.[0].length ?? 0);
    awaited = next;
  }
}
