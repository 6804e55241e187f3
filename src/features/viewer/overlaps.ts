/**
 * Pixels that several segments share: a lesion within an organ. Stripes show all of them, as in the
 * picture that is written (native/picture/marks.cc): no segment hides another.
 */
import type { ResultMarks } from "./messages.js";

/** Width of a stripe, in pixels along a row. */
const STRIPE = 4;
/** Segments are numbered in 16 bits (PS3.3 C.8.20.4). */
const NUMBERS = 0x1_0000;

export class Overlaps {
  /** Numbers of the segments that some pixel shares; the first has none. */
  readonly #sets: number[][] = [[]];
  /** The set that one becomes with a number more, by both. */
  readonly #grown = new Map<number, number>();
  /** The set of each pixel; absent until a pixel is shared. */
  #setOf: Uint32Array | undefined;

  constructor(private readonly size: { rows: number; columns: number }) {}

  /**
   * Segments that share a pixel are added in the order of their numbers.
   * @param sharing how many they are in the end
   * @returns whether the stripe that the pixel lies in is this segment's
   */
  add(at: number, segment: number, sharing: number): boolean {
    const { rows, columns } = this.size;
    const setOf = (this.#setOf ??= new Uint32Array(rows * columns));
    const before = setOf[at] ?? 0;
    setOf[at] = this.#with(before, segment);
    const stripe = Math.floor(((at % columns) + Math.floor(at / columns)) / STRIPE);
    return stripe % sharing === this.#sets[before]?.length;
  }

  #with(set: number, segment: number): number {
    const key = set * NUMBERS + segment;
    const known = this.#grown.get(key);
    if (known !== undefined) return known;
    const next = this.#sets.push([...(this.#sets[set] ?? []), segment]) - 1;
    this.#grown.set(key, next);
    return next;
  }

  /** The sets that pixels have in the end, with those pixels. */
  told(): ResultMarks["overlaps"] {
    const setOf = this.#setOf ?? new Uint32Array(0);
    const found = new Map<number, number[]>();
    for (let at = 0, end = 0; at < setOf.length; at = end) {
      const set = setOf[at] ?? 0;
      while (end < setOf.length && setOf[end] === set) end++;
      if (set === 0) continue;
      const runs = found.get(set) ?? [];
      runs.push(at, end - at);
      found.set(set, runs);
    }
    return [...found].map(([set, runs]) => ({ segments: this.#sets[set] ?? [], runs }));
  }
}
