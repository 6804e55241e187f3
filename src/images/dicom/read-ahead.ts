/**
 * Begins to read frames before they are asked for, while they are asked for one after the other.
 */

/**
 * Gives what `begin(index)` promises, each once, and begins the next `depth()` ones meanwhile when
 * indices follow each other. A promise that fails fails for whoever asks for its index, and for
 * nobody else.
 */
export class ReadAhead<T> {
  readonly #begun = new Map<number, Promise<T>>();
  #last = -1;

  /**
   * @param count how many there are
   * @param begin whether the index was asked for or is only expected to be is its second argument
   * @param depth how many to begin ahead of the one asked for, asked each time; 0 if that does not
   * pay
   */
  constructor(
    private readonly count: number,
    private readonly begin: (index: number, ahead: boolean) => Promise<T>,
    private readonly depth: () => number,
  ) {}

  get(index: number): Promise<T> {
    const inOrder = index === this.#last + 1;
    this.#last = index;
    if (!inOrder) this.#begun.clear();
    const begun = this.#begun.get(index);
    this.#begun.delete(index);
    // Before the one that is asked for: that may keep this thread busy
    if (inOrder) this.#beginNext(index + 1);
    return begun ?? this.begin(index, false);
  }

  #beginNext(next: number): void {
    const end = next < this.count ? Math.min(this.count, next + this.depth()) : next;
    for (let ahead = next; ahead < end; ahead++) {
      if (this.#begun.has(ahead)) continue;
      const promise = this.begin(ahead, true);
      // Nobody may ever ask for it: the request can end first
      promise.catch(() => undefined);
      this.#begun.set(ahead, promise);
    }
  }
}
