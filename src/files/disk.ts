/**
 * The small file operations of one image: some twenty of them, each of which takes the system a few
 * microseconds and, through libuv's threads, several times that. What acts on something open that
 * is known to lie on a disk of this machine is done at once; a share that has gone away would hold
 * the thread. Threads of bulk work do all of them at once: whoever has to wait there is that thread
 * alone, and not one of the few of libuv that single requests need too. Reading and writing of
 * contents, and waiting until the disk has them, go through libuv's threads everywhere.
 */
import fs, { type BigIntStats, type Stats, type StatsFs } from "node:fs";
import fsp from "node:fs/promises";
import os from "node:os";
import { setTimeout as delay } from "node:timers/promises";
import { promisify } from "node:util";
import { isMainThread } from "node:worker_threads";
import { loadAddon } from "../addon/load-addon.js";
import { errno, systemError } from "../base/errno.js";

const writeText = promisify(fs.write);

let atOnce = false;

/** From now on this thread does its small file operations itself. */
export function operateAtOnce(): void {
  atOnce = true;
}

/** Descriptors that this thread has opened here and that lie on a disk of this machine. */
const localDescriptors = new Set<number>();

/**
 * False where something may be on another machine: network file systems, like all without a device,
 * have the major number 0 (see mknod(2), makedev(3) and the kernel's admin-guide/devices.txt). What
 * lies on a block device of this machine all its processes see at once.
 */
export function onBlockDevice({ dev }: Pick<Stats, "dev">): boolean {
  return (Math.floor(dev / 2 ** 8) & 0xfff) !== 0;
}

/** Forgets what was noted of an earlier file with the same number. */
function noteLocal(fd: number, local: boolean): void {
  if (local) localDescriptors.add(fd);
  else localDescriptors.delete(fd);
  ownFolders.delete(fd);
}

/** Notes where the thing lies that a descriptor is of, for what is done with it from here on. */
export function noteDevice(fd: number, facts: Pick<Stats, "dev">): void {
  noteLocal(fd, onBlockDevice(facts));
}

const BY_DESCRIPTOR = /^\/proc\/self\/fd\/(\d+)(\/?)/;

/**
 * Whether a descriptor, or the path that is its other name, is of what lies on a disk of this
 * machine. A name below an open folder is not, unless that was made here: whoever looks it up or
 * changes it waits while another thread has the disk write that folder.
 */
export function isLocal(place: string | number | Buffer): boolean {
  if (typeof place === "number") return localDescriptors.has(place);
  const found = typeof place === "string" ? BY_DESCRIPTOR.exec(place) : null;
  return found !== null && (found[2] === "" ? localDescriptors : ownFolders).has(Number(found[1]));
}

/**
 * Folders that this thread has made and holds open, by their descriptors. Nobody else has the disk
 * write them yet, so that names below them are looked up and made at once.
 */
const ownFolders = new Set<number>();

/** Says that the folder of a descriptor on a disk of this machine was made just now. */
export function noteOwnFolder(fd: number): void {
  if (localDescriptors.has(fd)) ownFolders.add(fd);
}

/** The same operation both ways; what the first throws, the promise is rejected with. */
function either<A extends [string | number | Buffer, ...unknown[]], R>(
  now: (...words: A) => R,
  later: (...words: A) => Promise<R>,
): (...words: A) => Promise<R> {
  return async (...words) => (atOnce || isLocal(words[0]) ? now(...words) : later(...words));
}

/** Milliseconds between tries, 1.3 seconds in all. */
const PAUSES_MS = [5, 10, 20, 40, 80, 160, 320, 640];

/**
 * The same, again for a while where the system is busy: an SMB server does not remove or rename
 * what somebody has open, as a virus scanner has what was just written (STATUS_SHARING_VIOLATION),
 * and a file system in user space may hear of a close only after the process.
 */
