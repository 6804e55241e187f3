/** Files of other programs: read, and held against what they are expected to be. */
import type { z } from "zod";
import { errors } from "../../base/errors.js";
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
export async function readJson(path: string): Promise<unknown> {
  const text = await readText(path);
  try {
    return JSON.parse(text) as unknown;
  } catch {
    throw errors.bad_request(`Expected JSON in ${path}; it cannot be read as that.`);
  }
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
