/**
 * Files by their descriptors, for what is done often for every image. What may wait for a disk or a network (reading,
 * syncing) goes through libuv's threads; what acts on something open and lies in this machine's memory is done
 * at once with node:fs, because a turn through those threads costs several times the call.
 */
import fs from "node:fs";
import { promisify } from "node:util";

export const syncDescriptor = promisify(fs.fsync);
const read = promisify(fs.read);
const write = promisify(fs.write);

/** Most bytes that are copied to the system's memory on the calling thread; more are left to another thread. */
const AT_ONCE = 64 * 1024;

/** Another name of an open file or folder: works for reading, listing and creating, in every thread. */
export function descriptorPath(fd: number): string {
  return `/proc/self/fd/${fd}`;
}

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

/** The file's first bytes, wherever the descriptor stands: `size` of them, or fewer where the file is shorter or slow. */
export async function readStart(fd: number, size: number): Promise<Buffer> {
  const buffer = Buffer.allocUnsafe(size);
  return buffer.subarray(0, (await read(fd, buffer, 0, size, 0)).bytesRead);
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
