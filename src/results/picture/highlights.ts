/**
 * Which frames of many a picture shows: those with most marked, spread evenly over all that have
 * anything marked, or over all frames if none has. They are chosen while frames go by, so that only
 * a few of them are ever kept.
 */

/** Frames that fit one picture. */
const MOST = 12;

export interface Highlight<T> {
  /** Index in the image, from 0. */
  frame: number;
  weight: number;
  value: T;
}

export class Highlights<T> {
  /** Each is the heaviest of `#size` neighbours; the last one, of those offered since. */
  #kept: Highlight<T>[] = [];
  #size = 1;
  /** The number of frames that the last one stands for. */
  #filled = 0;
  #marked = false;

  /** Frames come in their order; the first of equal weight is kept. */
  offer(candidate: Highlight<T>): void {
    const marked = candidate.weight > 0;
    if (this.#marked && !marked) return;
    if (marked && !this.#marked) {
      this.#marked = true;
      this.#kept = [];
      this.#size = 1;
    }
    const last = this.#kept.at(-1);
    if (last === undefined || this.#filled === this.#size) {
      if (this.#kept.length === 2 * MOST) this.#halve();
      this.#kept.push(candidate);
      this.#filled = 1;
      return;
    }
    this.#filled += 1;
    if (candidate.weight > last.weight) this.#kept.splice(-1, 1, candidate);
  }

  /** The chosen frames in their order, at most twelve; empty if none was offered. */
  chosen(): Highlight<T>[] {
    const all = this.#kept;
    const count = Math.min(MOST, all.length);
    const spread = (i: number) => all[Math.round((i * (all.length - 1)) / Math.max(count - 1, 1))];
    const heaviestOf = (i: number) =>
      heaviest(
        all.slice(Math.floor((i * all.length) / count), Math.floor(((i + 1) * all.length) / count)),
      );
    const choose = this.#marked ? heaviestOf : spread;
    return Array.from({ length: count }, (_, i) => choose(i)).filter(
      (highlight) => highlight !== undefined,
    );
  }

  #halve(): void {
    const pairs = Array.from({ length: MOST }, (_, i) => this.#kept.slice(2 * i, 2 * i + 2));
    this.#kept = pairs.flatMap((pair) => heaviest(pair) ?? []);
    this.#size *= 2;
  }
}

function heaviest<T>(run: readonly Highlight<T>[]): Highlight<T> | undefined {
  return run.reduce<Highlight<T> | undefined>(
    (best, candidate) => (best === undefined || candidate.weight > best.weight ? candidate : best),
    undefined,
  );
}
