/**
 * How far ahead a node takes items: as many as it ends in a quarter of a second, beyond those that
 * its threads work on. So the database is asked a few times a second however fast images are, and a
 * node that dies leaves little more behind than a quarter of a second's work, which runs again one
 * by one.
 */
import { durations } from "../base/durations.js";

/** Most items that are taken beyond those that the threads work on. */
const MOST_AHEAD = 128;
/**
 * If all cores are busy with images, writing results down and taking more items lasts this share of
 * that time.
 */
const LEAD = 1 / 5;

export class LookAhead {
  #perSecond = 0;
  #since = performance.now();

  /** @param least items that keep all threads busy */
  constructor(private readonly least: number) {}

  /** @param items how many have ended since the last call */
  ended(items: number): void {
    const now = performance.now();
    const seconds = Math.max(now - this.#since, 1) / 1000;
    this.#since = now;
    // The rate after a pause says little, that of a whole round says enough
    const share = Math.min(1, (seconds * 1000) / durations.itemsAhead) / 2;
    this.#perSecond += share * (items / seconds - this.#perSecond);
  }

  /** With fewer items than these, the database is asked for more: then no thread waits for one. */
  get low(): number {
    return this.least + this.#within(LEAD * durations.itemsAhead);
  }

  /** Items to have at once, those that run included. */
  get most(): number {
    return this.low + this.#within(durations.itemsAhead);
  }

  #within(milliseconds: number): number {
    return Math.min(MOST_AHEAD, Math.floor((this.#perSecond * milliseconds) / 1000));
  }
}
