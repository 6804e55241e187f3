/** Programs that the scripts run to their end, with what they said. */
import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";

/**
 * What all programs that this one waited for took of the processor, in seconds: fields 16 and 17 of
 * proc(5), in hundredths.
 */
function processorSeconds() {
  const fields = readFileSync("/proc/self/stat", "utf8").split(") ").at(-1).split(" ");
  return (Number(fields[13]) + Number(fields[14])) / 100;
}

/**
 * Runs a program and waits for it.
 * @param options of spawnSync
 * @returns its status, null where it did not end by itself; what it wrote; the seconds it took, and
 * those of a processor
 */
export function tryProgram(program, parameters, options = {}) {
  const began = Date.now();
  const before = processorSeconds();
  const { status, stdout, stderr, error } = spawnSync(program, parameters, {
    encoding: "utf8",
    maxBuffer: 1 << 28,
    ...options,
  });
  const text = `${stdout ?? ""}${stderr ?? ""}${error?.message ?? ""}`;
  const seconds = (Date.now() - began) / 1000;
  return { status, stdout: stdout ?? "", text, seconds, processor: processorSeconds() - before };
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
