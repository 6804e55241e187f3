/**
 * A file that comes in pieces and appears whole, or not at all: its bytes are written to a file
 * without a name, which gets one when the disk has them. A process that is killed before leaves
 * nothing.
 */
import { createHash, randomUUID } from "node:crypto";
import { closeSync } from "node:fs";
import { errno } from "../base/errno.js";
import { DISK_FAULTS, errors, type RadserveError } from "../base/errors.js";
import { count } from "../base/table.js";
import { syncDescriptor, writePiece } from "./descriptor.js";
import { isLocal, lstat, noteDevice, openDescriptor, rename, unlink } from "./disk.js";
import {
  explained,
  hashFile,
  ifMissing,
  requireRoom,
  syncFolder,
  UnnamedFile,
} from "./durable-files.js";
import { stagingName } from "./helper-names.js";

/** The room on the disk is looked at again after so many bytes: several files may come at once. */
const BETWEEN_LOOKS = 64 * 1024 * 1024;
/** Bytes of a file that is made of a text: a receipt that is signed again is the longest. */
const MOST_TEXT = 256 * 1024 * 1024;

export interface NewFileOptions {
  /**
   * Replaces a file of that name; without it, one with other bytes is file_exists. A function is
   * asked where there is such a one, before it goes.
   */
  overwrite: boolean | ((path: string, sha256: string) => Promise<boolean>);
  /** Throws where the bytes are not what they should be, before anything appears. */
  check?: (sha256: string, fd: number) => Promise<void> | void;
  mostBytes: number;
  /** disk_full where the file system would have less left. */
  minimumFreeBytes: number;
  /**
   * Of the folder: where it is a disk of this machine, the thread writes to it itself, which spares
   * a turn for each piece.
   */
  dev?: number;
  /** The caller has the disk write the folder. */
  leaveFolder?: true;
  /**
   * Makes the folder again where somebody has removed it meanwhile: it looks empty until the file
   * has its name.
   */
  makeFolder?: () => Promise<unknown>;
}

export interface NewFile {
  /** created; replaced: another was there; same: these bytes were there already. */
  outcome: "created" | "replaced" | "same";
  bytes: number;
  /** Hex, of all bytes. */
  sha256: string;
}

/** Where the bytes lie until the file has its name. */
interface DraftFile {
  readonly fd: number;
  /** False where something has the name, or the file system has no links. */
  linkTo(path: string): boolean;
  /** Takes the place of the file that has the name. */
  replace(path: string): Promise<void>;
  /** True where a name can be taken without a link. */
  rename(path: string): Promise<boolean>;
  drop(): Promise<void>;
}

/** The name beside the others that no scan takes for an image. */
const helperIn = (dir: string) => `${dir}/${stagingName(`upload-${randomUUID()}`)}`;

async function unnamedIn(dir: string): Promise<DraftFile | undefined> {
  const file = await UnnamedFile.make(dir).catch((error: unknown) => {
    // A fault of the disk is said; where there are no such files, one with a name is made
    if (DISK_FAULTS.has(errno(error))) throw error;
    return undefined;
  });
  if (file === undefined) return undefined;
  return {
    fd: file.fd,
    linkTo: (path) => file.appearAs(path),
    async replace(path) {
      const helper = helperIn(dir);
      if (!file.appearAs(helper)) throw new Error("A file without a name could not be given one.");
      await rename(helper, path).catch(async (error: unknown) => {
        await unlink(helper);
        throw error;
      });
    },
    rename: () => Promise.resolve(false),
    drop() {
      file.close();
      return Promise.resolve();
    },
  };
}

/**
 * For file systems that know no files without a name, as those of shares; a crash leaves the
 * helper, which is no image.
 */
