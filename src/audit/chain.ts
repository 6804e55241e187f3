/**
 * The files of the audit, which only ever grow: one for each UTC day, in one chain. Each file
 * begins with a line that names the last line before it, so that days can be archived and a file
 * verified by itself.
 *
 * A process may be killed, or the machine lose its power, in the middle of a write; and a disk may
 * be full after half of it. What then stands behind the last whole line stays there as evidence: a
 * line feed closes it, and the next line says how many bytes it has and their SHA-256.
 *
 * The server and the commands of its machine write to one chain. Whoever writes holds a lock for
 * that moment, and looks first whether the file is as it was left.
 */
import { createHash } from "node:crypto";
import fs, { closeSync, constants, fstatSync, openSync, readFileSync, readSync } from "node:fs";
import { rename, writeFile } from "node:fs/promises";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { promisify } from "node:util";
import { durations } from "../base/durations.js";
import { errno } from "../base/errno.js";
import { monotonic } from "../base/monotonic.js";
import { VERSION } from "../base/version.js";
import { lockDescriptor } from "../files/descriptor-lock.js";
import { syncFolder } from "../files/durable-files.js";
import {
  follows,
  headText,
  lineOf,
  NO_HEAD,
  parseHead,
  readLine,
  type AuditFacts,
  type Head,
} from "./entry.js";
import { dayFiles, dayOf, type AuditKeys, type AuditPaths } from "./folders.js";
import { giveToOwnerOf } from "../files/private-file.js";

const write = promisify(fs.write);

/**
 * Each write returns when the disk has it, as after fdatasync(2), with one turn through libuv's
 * threads.
 */
const FLAGS =
  constants.O_RDWR |
  constants.O_APPEND |
  constants.O_CREAT |
  constants.O_DSYNC |
  constants.O_NOFOLLOW;

const LOCK_TRY_MS = 2;

/** How much of a file's end is read at first to find its last line. */
const TAIL_BYTES = 64 * 1024;

export type Timed = AuditFacts & { time: string };

export type ChainPlace = AuditPaths & { keys: AuditKeys; stateDir: string; isOldKey: boolean };

/** The file that is written to. */
interface Current {
  fd: number;
  name: string;
  /** Its size when it was written or looked at last. */
  size: number;
}

/** The end of a file: its last line, and what stands behind that and is none. */
interface Tail {
  head: Head | undefined;
  torn: Buffer;
}

export class AuditChain {
  #current: Current | undefined;
  #head: Head;
  /** The tail that was said to be there is gone. */
  readonly wasCut: boolean;
  /**
   * There must have been lines, and the head that was said last is gone; undefined before the first
   * line is written.
   */
  #isHeadGone: boolean | undefined;

  /**
   * @param host name of this machine, which each line says
   * @throws errors of the file system as they are
   */
  constructor(
    private readonly place: ChainPlace,
    private readonly host: string,
  ) {
    const said = saidHead(place.head) ?? NO_HEAD;
    const found = lastHead(place.folder) ?? NO_HEAD;
    this.wasCut = found.seq < said.seq;
    this.#head = this.wasCut ? said : found;
  }

  /**
   * Lines may have been taken away unseen, because the head that was said last was taken away too.
   */
  get isHeadGone(): boolean {
    return this.#isHeadGone === true;
  }

  /** The last line that is on the disk. */
  get head(): Head {
    return this.#head;
  }

  /**
   * Appends lines, and returns when the disk has them.
   * @throws errors of the file system as they are; then nobody knows which of the lines are there,
   * and the next call finds out
   */
  async append(lines: readonly Timed[]): Promise<void> {
    const unlock = await this.#lock();
    try {
      const isFirst = this.#isHeadGone === undefined;
      const isUnsaid = isFirst && saidHead(this.place.head) === undefined;
      const isGone = isUnsaid && (this.place.isOldKey || dayFiles(this.place.folder).length > 0);
      // Lines that waited over midnight belong to the day before
      for (const [day, ofDay] of byDay(isGone ? [headGone(lines[0]?.time), ...lines] : lines))
        await this.#write(await this.#fileOf(`${day}.jsonl`), "", ofDay);
      if (isFirst) this.#isHeadGone = isGone;
      // Before the lock is free: whoever comes next would take it for gone
      if (isUnsaid) await this.#keepHead();
    } catch (error) {
      this.close();
      throw error;
    } finally {
      unlock();
    }
  }

