/**
 * File operations of the commit: durable, never through a symbolic link, with errors a client can
 * act on.
 */
import { createHash } from "node:crypto";
import { closeSync, constants, fstatSync, openSync, readSync, type Stats } from "node:fs";
import { checkFileSize, fillFrom, syncDescriptor, writeAll } from "./descriptor.js";
import { freeBytes, openDescriptor, openPlain, rename, statfs, totalBytes } from "./disk.js";
import { loadAddon } from "../addon/load-addon.js";
import { release } from "../addon/bytes.js";
import { errno, systemError } from "../base/errno.js";
import { DISK_FAULTS, errors, RadserveError, type ErrorCode } from "../base/errors.js";
import { count } from "../base/table.js";

interface FilesAddon {
  /**
   * A new file, as the disk has it and as it reads back; `error` is an errno, 0 where no call
   * failed.
   */
  writeDurably(
    path: string,
    bytes: Uint8Array,
  ): Promise<{ error: number; call: string; same: boolean }>;
  /**
   * Gives an open file, which may have no name yet, one. @returns an errno, 0 where it has the name
   */
  linkDescriptor(fd: number, path: string): number;
  /**
   * Reads a regular file and hashes it (hex). Where it does not fit into `room`, `size` says what
   * it needs, and `sha256` is empty; where it is no regular file, `plain` is false.
   */
  readWhole(
    path: string,
    room: Uint8Array,
  ): Promise<{
    error: number;
    call: string;
    plain: boolean;
    size: number;
    read: number;
    sha256: string;
  }>;
  /**
   * Writes the bytes where an open file stands and waits until the disk has it; where `path` is not
   * empty, gives it that name and waits until the disk has the folder.
   * @returns `error` is an errno, 0 where no call failed; `linked` is true where it has the name
   */
  settleFile(
    fd: number,
    bytes: Uint8Array,
    path: string,
    folder: string,
  ): Promise<{ error: number; call: string; linked: boolean }>;
}

/** How much of a file is in memory while it is hashed. */
const CHUNK_BYTES = 2 ** 20;

/** Hex; of text, over its UTF-8. */
export function sha256(bytes: Uint8Array | string): string {
  return createHash("sha256").update(bytes).digest("hex");
}

/**
 * For `.catch`: the value where the file does not exist, or was removed by another machine; any
 * other error goes on.
 */
export function ifMissing<T>(value: T): (error: unknown) => T {
  return (error) => {
    if (errno(error) === "ENOENT" || errno(error) === "ESTALE") return value;
    throw error;
  };
}

/** Errors of opening what has no name, or is a link or a device, as a regular file. */
const NOT_PLAIN = new Set(["ENOENT", "ELOOP", "ENXIO"]);

/**
 * The result of `use` on a regular file; undefined where there is none, or where it is a link, a
 * folder or a device.
 */
export async function withPlain<T>(
  path: string,
  use: (fd: number, facts: Stats) => Promise<T>,
): Promise<T | undefined> {
  let fd;
  try {
    fd = await openPlain(path);
  } catch (error) {
    if (NOT_PLAIN.has(errno(error))) return undefined;
    throw error;
  }
  try {
    const facts = fstatSync(fd);
    return facts.isFile() ? await use(fd, facts) : undefined;
  } finally {
    closeSync(fd);
  }
}

/** SHA-256 of a regular file, hex; undefined as withPlain says. */
export function hashFile(path: string): Promise<string | undefined> {
  return withPlain(path, hashOpen);
}

/** SHA-256 of a file from where its descriptor stands, which is at its end then; hex. */
export async function hashOpen(fd: number, { size }: Pick<Stats, "size">): Promise<string> {
  const hash = createHash("sha256");
  const chunk = Buffer.allocUnsafe(Math.min(CHUNK_BYTES, size));
  for (let left = size; left > 0;) {
    const bytesRead = await fillFrom(fd, chunk.subarray(0, left));
    if (bytesRead === 0) break;
    hash.update(chunk.subarray(0, bytesRead));
    left -= bytesRead;
  }
  release(chunk);
  return hash.digest("hex");
}

/**
 * The bytes of a regular file and their SHA-256, hex; undefined as withPlain says. One of libuv's
 * threads does all of it, while this one does something else.
 * @param room gives memory for at least so many bytes, which nobody may use meanwhile
 * @throws RadserveError unsupported_format for a file that is too long
 */
