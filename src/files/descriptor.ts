/**
 * Files by their descriptors, for what is done often for every image. What may wait for a disk or a
 * network (reading, syncing) goes through libuv's threads; what acts on something open and lies in
 * this machine's memory is done at once with node:fs, because a turn through those threads costs
 * several times the call.
 */
import fs from "node:fs";
import { promisify } from "node:util";
import { errors } from "../base/errors.js";
import { count } from "../base/table.js";
import { readNow } from "./disk.js";

export const syncDescriptor = promisify(fs.fsync);
const read = promisify(fs.read);
const write = promisify(fs.write);

/**
 * Most bytes that are copied to the system's memory on the calling thread; more are left to another
 * thread.
 */
const AT_ONCE = 64 * 1024;

/**
 * Another name of an open file or folder: works for reading, listing and creating, in every thread.
 */
export const descriptorPath = (fd: number): string => `/proc/self/fd/${fd}`;

/**
 * Reads from where the descriptor stands until the buffer is full or the file ends.
 * @returns how many bytes were read
 */
export async function fillFrom(fd: number, buffer: Uint8Array): Promise<number> {
  let filled = 0;
  while (filled < buffer.length) {
    const { bytesRead } = await read(fd, buffer, filled, buffer.length - filled, null);
    if (bytesRead === 0) break;
    filled += bytesRead;
  }
  return filled;
}

/**
 * The file's first bytes, wherever the descriptor stands: `size` of them, or fewer where the file
 * is shorter or slow.
 */
export async function readStart(fd: number, size: number): Promise<Buffer> {
  const buffer = Buffer.allocUnsafe(size);
  return buffer.subarray(0, (await read(fd, buffer, 0, size, 0)).bytesRead);
}

/** Bytes of a file from a place on, wherever the descriptor stands; fewer where the file ends. */
export async function readAt(fd: number, size: number, at: number): Promise<Buffer> {
  const buffer = Buffer.allocUnsafe(size);
  let filled = 0;
  while (filled < size) {
    const { bytesRead } = await read(fd, buffer, filled, size - filled, at + filled);
    if (bytesRead === 0) break;
    filled += bytesRead;
  }
  return buffer.subarray(0, filled);
}

/** 2 GiB less one byte: the longest file that is read, held in memory as a whole. */
export const MAX_FILE_BYTES = 2 ** 31 - 1;

/**
 * Throws unsupported_format where a file of so many bytes is longer than what is read
 * (MAX_FILE_BYTES).
 */
export function checkFileSize(bytes: number): void {
  if (bytes > MAX_FILE_BYTES)
    throw errors.unsupported_format(
      `Expected a file of at most ${count(MAX_FILE_BYTES)} bytes; found ${count(bytes)}. Split it, or send its slices as a folder.`,
      { most: MAX_FILE_BYTES, found: bytes },
    );
}

/** A longer file takes more than some milliseconds to copy. */
const MOST_FROM_MEMORY = 16 * 1024 * 1024;

/**
 * The bytes of an open file.
 * Throws unsupported_format before reading, where it is too long.
 */
export const readWhole = (fd: number): Promise<Uint8Array> => bytesOf(fd, 0);

/**
 * The same; the calling thread copies what the system has in memory, so that only a disk is waited
 * for elsewhere.
 */
export const readWholeHere = (fd: number): Promise<Buffer> => bytesOf(fd, MOST_FROM_MEMORY);

async function bytesOf(fd: number, mostFromMemory: number): Promise<Buffer> {
  const { size } = fs.fstatSync(fd);
  checkFileSize(size);
  const bytes = Buffer.allocUnsafeSlow(size);
  const had = size <= mostFromMemory ? readNow(fd, bytes) : 0;
  return bytes.subarray(0, had + (await fillFrom(fd, bytes.subarray(had))));
}

/**
 * Writes all bytes where the descriptor stands: on the calling thread, or on another one however
 * few they are.
 */
export async function writePiece(fd: number, bytes: Uint8Array, here: boolean): Promise<void> {
  for (let at = 0; at < bytes.length;)
    at += here
      ? fs.writeSync(fd, bytes, at)
      : (await write(fd, bytes, at, bytes.length - at, null)).bytesWritten;
}

/** Writes all bytes where the descriptor stands. */
export async function writeAll(fd: number, bytes: Uint8Array): Promise<void> {
  for (let at = 0; at < bytes.length;) {
    const length = bytes.length - at;
    at +=
      length <= AT_ONCE
        ? fs.writeSync(fd, bytes, at, length)
        : (await write(fd, bytes, at, length, null)).bytesWritten;
  }
}