  close(): void {
    if (this.#current !== undefined) closeSync(this.#current.fd);
    this.#current = undefined;
  }

  /**
   * Keeps the head beside the chain: a tail that is cut off while nothing runs is noticed by it.
   */
  async sayHead(): Promise<void> {
    const unlock = await this.#lock();
    try {
      await this.#keepHead();
    } finally {
      unlock();
    }
  }

  /** While the lock is held: so the next one writes over what a killed process left. */
  async #keepHead(): Promise<void> {
    const part = `${this.place.head}.part`;
    await writeFile(part, `${headText(this.#head)}\n`, { mode: 0o600, flush: true });
    giveToOwnerOf(this.place.stateDir, part);
    await rename(part, this.place.head);
  }

  async #lock(): Promise<() => void> {
    const fd = this.#openLock();
    const end = monotonic() + durations.auditLock;
    try {
      while (!lockDescriptor(fd)) {
        if (monotonic() > end) throw new Error("Another process holds the lock of the audit.");
        await delay(LOCK_TRY_MS);
      }
    } catch (error) {
      closeSync(fd);
      throw error;
    }
    return () => closeSync(fd);
  }

  #openLock(): number {
    const { lock, stateDir } = this.place;
    try {
      return openSync(lock, constants.O_RDWR);
    } catch (error) {
      if (errno(error) !== "ENOENT") throw error;
    }
    const fd = openSync(lock, constants.O_RDWR | constants.O_CREAT, 0o600);
    giveToOwnerOf(stateDir, lock);
    return fd;
  }

  /**
   * The file to write to: that of the day, or the last where the clock was set back. It has its
   * first line.
   */
  async #fileOf(today: string): Promise<Current> {
    const before = this.#current;
    // A file of a later day is there where another process wrote before the clock was set back
    const last = dayFiles(this.place.folder).at(-1);
    if (before !== undefined && before.name >= today && before.name === last && isAsLeft(before))
      return before;
    this.close();
    if (last !== undefined) await this.#mend(last);
    const name = last !== undefined && last > today ? last : today;
    const current = this.#current ?? (await this.#open(name));
    if (current.name === name) return this.#begun(current);
    this.close();
    return this.#begun(await this.#open(name));
  }

  async #open(name: string): Promise<Current> {
    const file = path.join(this.place.folder, name);
    const fd = openSync(file, FLAGS, 0o600);
    const current = { fd, name, size: fstatSync(fd).size };
    this.#current = current;
    if (current.size > 0) return current;
    giveToOwnerOf(this.place.stateDir, file);
    await syncFolder(this.place.folder);
    return current;
  }

  /** Opens a file, and says what its end is where that is no line. */
  async #mend(name: string): Promise<void> {
    const current = await this.#open(name);
    const { torn } = tailOf(current.fd, current.size);
    const found = lastHead(this.place.folder);
    if (found !== undefined && found.seq >= this.#head.seq) this.#head = found;
    if (torn.length === 0) return;
    const unended = readLine(torn.toString("utf8", torn.lastIndexOf(10) + 1));
    if (unended !== undefined && follows(this.place.keys.chain, this.#head, unended)) {
      // The disk was full, or the process ended, right before the line feed: with it, this is the
      // next line
      await this.#write(current, "\n", []);
      this.#head = { seq: unended.entry.seq, mac: unended.mac };
      return;
    }
    const sha256 = createHash("sha256").update(torn).digest("hex");
    const line: Timed = { ...now(), kind: "torn", bytes: torn.length, sha256 };
    const hasLine = torn.length < current.size;
    await this.#write(
      current,
      torn.at(-1) === 10 ? "" : "\n",
      hasLine ? [line] : [this.#dayLine(name), line],
    );
  }

  async #begun(current: Current): Promise<Current> {
    if (current.size === 0) await this.#write(current, "", [this.#dayLine(current.name)]);
    return current;
  }

  #dayLine(name: string): Timed {
    const before = dayFiles(this.place.folder).findLast((file) => file < name);
    const previous = { ...this.#head, ...(before === undefined ? {} : { day: dayOf(before) }) };
    return { ...now(), kind: "day", version: VERSION, day: dayOf(name), previous };
  }

  async #write(current: Current, prefix: string, lines: readonly Timed[]): Promise<void> {
    let head = this.#head;
    const text = lines.map((line) => {
      const made = lineOf(this.place.keys.chain, head, {
        ...line,
        seq: head.seq + 1,
        host: this.host,
      });
      head = made.head;
      return made.text;
    });
    const bytes = Buffer.from(prefix + text.join(""));
    for (let at = 0; at < bytes.length;)
      at += (await write(current.fd, bytes, at, bytes.length - at, null)).bytesWritten;
    current.size += bytes.length;
    this.#head = head;
  }
}

