/**
 * How many bytes of images all threads of the process may work on at once. Each thread has a place
 * of its own in shared memory where it counts its own; so what a thread held that was ended in the
 * middle can be taken back. Files that are read, what is unpacked from them, and images in work are
 * counted apart, and a task takes them in this order: of two tasks that hold one kind, one gets the
 * next, so that they cannot wait for each other for ever.
 */
import { setTimeout as delay } from "node:timers/promises";
import { durations } from "./durations.js";
import { errors } from "./errors.js";
import { monotonic } from "./monotonic.js";

/** A place holds a count of these many bytes. */
const UNIT = 1 << 16;
/** How often work that waits looks for room. */
const LOOK_MS = 20;
/**
 * The part of it that files may take before their content is known; what is unpacked from them may
 * take as much again.
 */
const FILES_SHARE = 0.25;
/** Places beside those of the threads that live. */
const SPARE = 64;

/**
 * The counts of each place: files as they are stored; what reading one unpacks, beside it; and what
 * the work on an image takes besides. What is kept of each beside the work has a count of its own,
 * since a task would wait in vain for the end of what it keeps itself.
 */
const COUNTS = {
  files: 0,
  unpacked: 1,
  images: 2,
  keptFiles: 3,
  keptUnpacked: 4,
  keptImages: 5,
  waitingFiles: 6,
  waitingUnpacked: 7,
  waitingImages: 8,
} as const;
type Count = keyof typeof COUNTS;
const ALL_COUNTS = Object.keys(COUNTS) as Count[];
const KEPT = { files: "keptFiles", unpacked: "keptUnpacked", images: "keptImages" } as const;
/** How much work, and not how many units, waits for room that bulk work leaves to it. */
const WAITING = {
  files: "waitingFiles",
  unpacked: "waitingUnpacked",
  images: "waitingImages",
} as const;
type MemoryKind = keyof typeof KEPT;

const indexOf = (place: number, count: Count): number => place * ALL_COUNTS.length + COUNTS[count];

/** Counts of all threads; a place that was given back may fall below zero for a moment. */
export class MemoryPlaces {
  readonly counts: Int32Array;
  /**
   * In the order in which they came back: the last moments of an ended thread are over when its
   * place is taken again.
   */
  readonly #free: number[];

  /**
   * @param most threads that live at once
   * @param mostBytes that the images of all threads may take together
   */
  constructor(
    most: number,
    private readonly mostBytes: number,
  ) {
    const places = most + SPARE;
    this.counts = new Int32Array(
      new SharedArrayBuffer(places * ALL_COUNTS.length * Int32Array.BYTES_PER_ELEMENT),
    );
    this.#free = Array.from({ length: places }, (_, place) => place);
  }

  /** A place that nobody uses. */
  take(): MemoryPlace {
    const place = this.#free.shift();
    if (place === undefined)
      throw new RangeError("More threads live at once than there are places");
    this.#clear(place);
    return { counts: this.counts, place, mostBytes: this.mostBytes };
  }

  /** Frees what the thread of that place held. */
  giveBack({ place }: MemoryPlace): void {
    this.#clear(place);
    this.#free.push(place);
  }

  #clear(place: number): void {
    for (const count of ALL_COUNTS) Atomics.store(this.counts, indexOf(place, count), 0);
  }

  /** Bytes that all threads hold. */
  get bytes(): number {
    return totalOfAll(this.counts) * UNIT;
  }
}

function total(counts: Int32Array, ...some: readonly Count[]): number {
  let sum = 0;
  for (const count of some)
    for (let at = COUNTS[count]; at < counts.length; at += ALL_COUNTS.length)
      sum += Math.max(0, Atomics.load(counts, at));
  return sum;
}

const KINDS = Object.keys(KEPT) as MemoryKind[];
const totalOfAll = (counts: Int32Array): number =>
  total(counts, ...KINDS, ...KINDS.map((kind) => KEPT[kind]));

/**
 * Claims of one task that reads files beside each other. They queue: while one is at work, the
 * others do not lose their patience, which is for other tasks.
 */