export async function readHashed(
  path: string,
  room: (size: number) => Buffer,
): Promise<{ bytes: Buffer; sha256: string } | undefined> {
  const addon = loadAddon() as FilesAddon;
  for (let memory = room(0); ;) {
    const { error, call, plain, size, read, sha256 } = await addon.readWhole(path, memory);
    if (error !== 0) {
      const fault = systemError(error, call);
      if (call === "open" && NOT_PLAIN.has(errno(fault))) return undefined;
      throw fault;
    }
    if (!plain) return undefined;
    if (sha256 !== "") return { bytes: memory.subarray(0, read), sha256 };
    checkFileSize(size);
    memory = room(size);
  }
}

/**
 * Writes a new file, waits until the disk has it, reads it back and compares. All of it is one task
 * for libuv's threads instead of five.
 * @param bytes may not change until then
 * @returns whether what was read back is the same
 * @throws errors of the file system as they are
 */
export async function writeDurably(path: string, bytes: Uint8Array): Promise<boolean> {
  const addon = loadAddon() as FilesAddon;
  const { error, call, same } = await addon.writeDurably(path, bytes);
  if (error !== 0) throw systemError(error, call);
  return same;
}

/** Errors of a file system that lacks an operation. Linux gives both names one number. */
const LACKS = new Set(["EOPNOTSUPP", "ENOTSUP"]);

/** Linux open(2): makes a file that has no name. Not among node's constants. */
const O_TMPFILE = 0o20000000 | constants.O_DIRECTORY;

/**
 * Errors of file systems without unnamed files (open(2)); EISDIR where the flag itself is unknown.
 */
const KNOWS_NONE = new Set([...LACKS, "EISDIR", "EINVAL"]);

/**
 * Makes a file without a name in a folder and lets it go: access(2) takes a file system that a
 * fault of its disk has made read-only for one that can be written.
 * @throws what the system says where none can be made
 */
export function tryMaking(folder: string): void {
  try {
    closeSync(openSync(folder, O_TMPFILE | constants.O_RDWR, 0o600));
  } catch (error) {
    unlessUnknown(error);
  }
}

/** The same for a folder whose share may be away: this thread does not wait. */
export async function tryMakingLater(folder: string): Promise<void> {
  await UnnamedFile.make(folder).then((file) => file.close(), unlessUnknown);
}

/** Throws an error that says more than that the file system knows no such files. */
function unlessUnknown(error: unknown): void {
  if (!KNOWS_NONE.has(errno(error))) throw error;
}

/**
 * A small file that has no name until it is whole: when its process is killed before, nothing of it
 * is left.
 */
export class UnnamedFile {
  private constructor(readonly fd: number) {}

  /**
   * On the disk that the folder lies on.
   * @throws errors of the file system as they are; some know no such files
   */
  static async make(dir: string): Promise<UnnamedFile> {
    return new UnnamedFile(await openDescriptor(dir, O_TMPFILE | constants.O_RDWR, 0o644));
  }

  /**
   * Writes the bytes, waits until the disk has them, and reads them back: whether they are the
   * same.
   */
  async holds(bytes: Uint8Array): Promise<boolean> {
    try {
      await writeAll(this.fd, bytes);
      await syncDescriptor(this.fd);
      const found = Buffer.allocUnsafe(bytes.length);
      return readSync(this.fd, found, 0, found.length, 0) === bytes.length && found.equals(bytes);
    } catch {
      return false;
    }
  }

  /**
   * @returns false where something has the name, or the file system knows no such way
   * @throws faults of the disk as they are
   */
  appearAs(path: string): boolean {
    const error = (loadAddon() as FilesAddon).linkDescriptor(this.fd, path);
    if (error !== 0) throwUnlessTaken(error);
    return error === 0;
  }

  close(): void {
    closeSync(this.fd);
  }
}

/** Throws where a link failed for another reason than `appearAs` gives false for. */
function throwUnlessTaken(error: number): void {
  const fault = systemError(error, "linkat");
  if (FAULTS[errno(fault)] !== undefined && !KNOWS_NO_LINK.has(errno(fault))) throw fault;
}

/**
 * Writes the last bytes of an open file and waits until the disk has it: one task for libuv's
 * threads instead of five.
 * @param bytes may not change until then
 * @param name that a file without one gets, which the disk has then, too
 * @returns false where it got no name, as `appearAs` of `UnnamedFile` does
 * @throws errors of the file system as they are
 */
export async function settle(
  fd: number,
  bytes: Uint8Array,
  name?: { folder: string; path: string },
): Promise<boolean> {
  const { folder = "", path = "" } = name ?? {};
  const addon = loadAddon() as FilesAddon;
  const { error, call, linked } = await addon.settleFile(fd, bytes, path, folder);
  if (error === 0) return linked;
  if (call === "linkat") throwUnlessTaken(error);
  else {
    const fault = systemError(error, call);
    if (!(linked && call === "fsync" && syncsNoFolder(fault))) throw fault;
  }
  return linked;
}

