/** Files of other programs: read, and held against what they are expected to be. */
import { isMap, isScalar, parseDocument } from "yaml";
import type { z } from "zod";
import { errors } from "../../base/errors.js";
import { jsonFault } from "../../base/json-fault.js";
import { textOfRegular } from "../../files/regular-file.js";
import { fault } from "../../models/files.js";

/** @throws RadserveError bad_request if it cannot be read */
export async function readText(path: string): Promise<string> {
  try {
    return await textOfRegular(path);
  } catch (error) {
    throw errors.bad_request(`Expected the file ${path}, but ${fault(error)}.`);
  }
}

/** @throws RadserveError bad_request if it cannot be read, or is not JSON */
export const readJson = async (path: string): Promise<unknown> =>
  jsonOf(await readText(path), path);

/**
 * @param path names the file in messages
 * @throws RadserveError bad_request if it is not JSON, and for a name that would be lost: one that
 * stands again in its object, and `__proto__`
 */
export function jsonOf(text: string, path: string): unknown {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw errors.bad_request(`Expected JSON in ${path}; it cannot be read as that.`);
  }
  const lost = jsonFault(text);
  if (lost?.kind === "repeated" || lost?.kind === "prototype") {
    const at = `line ${lost.line}, column ${lost.column}`;
    throw errors.bad_request(
      lost.kind === "repeated"
        ? `Expected each name once in ${path}, found "${lost.field.slice(0, 64)}" again at ${at}.`
        : `Expected no "${lost.field}" in ${path}, found it at ${at}.`,
    );
  }
  return value;
}

/**
 * The names in an object of a JSON text, in the text's order: an object of JavaScript puts names
 * that look like whole numbers before all others.
 * @param field of the text that holds the object
 * @throws RadserveError bad_request for a text whose order cannot be read
 */
export function namesInOrder(text: string, field: string, path: string): string[] {
  // YAML has JSON in it, and this reader keeps the order
  const document = parseDocument(text, { schema: "json", uniqueKeys: false, prettyErrors: false });
  const object = document.get(field);
  if (document.errors.length > 0 || !isMap(object))
    throw errors.bad_request(`Expected an object "${field}" in ${path} whose order can be read.`);
  return [...new Set(object.items.map(({ key }) => String(isScalar(key) ? key.value : key)))];
}

/** @throws RadserveError bad_request that names the fields which are not as expected */
export function parsedAs<T>(schema: z.ZodType<T>, value: unknown, file: string): T {
  const parsed = schema.safeParse(value);
  if (parsed.success) return parsed.data;
  const found = parsed.error.issues
    .slice(0, 5)
    .map(({ path, message }) => `${path.join(".")}: ${message}`);
  throw errors.bad_request(`${file} is not as expected. ${found.join(". ")}.`);
}
