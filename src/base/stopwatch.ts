/** Times of one request's steps, on the monotonic clock. */
export class Stopwatch {
  /** ISO 8601, UTC, to the millisecond. */
  readonly startedAt: string;
  /** This machine's offset from UTC then, as DICOM writes it: "+0100". */
  readonly utcOffset: string;
  readonly #began = performance.now();
  #last = this.#began;
  readonly #laps = new Map<string, number>();

  /**
   * @param startedAt when the work was admitted, where that was before now
   * @param utcOffset of the machine where it was, where that is another
   */
  constructor(startedAt?: string, utcOffset?: string) {
    const start = startedAt === undefined ? new Date() : new Date(startedAt);
    this.startedAt = start.toISOString();
    this.utcOffset = utcOffset ?? localOffset(start);
  }

  /** Adds the time since the last lap to a step. */
  lap(step: string): void {
    const now = performance.now();
    this.add(step, now - this.#last);
    this.#last = now;
  }

  /** Adds milliseconds measured elsewhere; no lap is ended by it. */
  add(step: string, milliseconds: number): void {
    this.#laps.set(step, (this.#laps.get(step) ?? 0) + milliseconds);
  }

  /** Milliseconds by step, in the order of their first lap, to the microsecond. */
  laps(): Record<string, number> {
    return Object.fromEntries(
      [...this.#laps].map(([step, ms]) => [step, Math.round(ms * 1000) / 1000]),
    );
  }

  /** Milliseconds since the start. */
  total(): number {
    return Math.round((performance.now() - this.#began) * 1000) / 1000;
  }
}

function localOffset(at: Date): string {
  const minutes = -at.getTimezoneOffset();
  const size = Math.abs(minutes);
  const two = (n: number) => String(n).padStart(2, "0");
  return `${minutes < 0 ? "-" : "+"}${two(Math.floor(size / 60))}${two(size % 60)}`;
}
