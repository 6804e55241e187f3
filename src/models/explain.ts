/**
 * Explains the mistakes of a manifest to the person who writes it: each by the path of its field,
 * what was expected, what was found, and for a key that does not exist the nearest one that does.
 */
import { closest } from "fastest-levenshtein";
import { z } from "zod";
import { unitOf, withoutSequels } from "../base/validation.js";

/** One mistake: `path` names the field ("inputs[0].dtype") or the file. */
export interface Problem {
  path: string;
  message: string;
}

interface JsonSchema {
  description?: string;
  type?: string;
  enum?: unknown[];
  required?: string[];
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
    .map((part, i) =>
      typeof part === "number" ? `[${part}]` : `${i === 0 ? "" : "."}${String(part)}`,
    )
    .join("");
}

/**
 * Problems of a failed parse, in the order of the issues, without repeats.
 * `value` is what was parsed, so that a message can say what was found.
 */
export function explainIssues(
  schema: z.ZodType,
  value: unknown,
  issues: readonly Issue[],
): Problem[] {
  const json = z.toJSONSchema(schema, { io: "input", unrepresentable: "any" }) as JsonSchema;
  const problems = withoutSequels(issues).flatMap((issue) => explainIssue(json, value, issue));
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
  if (issue.code === "custom") return [{ path, message: issue.message }];
  const schemas = schemasAt(schema, value, issue.path);
  const shape = issue.code === "invalid_type" ? shapeOf(schemas) : neededBy(schema, value, issue);
  return [
    {
      path,
      message: `${expectation(issue)}${shape}; found ${found}${meaning(schemas, value, issue)}`,
    },
  ];
}

/** The meaning of an empty field, for the person who fills it in. */
function meaning(schemas: readonly JsonSchema[], value: unknown, { path }: Issue): string {
  const [only, more] = schemas;
  const empty = (valueAt(value, path) ?? null) === null;
  return empty && more === undefined && only?.description !== undefined
    ? `. ${only.description}`
    : "";
}

/**
 * The contents of a list or an object: ` of "dicom", "png"`, ` with kind "none", "platt"`, ` with
 * x, y`.
 */
function shapeOf(schemas: readonly JsonSchema[]): string {
  const [first] = schemas;
  if (first === undefined) return "";
  if (first.prefixItems !== undefined) return ` of ${first.prefixItems.length}`;
  if (first.type === "array") {
    const items = first.items === undefined || first.items === false ? [] : unfolded(first.items);
    const [item] = items;
    if (item?.enum !== undefined) return ` of ${item.enum.map(describe).join(", ")}`;
    return item?.properties === undefined
      ? ` of ${item?.type ?? "value"}s`
      : ` of objects${shapeOf(items)}`;
  }
  if (first.properties === undefined) return "";
  for (const key of Object.keys(first.properties)) {
    const constants = schemas.map((schema) => schema.properties?.[key]?.const);
    if (constants.every((constant) => constant !== undefined))
      return ` with ${key} ${constants.map(describe).join(", ")}`;
  }
  return ` with ${(first.required ?? Object.keys(first.properties)).join(", ")}`;
}

/**
 * What each word needs beside it that is not there, where the word is still to be chosen: `
 * ("fixed" needs rows, columns)`.
 */
function neededBy(schema: JsonSchema, value: unknown, { code, path }: Issue): string {
  const [beside, key] = [path.slice(0, -1), String(path.at(-1))];
  if (code !== "invalid_union" || valueAt(value, path) !== null) return "";
  const needs = schemasAt(schema, value, beside).flatMap(({ properties, required = [] }) => {
    const open = required.filter((name) => valueAt(value, [...beside, name]) === undefined);
    return open.length === 0
      ? []
      : `${describe(properties?.[key]?.const)} needs ${open.join(", ")}`;
  });
  return needs.length === 0 ? "" : ` (${needs.join("; ")})`;
}

/** Every alternative, whatever the value is. */
function unfolded(schema: JsonSchema): JsonSchema[] {
  const options = schema.oneOf ?? schema.anyOf;
  return options === undefined ? [schema] : options.flatMap(unfolded);
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
    case "invalid_format":
      return issue.message.startsWith("Invalid")
        ? `Expected text of the form ${issue.pattern ?? issue.format}`
        : issue.message;
    case "invalid_type":
      return `Expected ${article(issue.expected)}`;
    case "too_small":
      return `Expected ${size(issue.origin)}${issue.inclusive === false ? "more than" : "at least"} ${String(issue.minimum)}${unitOf(issue.origin, issue.minimum)}`;
    case "too_big":
      return `Expected ${size(issue.origin)}${issue.inclusive === false ? "less than" : "at most"} ${String(issue.maximum)}${unitOf(issue.origin, issue.maximum)}`;
    default:
      return issue.message;
  }
}

const size = (origin: string) => (origin === "number" || origin === "int" ? "a number, " : "");

function article(expected: string): string {
  const named = expected === "int" ? "whole number" : expected === "record" ? "object" : expected;
  if (named === "tuple") return "a list";
  return `${/^[aeiou]/.test(named) ? "an" : "a"} ${named}`;
}

/** A found value, short; a missing one and a null say that the field waits to be filled in. */
function describe(value: unknown): string {
  if (value === undefined) return "nothing: the field is missing";
  if (value === null) return "null, which is to be filled in";
  if (Array.isArray(value)) return `a list of ${value.length}`;
  if (typeof value === "object") return "an object";
  if (typeof value === "string" && value.length > 60)
    return `${JSON.stringify(value.slice(0, 57))}...`;
  return JSON.stringify(value);
}

function valueAt(value: unknown, path: Path): unknown {
  return path.reduce<unknown>(
    (at, part) =>
      typeof at === "object" && at !== null
        ? (at as Record<PropertyKey, unknown>)[part]
        : undefined,
    value,
  );
}

/**
 * The schema at a path. Where it has alternatives on the way, those whose constants the value
 * matches.
 */
function schemasAt(schema: JsonSchema, value: unknown, path: Path): JsonSchema[] {
  let schemas = [schema];
  let at = value;
  for (const part of path) {
    schemas = alternatives(schemas, at).flatMap((s) => child(s, part));
    at = valueAt(at, [part]);
  }
  return schemas.flatMap(unfolded);
}

function keysAt(schema: JsonSchema, value: unknown, path: Path): string[] {
  const found = schemasAt(schema, value, path);
  const schemas = found.length === 1 ? found : found.filter((s) => fits(s, valueAt(value, path)));
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
    const options = unfolded(schema);
    return options.length === 1 ? options : options.filter((option) => fits(option, value));
  });
}

/**
 * Whether the constants of an alternative are the value's; one that may be left out fits a value
 * without it.
 */
const fits = (schema: JsonSchema, value: unknown) =>
  Object.entries(schema.properties ?? {}).every(([key, property]) => {
    const found = valueAt(value, [key]);
    const left = found === undefined && schema.required?.includes(key) !== true;
    return property.const === undefined || found === property.const || left;
  });
