/**
 * The state directory belongs to one process at a time. The lock is the kernel's own, flock(2) on a
 * file in the directory: the kernel frees it when the process has ended, however it ended, so that
 * a lock is never stale. On NFS it holds between machines too (Linux 2.6.12 or later). The text of
 * the file only tells people who holds it.
 */
import {
  closeSync,
  constants,
  ftruncateSync,
  openSync,
  lstatSync,
  readdirSync,
  statSync,
  writeSync,
} from "node:fs";
import os from "node:os";
import path from "node:path";
import { z } from "zod";
import { ConfigError, NO_ROOM, PassingFault, refusalFor } from "../base/errors.js";
import { errno, tried } from "../base/errno.js";
import { storedJson } from "../base/stored-json.js";
import { lockDescriptor } from "./descriptor-lock.js";
import { makeWithParents, makeUsable } from "./folders.js";
import { otherKind, textOfRegularSync } from "./regular-file.js";
import { isSameFile } from "./same-file.js";

const holderSchema = z.object({ pid: z.int(), host: z.string() });
type Holder = z.infer<typeof holderSchema>;

export interface StateLock {
  release(): void;
}

const lockFile = (directory: string) => path.join(directory, "lock");

const holderOf = (directory: string) =>
  tried(() => holderSchema.parse(storedJson(textOfRegularSync(lockFile(directory)))));

/** True also for a process of another user, whose open files are not shown. */
function hasOpen(pid: number, file: string): boolean {
  const descriptors = `/proc/${pid}/fd`;
  try {
    const lock = statSync(file, { bigint: true });
    return readdirSync(descriptors).some((name) => {
      const one = path.join(descriptors, name);
      return isSameFile(statSync(one, { bigint: true, throwIfNoEntry: false }), lock);
    });
  } catch (error) {
    return errno(error) === "EACCES";
  }
}

/**
 * The process of this machine that holds the directory; undefined if there is none. The lock itself
 * is not tried, because a server that starts at this moment would find it taken.
 */
export function holderHere(directory: string): number | undefined {
  const holder = holderOf(directory);
  if (holder?.host !== os.hostname() || !hasOpen(holder.pid, lockFile(directory))) return undefined;
  return holder.pid;
}

/**
 * Makes the directory where it is missing. Throws ConfigError where this user cannot make it or
 * write to it.
 */
export function makeStateDirectory(directory: string): void {
  try {
    makeUsable(directory, 0o700);
  } catch (error) {
    // There may be room again while it serves.
    if (NO_ROOM.has(errno(error))) return;
    throw refusalFor(
      errno(error),
      `RADSERVE_STATE_DIR: expected a folder at ${directory} that this user may make and write to; found otherwise ` +
        `(${errno(error) || "unknown"}). Name another, or give this user the right to it.`,
    );
  }
}

/**
 * The file of the lock, open. Throws ConfigError where something else has its name, or this user
 * may not write to it.
 */
function openLock(directory: string): number {
  const file = lockFile(directory);
  const refused = (found: string) =>
    refusalFor(
      found,
      `RADSERVE_STATE_DIR: expected the lock ${file} to be a file that this user may write to; found ${found}. ` +
        "Stop what uses the directory, and remove the lock; or name another directory.",
    );
  const { O_RDWR, O_CREAT, O_NOFOLLOW, O_NONBLOCK } = constants;
  try {
    const there = lstatSync(file, { throwIfNoEntry: false });
    const kind = there === undefined ? undefined : otherKind(there);
    if (kind !== undefined) throw refused(kind);
    // Node opens every file with O_CLOEXEC: a child process that outlives this one does not keep
    // the lock.
    return openSync(file, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK, 0o600);
  } catch (error) {
    if (error instanceof ConfigError) throw error;
    const why = errno(error);
    if (NO_ROOM.has(why))
      throw new PassingFault(
        `RADSERVE_STATE_DIR: expected room for the lock ${file}; its disk is full, or the quota is used up (${why}). Make room there.`,
      );
    throw refused(why || "otherwise");
  }
}

/**
 * Takes the directory, creating it where it is missing. Throws ConfigError naming the process that
 * holds it.
 */
export function lockState(directory: string): StateLock {
  makeWithParents(directory, 0o700);
  const fd = openLock(directory);
  try {
    if (!lockDescriptor(fd)) throw taken(directory);
    const holder: Holder = { pid: process.pid, host: os.hostname() };
    ftruncateSync(fd);
    writeSync(fd, JSON.stringify(holder));
  } catch (error) {
    closeSync(fd);
    throw error;
  }
  // The file stays: whoever waits for it has it open already, and would lock a file that is gone.
  return { release: () => closeSync(fd) };
}

function taken(directory: string): ConfigError {
  const holder = holderOf(directory);
  const who = holder === undefined ? "another process" : `process ${holder.pid} on ${holder.host}`;
  return new ConfigError(
    `Expected the state directory ${directory} to be free; ${who} holds it. ` +
      "Stop that one, or give this one another RADSERVE_STATE_DIR.",
  );
}
