/**
 * The files of a root's list, as somebody else may have left them: each is opened for itself, so
 * that one that cannot be used hides no other, and its lines have a longest length.
 */
import { closeSync, constants, fstatSync, readSync } from "node:fs";
import path from "node:path";
import { errno } from "../../../base/errno.js";
import { descriptorPath } from "../../../files/descriptor.js";
import { openDescriptor, PLAIN, readdir } from "../../../files/disk.js";
import { LIST_FOLDER } from "../../../files/helper-names.js";
import { otherKind } from "../../../files/regular-file.js";

export const LINES = ".jsonl";

/** Every node has one, and `rebuild` writes one. */
const MOST_FILES = 256;
/** Longer than a line of ten models with hundreds of labels each, and two paths. */
export const LONGEST_LINE = 1 << 18;
const CHUNK_BYTES = 1 << 18;

export interface BadFile {
  /** Below the root. */
  name: string;
  why: string;
}

export interface ListFiles {
  /** Whoever asks closes them. */
  files: { name: string; fd: number }[];
  bad: BadFile[];
}

/** Opens the files of a root's list. A root without a list has none, and that is no fault. */
export async function openLists(root: string): Promise<ListFiles> {
  const found: ListFiles = { files: [], bad: [] };
  let folder;
  try {
    const flags = constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW;
    folder = await openDescriptor(path.join(root, LIST_FOLDER), flags);
  } catch (error) {
    if (errno(error) !== "ENOENT") found.bad.push({ name: LIST_FOLDER, why: wordsOf(error) });
    return found;
  }
  try {
    const all = (await readdir(descriptorPath(folder))).filter((name) => name.endsWith(LINES));
    for (const [i, name] of all.sort().entries()) await add(found, folder, name, i < MOST_FILES);
  } catch (error) {
    found.bad.push({ name: LIST_FOLDER, why: wordsOf(error) });
  } finally {
    closeSync(folder);
  }
  return found;
}

async function add(
  { files, bad }: ListFiles,
  folder: number,
  name: string,
  hasRoom: boolean,
): Promise<void> {
  const told = (why: string) => bad.push({ name: `${LIST_FOLDER}/${name}`, why });
  if (!hasRoom) return void told(`more than ${MOST_FILES} files`);
  try {
    const fd = await openDescriptor(`${descriptorPath(folder)}/${name}`, PLAIN);
    const kind = otherKind(fstatSync(fd));
    if (kind === undefined) files.push({ name, fd });
    else {
      closeSync(fd);
      told(kind);
    }
  } catch (error) {
    // Another node makes its list again
    if (errno(error) !== "ENOENT") told(wordsOf(error));
  }
}

const wordsOf = (error: unknown): string =>
  errno(error) === "ELOOP" ? "a symbolic link" : errno(error) || "cannot be read";

/** The files of a root's list that cannot be used, with why. */
export async function badLists(root: string): Promise<BadFile[]> {
  const { files, bad } = await openLists(root);
  for (const { fd } of files) closeSync(fd);
  return bad;
}

/**
 * Lines of a file from its end to its begin. A last one without its line feed is left out, and so
 * is one that is longer than any that is written, and what comes before a fault of the disk.
 */
export function* linesFromEnd(fd: number): Generator<string> {
  let at = fstatSync(fd).size;
  /** The later part of a line; undefined while the line is not taken. */
  let rest: Buffer | undefined;
  while (at > 0) {
    const length = Math.min(CHUNK_BYTES, at);
    at -= length;
    const bytes = readChunk(fd, length, at);
    if (bytes === undefined) return;
    let end = bytes.length;
    for (let feed = feedBefore(bytes, end); feed >= 0; feed = feedBefore(bytes, end)) {
      const line = joined(bytes.subarray(feed + 1, end), rest);
      if (line !== undefined) yield line.toString("utf8");
      rest = Buffer.alloc(0);
      end = feed;
    }
    rest = joined(bytes.subarray(0, end), rest);
  }
  if (rest !== undefined && rest.length > 0) yield rest.toString("utf8");
}

const feedBefore = (bytes: Buffer, end: number) =>
  end === 0 ? -1 : bytes.lastIndexOf(10, end - 1);

/** Both parts of a line; undefined where it is not taken, or too long now. */
const joined = (begin: Buffer, rest: Buffer | undefined): Buffer | undefined =>
  rest === undefined || begin.length + rest.length > LONGEST_LINE
    ? undefined
    : Buffer.concat([begin, rest]);

/** Undefined where the file became shorter, or cannot be read. */
function readChunk(fd: number, length: number, at: number): Buffer | undefined {
  const chunk = Buffer.alloc(length);
  try {
    for (let got = 0; got < length;) {
      const read = readSync(fd, chunk, got, length - got, at + got);
      if (read === 0) return undefined;
      got += read;
    }
    return chunk;
  } catch {
    return undefined;
  }
}
