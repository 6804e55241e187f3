/**
 * Files that people put into folders of models, keys and settings. Links are followed first; what
 * then lies there is opened only if it is a regular file: a pipe would keep its reader waiting, and
 * a device has no end.
 */
import {
  closeSync,
  fstatSync,
  lstatSync,
  openSync,
  readFileSync,
  readSync,
  realpathSync,
  type Stats,
} from "node:fs";
import { lstat, open, realpath, type FileHandle } from "node:fs/promises";
import { errno } from "../base/errno.js";
import { ConfigError, errors, RadserveError } from "../base/errors.js";
import { PLAIN } from "./disk.js";

/** The kind of what lies at a path, for people; undefined for a regular file. */
export function otherKind(found: Stats): string | undefined {
  if (found.isFile()) return undefined;
  if (found.isDirectory()) return "a folder";
  if (found.isFIFO()) return "a named pipe";
  if (found.isSocket()) return "a socket";
  return found.isSymbolicLink() ? "a symbolic link" : "a device";
}

function requirePlain(found: Stats): void {
  const kind = otherKind(found);
  if (kind !== undefined)
    throw errors.bad_request(`Expected a regular file, found ${kind}. Put the file itself there.`);
}

/** Longer than any text that people put there, or that Radserve does. */
const MOST_TEXT_BYTES = 16 * 1024 * 1024;

function requireShort({ size }: Stats): void {
  if (size > MOST_TEXT_BYTES)
    throw errors.bad_request(
      `Expected a text of at most ${MOST_TEXT_BYTES} bytes; found ${size}. Put the right file there.`,
    );
}

/**
 * Opens the regular file that a path leads to; whoever asks closes it.
 * @throws RadserveError bad_request for anything else, which says what it is; errors of the system
 */
export async function openRegular(path: string): Promise<FileHandle> {
  const real = await realpath(path);
  requirePlain(await lstat(real));
  const handle = await open(real, PLAIN);
  try {
    requirePlain(await handle.stat());
    return handle;
  } catch (thrown) {
    await handle.close();
    throw thrown;
  }
}

/** Throws as openRegular does, before something else is given the path. */
export async function requireRegular(path: string): Promise<void> {
  await (await openRegular(path)).close();
}

/** The bytes of the regular file that a path leads to. Throws as openRegular does. */
export async function readRegular(path: string): Promise<Buffer> {
  const handle = await openRegular(path);
  try {
    return await handle.readFile();
  } finally {
    await handle.close();
  }
}

/** The same, as text in UTF-8. */
export async function textOfRegular(path: string): Promise<string> {
  const handle = await openRegular(path);
  try {
    requireShort(await handle.stat());
    return await handle.readFile("utf8");
  } finally {
    await handle.close();
  }
}

/** The same, of a file that a setting names. Throws ConfigError where it cannot be read. */
export async function textOfNamed(setting: string, file: string, what = "a file"): Promise<string> {
  try {
    return await textOfRegular(file);
  } catch (error) {
    const why = error instanceof RadserveError ? error.message : errno(error);
    throw new ConfigError(`${setting}: expected ${what} at ${file}; it cannot be read (${why}).`);
  }
}

/** The same at once. */
export const textOfRegularSync = (path: string): string =>
  readingSync(path, (file, found) => {
    requireShort(found);
    return readFileSync(file, "utf8");
  });

/** At most so many bytes from its beginning, at once. Throws as openRegular does. */
export const beginningOfRegularSync = (path: string, most: number): Buffer =>
  readingSync(path, (file) => {
    const bytes = Buffer.alloc(most);
    return bytes.subarray(0, readSync(file, bytes));
  });

function readingSync<T>(path: string, read: (file: number, found: Stats) => T): T {
  const real = realpathSync(path);
  requirePlain(lstatSync(real));
  const file = openSync(real, PLAIN);
  try {
    const found = fstatSync(file);
    requirePlain(found);
    return read(file, found);
  } finally {
    closeSync(file);
  }
}
