/** Bodies of requests: their JSON, and what their schemas say of them. */
import type { z } from "zod";
import { errors, type RadserveError } from "./errors.js";
import { jsonFault, type JsonFault } from "./json-fault.js";
import { found, problemCount, problemsOf } from "./validation.js";

/** Lists and objects within each other; the deepest body that an endpoint takes has four. */
const DEEPEST = 32;
/** Problems of a body that the message says, and that the details list. */
const MOST_SAID = 5;
const MOST_LISTED = 20;
/** As much of a field's name as is said. */
const LONGEST_SHOWN = 64;

function refusalOf({ line, column, ...fault }: JsonFault): RadserveError {
  const refuse = (message: string, details?: object) =>
    errors.bad_request(`Expected ${message}.`, details && { ...details });
  const place = `line ${line}, column ${column}`;
  switch (fault.kind) {
    case "syntax":
      return refuse(`a JSON object; found a fault at ${place}`, { line, column });
    case "depth":
      return refuse(
        `lists and objects at most ${DEEPEST} deep within each other; found them deeper`,
        {
          deepest: DEEPEST,
        },
      );
    case "prototype":
      return refuse(`a JSON object; found a field named "${fault.field}"`);
    case "repeated": {
      const field = fault.field.slice(0, LONGEST_SHOWN);
      const again = `${JSON.stringify(field)} again at ${place}`;
      return refuse(`each field of an object once; found ${again}`, { field, line, column });
    }
  }
}

/**
 * The value of a body. Throws bad_request with the place of the fault, where an object has a field
 * twice, where lists and objects lie too deep within each other, and where the bytes were no UTF-8:
 * their decoder left U+FFFD for each, and the names of two folders could become one.
 */
export function parseJsonBody(text: string): unknown {
  if (text.trim() === "") return {};
  if (text.includes("\ufffd"))
    throw errors.bad_request(
      "Expected a body in UTF-8; found bytes that are none, or U+FFFD, which stands for such bytes. " +
        "Send UTF-8, and a U+FFFD that is meant as \\ufffd.",
    );
  const fault = jsonFault(text, DEEPEST);
  if (fault !== undefined) throw refusalOf(fault);
  const value = JSON.parse(text) as unknown;
  if (typeof value === "object" && value !== null) return value;
  const kind = typeof value === "string" ? "a string" : found(value);
  throw errors.bad_request(`Expected a JSON object; found ${kind}.`);
}

/**
 * A body that fits its schema. Throws bad_request naming every field that does not, and what was
 * expected there.
 */
export function parseBody<T>(schema: z.ZodType<T>, body: unknown): T {
  const parsed = schema.safeParse(body);
  if (parsed.success) return parsed.data;
  const problems = problemsOf(schema, body, parsed.error, MOST_LISTED);
  const sentences = problems
    .slice(0, MOST_SAID)
    .map(({ field, message }) => `${field === "" ? "body" : field}: ${message}.`);
  const left = problemCount(parsed.error) - sentences.length;
  const more = left > 0 ? [`And ${left} more.`] : [];
  throw errors.bad_request([...sentences, ...more].join(" "), { problems });
}