/** Waits until the disk has the entries of a folder. */
export async function syncFolder(path: string): Promise<void> {
  const fd = await openDescriptor(path, constants.O_RDONLY | constants.O_DIRECTORY);
  try {
    await syncDescriptor(fd);
  } catch (error) {
    if (!syncsNoFolder(error)) throw error;
  } finally {
    closeSync(fd);
  }
}

/**
 * Some network file systems cannot sync folders; their renames are then as durable as they make
 * them.
 */
const syncsNoFolder = (error: unknown): boolean =>
  errno(error) === "EINVAL" || LACKS.has(errno(error));

/** Renames; false where the source does not exist. */
export async function moveIfThere(from: string, to: string): Promise<boolean> {
  return rename(from, to).then(() => true, ifMissing(false));
}

/**
 * Bytes of the disk of a folder of inputs, whoever has them now; without end where it does not say.
 */
export async function bytesOfDisk(dir: string): Promise<number> {
  return totalBytes(await explained(() => statfs(dir), "input"));
}

/**
 * Refuses to begin where a folder's disk has less room than will be written, or than has to stay
 * free.
 * @throws RadserveError disk_full, with the bytes needed and free
 */
export async function requireRoom(
  dir: string,
  bytes: number,
  side: "input" | "output" = "output",
): Promise<void> {
  const free = freeBytes(await explained(() => statfs(dir), side));
  if (free >= bytes) return;
  throw errors.disk_full(
    `The disk of the ${side} folder has ${count(free)} bytes free; ${count(bytes)} are needed. Free space there and send the request again.`,
    { free_bytes: free, needed_bytes: bytes },
  );
}

/**
 * A file that is not there by its descriptor, or may not be linked (protected_hardlinks); a file
 * system without links.
 */
const KNOWS_NO_LINK = new Set(["ENOENT", "EPERM", "EACCES", "ENAMETOOLONG", ...LACKS]);

const failing = (name: string): [string, [ErrorCode, string]] => [
  name,
  [
    "share_unavailable",
    `The output folder's disk or share fails (${name}). Look at it on the server (dmesg), and send the request again when it is mended.`,
  ],
];

const lacking = (name: string): [string, [ErrorCode, string]] => [
  name,
  [
    "path_not_allowed",
    "The output folder's file system lacks an operation without which a result cannot be written safely. Choose a folder on another one, or mount the share with other options.",
  ],
];

const FAULTS: Record<string, [ErrorCode, string]> = {
  ...Object.fromEntries([...LACKS].map(lacking)),
  ...Object.fromEntries([...DISK_FAULTS].map(failing)),
  ENOSPC: [
    "disk_full",
    "The output folder's disk is full, or has no inodes left (df -i). Nothing was written; free some room and repeat the request.",
  ],
  EDQUOT: [
    "disk_full",
    "The server's quota on the output folder's disk is used up. Nothing was written; raise it or free some room.",
  ],
  EMLINK: [
    "disk_full",
    "The output folder holds as many folders or links as its file system allows. Nothing was written; use another folder.",
  ],
  EFBIG: [
    "disk_full",
    "A file of the result is longer than the output folder's file system, or the server's own limit (LimitFSIZE), allows. Nothing was written; raise it.",
  ],
  EACCES: [
    "path_not_allowed",
    "The server may not write to the output folder. Give the server's user write permission there.",
  ],
  EPERM: [
    "path_not_allowed",
    "The output folder's file system refused a change. Give the server's user permission there.",
  ],
  EROFS: [
    "path_not_allowed",
    "The output folder is on a read-only file system. Choose a writable one.",
  ],
  ENOENT: [
    "bad_request",
    "The output folder went away while results were written. Make it again and repeat the request.",
  ],
  ENOTDIR: ["bad_request", "Expected the output folder to be a folder, but it is a file."],
  ENAMETOOLONG: [
    "bad_request",
    "The output folder's file system cannot hold file names as long as this input's. Shorten the input's name.",
  ],
};

/**
 * Runs file operations; errors of the file system that a client or an operator can mend become
 * RadserveErrors.
 * @param side whose folder it is, for messages
 */
export async function explained<T>(
  work: () => Promise<T>,
  side: "input" | "output" = "output",
): Promise<T> {
  try {
    return await work();
  } catch (error) {
    throw explainedFault(error, side);
  }
}

/** The RadserveError of a fault that can be mended; other faults as they are. */
export function explainedFault(error: unknown, side: "input" | "output"): unknown {
  const name = errno(error);
  const fault = FAULTS[name];
  if (fault === undefined) return error;
  const message = fault[1].replace("output folder", `${side} folder`);
  const details = fault[0] === "share_unavailable" ? { errno: name, side } : { errno: name };
  return new RadserveError(fault[0], message, details, { cause: error });
}