export class ClaimsOfTask {
  readonly #atWork = new Map<MemoryKind, number>();
  /** One has lost its patience. The task fails as a whole, so that no other has to wait. */
  isRefused = false;

  /** @returns to be called when the work ends */
  begin(kind: MemoryKind): () => void {
    const add = (more: number) => this.#atWork.set(kind, (this.#atWork.get(kind) ?? 0) + more);
    add(1);
    return () => add(-1);
  }

  areAtWork(kind: MemoryKind): boolean {
    return (this.#atWork.get(kind) ?? 0) > 0;
  }
}

export interface MemoryClaim {
  kind: MemoryKind;
  bytes: number;
  /**
   * Bytes that the thread, and not its work, has: all of its work that needs some shares as much as
   * the largest needs. They are counted until none has needed them for a moment.
   */
  ofThread?: number;
  /** False: the work begins at once, and is counted. */
  patient: boolean;
  /** It is bulk work: it waits as long as other work waits for room of its kind. */
  yields?: boolean | undefined;
  /** Asked while the work waits; what it throws ends the waiting. */
  check: () => void;
  /** The others of its task, where it has several at once. */
  ofTask?: ClaimsOfTask | undefined;
}

/** The data with which a thread counts its own memory. It can be sent to another thread. */
export interface MemoryPlace {
  counts: Int32Array;
  place: number;
  mostBytes: number;
}

/** The memory of the process as one thread sees it. */
export class ProcessMemory {
  #claimed = 0;
  /** Units that the thread shares with its work. */
  #shared = 0;
  #sharers = 0;
  #dropping: NodeJS.Timeout | undefined;

  /**
   * @param dropShared gives back what the thread has, when none of its work has needed that for a
   * moment
   */
  constructor(
    private readonly own: MemoryPlace,
    private readonly dropShared: () => void = () => undefined,
  ) {}

  /** Bytes that this thread's work has had so far, all together. */
  get claimed(): number {
    return this.#claimed;
  }

  /**
   * Does the work when its bytes have room; where nothing else of its kind is at work, even the
   * largest begins.
   * @throws RadserveError overloaded if other tasks left no room for ten seconds; what the work
   * throws
   */
  async within<T>(claim: MemoryClaim, work: () => Promise<T>): Promise<T> {
    const { kind, bytes, ofThread = 0, ofTask } = claim;
    await this.#room(claim);
    this.#claimed += bytes + ofThread;
    const ended = ofTask?.begin(kind);
    try {
      return await work();
    } finally {
      ended?.();
      Atomics.sub(this.own.counts, indexOf(this.own.place, kind), Math.ceil(bytes / UNIT));
      if (ofThread > 0) this.#leaveShared();
    }
  }

  /**
   * What the thread has is there, as large as its count; other work of the thread may be waiting
   * for room.
   */
  #shareNow(units: number): void {
    if (units === 0) return;
    clearTimeout(this.#dropping);
    this.#sharers += 1;
    this.#shared = Math.max(this.#shared, units);
  }

  #leaveShared(): void {
    this.#sharers -= 1;
    if (this.#sharers > 0) return;
    this.#dropping = setTimeout(() => {
      this.dropShared();
      Atomics.sub(this.own.counts, indexOf(this.own.place, "images"), this.#shared);
      this.#shared = 0;
    }, durations.threadMoment).unref();
  }

  /**
   * Counts bytes that are in memory already, as work of their kind. What it returns gives them
   * back.
   */
  hold(kind: MemoryKind, bytes: number): () => void {
    return this.#count(kind, bytes);
  }

  /** Counts bytes that a task keeps beside its work. What it returns gives them back. */
  keep(kind: MemoryKind, bytes: number): () => void {
    return this.#count(KEPT[kind], bytes);
  }

