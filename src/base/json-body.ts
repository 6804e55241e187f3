import { parse } from "secure-json-parse";
import type { z } from "zod";
import { RadserveError } from "./errors.js";
import { jsonFaultAt, placeIn } from "./json-fault.js";
import { isDeeper } from "./json-depth.js";
import { repeatedField } from "./json-repeats.js";
import { found, problemCount, problemsOf } from "./validation.js";

/** The fault of a body that is not a JSON object, or that has a field that is not allowed anywhere. */
function jsonFault(text: string): RadserveError {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    const { line, column } = jsonFaultAt(text);
    const message = `Expected a JSON object; found a fault at line ${line}, column ${column}.`;
    return new RadserveError("bad_request", message, { line, column });
  }
  const object = typeof value === "object" && value !== null;
  const kind = typeof value === "string" ? "a string" : object ? 'a field named "__proto__"' : found(value);
  return new RadserveError("bad_request", `Expected a JSON object; found ${kind}.`);
}

/** Lists and objects within each other; the deepest body that a page takes has four. */
const DEEPEST = 32;
/** Problems of a body that the message says, and that the details list. */
const MOST_SAID = 5;
const MOST_LISTED = 20;
/** As much of a field's name as is said. */
const LONGEST_SHOWN = 64;

/** Throws bad_request where an object has a field twice: another program would take the other value. */
function refuseRepeats(text: string): void {
  const repeated = repeatedField(text);
  if (repeated === undefined) return;
  const { line, column } = placeIn(text, repeated.at);
  const field = repeated.field.slice(0, LONGEST_SHOWN);
  throw new RadserveError(
    "bad_request",
    `Expected each field of an object once; found ${JSON.stringify(field)} again at line ${line}, column ${column}.`,
    { field, line, column },
  );
}

/**
 * The value of a body. Throws bad_request with the place of the fault, where a field is there twice, where lists and
 * objects lie too deep within each other, and where the bytes were no UTF-8: their decoder left U+FFFD for each, and the names of two folders could become one.
 */
export function parseJsonBody(text: string): unknown {
  if (text.trim() === "") return {};
  if (text.includes("\ufffd"))
    throw new RadserveError(
      "bad_request",
      "Expected a body in UTF-8; found bytes that are none, or U+FFFD, which stands for such bytes. " +
        "Send UTF-8, and a U+FFFD that is meant as \\ufffd.",
    );
  if (isDeeper(text, DEEPEST))
    throw new RadserveError(
      "bad_request",
      `Expected lists and objects at most ${DEEPEST} deep within each other; found them deeper.`,
      { deepest: DEEPEST },
    );
  let value: unknown;
  try {
    value = parse(text, undefined, { constructorAction: "ignore" });
  } catch {
    throw jsonFault(text);
  }
  if (typeof value !== "object" || value === null) throw jsonFault(text);
  refuseRepeats(text);
  return value;
}

/** A body that fits its schema. Throws bad_request naming every field that does not, and what was expected there. */
export function parseBody<T>(schema: z.ZodType<T>, body: unknown): T {
  const parsed = schema.safeParse(body);
  if (parsed.success) return parsed.data;
  const problems = problemsOf(schema, body, parsed.error, MOST_LISTED);
  const sentences = problems
    .slice(0, MOST_SAID)
    .map(({ field, message }) => `${field === "" ? "body" : field}: ${message}.`);
  const left = problemCount(parsed.error) - sentences.length;
  const more = left > 0 ? [`And ${left} more.`] : [];
  throw new RadserveError("bad_request", [...sentences, ...more].join(" "), { problems });
}
