/**
 * A second clock for what is removed by its age: how long this program has run, over all its
 * starts. What is old by the time of day alone may be minutes old, because somebody has set the
 * clock; what is old by both is.
 *
 * The file has stretches in which both clocks went alike. Between two of them the program stood, or
 * the time of day jumped: that time does not count.
 */
import path from "node:path";
import { z } from "zod";
import { monotonic } from "../base/monotonic.js";
import { storedJson } from "../base/stored-json.js";
import { replacePrivately } from "./private-file.js";
import { textOfRegularSync } from "./regular-file.js";

/** How far the two may drift apart before it is a jump: daily corrections are far smaller. */
const MOST_DRIFT_MS = 60_000;
/** Stretches that are kept: a start each, and a jump each. Years of them. */
const MOST_STRETCHES = 10_000;

/** From and until, by the time of day (ms since 1970) and by the running time (ms). */
const stretchSchema = z.object({
  wall: z.number(),
  ran: z.number(),
  wallEnd: z.number(),
  ranEnd: z.number(),
});
type Stretch = z.infer<typeof stretchSchema>;

/** Clocks of this process; other ones in tests. */
export interface Clocks {
  /** Milliseconds since 1970. */
  wall: () => number;
  /** Milliseconds that nobody sets. */
  steady: () => number;
}

/** The file that the serving process ticks; its threads read it, and go on from there. */
export const runningClockOf = ({ state_dir }: { state_dir: string }): string =>
  path.join(state_dir, "clock.json");

export class RunningClock {
  readonly #stretches: Stretch[];
  #last: Stretch;
  #steady: number;

  /** @param file in which the running time is kept; made where it is missing or damaged */
  constructor(
    private readonly file: string,
    private readonly clocks: Clocks = { wall: Date.now, steady: monotonic },
  ) {
    this.#stretches = readStretches(file);
    this.#steady = clocks.steady();
    this.#last = this.#begin(clocks.wall(), this.#stretches.at(-1)?.ranEnd ?? 0);
  }

  /** Writes down that time has passed; one thread calls it again and again. It never throws. */
  tick(): void {
    this.#advance();
    try {
      replacePrivately(this.file, JSON.stringify(this.#stretches));
    } catch {
      // After the next start less time has passed, and things stay longer
    }
  }

  /**
   * The time of day before which something must have come to be older than so long by the running
   * time; undefined where nothing is.
   */
  before(ms: number): number | undefined {
    const wanted = this.#advance() - ms;
    const stretch = this.#stretches.findLast(
      ({ ran, ranEnd }) => ran <= wanted && wanted <= ranEnd,
    );
    return stretch && stretch.wall + (wanted - stretch.ran);
  }

  /** Whether what came then (ms since 1970) is older than so long, by both clocks. */
  isOlder(then: number, ms: number): boolean {
    const running = this.before(ms);
    return running !== undefined && then < running && then < this.clocks.wall() - ms;
  }

  /** @returns the running time */
  #advance(): number {
    const [wall, steady] = [this.clocks.wall(), this.clocks.steady()];
    const last = this.#last;
    const ran = last.ranEnd + Math.max(0, steady - this.#steady);
    this.#steady = steady;
    const expected = last.wall + (ran - last.ran);
    last.ranEnd = ran;
    last.wallEnd = expected;
    if (Math.abs(wall - expected) > MOST_DRIFT_MS) this.#last = this.#begin(wall, ran);
    return ran;
  }

  #begin(wall: number, ran: number): Stretch {
    const stretch = { wall, ran, wallEnd: wall, ranEnd: ran };
    this.#stretches.push(stretch);
    this.#stretches.splice(0, this.#stretches.length - MOST_STRETCHES);
    return stretch;
  }
}

function readStretches(file: string): Stretch[] {
  try {
    return z.array(stretchSchema).parse(storedJson(textOfRegularSync(file)));
  } catch {
    return [];
  }
}
