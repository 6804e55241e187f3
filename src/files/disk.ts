/**
 * The small file operations of one image: some twenty of them, each of which takes the system a few microseconds and,
 * through libuv's threads, several times that. Threads of bulk work do them at once: whoever has to wait there for a slow
 * disk is that thread alone, and not one of the few of libuv that single requests need too. Reading and writing of
 * contents, and waiting until the disk has them, go through libuv's threads everywhere.
 */
import fs, { type Stats, type StatsFs } from "node:fs";
import fsp from "node:fs/promises";
import { setTimeout as delay } from "node:timers/promises";
import { promisify } from "node:util";
import { errno } from "../base/errno.js";

const writeText = promisify(fs.write);

let atOnce = false;

/** From now on this thread does its small file operations itself. */
export function operateAtOnce(): void {
  atOnce = true;
}

/** The same operation both ways; what the first throws, the promise is rejected with. */
function either<A extends unknown[], R>(
  now: (...words: A) => R,
  later: (...words: A) => Promise<R>,
): (...words: A) => Promise<R> {
  return async (...words) => (atOnce ? now(...words) : later(...words));
}

/** Milliseconds between tries, 1.3 seconds in all. */
const PAUSES_MS = [5, 10, 20, 40, 80, 160, 320, 640];

/**
 * The same, again for a while where the system is busy: an SMB server does not remove or rename what somebody has open,
 * as a virus scanner has what was just written (STATUS_SHARING_VIOLATION), and a file system in user space may hear of a
 * close only after the process.
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

/** @returns a descriptor, to be closed with `closeSync` */
export const openDescriptor = either<[Path | Buffer, string | number, number?], number>(
  fs.openSync,
  promisify(fs.open),
);
const { O_RDONLY, O_NOFOLLOW, O_NONBLOCK, O_NOCTTY } = fs.constants;
/** Opens what was listed as a plain file for reading. If something else lies there by now, no link is followed and no pipe is waited for. */
export const openPlain = (path: Path | Buffer): Promise<number> =>
  openDescriptor(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
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

/** Bytes that a file system has left for us; without end where it does not say, as some in user space: all are 0 then. */
export function freeBytes({ blocks, bavail, bsize }: StatsFs): number {
  return blocks === 0 ? Infinity : bavail * bsize;
}
