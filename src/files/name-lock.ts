/**
 * The lock of one NAME in an output folder, `.NAME.lock`: one holder among threads, processes and
 * machines that share the folder. It is a file that names its owner, and is made only where there
 * is none. A holder rewrites a counter in it; who waits takes it over where the owner is known to
 * be dead (same kernel, no such process or thread) or where the file has not changed for a whole
 * lease on the waiter's own monotonic clock, so that clocks of machines are never compared.
 */
import { closeSync, constants, fstatSync, readSync, statSync, type Stats } from "node:fs";
import { dirname } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { lstat, onBlockDevice, openDescriptor, openPlain, unlink, writeStart } from "./disk.js";
import { backOff, type BackOff } from "../base/back-off.js";
import { durations } from "../base/durations.js";
import { errno } from "../base/errno.js";
import { errors, RadserveError } from "../base/errors.js";
import { monotonic } from "../base/monotonic.js";
import { ifMissing, UnnamedFile } from "./durable-files.js";
import { guardName, lockName, notOurs } from "./helper-names.js";
import { beatText, isDead, parseOwner, self, serialise, type LockOwner } from "./lock-owner.js";

const BEATS_PER_LEASE = 6;
/** How often it is looked whether a lock is free, where it is not said otherwise. */
const POLL: BackOff = { first: 5, most: 40 };
/** Several times what an owner takes. */
const LONGEST_OWNER_BYTES = 4096;

export interface LockOptions {
  /**
   * In milliseconds of `monotonic`, after which waiting ends; without it, waiting ends with `check`
   * only.
   */
  deadline?: number;
  /** Asked at each look at the lock; what it throws ends the waiting. */
  check?: () => void;
  /** The longest pause between two looks, in milliseconds; 40 if absent. */
  pauseMs?: number;
  /** Milliseconds without a sign of life after which others may take over. */
  leaseMs?: number;
}

/**
 * A lock as a process that waits saw it: the raw text, any change of which is a sign of life, and
 * the owner where it is whole.
 */
interface Sight {
  text: string;
  owner: LockOwner | undefined;
}

export class NameLock {
  /** The folder lies on a block device of this machine, and not on a network file system. */
  readonly local: boolean;
  readonly #path: string;
  readonly #fd: number;
  readonly #owner: LockOwner;
  readonly #timer: NodeJS.Timeout;
  #beats = 0;
  #released = false;
  #beating: Promise<void> = Promise.resolve();

