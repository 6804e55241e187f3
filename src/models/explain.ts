/**
 * What is wrong with a manifest, for the person who writes it: every mistake by the path of its field, what was
 * expected, what was found, and for a key that does not exist the nearest one that does.
 */
import { closest } from "fastest-levenshtein";
import { z } from "zod";

/** One mistake: `path` names the field ("inputs[0].dtype") or the file. */
export interface Problem {
  path: string;
  message: string;
}

interface JsonSchema {
  properties?: Record<string, JsonSchema>;
  items?: JsonSchema | false;
  prefixItems?: JsonSchema[];
  oneOf?: JsonSchema[];
  anyOf?: JsonSchema[];
  const?: unknown;
  additionalProperties?: JsonSchema | false;
}

type Path = readonly PropertyKey[];
type Issue = z.core.$ZodIssue;

/** "inputs[0].size.kind"; "(whole file)" for the root. */
export function pathText(path: Path): string {
  if (path.length === 0) return "(whole file)";
  return path
    .map((part, i) => (typeof part === "number" ? `[${part}]` : `${i === 0 ? "" : "."}${String(part)}`))
    .join("");
}

/**
 * Problems of a failed parse, in the order of the issues, without repeats.
 * `value` is what was parsed, so that a message can say what was found.
 */
export function explainIssues(schema: z.ZodType, value: unknown, issues: readonly Issue[]): Problem[] {
  const json = z.toJSONSchema(schema, { io: "input", unrepresentable: "any" }) as JsonSchema;
  const problems = issues.flatMap((issue) => explainIssue(json, value, issue));
  const seen = new Set<string>();
  return problems.filter(({ path, message }) => {
    const key = `${path}\n${message}`;
    return !seen.has(key) && seen.add(key);
  });
}

function explainIssue(schema: JsonSchema, value: unknown, issue: Issue): Problem[] {
  const path = pathText(issue.path);
  const found = describe(valueAt(value, issue.path));
  if (issue.code === "unrecognized_keys") {
    const known = keysAt(schema, value, issue.path);
    return issue.keys.map((key) => ({
      path: pathText([...issue.path, key]),
      message: unknownKey(key, known),
    }));
  }
  return [{ path, message: `${expectation(issue)}; found ${found}` }].map((p) =>
    issue.code === "custom" ? { path, message: issue.message } : p,
  );
}

function unknownKey(key: string, known: readonly string[]): string {
  if (known.length === 0) return `Unknown key "${key}"; expected none here`;
  return `Unknown key "${key}"; did you mean "${closest(key, known)}"? Known here: ${known.join(", ")}`;
}

function expectation(issue: Issue): string {
  switch (issue.code) {
    case "invalid_value":
      return `Expected ${issue.values.length > 1 ? "one of " : ""}${issue.values.map((v) => describe(v)).join(", ")}`;
    case "invalid_union": {
      const options = "options" in issue ? (issue.options as readonly unknown[]) : [];
      return `Expected one of ${options.map((v) => describe(v)).join(", ")}`;
    }
    case "invalid_type":
      return `Expected ${article(issue.expected)}`;
    case "too_small":
      return `Expected ${size(issue.origin)}${issue.inclusive === false ? "more than" : "at least"} ${String(issue.minimum)}${unit(issue.origin)}`;
    case "too_big":
      return `Expected ${size(issue.origin)}${issue.inclusive === false ? "less than" : "at most"} ${String(issue.maximum)}${unit(issue.origin)}`;
    default:
      return issue.message;
  }
}

const size = (origin: string) => (origin === "number" || origin === "int" ? "a number, " : "");
const unit = (origin: string) => (origin === "string" ? " characters" : origin === "array" ? " entries" : "");

function article(expected: string): string {
  const named = expected === "int" ? "whole number" : expected === "record" ? "object" : expected;
  if (named === "tuple") return "a list";
  return `${/^[aeiou]/.test(named) ? "an" : "a"} ${named}`;
}

/** A found value, short; a missing one and a null say that the field waits to be filled in. */
function describe(value: unknown): string {
  if (value === undefined) return "nothing: the field is missing";
  if (value === null) return "null: it is still to be filled in";
  if (Array.isArray(value)) return `a list of ${value.length}`;
  if (typeof value === "object") return "an object";
  if (typeof value === "string" && value.length > 60) return `${JSON.stringify(value.slice(0, 57))}...`;
  return JSON.stringify(value);
}

function valueAt(value: unknown, path: Path): unknown {
  return path.reduce<unknown>(
    (at, part) =>
      typeof at === "object" && at !== null ? (at as Record<PropertyKey, unknown>)[part] : undefined,
    value,
  );
}

/** Keys that the schema knows at a path; of several alternatives those whose constants the value matches. */
function keysAt(schema: JsonSchema, value: unknown, path: Path): string[] {
  let schemas = alternatives([schema], value);
  let at = value;
  for (const part of path) {
    at = valueAt(at, [part]);
    schemas = alternatives(
      schemas.flatMap((s) => child(s, part)),
      at,
    );
  }
  return [...new Set(schemas.flatMap((s) => Object.keys(s.properties ?? {})))].sort();
}

function child(schema: JsonSchema, part: PropertyKey): JsonSchema[] {
  const next =
    typeof part === "number"
      ? (schema.prefixItems?.[part] ?? schema.items)
      : (schema.properties?.[String(part)] ?? schema.additionalProperties);
  return next === undefined || next === false ? [] : [next];
}

function alternatives(schemas: readonly JsonSchema[], value: unknown): JsonSchema[] {
  return schemas.flatMap((schema) => {
    const options = schema.oneOf ?? schema.anyOf;
    if (options === undefined) return [schema];
    const fitting = options.filter((option) =>
      Object.entries(option.properties ?? {}).every(
        ([key, property]) => property.const === undefined || valueAt(value, [key]) === property.const,
      ),
    );
    return alternatives(fitting, value);
  });
}
