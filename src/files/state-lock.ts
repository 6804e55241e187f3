/**
 * The state directory belongs to one process at a time. The lock is a file that says who holds it; a holder that is
 * gone (its process ended, or the machine was restarted) loses it to the next.
 */
import { randomBytes } from "node:crypto";
import {
  accessSync,
  constants,
  linkSync,
  mkdirSync,
  readFileSync,
  renameSync,
  statSync,
  unlinkSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import os from "node:os";
import path from "node:path";
import { z } from "zod";
import { ConfigError } from "../base/errors.js";
import { errno } from "../base/errno.js";
import { startIn } from "../base/process-start.js";

const holderSchema = z.object({
  pid: z.int(),
  /** When the process started. */
  started: z.string(),
  boot: z.string(),
  host: z.string(),
});
type Holder = z.infer<typeof holderSchema>;

const REFRESH_MS = 5_000;
/** A holder whose process cannot be looked at (another container) counts as gone after this silence. */
const SILENCE_MS = 30_000;

function startOf(pid: number): string | undefined {
  try {
    return startIn(readFileSync(`/proc/${pid}/stat`, "utf8"));
  } catch {
    return undefined;
  }
}

function self(): Holder {
  return {
    pid: process.pid,
    started: startOf(process.pid) ?? "",
    boot: readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim(),
    host: os.hostname(),
  };
}

function holderOf(file: string): Holder | undefined {
  try {
    return holderSchema.parse(JSON.parse(readFileSync(file, "utf8")));
  } catch {
    return undefined;
  }
}

function isAlive(holder: Holder, file: string): boolean {
  const me = self();
  if (holder.host === me.host) return holder.boot === me.boot && startOf(holder.pid) === holder.started;
  const seen = statSync(file, { throwIfNoEntry: false })?.mtimeMs ?? 0;
  return Date.now() - seen < SILENCE_MS;
}

/** The process of this machine that holds the directory; undefined where none does. */
export function holderHere(directory: string): number | undefined {
  const file = path.join(directory, "lock");
  const holder = holderOf(file);
  return holder?.host === os.hostname() && isAlive(holder, file) ? holder.pid : undefined;
}

export interface StateLock {
  release(): void;
}

/** Makes the directory where it is missing. Throws ConfigError where this user cannot make it or write to it. */
export function makeStateDirectory(directory: string): void {
  try {
    mkdirSync(directory, { recursive: true, mode: 0o700 });
    accessSync(directory, constants.R_OK | constants.W_OK | constants.X_OK);
  } catch (error) {
    throw new ConfigError(
      `RADSERVE_STATE_DIR: expected a folder at ${directory} that this user may make and write to; found otherwise ` +
        `(${errno(error) || "unknown"}). Name another, or give this user the right to it.`,
    );
  }
}

/** Takes the directory, creating it where it is missing. Throws ConfigError naming the process that holds it. */
export function lockState(directory: string): StateLock {
  mkdirSync(directory, { recursive: true, mode: 0o700 });
  const file = path.join(directory, "lock");
  const mine = path.join(directory, `.lock.${randomBytes(6).toString("hex")}`);
  writeFileSync(mine, JSON.stringify(self()), { mode: 0o600 });
  try {
    for (let attempt = 0; attempt < 5; attempt += 1) {
      if (tryLink(mine, file)) return held(file);
      const holder = holderOf(file);
      if (holder !== undefined && isAlive(holder, file))
        throw new ConfigError(
          `Expected the state directory ${directory} to be free; process ${holder.pid} on ${holder.host} holds it. ` +
            "Stop that one, or give this one another RADSERVE_STATE_DIR.",
        );
      setAside(file, `${mine}.old`, holder);
    }
    throw new ConfigError(`The lock of the state directory ${directory} keeps changing hands; try again.`);
  } finally {
    unlinkSync(mine);
  }
}

function tryLink(from: string, to: string): boolean {
  try {
    linkSync(from, to);
    return true;
  } catch (error) {
    if (errno(error) === "EEXIST") return false;
    throw error;
  }
}

/** Removes a dead holder's lock, unless somebody else replaced it meanwhile: then it is put back. */
function setAside(file: string, aside: string, seen: Holder | undefined): void {
  try {
    renameSync(file, aside);
  } catch {
    return;
  }
  if (JSON.stringify(holderOf(aside)) !== JSON.stringify(seen)) tryLink(aside, file);
  unlinkSync(aside);
}

function held(file: string): StateLock {
  const timer = setInterval(() => {
    const now = new Date();
    try {
      utimesSync(file, now, now);
    } catch {
      // The directory is away for the moment; the next refresh counts.
    }
  }, REFRESH_MS);
  timer.unref();
  return {
    release() {
      clearInterval(timer);
      if (holderOf(file)?.pid === process.pid) unlinkSync(file);
    },
  };
}
