/**
 * How many bytes of images all threads of the process may work on at once. Each thread has a place of its own in shared
 * memory where it counts its own; so what a thread held that was ended in the middle can be taken back.
 */
import os from "node:os";
import { setTimeout as delay } from "node:timers/promises";
import { RadserveError } from "./errors.js";

/** A place holds a count of these many bytes. */
const UNIT = 1 << 16;
/** How often work that waits looks for room. */
const LOOK_MS = 20;
/** How long work waits for room before it is refused. */
const LONGEST_WAIT_MS = 10_000;
const USUAL_SHARE = 0.5;
/** Places beside those of the threads that live. */
const SPARE = 64;

/** The share of this machine's memory, or of its control group's limit, that images may take unless a setting says it. */
export function usualMemory(): number {
  // process.constrainedMemory() is 0, or more than there is, where no limit is set
  const limit = process.constrainedMemory();
  const most = limit > 0 ? Math.min(limit, os.totalmem()) : os.totalmem();
  return Math.floor(most * USUAL_SHARE);
}

/** Counts of all threads; a place that was given back may fall below zero for a moment. */
export class MemoryPlaces {
  readonly counts: Int32Array;
  /** In the order in which they came back: the last moments of an ended thread are over when its place is taken again. */
  readonly #free: number[];

  /** @param most threads that live at once */
  constructor(most: number) {
    const places = most + SPARE;
    this.counts = new Int32Array(new SharedArrayBuffer(places * Int32Array.BYTES_PER_ELEMENT));
    this.#free = Array.from({ length: places }, (_, place) => place);
  }

  /** The number of a place that nobody uses. */
  take(): number {
    const place = this.#free.shift();
    if (place === undefined) throw new RangeError("More threads live at once than there are places");
    Atomics.store(this.counts, place, 0);
    return place;
  }

  /** What the thread of that place held is free. */
  giveBack(place: number): void {
    Atomics.store(this.counts, place, 0);
    this.#free.push(place);
  }

  /** Bytes that all threads hold. */
  get bytes(): number {
    return total(this.counts) * UNIT;
  }
}

function total(counts: Int32Array): number {
  let sum = 0;
  for (let place = 0; place < counts.length; place++) sum += Math.max(0, Atomics.load(counts, place));
  return sum;
}

/** The memory of the process as one thread sees it. */
export class ProcessMemory {
  constructor(
    private readonly counts: Int32Array,
    private readonly place: number,
    private readonly mostBytes: number,
  ) {}

  /**
   * Does the work when its bytes have room; alone in the process, even the largest begins.
   * @param patient false: it begins at once, and is counted
   * @param check asked while the work waits; what it throws ends the waiting
   * @throws RadserveError overloaded if there was no room for ten seconds; what the work throws
   */
  async within<T>(bytes: number, patient: boolean, check: () => void, work: () => Promise<T>): Promise<T> {
    const units = Math.ceil(bytes / UNIT);
    await this.#room(units, patient, check);
    try {
      return await work();
    } finally {
      Atomics.sub(this.counts, this.place, units);
    }
  }

  async #room(units: number, patient: boolean, check: () => void): Promise<void> {
    const end = Date.now() + LONGEST_WAIT_MS;
    for (;;) {
      Atomics.add(this.counts, this.place, units);
      const all = total(this.counts);
      if (!patient || all * UNIT <= this.mostBytes || all === units) return;
      Atomics.sub(this.counts, this.place, units);
      check();
      if (Date.now() > end)
        throw new RadserveError(
          "overloaded",
          `Expected room for ${mebibytes(units * UNIT)} MiB of images in memory (setting memory: ${mebibytes(this.mostBytes)} MiB); other images held it for ${LONGEST_WAIT_MS / 1000} s. Send the request again after the time in Retry-After.`,
          { needed_bytes: units * UNIT, most_bytes: this.mostBytes },
        );
      await delay(LOOK_MS);
    }
  }
}

const mebibytes = (bytes: number): number => Math.ceil(bytes / 2 ** 20);
