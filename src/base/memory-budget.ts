/** How much of something may be held at once. */

interface Waiting {
  bytes: number;
  begin: () => void;
}

/** Whoever would hold more than there is room for waits for those before, first come first served; alone all may begin. */
export class HeldBytes {
  #held = 0;
  readonly #waiting: Waiting[] = [];

  constructor(private readonly most: number) {}

  /** Does the work when its bytes have room. Throws what the work throws. */
  async within<T>(bytes: number, work: () => Promise<T>): Promise<T> {
    await new Promise<void>((begin) => {
      this.#waiting.push({ bytes, begin });
      this.#admit();
    });
    try {
      return await work();
    } finally {
      this.#held -= bytes;
      this.#admit();
    }
  }

  #admit(): void {
    for (let next = this.#waiting[0]; next !== undefined; next = this.#waiting[0]) {
      if (this.#held > 0 && this.#held + next.bytes > this.most) return;
      this.#waiting.shift();
      this.#held += next.bytes;
      next.begin();
    }
  }
}