async function namedIn(dir: string): Promise<DraftFile> {
  const helper = helperIn(dir);
  const fd = await openDescriptor(helper, "wx+", 0o644);
  return {
    fd,
    linkTo: () => false,
    replace: (path) => rename(helper, path),
    async rename(path) {
      // The first to take the name has it: the empty file keeps it until the whole one is there
      try {
        closeSync(await openDescriptor(path, "wx", 0o644));
      } catch (error) {
        if (errno(error) === "EEXIST") return false;
        throw error;
      }
      await rename(helper, path);
      return true;
    },
    async drop() {
      closeSync(fd);
      await unlink(helper).catch(ifMissing(undefined));
    },
  };
}

/** The same with all bytes at once, in place of whatever has the name. */
export async function replaceFile(
  dir: string,
  name: string,
  text: string,
  minimumFreeBytes = 0,
): Promise<void> {
  async function* pieces() {
    yield await Promise.resolve(Buffer.from(text));
  }
  await receiveFile(dir, name, pieces(), {
    overwrite: true,
    mostBytes: MOST_TEXT,
    minimumFreeBytes,
  });
}

/**
 * Writes the pieces to a new file.
 * @param dir the folder, by its descriptor
 * @param name a plain name in it
 * Throws body_too_large, disk_full, file_exists, and what the pieces and `check` throw.
 */
export async function receiveFile(
  dir: string,
  name: string,
  pieces: AsyncIterable<Buffer>,
  options: NewFileOptions,
): Promise<NewFile> {
  return explained(async () => {
    const draft = (await unnamedIn(dir)) ?? (await namedIn(dir));
    try {
      if (options.dev !== undefined) noteDevice(draft.fd, { dev: options.dev });
      const { bytes, sha256 } = await fill(draft.fd, dir, pieces, options);
      await options.check?.(sha256, draft.fd);
      await syncDescriptor(draft.fd);
      const outcome = await publish(draft, `${dir}/${name}`, sha256, options);
      if (options.leaveFolder !== true) await syncFolder(dir);
      return { outcome, bytes, sha256 };
    } finally {
      await draft.drop();
    }
  }, "input");
}

async function fill(
  fd: number,
  dir: string,
  pieces: AsyncIterable<Buffer>,
  { mostBytes, minimumFreeBytes, dev }: NewFileOptions,
): Promise<{ bytes: number; sha256: string }> {
  const hash = createHash("sha256");
  const here = dev !== undefined && isLocal(fd);
  let bytes = 0;
  let look = BETWEEN_LOOKS;
  for await (const piece of pieces) {
    bytes += piece.length;
    if (bytes > mostBytes) throw tooLarge(mostBytes);
    const written = writePiece(fd, piece, here);
    hash.update(piece);
    await written;
    if (bytes < look) continue;
    await requireRoom(dir, minimumFreeBytes, "input");
    look = bytes + BETWEEN_LOOKS;
  }
  return { bytes, sha256: hash.digest("hex") };
}

export function tooLarge(limit: number): RadserveError {
  return errors.body_too_large(
    `Expected a file of at most ${count(limit)} bytes; found a larger one.`,
    {
      limit,
    },
  );
}

async function publish(
  draft: DraftFile,
  path: string,
  sha256: string,
  { overwrite, makeFolder }: Pick<NewFileOptions, "overwrite" | "makeFolder">,
): Promise<NewFile["outcome"]> {
  if (draft.linkTo(path) || (await draft.rename(path))) return "created";
  const there = await lstat(path).catch(makeFolder && ifMissing(undefined));
  if (there === undefined) {
    await makeFolder?.();
    return publish(draft, path, sha256, { overwrite });
  }
  if (!there.isFile()) throw taken("something that is not a plain file");
  if ((await hashFile(path)) === sha256) return "same";
  const replaces = typeof overwrite === "function" ? await overwrite(path, sha256) : overwrite;
  if (!replaces) throw taken("a file with other bytes");
  await draft.replace(path);
  return "replaced";
}

function taken(found: string): RadserveError {
  return errors.file_exists(
    `Expected a name that is free, or the same bytes; found ${found}. Use another name, or overwrite=true for a plain file.`,
  );
}