  private constructor(path: string, fd: number, owner: LockOwner, local: boolean) {
    this.local = local;
    this.#path = path;
    this.#fd = fd;
    this.#owner = owner;
    this.#timer = setInterval(() => {
      this.#beating = this.#beating.then(() => this.#beat());
    }, owner.lease_ms / BEATS_PER_LEASE).unref();
  }

  /**
   * Waits for the lock of NAME.
   * @throws RadserveError deadline_exceeded; output_name_taken, if what lies there is no file; what
   * `check` throws; errors of the file system as they are
   */
  static async take(dir: string, name: string, options: LockOptions = {}): Promise<NameLock> {
    const { deadline = Infinity, check, leaseMs = durations.nameLease } = options;
    const poll = { ...POLL, most: options.pauseMs ?? POLL.most };
    const waiter = new Waiter(statSync(dir));
    for (let tries = 1; ; tries++) {
      check?.();
      const lock = await NameLock.#attempt(dir, name, waiter, leaseMs);
      if (lock !== undefined) return lock;
      const left = deadline - monotonic();
      if (left <= 0)
        throw errors.deadline_exceeded(
          "Another request is still writing results under this name. Repeat the request, or give it more time.",
        );
      await delay(Math.min(backOff(tries, poll), left));
    }
  }

  /**
   * Whether somebody has the lock of NAME who is not known to be dead: on another machine, or at
   * work here.
   */
  static async isTaken(dir: string, name: string): Promise<boolean> {
    const text = await look(`${dir}/${lockName(name)}`);
    const owner = text === undefined ? undefined : parseOwner(text);
    return owner !== undefined && !(await isDead(owner));
  }

  static async #attempt(
    dir: string,
    name: string,
    waiter: Waiter,
    leaseMs: number,
  ): Promise<NameLock | undefined> {
    const path = `${dir}/${lockName(name)}`;
    const owner = await self(leaseMs);
    const fd = await create(path, serialise(owner), waiter);
    if (fd !== undefined) return new NameLock(path, fd, owner, waiter.local);
    const seen = sightOf(await look(path));
    if (seen !== undefined && (await waiter.lock.isStale(seen)))
      await breakLock(path, seen, `${dir}/${guardName(name)}`, waiter);
    return undefined;
  }

  /** Whether the lock on disk is still this one; false once somebody took it over. */
  async isHeld(): Promise<boolean> {
    // The system knows the name of a file that was made here without asking the folder, which may
    // be syncing
    const text = await look(this.#path, this.local).catch((error: unknown) => {
      if (error instanceof RadserveError) return undefined;
      throw error;
    });
    return text?.includes(this.#owner.token) === true;
  }

  async release(): Promise<void> {
    // The descriptor's number may be another file's by the second time
    if (this.#released) return;
    this.#released = true;
    clearInterval(this.#timer);
    await this.#beating;
    const isHeld = await this.isHeld().catch(() => false);
    // Before it is removed: SMB keeps the name of a removed file, and NFS another one, for as long
    // as it is open
    closeSync(this.#fd);
    // What was done under it is done. A lock that stays shows no more signs of life, and is taken
    // over when its lease has ended.
    if (isHeld) await unlink(this.#path).catch(() => undefined);
  }

  async #beat(): Promise<void> {
    this.#beats += 1;
    const text = serialise({ ...this.#owner, beat: beatText(this.#beats) });
    // A beat that fails (share away, lock removed) is no error by itself: isHeld decides before
    // anything is published.
    await writeStart(this.#fd, text).catch(() => undefined);
  }
}

/**
 * Remembers for how long what lies at a path has not changed. Between two looks this process may
 * have stood still itself, which says nothing of the owner: a gap counts as half a lease at most.
 */
class Watch {
  #text: string | undefined;
  #looked = 0;
  #silentMs = 0;

  async isStale({ text, owner }: Sight): Promise<boolean> {
    const leaseMs = owner?.lease_ms ?? durations.nameLease;
    const now = performance.now();
    const gap = Math.min(now - this.#looked, leaseMs / 2);
    this.#silentMs = text === this.#text ? this.#silentMs + gap : 0;
    this.#text = text;
    this.#looked = now;
    if (owner !== undefined && (await isDead(owner))) return true;
    return this.#silentMs > leaseMs;
  }
}

/**
 * How one waiter makes its files in a folder, and what it remembers of the two that may stand in
 * its way.
 */
class Waiter {
  readonly local: boolean;
  readonly flags: number;
  readonly lock = new Watch();
  readonly guard = new Watch();

  constructor(folder: Stats) {
    this.local = onBlockDevice(folder);
    // An NFS client may keep a write to itself for longer than a lease otherwise
    this.flags = CREATE | (this.local ? 0 : constants.O_DSYNC);
  }
}

/**
 * Removes the lock that was seen, and no other: whoever removes a lock holds the guard and looks
 * again under it, so that two who saw the same dead owner cannot remove each other's new locks.
 */
async function breakLock(
  path: string,
  seen: Sight,
  guardPath: string,
  waiter: Waiter,
): Promise<void> {
  const guard = await create(guardPath, serialise(await self(durations.nameLease)), waiter);
  if (guard === undefined) {
    // A guard is held for two file operations; one left by a process killed within them would block
    // for ever.
    const other = sightOf(await look(guardPath));
    if (other !== undefined && (await waiter.guard.isStale(other)))
      await unlink(guardPath).catch(ifMissing(undefined));
    return;
  }
  try {
    if ((await look(path)) === seen.text) await unlink(path).catch(ifMissing(undefined));
  } finally {
    closeSync(guard);
    await unlink(guardPath).catch(ifMissing(undefined));
  }
}

const CREATE = constants.O_CREAT | constants.O_EXCL | constants.O_WRONLY;

/** @returns the descriptor of a new lock or guard; undefined where there is one */
async function create(path: string, text: string, waiter: Waiter): Promise<number | undefined> {
  const whole = waiter.local ? await appear(path, text) : undefined;
  return whole ?? createExclusively(path, text, waiter);
}

async function createExclusively(
  path: string,
  text: string,
  { flags }: Waiter,
): Promise<number | undefined> {
  let fd: number;
  try {
    fd = await openDescriptor(path, flags, 0o644);
  } catch (error) {
    if (errno(error) === "EEXIST") return undefined;
    throw error;
  }
  try {
    await writeStart(fd, text);
    return fd;
  } catch (error) {
    closeSync(fd);
    await unlink(path).catch(ifMissing(undefined));
    throw error;
  }
}

/**
 * A new file that names its owner from the moment it is there: of one that is still empty when its
 * process is killed nobody knows that its owner is dead, and all wait for a whole lease.
 * @returns undefined where something has the name, or the file system does not do this
 */
async function appear(path: string, text: string): Promise<number | undefined> {
  const file = await UnnamedFile.make(dirname(path)).catch(() => undefined);
  if (file === undefined) return undefined;
  let named = false;
  try {
    named = await writeStart(file.fd, text).then(
      () => file.appearAs(path),
      () => false,
    );
  } finally {
    if (!named) file.close();
  }
  return named ? file.fd : undefined;
}

/**
 * The text of a lock or a guard; undefined where there is none.
 * @param now on the calling thread
 * @throws RadserveError output_name_taken where something lies there that is no file
 */
async function look(path: string, now = false): Promise<string | undefined> {
  const fd = await openPlain(path, now).catch(async (error: unknown) => {
    // A link, or a socket
    if (errno(error) === "ELOOP" || errno(error) === "ENXIO") {
      const facts = await lstat(path).catch(ifMissing(undefined));
      if (facts?.isFile() !== true && facts !== undefined) throw noLock(path, facts);
      return undefined;
    }
    ifMissing(undefined)(error);
    return undefined;
  });
  if (fd === undefined) return undefined;
  try {
    const facts = fstatSync(fd);
    if (!facts.isFile()) throw noLock(path, facts);
    const text = Buffer.allocUnsafe(LONGEST_OWNER_BYTES);
    return text.toString("utf8", 0, readSync(fd, text, 0, text.length, 0));
  } catch (error) {
    ifMissing(undefined)(error);
    return undefined;
  } finally {
    closeSync(fd);
  }
}

function noLock(path: string, facts: Stats): RadserveError {
  return notOurs(path.endsWith(".break") ? guardName("NAME") : lockName("NAME"), "a file", facts);
}

function sightOf(text: string | undefined): Sight | undefined {
  return text === undefined ? undefined : { text, owner: parseOwner(text) };
}
