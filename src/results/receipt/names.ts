/**
 * Names of what lies in an output folder for one image, all derived from NAME: the base name of the
 * input with its extension, or of the series folder.
 */
import { errors } from "../../base/errors.js";
import { deliveryName, guardName } from "../../files/helper-names.js";
import type { DicomKind } from "../../manifest/manifest.js";

/** A file of a result, before it is written. */
export interface ResultFile {
  /** Plain name beside the receipt, beginning with NAME and a dot. */
  name: string;
  bytes: Uint8Array;
  /** SHA-256 of the bytes, hex: they are hashed once, where they are made. */
  sha256: string;
}

/** Longest file name of Linux file systems and of SMB shares, in bytes. */
const LONGEST = 255;

export const receiptName = (name: string): string => `${name}.json`;
export const pictureName = (name: string, model: string): string => `${name}.${model}.png`;
export const objectName = (name: string, model: string, kind: DicomKind): string =>
  `${name}.${model}.${kind}.dcm`;

/**
 * Refuses a NAME that cannot be the stem of result files.
 * @param delivers a file that says to where it is delivered lies beside it
 * @throws RadserveError bad_request if it is empty, holds `/` or NUL, or is too long once suffixes
 * are added
 */
export function checkName(name: string, delivers = false): void {
  if (name === "" || name === "." || name === ".." || /[/\0]/.test(name))
    throw errors.bad_request(
      "Expected a result name that is one plain file name without a slash. Rename the input.",
    );
  checkLength(delivers ? deliveryName(name) : guardName(name));
}

/**
 * NAME of the case that a folder is: no series of it is called so, because UIDs have no letters.
 */
export const caseName = (folder: string): string => `${folder}.case`;

/**
 * Refuses a file that does not belong to NAME, or whose name the file system cannot hold.
 * @throws RadserveError bad_request if it is too long
 */
export function checkFileName(name: string, file: string): void {
  if (!belongsTo(name, file))
    throw new Error("A result file's name must begin with NAME and a dot");
  checkLength(file);
}

/** What follows NAME and a dot: the model, and the kind of file. */
const REST = /^[^/\0.]+\.(?:png|[a-z]+\.dcm)$/;

/** Whether `file` is a plain name beside the receipt of NAME that a file of its result can have. */
export function belongsTo(name: string, file: string): boolean {
  return file.startsWith(`${name}.`) && REST.test(file.slice(name.length + 1));
}

function checkLength(file: string): void {
  const bytes = Buffer.byteLength(file);
  if (bytes <= LONGEST) return;
  throw errors.bad_request(
    `Expected result file names of at most ${LONGEST} bytes, but this input's name would need one of ${bytes}. ` +
      "Shorten the input's name.",
    { longest_bytes: LONGEST, needed_bytes: bytes },
  );
}
