/** The last hour, minute by minute: images, failures, and how long single requests took. */
import { z } from "zod";
import { Distribution } from "../base/distribution.js";

const MINUTE_MS = 60_000;
const MINUTES = 60;
const SINGLE = "POST /single_inference";

export const minuteSchema = z.strictObject({
  at: z.iso.datetime().describe("Begin of the minute"),
  images: z
    .int()
    .min(0)
    .describe("Images that ended well, of single requests and of jobs, on this server"),
  failed: z.int().min(0).describe("Images that failed"),
  p50_ms: z.number().nullable().describe("Half of the single requests took less; within 10 %"),
  p95_ms: z.number().nullable(),
});
type MinuteShown = z.infer<typeof minuteSchema>;

interface HistoryMinute {
  images: number;
  failed: number;
  /** Milliseconds of single requests that were answered. */
  durations: Distribution;
}

/** Milliseconds; null where there are none. */
function quantile(durations: Distribution | undefined, share: number): number | null {
  const found = durations?.quantile(share);
  return found === undefined ? null : Math.round(found * 10) / 10;
}

/** Items of jobs that ended well or not, by their state. */
type EndedImage = Readonly<Record<string, number>>;

export class History {
  readonly #minutes = new Map<number, HistoryMinute>();
  #before: EndedImage = {};

  /** @param ended items of jobs since this process began */
  constructor(private readonly ended: () => EndedImage) {}

  answered(route: string, status: number, ms: number): void {
    if (route !== SINGLE) return;
    const minute = this.#now();
    if (status === 200) {
      minute.images += 1;
      minute.durations.add(ms);
    } else minute.failed += 1;
  }

  /** Counts the items of jobs that ended since the last look; called several times in a minute. */
  look(): void {
    const now = this.ended();
    const more = (state: string) => Math.max(0, (now[state] ?? 0) - (this.#before[state] ?? 0));
    const [images, failed] = [more("succeeded") + more("partial"), more("failed")];
    this.#before = now;
    if (images + failed === 0) return;
    const minute = this.#now();
    minute.images += images;
    minute.failed += failed;
  }

  /** The last sixty minutes, the present one last. */
  shown(): MinuteShown[] {
    this.look();
    const last = Math.floor(Date.now() / MINUTE_MS);
    return Array.from({ length: MINUTES }, (_, i) => {
      const at = last - MINUTES + 1 + i;
      const { images = 0, failed = 0, durations } = this.#minutes.get(at) ?? {};
      return {
        at: new Date(at * MINUTE_MS).toISOString(),
        images,
        failed,
        p50_ms: quantile(durations, 0.5),
        p95_ms: quantile(durations, 0.95),
      };
    });
  }

  #now(): HistoryMinute {
    const at = Math.floor(Date.now() / MINUTE_MS);
    const known = this.#minutes.get(at);
    if (known !== undefined) return known;
    const minute = { images: 0, failed: 0, durations: new Distribution() };
    this.#minutes.set(at, minute);
    for (const old of this.#minutes.keys()) if (old <= at - MINUTES) this.#minutes.delete(old);
    return minute;
  }
}
