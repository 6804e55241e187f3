/** The entries beside a NAME's results while they are written: its lock, the guard of that, the staging folder. */
import type { Stats } from "node:fs";
import { RadserveError } from "../base/errors.js";
import { otherKind } from "./regular-file.js";

export const lockName = (name: string): string => `.${name}.lock`;
export const stagingName = (name: string): string => `.${name}.radserve`;
/** The longest helper beside NAME: the guard under which a dead owner's lock is removed. */
export const guardName = (name: string): string => `.${name}.lock.break`;
/**
 * The error for a thing that lies where a helper should be and that Radserve did not make: it is never followed, waited
 * for or removed. The message says NAME for the input's name, which may hold a patient's.
 * @param helper of the input's name, for example `.NAME.lock`
 */
export function notOurs(helper: string, expected: string, facts: Stats): RadserveError {
  const found = otherKind(facts) ?? "a file";
  return new RadserveError(
    "output_name_taken",
    `Expected ${helper} in the output folder (NAME is the input's name) to be ${expected} of Radserve; found ${found} there. ` +
      "Remove it, or choose another output folder.",
    { entry: helper, found },
  );
}

/** NAME, of what stands beside its results while they are written; undefined of any other entry of a folder. */
export function nameOfHelper(entry: string): string | undefined {
  return /^\.(.+)\.(?:radserve|lock|lock\.break)$/s.exec(entry)?.[1];
}

/** Names of folders that hold no results: what lies in one may be removed by the next writer of NAME. */
export function isStagingName(entry: string): boolean {
  const name = nameOfHelper(entry);
  return name !== undefined && entry === stagingName(name);
}
