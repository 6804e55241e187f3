/** What was shown last, by the addresses that it came from: who wheels back sees it at once. */

const MOST = 48;

export class Kept<T> {
  readonly #all = new Map<string, T>();

  /** @param drop frees what is not kept any longer */
  constructor(private readonly drop: (value: T) => void = () => undefined) {}

  async get(page: string, load: () => Promise<T>): Promise<T> {
    const known = this.#all.get(page);
    if (known !== undefined) return known;
    const value = await load();
    this.#all.set(page, value);
    const [oldest] = this.#all;
    if (this.#all.size > MOST && oldest !== undefined) {
      this.drop(oldest[1]);
      this.#all.delete(oldest[0]);
    }
    return value;
  }

  forget(): void {
    for (const value of this.#all.values()) this.drop(value);
    this.#all.clear();
  }
}
