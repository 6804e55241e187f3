/**
 * The fault of a text of JSON, and its place. JSON.parse names the place only at times and quotes
 * the text, takes the last of two fields of one name, where other programs take the first (RFC
 * 8259, 4), and takes seconds for megabytes of brackets.
 */
import { tried } from "./errno.js";

/** A place in a text: line and column, from 1. */
export interface TextPlace {
  line: number;
  column: number;
}

export type JsonFault = TextPlace &
  (
    | { kind: "syntax" }
    /** Lists and objects lie too deep within each other. */
    | { kind: "depth" }
    /** An object has a field for the second time, or one named `__proto__`. */
    | { kind: "repeated" | "prototype"; field: string }
  );

/** A list or an object that is open. */
interface JsonLevel {
  end: "]" | "}";
  /** The names that the object has so far; a list has none. */
  fields?: Set<string>;
}

type Awaited = "value" | "value or ]" | "key" | "key or }" | ":" | ", or end";

/**
 * The tokens that may follow, or undefined if this one may not stand here. Opens and closes levels.
 */
function after(token: string, awaited: Awaited, open: JsonLevel[]): Awaited | undefined {
  const end = open.at(-1)?.end;
  if (awaited === ":") return token === ":" ? "value" : undefined;
  if (token === end && (awaited === ", or end" || awaited.endsWith(token))) {
    open.pop();
    return ", or end";
  }
  if (awaited === ", or end") {
    if (token !== "," || end === undefined) return undefined;
    return end === "]" ? "value" : "key";
  }
  if (awaited === "key" || awaited === "key or }") return token.startsWith('"') ? ":" : undefined;
  if (token === "{" || token === "[") {
    open.push(token === "{" ? { end: "}", fields: new Set() } : { end: "]" });
    return token === "{" ? "key or }" : "value or ]";
  }
  return "]},:".includes(token) ? undefined : ", or end";
}

const PUNCTUATION = "{}[],:";
const SCALAR = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null/y;

function afterWhite(text: string, start: number): number {
  let at = start;
  while (at < text.length && " \t\n\r".includes(text.charAt(at))) at += 1;
  return at;
}

/** The end of the token that begins at a place; the place itself if none does. */
function endOfToken(text: string, at: number): number {
  const first = text.charAt(at);
  if (first === '"') return endOfString(text, at);
  if (first !== "" && PUNCTUATION.includes(first)) return at + 1;
  SCALAR.lastIndex = at;
  return SCALAR.test(text) ? SCALAR.lastIndex : at;
}

function endOfString(text: string, start: number): number {
  let at = start + 1;
  while (at < text.length && text[at] !== '"') at += text[at] === "\\" ? 2 : 1;
  return at + 1;
}

/**
 * The first fault of a text. It is one pass over its tokens without recursion: bodies of bulk
 * requests have megabytes.
 * @param deepest how many lists and objects may lie within each other
 */
export function jsonFault(text: string, deepest = Infinity): JsonFault | undefined {
  const open: JsonLevel[] = [];
  let awaited: Awaited = "value";
  let at = afterWhite(text, 0);
  while (at < text.length || open.length > 0 || awaited === "value") {
    const end = endOfToken(text, at);
    const token = text.slice(at, end);
    const value = token.startsWith('"') ? tried(() => JSON.parse(token) as string) : token;
    const level = open.at(-1);
    const next: Awaited | undefined =
      token === "" || value === undefined ? undefined : after(token, awaited, open);
    if (value === undefined || next === undefined) return { kind: "syntax", ...placeIn(text, at) };
    if (open.length > deepest) return { kind: "depth", ...placeIn(text, at) };
    if (next === ":" && value === "__proto__")
      return { kind: "prototype", field: value, ...placeIn(text, at) };
    if (next === ":" && level?.fields?.has(value) === true)
      return { kind: "repeated", field: value, ...placeIn(text, at) };
    if (next === ":") level?.fields?.add(value);
    awaited = next;
    at = afterWhite(text, end);
  }
  return undefined;
}

function placeIn(text: string, at: number): TextPlace {
  const before = text.slice(0, at).split("\n");
  return { line: before.length, column: (before.at(-1)?.length ?? 0) + 1 };
}
