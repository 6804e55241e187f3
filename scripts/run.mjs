/** Programs that the scripts run to their end, with what they said. */
import { spawnSync } from "node:child_process";

/**
 * Runs a program and waits for it.
 * @param options of spawnSync
 * @returns its status, null where it did not end by itself; what it wrote; and the seconds it took
 */
export function tryProgram(program, parameters, options = {}) {
  const began = Date.now();
  const { status, stdout, stderr, error } = spawnSync(program, parameters, {
    encoding: "utf8",
    maxBuffer: 1 << 28,
    ...options,
  });
  const text = `${stdout ?? ""}${stderr ?? ""}${error?.message ?? ""}`;
  return { status, stdout: stdout ?? "", text, seconds: (Date.now() - began) / 1000 };
}

/** A compiler may say much; the end tells what failed. */
const LONGEST_MESSAGE = 8_000;

/** The same for a program that has to end with 0. @returns what it wrote to standard output */
export function runProgram(program, parameters, options) {
  const { status, stdout, text } = tryProgram(program, parameters, options);
  if (status === 0) return stdout;
  const what = [program, ...parameters].join(" ").slice(0, 200);
  throw new Error(`${what} failed.\n${text.slice(-LONGEST_MESSAGE)}`);
}