  #count(count: Count, bytes: number): () => void {
    const units = Math.ceil(bytes / UNIT);
    const at = indexOf(this.own.place, count);
    Atomics.add(this.own.counts, at, units);
    this.#claimed += bytes;
    return () => Atomics.sub(this.own.counts, at, units);
  }

  /**
   * Counts bytes that need not stay in memory, where all of their kind then take at most that share
   * of the memory; so little that others find room beside them.
   * @returns gives them back; undefined where there is no room
   */
  keepIfRoom(kind: MemoryKind, bytes: number, share: number): (() => void) | undefined {
    const more = Math.ceil(bytes / UNIT);
    return (total(this.own.counts, kind, KEPT[kind]) + more) * UNIT > this.own.mostBytes * share
      ? undefined
      : this.keep(kind, bytes);
  }

  async #room(claim: MemoryClaim): Promise<void> {
    if (this.#begins(claim)) return;
    const waiting = indexOf(this.own.place, WAITING[claim.kind]);
    const counts = claim.yields === true ? 0 : 1;
    Atomics.add(this.own.counts, waiting, counts);
    try {
      await this.#waitForRoom(claim);
    } finally {
      Atomics.sub(this.own.counts, waiting, counts);
    }
  }

  /** Whether others wait that are to begin first. */
  #mustYield({ kind, yields }: MemoryClaim): boolean {
    return yields === true && total(this.own.counts, WAITING[kind]) > 0;
  }

  /** Units that a claim needs beside what the thread has already. */
  #unitsOf({ bytes, ofThread = 0 }: MemoryClaim): number {
    return Math.ceil(bytes / UNIT) + Math.max(0, Math.ceil(ofThread / UNIT) - this.#shared);
  }

  /** Counts the claim if it has room now. */
  #begins(claim: MemoryClaim): boolean {
    const { kind, ofThread = 0, patient } = claim;
    const at = indexOf(this.own.place, kind);
    const units = this.#unitsOf(claim);
    // Looked at first, so that work that waits is counted by nobody; another may be quicker, so it
    // is looked at again
    const unused = this.#sharers === 0 ? this.#shared : 0;
    if (patient && (this.#mustYield(claim) || !this.#hasRoom(kind, units, unused))) return false;
    Atomics.add(this.own.counts, at, units);
    if (!patient || this.#hasRoom(kind, 0, units + unused)) {
      this.#shareNow(Math.ceil(ofThread / UNIT));
      return true;
    }
    Atomics.sub(this.own.counts, at, units);
    return false;
  }

  async #waitForRoom(claim: MemoryClaim): Promise<void> {
    const { kind, check, ofTask } = claim;
    let end = monotonic() + durations.memoryRoom;
    do {
      check();
      // What is at work ends by itself, and its room is there for the next of the task; whoever
      // yields waits as long as it has to
      if (ofTask?.areAtWork(kind) === true || this.#mustYield(claim))
        end = monotonic() + durations.memoryRoom;
      if (monotonic() > end || ofTask?.isRefused === true) {
        if (ofTask !== undefined) ofTask.isRefused = true;
        const needed = this.#unitsOf(claim) * UNIT;
        throw errors.overloaded(
          `Expected room for ${mebibytes(needed)} MiB of images in memory (setting memory: ${mebibytes(this.own.mostBytes)} MiB); other images held it for ${durations.memoryRoom / 1000} s. Send the request again after the time in Retry-After.`,
          { needed_bytes: needed, most_bytes: this.own.mostBytes },
        );
      }
      await delay(LOOK_MS);
    } while (!this.#begins(claim));
  }

  /**
   * Whether work of `more` units has room beside what is counted, or has it if `own` of these are
   * its own. Where nothing else of its kind is at work, even the largest begins, whatever tasks
   * keep of it: two that keep much would wait for each other.
   */
  #hasRoom(kind: MemoryKind, more: number, own = 0): boolean {
    const { counts, mostBytes } = this.own;
    if (total(counts, kind) === own) return true;
    if (kind === "images") return (totalOfAll(counts) + more) * UNIT <= mostBytes;
    return (total(counts, kind, KEPT[kind]) + more) * UNIT <= mostBytes * FILES_SHARE;
  }
}

export const mebibytes = (bytes: number): number => Math.ceil(bytes / 2 ** 20);
