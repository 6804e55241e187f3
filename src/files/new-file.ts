/**
 * A file that comes in pieces and appears whole, or not at all: its bytes are written to a file
 * without a name, which gets one when the disk has them. A process that is killed before leaves
 * nothing.
 */
import { createHash, randomUUID } from "node:crypto";
import { closeSync } from "node:fs";
import { link } from "node:fs/promises";
import { errno } from "../base/errno.js";
import { DISK_FAULTS, errors, type RadserveError } from "../base/errors.js";
import { count } from "../base/table.js";
import { writePiece } from "./descriptor.js";
import { isLocal, lstat, noteDevice, openDescriptor, rename, unlink } from "./disk.js";
import {
  explained,
  hashFile,
  ifMissing,
  requireRoom,
  settle,
  syncFolder,
  UnnamedFile,
} from "./durable-files.js";
import { stagingName } from "./helper-names.js";

/** The room on the disk is looked at again after so many bytes: several files may come at once. */
const BETWEEN_LOOKS = 64 * 1024 * 1024;
/** Bytes of a file that is made of a text: a receipt that is signed again is the longest. */
const MOST_TEXT = 256 * 1024 * 1024;
/** Bytes that are gathered before they are written: an object of CT is one write and one hash. */
const GATHERED_BYTES = 1024 * 1024;
/** Memory of files that are done which the next ones take. */
const MOST_SPARE = 2;

export interface NewFileOptions {
  /**
   * Replaces a file of that name; without it, one with other bytes is file_exists. A function is
   * asked where there is such a one, before it goes; it may read the new one.
   */
  overwrite: boolean | ((path: string, sha256: string, fd: number) => Promise<boolean>);
  /** Throws where the bytes are not what they should be, before anything appears. */
  check?: (content: Pick<Content, "sha256" | "written">) => Promise<void> | void;
  mostBytes: number;
  /** disk_full where the file system would have less left. */
  minimumFreeBytes: number;
  /** Whose folder it is, for messages; an input's where it does not say. */
  side?: "input" | "output";
  /**
   * Of the folder: where it is a disk of this machine, the thread writes to it itself, which spares
   * a turn for each piece.
   */
  dev?: number;
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
  /** It has no name yet, and gets one by a link. */
  readonly isUnnamed: boolean;
  /** False where something has the name, or the file system has no links. */
  linkTo(path: string): boolean | Promise<boolean>;
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
    isUnnamed: true,
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
    isUnnamed: false,
    // Whatever a share without links answers, EIO too; a fault of the disk meets the other way next
    linkTo: (path) =>
      link(helper, path).then(
        () => true,
        () => false,
      ),
    replace: (path) => rename(helper, path),
    async rename(path) {
      // The first to take the name has it: the empty file keeps it until the whole one is there
      try {
        closeSync(await openDescriptor(path, "wx", 0o644));
      } catch (error) {
        if (errno(error) === "EEXIST") return false;
        throw error;
      }
      try {
        await rename(helper, path);
      } catch (error) {
        // Another may have put a whole one there meanwhile
        const there = await lstat(path).catch(() => undefined);
        if (there?.size === 0) await unlink(path).catch(() => undefined);
        throw error;
      }
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
  { minimumFreeBytes = 0, side }: Partial<Pick<NewFileOptions, "minimumFreeBytes" | "side">> = {},
): Promise<void> {
  async function* pieces() {
    yield await Promise.resolve(Buffer.from(text));
  }
  await receiveFile(dir, name, pieces(), {
    overwrite: true,
    mostBytes: MOST_TEXT,
    minimumFreeBytes,
    ...(side === undefined ? {} : { side }),
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
    const content = new Content(draftIn(dir, options));
    try {
      await fill(content, dir, pieces, options);
      await options.check?.(content);
      const path = `${dir}/${name}`;
      const draft = await content.draft;
      const end = draft.isUnnamed ? { folder: dir, path } : undefined;
      const settled = settle(draft.fd, content.unwritten, end);
      // While the disk writes
      const sha256 = content.sha256();
      const { bytes } = content;
      if (await settled) return { outcome: "created", bytes, sha256 };
      const outcome = await publish(draft, path, sha256, options);
      await syncFolder(dir);
      return { outcome, bytes, sha256 };
    } finally {
      await content.drop();
    }
  }, options.side ?? "input");
}

async function draftIn(
  dir: string,
  { dev, makeFolder }: Pick<NewFileOptions, "dev" | "makeFolder">,
): Promise<DraftFile> {
  const open = async () => (await unnamedIn(dir)) ?? namedIn(dir);
  const draft = await open().catch(async (error: unknown) => {
    if (makeFolder === undefined || errno(error) !== "ENOENT") throw error;
    await makeFolder();
    return open();
  });
  if (dev !== undefined) noteDevice(draft.fd, { dev });
  return draft;
}

/** With new memory for each file, V8 collects the thread's heap for every few of them. */
const spare: Buffer[] = [];

/** The bytes of a file on their way into it: gathered, written and hashed. */
class Content {
  bytes = 0;
  readonly #room = spare.pop() ?? Buffer.allocUnsafeSlow(GATHERED_BYTES);
  /** Bytes of it that are gathered, and are not hashed. */
  #filled = 0;
  #isWritten = false;
  readonly #hash = createHash("sha256");
  #sha256: string | undefined;

