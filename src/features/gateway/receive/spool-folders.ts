/**
 * Folders below the spool, as they are. Somebody else may write to the share, too: a link in the
 * place of a folder leads to what is not the spool's, where nothing is read and nothing removed;
 * and what is no file that Radserve wrote is none.
 */
import { closeSync, constants, readlinkSync, type Dirent } from "node:fs";
import { readdir, rmdir, unlink } from "node:fs/promises";
import path from "node:path";
import type { ZodType } from "zod";
import { errno } from "../../../base/errno.js";
import { RadserveError } from "../../../base/errors.js";
import { storedJson } from "../../../base/stored-json.js";
import { descriptorPath } from "../../../files/descriptor.js";
import { openDescriptor } from "../../../files/disk.js";
import { textOfRegular } from "../../../files/regular-file.js";

const MISSING = ["ENOENT", "ESTALE", "ENOTDIR", "ELOOP"];
/** What is there is no file of Radserve's: of another kind, or of somebody else alone. */
const NOT_OURS = [...MISSING, "EISDIR", "EACCES", "EPERM", "ENXIO"];
/** Names that are not removed: of what is not of that kind, or not empty. */
const STAYS = [...MISSING, "EISDIR", "EPERM", "ENOTEMPTY", "EEXIST"];

/** Whether a folder may be that of a peer; others somebody else has made. */
export const isPeerFolder = (name: string): boolean => /^[a-z0-9][a-z0-9_.=-]{0,79}$/.test(name);

/** For `.catch`: the value for these errors; any other goes on. */
const unless =
  <T>(names: readonly string[], value: T) =>
  (error: unknown): T => {
    if (names.includes(errno(error))) return value;
    throw error;
  };

/**
 * @param folder a real path
 * @param use is given the open folder's path by its descriptor, which leads to no other
 * @returns undefined where there is no such folder, or a link is on the way to it
 */
async function withFolder<T>(
  folder: string,
  use: (opened: string) => Promise<T>,
): Promise<T | undefined> {
  const flags = constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW;
  const fd = await openDescriptor(folder, flags).catch(unless(NOT_OURS, undefined));
  if (fd === undefined) return undefined;
  try {
    const opened = descriptorPath(fd);
    return readlinkSync(opened) === folder ? await use(opened) : undefined;
  } finally {
    closeSync(fd);
  }
}

/** What lies in a folder, by name; nothing where there is none. */
async function entriesIn(folder: string): Promise<Dirent[]> {
  const read = (opened: string) =>
    readdir(opened, { withFileTypes: true }).catch(unless(MISSING, []));
  const found = (await withFolder(folder, read)) ?? [];
  return found.sort((a, b) => (a.name < b.name ? -1 : 1));
}

/** Names in a folder; none where there is none. */
export async function namesIn(folder: string): Promise<string[]> {
  return (await entriesIn(folder)).map(({ name }) => name);
}

/** The names of plain files in a folder; none where there is none. */
export async function filesIn(folder: string): Promise<string[]> {
  return (await entriesIn(folder)).filter((entry) => entry.isFile()).map(({ name }) => name);
}

/** What a small file of Radserve's says; undefined where there is none, or something else. */
export async function storedIn<T>(
  folder: string,
  name: string,
  schema: ZodType<T>,
): Promise<T | undefined> {
  const read = (opened: string) =>
    textOfRegular(path.join(opened, name)).catch((error: unknown) => {
      const isOther = error instanceof RadserveError && error.code === "bad_request";
      if (isOther || NOT_OURS.includes(errno(error))) return undefined;
      throw error;
    });
  const text = await withFolder(folder, read);
  return text === undefined ? undefined : schema.safeParse(storedJson(text)).data;
}

/** Removes a file from a folder, if there is one. */
export async function removeFile(folder: string, name: string): Promise<void> {
  await withFolder(folder, (opened) =>
    unlink(path.join(opened, name)).catch(unless(STAYS, undefined)),
  );
}

/** Removes a folder, if it is empty. */
export async function removeEmpty(folder: string): Promise<void> {
  await withFolder(path.dirname(folder), (opened) =>
    rmdir(path.join(opened, path.basename(folder))).catch(unless(STAYS, undefined)),
  );
}