/** Lines that follow each other and are of one day, in their order. */
function byDay(lines: readonly Timed[]): [string, Timed[]][] {
  const groups: [string, Timed[]][] = [];
  for (const line of lines) {
    const day = line.time.slice(0, 10);
    const last = groups.at(-1);
    if (last?.[0] === day) last[1].push(line);
    else groups.push([day, [line]]);
  }
  return groups;
}

const now = () => ({ time: new Date().toISOString() });

const headGone = (time = now().time): Timed => ({ time, kind: "trouble", reason: "head_gone" });

/** False where somebody else has written to the file, or removed it. */
function isAsLeft({ fd, size }: Current): boolean {
  const facts = fstatSync(fd);
  return facts.size === size && facts.nlink > 0;
}

/** The head that was said last; undefined where none is kept, or what is kept is none. */
export function saidHead(file: string): Head | undefined {
  try {
    return parseHead(readFileSync(file, "utf8"));
  } catch (error) {
    if (errno(error) === "ENOENT") return undefined;
    throw error;
  }
}

/** The last line of the last file that has one. */
function lastHead(folder: string): Head | undefined {
  for (const name of dayFiles(folder).reverse()) {
    const fd = openSync(path.join(folder, name), constants.O_RDONLY | constants.O_NOFOLLOW);
    try {
      const { head } = tailOf(fd, fstatSync(fd).size);
      if (head !== undefined) return head;
    } finally {
      closeSync(fd);
    }
  }
  return undefined;
}

function tailOf(fd: number, size: number): Tail {
  for (let bytes = Math.min(size, TAIL_BYTES); ; bytes = size) {
    const tail = Buffer.alloc(bytes);
    const read = readSync(fd, tail, 0, bytes, size - bytes);
    const found = lastLine(tail.subarray(0, read), bytes === size);
    if (found !== undefined || bytes === size)
      return found ?? { head: undefined, torn: tail.subarray(0, read) };
  }
}

/** @param whole the bytes are the whole file, so that the first of them begins a line */
function lastLine(bytes: Buffer, whole: boolean): Tail | undefined {
  for (let end = bytes.lastIndexOf(10); end >= 0;) {
    const before = end === 0 ? -1 : bytes.lastIndexOf(10, end - 1);
    if (before === -1 && !whole) return undefined;
    const line = readLine(bytes.toString("utf8", before + 1, end));
    if (line !== undefined)
      return { head: { seq: line.entry.seq, mac: line.mac }, torn: bytes.subarray(end + 1) };
    end = before;
  }
  return undefined;
}
