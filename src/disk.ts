/**
 * The small file operations of one image: some twenty of them, each of which takes the system a few microseconds and,
 * through libuv's threads, several times that. Threads of bulk work do them at once: whoever has to wait there for a slow
 * disk is that thread alone, and not one of the few of libuv that single requests need too. Reading and writing of
 * contents, and waiting until the disk has them, go through libuv's threads everywhere.
 */
import fs, { type Stats, type StatsFs } from "node:fs";
import fsp from "node:fs/promises";
import { promisify } from "node:util";

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

type Path = string;
type Done = ReturnType<typeof fs.renameSync>;

/** @returns a descriptor, to be closed with `closeSync` */
export const openDescriptor = either<[Path, string | number, number?], number>(
  fs.openSync,
  promisify(fs.open),
);
/** Writes the start of a file that is smaller than a page. */
export const writeStart = either<[number, string], number>(
  (fd, text) => fs.writeSync(fd, text, 0),
  async (fd, text) => (await writeText(fd, text, 0)).bytesWritten,
);
export const access = either<[Path, number], Done>(fs.accessSync, fsp.access);
export const lstat = either<[Path], Stats>(fs.lstatSync, fsp.lstat);
export const mkdir = either<[Path], Done>(fs.mkdirSync, fsp.mkdir);
export const readdir = either<[Path], string[]>((dir) => fs.readdirSync(dir), fsp.readdir);
export const rename = either<[Path, Path], Done>(fs.renameSync, fsp.rename);
export const rmdir = either<[Path], Done>(fs.rmdirSync, fsp.rmdir);
export const stat = either<[Path], Stats>(fs.statSync, fsp.stat);
export const statfs = either<[Path], StatsFs>(fs.statfsSync, fsp.statfs);
export const unlink = either<[Path], Done>(fs.unlinkSync, fsp.unlink);
