/** How many bytes may be in memory at once. */

interface Claim {
  bytes: number;
  begin: () => void;
}

/** Work whose bytes have no room waits, first come first served; alone, even the largest work begins. */
export class MemoryBudget {
  #used = 0;
  readonly #claims: Claim[] = [];

  constructor(private readonly most: number) {}

  /** Does the work when its bytes have room. Throws what the work throws. */
  async within<T>(bytes: number, work: () => Promise<T>): Promise<T> {
    await new Promise<void>((begin) => {
      this.#claims.push({ bytes, begin });
      this.#admit();
    });
    try {
      return await work();
    } finally {
      this.#used -= bytes;
      this.#admit();
    }
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
