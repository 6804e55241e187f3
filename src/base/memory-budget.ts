/** How many bytes may be in memory at once. */
import { asRadserveError } from "./errors.js";

interface WaitingClaim {
  bytes: number;
  begin: () => void;
  /** Runs while it waits. */
  checking?: NodeJS.Timeout;
}

/** How often work that waits asks whether it still should. */
const CHECK_MS = 100;

/**
 * Work whose bytes have no room waits, first come first served; alone, even the largest work
 * begins.
 */
export class MemoryBudget {
  #used = 0;
  readonly #claims: WaitingClaim[] = [];

  constructor(private readonly most: number) {}

  /**
   * Does the work when its bytes have room. Throws what the work throws.
   * @param check asked while the work waits; the RadserveError that it throws ends the waiting
   */
  async within<T>(
    bytes: number,
    work: () => Promise<T>,
    check: () => void = () => undefined,
  ): Promise<T> {
    await this.#room(bytes, check);
    try {
      return await work();
    } finally {
      this.#used -= bytes;
      this.#admit();
    }
  }

  #room(bytes: number, check: () => void): Promise<void> {
    return new Promise<void>((resolve, reject) => {
      const claim: WaitingClaim = {
        bytes,
        begin: () => {
          clearInterval(claim.checking);
          resolve();
        },
      };
      this.#claims.push(claim);
      this.#admit();
      if (!this.#claims.includes(claim)) return;
      claim.checking = setInterval(() => {
        try {
          check();
        } catch (error) {
          clearInterval(claim.checking);
          this.#claims.splice(this.#claims.indexOf(claim), 1);
          reject(asRadserveError(error));
          this.#admit();
        }
      }, CHECK_MS);
    });
  }

  #admit(): void {
    for (let next = this.#claims[0]; next !== undefined; next = this.#claims[0]) {
      if (this.#used > 0 && this.#used + next.bytes > this.most) return;
      this.#claims.shift();
      this.#used += next.bytes;
      next.begin();
    }
  }
}