function patiently<A extends unknown[]>(
  work: (...words: A) => Promise<Done>,
): (...words: A) => Promise<Done> {
  return async (...words) => {
    for (const pause of PAUSES_MS) {
      try {
        await work(...words);
        return;
      } catch (error) {
        if (errno(error) !== "EBUSY" && errno(error) !== "ETXTBSY") throw error;
      }
      await delay(pause);
    }
    return work(...words);
  };
}

type Path = string;
type Done = ReturnType<typeof fs.renameSync>;

const openLater = promisify(fs.open);
const fstatLater = promisify<number, Stats>(fs.fstat);
const open = either<[Path | Buffer, string | number, number?], number>(fs.openSync, openLater);

/**
 * @param now it is known to lie on a disk of this machine, and is opened on the calling thread
 * @returns a descriptor, to be closed with `closeSync`
 */
export async function openDescriptor(
  path: Path | Buffer,
  flags: string | number,
  mode?: number,
  now = false,
): Promise<number> {
  const fd = now ? fs.openSync(path, flags, mode) : await open(path, flags, mode);
  noteLocal(fd, now || isLocal(path));
  return fd;
}

/** The opened file; `error` is an errno, 0 where no call failed. */
interface PinOutcome {
  error: number;
  call: string;
  fd: number;
  dev: number;
}

interface DiskAddon {
  /** Opens with O_PATH and the flags. */
  pinPath(path: string, flags: number): Promise<PinOutcome>;
  /**
   * The same at once, of a path or of a name in an open folder; EAGAIN where the kernel cannot say
   * it from memory.
   */
  pinPathNow(path: string, flags: number, folder?: number): PinOutcome;
  /**
   * The number of the device of what a path names, at once; null where it is not there, or the
   * kernel cannot say it from memory.
   */
  deviceNow(path: string, flags: number): number | null;
  /** An errno: 0 where one of the names is there, ENOENT where none is. */
  anyThere(paths: readonly string[]): Promise<number>;
  /** Takes from a file what of it is in memory already; how many bytes that were. */
  readNow(fd: number, bytes: Uint8Array): number;
}

const addon = (): DiskAddon => loadAddon() as DiskAddon;

const { ENOENT } = os.constants.errno;

/** Linux open(2): a descriptor that names a file without opening it. Not among node's constants. */
const O_PATH = 0o10000000;

/**
 * Names a file or folder without opening it, and notes where it lies.
 * @param now it is known to lie on a disk of this machine; otherwise libuv's threads do both. For
 * the main thread they do so in one turn, and none where the kernel has all of the path in its
 * memory: then nobody waits for a share
 * @returns a descriptor, to be closed with `closeSync`
 */
export async function pinDescriptor(path: Path, flags: number, now: boolean): Promise<number> {
  if (now || atOnce || isLocal(path)) {
    const fd = fs.openSync(path, O_PATH | flags);
    try {
      // The folder may lie on another file system than the path to it
      noteDevice(fd, fs.fstatSync(fd));
      return fd;
    } catch (thrown) {
      fs.closeSync(fd);
      throw thrown;
    }
  }
  if (!isMainThread) return pinHere(path, flags);
  const first = addon().pinPathNow(path, flags);
  const decided = first.error === 0 || first.error === ENOENT;
  const { error, call, fd, dev } = decided ? first : await addon().pinPath(path, flags);
  if (error !== 0) throw systemError(error, call);
  noteDevice(fd, { dev });
  return fd;
}

/**
 * Node.js closes what a worker thread has opened when the thread is ended, and warns where one
 * closes what Node.js has not opened: there it takes two turns.
 */
async function pinHere(path: Path, flags: number): Promise<number> {
  const fd = await openLater(path, O_PATH | flags);
  try {
    noteDevice(fd, await fstatLater(fd));
    return fd;
  } catch (thrown) {
    fs.closeSync(fd);
    throw thrown;
  }
}

const { O_RDONLY, O_NOFOLLOW, O_NONBLOCK, O_NOCTTY } = fs.constants;

/**
 * The number of the device that a path leads to. Nobody waits for a share, and no turn is taken,
 * where the kernel has all of the path in its memory.
 */
export const deviceOf = async (path: Path): Promise<number> =>
  addon().deviceNow(path, 0) ?? (await fsp.stat(path)).dev;

