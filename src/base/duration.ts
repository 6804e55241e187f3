/** Lengths of time as people write them in settings and options. */

const UNITS: Record<string, number> = {
  s: 1,
  m: 60,
  h: 3600,
  d: 86400,
  w: 7 * 86400,
  y: 365 * 86400,
};

/** A century: beyond it dates leave what programs take, and no token should live that long. */
const LONGEST_DURATION = 100 * 365 * 86400;

/** "365d", "12h", "90m": seconds; undefined where it is no such text, or more than 100 years. */
export function parseDuration(text: string): number | undefined {
  const match = /^(\d{1,9})\s*([smhdwy])$/.exec(text.trim());
  const seconds = Number(match?.[1]) * (UNITS[match?.[2] ?? ""] ?? NaN);
  return seconds > 0 && seconds <= LONGEST_DURATION ? seconds : undefined;
}

/**
 * "400 days", "90 minutes", "1 second": in the largest unit of days, hours, minutes and seconds
 * that is whole.
 */
export function durationText(seconds: number): string {
  const [unit, name] = (
    [
      [86400, "day"],
      [3600, "hour"],
      [60, "minute"],
    ] as const
  ).find(([length]) => seconds % length === 0) ?? [1, "second"];
  const count = seconds / unit;
  return `${count} ${name}${count === 1 ? "" : "s"}`;
}
