/** The rate of each subject: a token bucket that holds ten seconds' worth. */
import { RadserveError } from "../base/errors.js";

const BURST_SECONDS = 10;
const MOST_SUBJECTS = 10_000;

export class RateLimit {
  readonly #buckets = new Map<string, { left: number; at: number }>();

  /** @param perSecond requests a second; 0: no limit */
  constructor(private readonly perSecond: number) {}

  /** Counts one request. Throws rate_limited where the subject has none left. */
  take(subject: string, now = performance.now()): void {
    if (this.perSecond === 0) return;
    const most = Math.max(1, this.perSecond * BURST_SECONDS);
    const before = this.#buckets.get(subject) ?? { left: most, at: now };
    const left = Math.min(most, before.left + ((now - before.at) / 1000) * this.perSecond);
    if (left < 1) {
      const wait = Math.ceil((1 - left) / this.perSecond);
      throw new RadserveError(
        "rate_limited",
        `Expected at most ${this.perSecond} requests a second of one subject; found more. Send the next in ${wait} s.`,
        { retry_after: wait },
      );
    }
    // Deleting first keeps the map in the order of last use, so that the first is the one to forget.
    this.#buckets.delete(subject);
    this.#buckets.set(subject, { left: left - 1, at: now });
    if (this.#buckets.size > MOST_SUBJECTS) {
      const [oldest] = this.#buckets.keys();
      if (oldest !== undefined) this.#buckets.delete(oldest);
    }
  }
}