/**
 * Whether what has the name is known to lie on a disk of this machine, so that its facts are had at
 * once. False where it is not there, or only a share could say it.
 */
function isHere(path: Path): boolean {
  const dev = addon().deviceNow(path, O_NOFOLLOW);
  return dev !== null && onBlockDevice({ dev });
}

/**
 * Its facts with exact numbers, of a link too; at once where it is known to lie on this machine.
 */
export const exactFacts = async (path: Path): Promise<BigIntStats> =>
  atOnce || isHere(path) ? fs.lstatSync(path, { bigint: true }) : fsp.lstat(path, { bigint: true });

/** The same of the file system that a folder lies on. */
export const statfsOf = async (path: Path): Promise<StatsFs> =>
  isHere(path) ? fs.statfsSync(path) : fsp.statfs(path);

/** The target of a symbolic link in an open folder; undefined where there is none. */
export async function linkIn(
  folder: number,
  name: string,
  now: boolean,
): Promise<string | undefined> {
  const path = `/proc/self/fd/${folder}/${name}`;
  try {
    if (now || atOnce) return fs.readlinkSync(path);
    if (isMainThread) {
      const { error, fd } = addon().pinPathNow(name, O_NOFOLLOW, folder);
      if (error === ENOENT) return undefined;
      if (error === 0) fs.closeSync(fd);
    }
    return await fsp.readlink(path);
  } catch {
    return undefined;
  }
}

/**
 * Whether something has one of the names, a link too, or it cannot be said: one turn for all of
 * them, or none.
 */
export async function anyThere(paths: readonly [Path, ...Path[]]): Promise<boolean> {
  if (!atOnce && !isLocal(paths[0])) return (await addon().anyThere(paths)) !== ENOENT;
  try {
    return paths.some((path) => fs.lstatSync(path, { throwIfNoEntry: false }) !== undefined);
  } catch {
    return true;
  }
}

/** Reads what of a file is in the kernel's memory already, from where it stands: so many bytes. */
export const readNow = (fd: number, bytes: Uint8Array): number => addon().readNow(fd, bytes);

/**
 * Flags for a file that is there to be read. If something else lies there by now, no link is
 * followed and no pipe is waited for.
 */
export const PLAIN = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;
/** Opens what was listed as a plain file for reading. */
export const openPlain = (path: Path | Buffer, now = false): Promise<number> =>
  openDescriptor(path, PLAIN, undefined, now);
/** Writes the start of a file that is smaller than a page. */
export const writeStart = either<[number, string], number>(
  (fd, text) => fs.writeSync(fd, text, 0),
  async (fd, text) => (await writeText(fd, text, 0)).bytesWritten,
);
export const access = either<[Path, number], Done>(fs.accessSync, fsp.access);
export const lstat = either<[Path], Stats>(fs.lstatSync, fsp.lstat);
export const mkdir = either<[Path], Done>(fs.mkdirSync, fsp.mkdir);
export const readdir = either<[Path], string[]>((dir) => fs.readdirSync(dir), fsp.readdir);
export const rename = patiently(either<[Path, Path], Done>(fs.renameSync, fsp.rename));
export const rmdir = patiently(either<[Path], Done>(fs.rmdirSync, fsp.rmdir));
export const stat = either<[Path], Stats>(fs.statSync, fsp.stat);
export const statfs = either<[Path], StatsFs>(fs.statfsSync, fsp.statfs);
export const unlink = patiently(either<[Path], Done>(fs.unlinkSync, fsp.unlink));

/**
 * Bytes that a file system has left for us; without end where it does not say, as some in user
 * space: all are 0 then.
 */
export function freeBytes({ blocks, bavail, bsize }: StatsFs): number {
  return blocks === 0 ? Infinity : bavail * bsize;
}

/** Bytes of a file system, whoever has them; without end where it does not say. */
export const totalBytes = ({ blocks, bsize }: StatsFs): number =>
  blocks === 0 ? Infinity : blocks * bsize;
