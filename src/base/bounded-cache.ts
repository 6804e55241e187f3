/** A thread's memory of what it made before, bounded: equal keys mean equal values, so that nothing depends on it. */

/** Values by key; once all together cost more than allowed, those go that were asked for longest ago. */
export class Kept<V> {
  readonly #entries = new Map<string, V>();
  #cost = 0;

  /**
   * @param most what all values together may cost
   * @param costOf one value, always the same, in bytes; one that costs more than a sixteenth of all is not kept
   */
  constructor(
    private readonly most: number,
    private readonly costOf: (value: V, key: string) => number,
  ) {}

  find(key: string): V | undefined {
    const known = this.#entries.get(key);
    if (known === undefined) return undefined;
    this.#entries.delete(key);
    this.#entries.set(key, known);
    return known;
  }

  keep(key: string, value: V): void {
    const cost = this.costOf(value, key);
    if (cost > this.most / 16) return;
    const before = this.#entries.get(key);
    this.#cost += cost - (before === undefined ? 0 : this.costOf(before, key));
    this.#entries.set(key, value);
    for (const [oldest, entry] of this.#entries) {
      if (this.#cost <= this.most) break;
      this.#entries.delete(oldest);
      this.#cost -= this.costOf(entry, oldest);
    }
  }

  /** The value of a key, made where it is not kept. The key has to say everything that `make` depends on. */
  get(key: string, make: () => V): V {
    const known = this.find(key);
    if (known !== undefined) return known;
    const value = make();
    this.keep(key, value);
    return value;
  }
}
