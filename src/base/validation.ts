/**
 * Tells what a schema found wrong as sentences for people: which field, what was expected, what was
 * found.
 */
import { closest, distance } from "fastest-levenshtein";
import { z } from "zod";

export interface FieldProblem {
  /** For example `items[3].input_image_path`; empty for the whole value. */
  field: string;
  message: string;
  /** For an unknown field: the known one whose name is most like it. */
  nearest?: string;
}

/**
 * For a schema that is used a few times: to compile it to code first, as zod does, takes longer
 * than it saves.
 */
export const AS_IT_IS = { jitless: true } as const;

/**
 * The text as PostgreSQL can keep it: NUL and halves of surrogate pairs, which JSON has and its
 * text has not (its manual, 8.14, JSON types), become U+FFFD.
 */
export const keepable = (text: string): string => text.replace(/[\0\p{Surrogate}]/gu, "\ufffd");

type FieldPath = readonly PropertyKey[];

function fieldName(path: FieldPath): string {
  return path.reduce<string>((name, key) => {
    if (typeof key === "number") return `${name}[${key}]`;
    return name === "" ? String(key) : `${name}.${String(key)}`;
  }, "");
}

function valueAt(value: unknown, path: FieldPath): unknown {
  return path.reduce<unknown>((at, key) => {
    if (typeof at !== "object" || at === null) return undefined;
    return (at as Record<PropertyKey, unknown>)[key];
  }, value);
}

/** Says what kind of thing was found; never its text, which could hold a patient's name. */
export function found(value: unknown): string {
  if (value === undefined) return "nothing";
  if (value === null) return "null";
  if (Array.isArray(value)) return `a list of ${value.length}`;
  if (typeof value === "object") return "an object";
  if (typeof value === "number") return String(value);
  if (typeof value === "boolean") return String(value);
  if (typeof value !== "string") return `a ${typeof value}`;
  if (value === "") return "an empty string";
  return /^[\w.:+-]{1,24}$/.test(value) ? `"${value}"` : `a string of ${value.length} characters`;
}

const ARTICLE: Record<string, string> = {
  string: "a string",
  number: "a number",
  int: "a whole number",
  boolean: "true or false",
  array: "a list",
  object: "an object",
  record: "an object",
};

const UNITS: Record<string, [string, string]> = {
  string: [" character", " characters"],
  array: [" entry", " entries"],
};

/** " entries", " character": what a limit of a list or a text counts; empty for numbers. */
export function unitOf(origin: string, count: number | bigint): string {
  return UNITS[origin]?.[Number(count) === 1 ? 0 : 1] ?? "";
}

function limit(issue: z.core.$ZodIssueTooBig | z.core.$ZodIssueTooSmall): string {
  const big = issue.code === "too_big";
  const bound = Number(big ? issue.maximum : issue.minimum);
  const [within, beyond] = big ? ["at most", "less than"] : ["at least", "more than"];
  // Of a bound that is not one of the values itself
  const word = issue.inclusive === false ? beyond : within;
  return `${word} ${bound}${unitOf(issue.origin, bound)}`;
}

function expected(issue: z.core.$ZodIssue): string {
  switch (issue.code) {
    case "invalid_type":
      return `Expected ${ARTICLE[issue.expected] ?? issue.expected}`;
    case "too_big":
    case "too_small":
      return `Expected ${limit(issue)}`;
    case "invalid_value":
      return `Expected ${issue.values.length > 1 ? "one of " : ""}${issue.values.map((v) => JSON.stringify(v)).join(", ")}`;
    default:
      return issue.message;
  }
}

interface JsonSchema {
  properties?: Record<string, JsonSchema>;
  items?: JsonSchema;
}

function knownFields(schema: z.ZodType, path: FieldPath): string[] {
  let at: JsonSchema | undefined = z.toJSONSchema(schema, {
    io: "input",
    unrepresentable: "any",
  }) as JsonSchema;
  for (const key of path) at = typeof key === "number" ? at?.items : at?.properties?.[String(key)];
  return Object.keys(at?.properties ?? {});
}

/**
 * The name in a list that is most like a given one; undefined where none has at least half of it in
 * common.
 */
export function nearestName(name: string, names: readonly string[]): string | undefined {
  const nearest = names.length === 0 ? undefined : closest(name, names);
  if (nearest === undefined) return undefined;
  return distance(name, nearest) <= Math.max(name.length, nearest.length) / 2 ? nearest : undefined;
}

/**
 * Issues without what follows of the one before: of a text where a list is expected zod also counts
 * the characters.
 */
export const withoutSequels = (issues: readonly z.core.$ZodIssue[]): z.core.$ZodIssue[] =>
  issues.filter(({ code, path }, i) => {
    const before = issues[i - 1];
    return !(
      (code === "too_small" || code === "too_big") &&
      before?.code === "invalid_type" &&
      before.path.length === path.length &&
      before.path.every((key, at) => key === path[at])
    );
  });

/** How many problems a failed parse found. */
export function problemCount({ issues }: z.ZodError): number {
  return withoutSequels(issues).reduce(
    (sum, issue) => sum + (issue.code === "unrecognized_keys" ? issue.keys.length : 1),
    0,
  );
}

/**
 * The problems that a failed parse found, in the schema's order.
 * @param most the first so many: a hostile body has hundreds of thousands, and each takes time
 */
export function problemsOf(
  schema: z.ZodType,
  value: unknown,
  error: z.ZodError,
  most = Number.POSITIVE_INFINITY,
): FieldProblem[] {
  const problems: FieldProblem[] = [];
  for (const issue of withoutSequels(error.issues)) {
    if (problems.length >= most) break;
    problems.push(...problemsOfIssue(schema, value, issue, most - problems.length));
  }
  return problems;
}

function problemsOfIssue(
  schema: z.ZodType,
  value: unknown,
  issue: z.core.$ZodIssue,
  most: number,
): FieldProblem[] {
  const field = fieldName(issue.path);
  const said = issue.code === "invalid_key" ? issue.issues[0]?.message : undefined;
  if (said !== undefined) return [{ field, message: said }];
  if (issue.code !== "unrecognized_keys")
    return [{ field, message: `${expected(issue)}; found ${found(valueAt(value, issue.path))}` }];
  const known = knownFields(schema, issue.path);
  return issue.keys.slice(0, most).map((key) => {
    const shown = key.slice(0, 64);
    const nearest = nearestName(shown, known);
    return {
      field: fieldName([...issue.path, shown]),
      message: `Unknown field${nearest === undefined ? "" : `; the nearest known field is "${nearest}"`}`,
      ...(nearest === undefined ? {} : { nearest }),
    };
  });
}
