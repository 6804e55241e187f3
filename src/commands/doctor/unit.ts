/** The unit of systemd that runs the server, where this machine has one. */
import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { durations } from "../../base/durations.js";
import { longestStopSeconds, type Config } from "../../config.js";
import { bad, good, type Diagnosis } from "./finding.js";

const UNIT = "radserve";
const WORDS = ["show", UNIT, "--property=LoadState,TimeoutStopUSec"];

/** How systemd writes spans of time (systemd.time(7)), in seconds. */
const SPANS: Readonly<Record<string, number>> = {
  us: 1e-6,
  ms: 1e-3,
  s: 1,
  min: 60,
  h: 3600,
  d: 86_400,
  w: 7 * 86_400,
};

/** "1min 30s"; without end for "infinity". */
function secondsOf(span: string): number {
  const parts = [...span.matchAll(/(?<![\d.])([\d.]+)(us|ms|s|min|h|d|w)\b/g)];
  if (parts.length === 0) return Infinity;
  return parts.reduce(
    (sum, [, number, word = "s"]) => sum + Number(number) * (SPANS[word] ?? 1),
    0,
  );
}

/** Whether systemd waits for an orderly stop before it kills what is left. */
export async function unit(config: Config): Promise<Diagnosis[]> {
  // Without systemctl, without a systemd that runs, and without the unit there is nothing to say
  const { stdout } = await promisify(execFile)("systemctl", WORDS, {
    timeout: durations.commandAnswer,
  }).catch(() => ({ stdout: "" }));
  const span = /^TimeoutStopUSec=(.*)$/m.exec(stdout)?.[1];
  if (span === undefined || !/^LoadState=loaded$/m.test(stdout)) return [];
  const needed = longestStopSeconds(config);
  if (secondsOf(span) >= needed) return [good("unit", `systemd waits ${span} for a stop`)];
  return [
    bad(
      "unit",
      `systemd kills the server ${span} after a stop began, and the settings allow ${needed} s (RADSERVE_DRAIN_SECONDS, RADSERVE_GRACE_SECONDS): accepted work may be lost`,
      `Run systemctl edit ${UNIT}, and set TimeoutStopSec=${needed + 60} under [Service]; or lower the two settings.`,
    ),
  ];
}
