/**
 * How far ahead a box takes items: as many as it ends in a quarter of a second, beyond those that its threads work on.
 * So the database is asked a few times a second however fast images are, and a box that dies leaves little more behind
 * than a quarter of a second's work, which runs again one by one.
 */

/** How far ahead items are taken, and how long those that ended wait to be written down together. */
export const ROUND_MS = 250;
/** Most items that are taken beyond those that the threads work on. */
const MOST_AHEAD = 128;
/** Writing down what has ended and taking more lasts as long where all cores are busy with images. */
const LEAD_MS = 50;

export class Pace {
  #perSecond = 0;
  #since = performance.now();

  /** @param least items that keep all threads busy */
  constructor(private readonly least: number) {}

  /** @param items how many have ended since the last call */
  ended(items: number): void {
    const now = performance.now();
    const seconds = Math.max(now - this.#since, 1) / 1000;
    this.#since = now;
    // What ended after a pause says little, a whole round says enough
    const share = Math.min(1, (seconds * 1000) / ROUND_MS) / 2;
    this.#perSecond += share * (items / seconds - this.#perSecond);
  }

  /** With fewer items than these, the database is asked for more: then the threads wait for none. */
  get low(): number {
    return this.least + this.#within(LEAD_MS);
  }

  /** Items to have at once, those that run included. */
  get most(): number {
    return this.low + this.#within(ROUND_MS);
  }

  #within(milliseconds: number): number {
    return Math.min(MOST_AHEAD, Math.floor((this.#perSecond * milliseconds) / 1000));
  }
}
