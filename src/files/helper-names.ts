/**
 * The entries beside a NAME's results: while they are written its lock, the guard of that, and the
 * staging folder; and what is to be delivered, and was.
 */
import type { Stats } from "node:fs";
import { errors, type RadserveError } from "../base/errors.js";
import { otherKind } from "./regular-file.js";

export const lockName = (name: string): string => `.${name}.lock`;
export const stagingName = (name: string): string => `.${name}.radserve`;
/** To where a result is delivered, and how far that is. */
export const deliveryName = (name: string): string => `.${name}.delivery.json`;
/**
 * A result that was replaced before it was delivered, with that file and its receipt. @param number
 * from 1, the oldest first
 */
export const undeliveredName = (name: string, number: number): string =>
  `.${name}.delivery.${number}`;
/** The longest helper beside every NAME: the guard under which a dead owner's lock is removed. */
export const guardName = (name: string): string => `.${name}.lock.break`;
/**
 * The error for a thing that lies where a helper should be and that Radserve did not make: it is
 * never followed, waited for or removed. The message says NAME for the input's name, which may hold
 * a patient's.
 * @param helper of the input's name, for example `.NAME.lock`
 */
export function notOurs(helper: string, expected: string, facts: Stats): RadserveError {
  const found = otherKind(facts) ?? "a file";
  return errors.output_name_taken(
    `Expected ${helper} in the output folder (NAME is the input's name) to be ${expected} of Radserve; found ${found} there. ` +
      "Remove it, or choose another output folder.",
    { entry: helper, found },
  );
}

/** Says beside received images what of their series did not come: `inference/reception-note.ts`. */
export const RECEPTION_NOTE = ".radserve-reception.json";

/** Holds the list of the results in an output root, and is given out to nobody. */
export const LIST_FOLDER = ".radserve-results";

/** NAME, of what stands beside its results; undefined of any other entry of a folder. */
export function nameOfHelper(entry: string): string | undefined {
  return /^\.(.+)\.(?:radserve|lock|lock\.break|delivery\.json|delivery\.\d+)$/s.exec(entry)?.[1];
}

/** Names of folders that hold no results: what lies in one may be removed at any time. */
export function isStagingName(entry: string): boolean {
  const name = nameOfHelper(entry);
  return name !== undefined && (entry === stagingName(name) || /\.delivery\.\d+$/.test(entry));
}

/** The number of such a name; undefined of any other entry. */
export function undeliveredNumber(entry: string, name: string): number | undefined {
  const number = /^\.(.+)\.delivery\.(\d+)$/s.exec(entry);
  return number?.[1] === name ? Number(number[2]) : undefined;
}
