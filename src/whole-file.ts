/** A file's bytes, held once. */
import type { FileHandle } from "node:fs/promises";
import { RadserveError } from "./errors.js";

/** 2 GiB less one byte: the longest file that is read, held in memory as a whole. */
export const MAX_FILE_BYTES = 2 ** 31 - 1;

/** So many bytes are asked for at once. */
const READ_BYTES = 1 << 26;

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
 * The bytes of an open file from its beginning, in one buffer: FileHandle.readFile joins small ones, at twice the
 * memory. Of a file that becomes shorter meanwhile what is left.
 * Throws unsupported_format before reading, where it is too long.
 */
export async function readWhole(handle: FileHandle): Promise<Uint8Array> {
  const { size } = await handle.stat();
  checkFileSize(size);
  const bytes = Buffer.allocUnsafeSlow(size);
  let at = 0;
  while (at < size) {
    const { bytesRead } = await handle.read(bytes, at, Math.min(READ_BYTES, size - at), at);
    if (bytesRead === 0) break;
    at += bytesRead;
  }
  return bytes.subarray(0, at);
}