  /** @param draft is opened while the first bytes come */
  constructor(readonly draft: Promise<DraftFile>) {
    // Whoever waits for it hears of it
    draft.catch(() => undefined);
  }

  /** @returns what has to be waited for before the next one, if anything */
  add(piece: Buffer): Promise<void> | undefined {
    this.bytes += piece.length;
    if (this.#filled + piece.length <= GATHERED_BYTES) {
      this.#filled += piece.copy(this.#room, this.#filled);
      return undefined;
    }
    return this.#addLarge(piece);
  }

  async #addLarge(piece: Buffer): Promise<void> {
    for (let at = 0; at < piece.length;) {
      if (this.#filled === 0 && piece.length - at >= GATHERED_BYTES) {
        await this.#write(piece.subarray(at));
        return;
      }
      const copied = piece.copy(this.#room, this.#filled, at);
      this.#filled += copied;
      at += copied;
      if (this.#filled < GATHERED_BYTES) continue;
      await this.#write(this.#room);
      this.#filled = 0;
    }
  }

  async #write(bytes: Buffer): Promise<void> {
    const { fd } = await this.draft;
    const written = writePiece(fd, bytes, isLocal(fd));
    this.#hash.update(bytes);
    await written;
  }

  /** What is still to be written. */
  get unwritten(): Buffer {
    return this.#room.subarray(0, this.#isWritten ? 0 : this.#filled);
  }

  /** The open file, with all its bytes. */
  async written(): Promise<number> {
    const { fd } = await this.draft;
    await writePiece(fd, this.unwritten, isLocal(fd));
    this.#isWritten = true;
    return fd;
  }

  /** Hex, of all bytes: nothing is added afterwards. */
  sha256(): string {
    this.#sha256 ??= this.#hash.update(this.#room.subarray(0, this.#filled)).digest("hex");
    return this.#sha256;
  }

  async drop(): Promise<void> {
    if (spare.length < MOST_SPARE) spare.push(this.#room);
    const draft = await this.draft.catch(() => undefined);
    await draft?.drop();
  }
}

async function fill(
  content: Content,
  dir: string,
  pieces: AsyncIterable<Buffer>,
  { mostBytes, minimumFreeBytes, side = "input" }: NewFileOptions,
): Promise<void> {
  let look = BETWEEN_LOOKS;
  for await (const piece of pieces) {
    if (content.bytes + piece.length > mostBytes) throw tooLarge(mostBytes);
    const added = content.add(piece);
    if (added !== undefined) await added;
    if (content.bytes < look) continue;
    await requireRoom(dir, minimumFreeBytes, side);
    look = content.bytes + BETWEEN_LOOKS;
  }
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
  if ((await draft.linkTo(path)) || (await draft.rename(path))) return "created";
  const there = await lstat(path).catch(makeFolder && ifMissing(undefined));
  if (there?.isFile() === false) throw taken("something that is not a plain file");
  const found = there && (await hashFile(path));
  if (found === undefined && makeFolder !== undefined) {
    await makeFolder();
    return publish(draft, path, sha256, { overwrite });
  }
  if (found === sha256) return "same";
  const replaces =
    typeof overwrite === "function" ? await overwrite(path, sha256, draft.fd) : overwrite;
  if (!replaces) throw taken("a file with other bytes");
  await draft.replace(path);
  return "replaced";
}

function taken(found: string): RadserveError {
  return errors.file_exists(
    `Expected a name that is free, or the same bytes; found ${found}. Use another name, or overwrite=true for a plain file.`,
  );
}
