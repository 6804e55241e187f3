/**
 * The log: JSON lines on standard output, and on standard error where no person reads it. It says
 * which request, who, what came of it and how long it took; never a path, a file name, a token or a
 * patient. Input and output paths can hold patients' names.
 */
import { createInterface } from "node:readline";
import type { Readable } from "node:stream";
import { pino, type Logger, type LoggerOptions } from "pino";
import { faultForLog, withoutNames } from "./fault.js";

export { faultForLog };
export type { Logger } from "pino";

const SECRET = [
  "authorization",
  "token",
  "secret",
  "input_image_path",
  "output_folder_path",
  "input_folder_path",
  "receipt_path",
  "path",
];

/**
 * Bytes that a pipe takes in one piece (PIPE_BUF): two processes share the output, and their lines
 * must not mix.
 */
const LARGEST_WRITE = 4096;

/** Most that waits for a slow reader or for room on the disk; lines beyond it are lost. */
const MOST_WAITING = 4 * 1024 * 1024;

/**
 * A logger on standard output. A reader that is slow does not hold up the thread that logs, and a
 * log that cannot be written (its disk is full) does not end the service: what waits is written
 * once there is room.
 */
export const createLog = (level: string): Logger => loggerOn(outputThatMayFail(), level);

/** One line of a process that ends at once. */
export function logLast(fields: object, message: string): void {
  const output = pino.destination({ fd: 1, sync: true });
  output.on("error", () => undefined);
  loggerOn(output, "fatal").fatal(fields, message);
}

/**
 * Sentences for whoever starts a server: as they are on a terminal, and as a line of JSON anywhere
 * else.
 */
export function tellPeople(text: string): void {
  if (process.stderr.isTTY) process.stderr.write(`${text}\n`);
  else loggerOn(pino.destination({ fd: 2, sync: true }), "info").info(text);
}

/**
 * Logs what Node.js and native libraries say by themselves on a standard error, line by line and
 * without names.
 */
export function logForeign(stream: Readable, log: Logger, pid: number | undefined): void {
  createInterface({ input: stream }).on("line", (line) => {
    if (line.trim() !== "") log.warn({ from: pid, said: withoutNames(line) }, "on standard error");
  });
}

/** Logs warnings of Node.js in this process, in place of the text that it would print. */
export function logWarnings(log: Logger): void {
  process.removeAllListeners("warning");
  process.on("warning", (warning) =>
    log.warn({ fault: faultForLog(warning) }, "warning of Node.js"),
  );
}

type Output = ReturnType<typeof pino.destination>;

function outputThatMayFail(): Output {
  const output = pino.destination({
    fd: 1,
    sync: false,
    maxWrite: LARGEST_WRITE,
    maxLength: MOST_WAITING,
  });
  let failing = false;
  output.on("error", () => (failing = true)).on("write", () => (failing = false));
  // At the end of the process pino calls this, which tries again for ever.
  const flushSync = output.flushSync.bind(output);
  output.flushSync = () => {
    if (!failing) flushSync();
  };
  return output;
}

function loggerOn(output: Output, level: string): Logger {
  const options: LoggerOptions = {
    level,
    base: { pid: process.pid },
    timestamp: pino.stdTimeFunctions.isoTime,
    redact: { paths: SECRET.flatMap((name) => [name, `*.${name}`]), censor: "[redacted]" },
    formatters: { level: (label) => ({ level: label }) },
  };
  return pino(options, output);
}
