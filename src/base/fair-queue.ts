/**
 * Tasks that wait for a thread: first come, first served, but whoever has many waiting takes turns
 * with the others.
 */

export class FairQueue<T> {
  /** Goes before everything else. */
  readonly #first: T[] = [];
  /** Waiting entries by subject; the subject whose turn is next stands first. */
  readonly #turns = new Map<string, T[]>();
  #length = 0;

  get length(): number {
    return this.#length;
  }

  /** @param owner whose it is; owners take turns */
  add(entry: T, owner: string): void {
    const own = this.#turns.get(owner);
    if (own === undefined) this.#turns.set(owner, [entry]);
    else own.push(entry);
    this.#length += 1;
  }

  /** Puts an entry before all others. */
  addFirst(entry: T): void {
    this.#first.unshift(entry);
    this.#length += 1;
  }

  /**
   * Takes out the next entry that fits; an owner whose next one does not keeps its turn, and others
   * go before it.
   */
  take(fits: (entry: T) => boolean): T | undefined {
    for (const [owner, entries] of [[undefined, this.#first] as const, ...this.#turns]) {
      const [entry] = entries;
      if (entry === undefined || !fits(entry)) continue;
      entries.shift();
      this.#length -= 1;
      if (owner !== undefined) {
        this.#turns.delete(owner);
        if (entries.length > 0) this.#turns.set(owner, entries);
      }
      return entry;
    }
    return undefined;
  }

  /** Takes out the first entry that fits. */
  remove(fits: (entry: T) => boolean): T | undefined {
    for (const [owner, entries] of [[undefined, this.#first] as const, ...this.#turns]) {
      const at = entries.findIndex(fits);
      if (at === -1) continue;
      const [entry] = entries.splice(at, 1);
      this.#length -= 1;
      if (entries.length === 0 && owner !== undefined) this.#turns.delete(owner);
      return entry;
    }
    return undefined;
  }
}
