/**
 * Guessing of tokens is slowed: once an address has had so many refused within a minute, each
 * further 401 to it comes a second later. A good token is judged as ever and never waits, also one
 * from the same address.
 */
import { durations } from "../base/durations.js";
import type { ServerResponse } from "node:http";
import { limitedAs } from "./client-address.js";

const WINDOW_MS = 60_000;
/**
 * Answers that wait, of one address and in all; more are given at once, so that waiting ones cost
 * no memory.
 */
const MOST_WAITING_OF_ADDRESS = 32;
const MOST_WAITING = 512;
/** Addresses that are remembered; beyond them the one that failed longest ago is forgotten. */
const MOST_ADDRESSES = 10_000;

interface Failures {
  count: number;
  /** When the window of the count began, by performance.now(). */
  since: number;
  waiting: number;
}

export class FailedTokens {
  readonly #failures = new Map<string, Failures>();
  #waiting = 0;

  /** @param most refused tokens of one address within a minute that are answered at once; 0: all */
  constructor(private readonly most: number) {}

  /**
   * Counts a refused token, and resolves when it may be answered.
   * @param address of the client; undefined where it has gone
   * @param answer its end, too, ends the waiting
   */
  async slow(address: string | undefined, answer: ServerResponse): Promise<void> {
    if (this.most === 0 || address === undefined) return;
    const failures = this.#count(limitedAs(address));
    if (failures.count <= this.most) return;
    if (failures.waiting >= MOST_WAITING_OF_ADDRESS || this.#waiting >= MOST_WAITING) return;
    failures.waiting += 1;
    this.#waiting += 1;
    await new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, durations.refusedToken);
      answer.once("close", () => {
        clearTimeout(timer);
        resolve();
      });
    });
    failures.waiting -= 1;
    this.#waiting -= 1;
  }

  #count(address: string): Failures {
    const now = performance.now();
    const known = this.#failures.get(address);
    const failures = known ?? { count: 0, since: now, waiting: 0 };
    if (now - failures.since >= WINDOW_MS) Object.assign(failures, { count: 0, since: now });
    failures.count += 1;
    // Deleting first keeps the map in the order of last failures, so that the first is the one to
    // forget.
    this.#failures.delete(address);
    this.#failures.set(address, failures);
    if (this.#failures.size > MOST_ADDRESSES) {
      const [oldest] = this.#failures.keys();
      if (oldest !== undefined) this.#failures.delete(oldest);
    }
    return failures;
  }
}
