/** How every command ends: its exit status, and where its words go. */
import { z } from "zod";
import { leave } from "../addon/confine.js";
import { clearActivity } from "./activity.js";
import { ConfigError, PassingFault, asRadserveError, type RadserveError } from "../base/errors.js";
import { errno } from "../base/errno.js";
import { faultForLog } from "../base/fault.js";
import { harmless } from "../base/harmless.js";
import { READ_ONLY_REMEDY, REFUSED } from "../files/path-judgement.js";

/**
 * 0: done; 1: failed, and standard error says why; 2: wrongly called, configured or refused; 130:
 * interrupted.
 */
export type ExitStatus = 0 | 1 | 2 | 130;

/** The option of every command that can print for programs. */
export interface JsonOption {
  json?: boolean;
}

export interface HowRun {
  json?: boolean | undefined;
  /** A unit of systemd starts it again, unless it ends with status 2. */
  startsAgain?: boolean;
}

/**
 * Runs a command. An error is told in sentences on standard error, or as its object on standard
 * output where `json` asked for it.
 */
export async function run(command: () => Promise<number>, how: HowRun = {}): Promise<void> {
  await tellEnd(command, how);
  // Node's own way out waits for what is at work in native code
  if (endsAfterwards) leave(Number(process.exitCode ?? 0));
}

let endsAfterwards = false;

/** The process ends when the command has said what came of it, whatever else is still at work. */
export function endAfterwards(): void {
  endsAfterwards = true;
}

async function tellEnd(
  command: () => Promise<number>,
  { json = false, startsAgain = false }: HowRun,
): Promise<void> {
  try {
    process.exitCode = await command();
  } catch (thrown) {
    const refused = thrown instanceof ConfigError ? thrown.message : unusable(thrown);
    if (refused !== undefined) {
      process.stderr.write(`${harmless(refused)}\n`);
      process.exitCode = startsAgain && thrown instanceof PassingFault ? 1 : 2;
      return;
    }
    printError(asRadserveError(thrown), json);
    process.exitCode = 1;
  }
}

/** What a path that somebody gave does not lead to. */
const ABSENT = new Set(["ENOENT", "ENOTDIR", "EISDIR"]);

/**
 * What to say of a file that this user may not use, or that is not there; undefined of any other
 * error.
 */
function unusable(thrown: unknown): string | undefined {
  const why = errno(thrown);
  if (!ABSENT.has(why) && !REFUSED.has(why)) return undefined;
  const { path } = thrown as NodeJS.ErrnoException;
  if (path === undefined) return undefined;
  if (ABSENT.has(why))
    return `Expected a file at ${path}, or a folder to write it into; found none (${why}). Check the path.`;
  if (why === "EROFS")
    return `Expected to be able to write to ${path}; its file system is mounted read-only (EROFS). ${READ_ONLY_REMEDY}`;
  return `Expected to be allowed to use ${path}; found ${why}. Run this as its owner, or as the user that the server runs as.`;
}

/** The reasons of each model, if none takes an image. */
const refusedSchema = z.object({
  models: z.array(
    z.object({ name: z.string(), reasons: z.array(z.object({ message: z.string() })).default([]) }),
  ),
});

/** The series of a folder, where one has to be chosen. */
const seriesSchema = z.object({
  series: z.array(z.object({ series_instance_uid: z.string() }).loose()),
});

function sentences(error: RadserveError): string {
  const series = seriesSchema.safeParse(error.details).data?.series ?? [];
  const named = series.map(({ series_instance_uid, ...more }) => {
    const words = Object.entries(more).map(
      ([name, value]) => `${name.replaceAll("_", " ")} ${String(value)}`,
    );
    return `  --series ${series_instance_uid}${words.length === 0 ? "" : `: ${words.join(", ")}`}`;
  });
  const refused = refusedSchema.safeParse(error.details).data?.models ?? [];
  const reasons = refused.flatMap(({ name, reasons }) =>
    reasons.map(({ message }) => `  ${name}: ${message}`),
  );
  return [`${error.message} (${error.code})`, ...reasons, ...named].join("\n");
}

/**
 * The error, as its object on standard output where `json` asks for it; the fault behind an
 * internal one on standard error.
 */
export function printError(error: RadserveError, json = false): void {
  if (json) print(JSON.stringify(error.toObject(), null, 2));
  else remark(sentences(error));
  if (error.code === "internal")
    process.stderr.write(`${JSON.stringify(faultForLog(error.cause), null, 2)}\n`);
}

export function print(text: string): void {
  clearActivity();
  const line = harmless(text);
  process.stdout.write(line.endsWith("\n") ? line : `${line}\n`);
}

/** Tells people something beside the result on standard output. */
export function remark(text: string): void {
  clearActivity();
  process.stderr.write(`${harmless(text)}\n`);
}
