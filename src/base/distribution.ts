/**
 * Numbers by their distribution, in memory that does not grow with how many they are: each is
 * counted in a bin whose bounds are 1 % apart, so that a quantile is within half a percent of the
 * value that has its rank. Sums of bins do not depend on the order of the numbers.
 */

/** The ratio of a bin's bounds. */
const RATIO = 1.01;
const LOG_RATIO = Math.log(RATIO);
/** Magnitudes below this are counted as 0. */
const SMALLEST = 1e-6;

export class Distribution {
  /** Counts by bin: 0 for 0, positive and negative numbers by their sign. */
  readonly #bins = new Map<number, number>();
  #count = 0;
  #least = Infinity;
  #most = -Infinity;

  /** Numbers that are not finite are left out. */
  add(value: number): void {
    if (!Number.isFinite(value)) return;
    const bin = binOf(value);
    this.#bins.set(bin, (this.#bins.get(bin) ?? 0) + 1);
    this.#count += 1;
    this.#least = Math.min(this.#least, value);
    this.#most = Math.max(this.#most, value);
  }

  get count(): number {
    return this.#count;
  }

  get least(): number {
    return this.#least;
  }

  get most(): number {
    return this.#most;
  }

  /**
   * The value whose rank is the share (nearest rank); undefined if there is none.
   * @param share 0.5 for the median
   */
  quantile(share: number): number | undefined {
    const rank = Math.max(1, Math.ceil(share * this.#count));
    let seen = 0;
    for (const [bin, number] of [...this.#bins].sort(([a], [b]) => a - b)) {
      seen += number;
      if (seen >= rank) return Math.min(this.#most, Math.max(this.#least, middleOf(bin)));
    }
    return undefined;
  }

  /** How many lie in each of so many equal parts of the range, which may be empty. */
  histogram(parts: number, [from, to]: readonly [number, number]): number[] {
    const counts = new Array<number>(parts).fill(0);
    const width = (to - from) / parts;
    for (const [bin, number] of this.#bins) {
      const value = Math.min(this.#most, Math.max(this.#least, middleOf(bin)));
      const part =
        width === 0 ? 0 : Math.min(parts - 1, Math.max(0, Math.floor((value - from) / width)));
      counts[part] = (counts[part] ?? 0) + number;
    }
    return counts;
  }
}

/** The first bin of positive numbers has the number 1. */
function binOf(value: number): number {
  const size = Math.abs(value);
  if (size < SMALLEST) return 0;
  const bin = Math.floor(Math.log(size / SMALLEST) / LOG_RATIO) + 1;
  return value < 0 ? -bin : bin;
}

function middleOf(bin: number): number {
  if (bin === 0) return 0;
  return Math.sign(bin) * SMALLEST * RATIO ** (Math.abs(bin) - 0.5);
}
