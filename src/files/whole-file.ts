/** A file's bytes, as many as can be held at once. */
import { fstatSync } from "node:fs";
import { fillFrom } from "./descriptor.js";
import { RadserveError } from "../base/errors.js";

/** 2 GiB less one byte: the longest file that is read, held in memory as a whole. */
export const MAX_FILE_BYTES = 2 ** 31 - 1;

/** Throws unsupported_format where a file of so many bytes is longer than what is read (MAX_FILE_BYTES). */
export function checkFileSize(bytes: number): void {
  if (bytes > MAX_FILE_BYTES)
    throw new RadserveError(
      "unsupported_format",
      `Expected a file of at most ${MAX_FILE_BYTES} bytes; found ${bytes}. Split it, or send its slices as a folder.`,
      { most: MAX_FILE_BYTES, found: bytes },
    );
}

/**
 * The bytes of an open file.
 * Throws unsupported_format before reading, where it is too long.
 */
export async function readWhole(fd: number): Promise<Uint8Array> {
  const { size } = fstatSync(fd);
  checkFileSize(size);
  const bytes = Buffer.allocUnsafeSlow(size);
  return bytes.subarray(0, await fillFrom(fd, bytes));
}
