/** What tests expect of errors and warnings. */
import type { Test } from "tap";
import { RadserveError, type ErrorCode } from "../../src/base/errors.js";
import type { Image } from "../../src/images/image.js";
import { readImage } from "../../src/images/read-image.js";

/** The RadserveError that a promise ends with. */
export async function failure(promise: Promise<unknown>): Promise<RadserveError> {
  try {
    await promise;
  } catch (thrown) {
    if (thrown instanceof RadserveError) return thrown;
    throw thrown;
  }
  throw new Error("Expected a failure");
}

/** Reads and decodes every frame; the refusal must have the code and match the message. */
export async function refuses(
  t: Test,
  bytes: Uint8Array,
  code: ErrorCode,
  message: RegExp,
  name: string,
): Promise<void> {
  try {
    const image = await readImage(bytes);
    for (let i = 0; i < image.frameCount; i++) await image.frame(i);
    t.fail(`${name}: was read`);
  } catch (error) {
    if (!(error instanceof RadserveError)) throw error;
    t.equal(error.code, code, name);
    t.match(error.message, message, name);
    t.notMatch(error.message, /Nobody/, `${name}: no patient data`);
  }
}

export function warned(image: Image): string[] {
  return image.warnings.map((w) => w.code);
}
