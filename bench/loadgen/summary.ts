/** What the summary of MLCommons' loadgen says, in one unit. */

export type Scenario = "SingleStream" | "Server" | "Offline";

/** Names and values of its lines. */
export type Summary = Readonly<Record<string, string>>;

export interface Figures {
  /** Of SingleStream the generator tells one only: a second by the mean of its latencies. */
  samples_per_second?: number;
  /** Offline has none: all its samples are asked for at the same time. */
  p50_ms?: number;
  p90_ms?: number;
  p99_ms?: number;
  /**
   * 1 where the generator found that the run kept its rules: long enough, and in Server as fast as
   * wanted.
   */
  valid: 0 | 1;
}

/** Under which name each scenario has its rate. */
const RATES: Record<Scenario, string> = {
  SingleStream: "QPS w/o loadgen overhead",
  Server: "Completed samples per second",
  Offline: "Samples per second",
};

/** Throws where a line is missing. */
export function figuresOf(scenario: Scenario, summary: Summary): Figures {
  const number = (name: string): number => {
    const found = Number(summary[name]);
    if (!Number.isFinite(found))
      throw new Error(
        `Expected a number behind "${name}" in the summary, found ${summary[name] ?? "nothing"}.`,
      );
    return found;
  };
  const ms = (share: string) => number(`${share} percentile latency (ns)`) / 1e6;
  const latencies =
    scenario === "Offline" ? {} : { p50_ms: ms("50.00"), p90_ms: ms("90.00"), p99_ms: ms("99.00") };
  const valid = summary["Result is"] === "VALID" ? 1 : 0;
  return { samples_per_second: number(RATES[scenario]), ...latencies, valid };
}
