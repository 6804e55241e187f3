/** The postmaster, PostgreSQL's first process: found, started, waited for and ended. */
import { spawn } from "node:child_process";
import { closeSync, existsSync, fstatSync, openSync, readFileSync, readSync } from "node:fs";
import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import pg from "pg";
import { errno, tried } from "../../base/errno.js";
import { monotonic } from "../../base/monotonic.js";
import { BulkUnavailable } from "../../jobs/database-trouble.js";
import { BARE_ENVIRONMENT, type Binaries } from "./binaries.js";
import { connectionOf, socketOf, type DatabaseFolders } from "./folders.js";

const POLL_MS = 20;
/**
 * After a crash it reads the log of writes first; as long as it lives it is waited for this long.
 */
const LONGEST_START_MS = 120_000;
/**
 * A fast stop ends every session and writes a checkpoint; after this an immediate one follows,
 * which loses nothing.
 */
const LONGEST_FAST_STOP_MS = 30_000;
const LONGEST_STOP_MS = 60_000;

/**
 * The log, which PostgreSQL appends to through a handle of ours: root opens no file in another's
 * folder.
 */
export const logFile = (folders: DatabaseFolders): string => path.join(folders.own, "postgres.log");

/**
 * The living postmaster of a data directory; undefined if none lives. Its number may belong to
 * another process by now, so that one's command line has to name the directory. (Zombies have none,
 * and anybody may read it.)
 */
export function postmasterOf(data: string): number | undefined {
  try {
    const pid = Number.parseInt(readFileSync(path.join(data, "postmaster.pid"), "utf8"), 10);
    return isPostmaster(pid, data) ? pid : undefined;
  } catch {
    return undefined;
  }
}

export function isPostmaster(pid: number, data: string): boolean {
  try {
    const [program = "", ...args] = readFileSync(`/proc/${pid}/cmdline`, "utf8").split("\0");
    return path.basename(program) === "postgres" && args[args.indexOf("-D") + 1] === data;
  } catch {
    return false;
  }
}

/**
 * Codes of a server that is not there yet: no socket, nobody behind it, still starting, still
 * stopping.
 */
const NOT_YET = new Set([
  "ENOENT",
  "ECONNREFUSED",
  "ECONNRESET",
  "EPIPE",
  "57P01",
  "57P02",
  "57P03",
]);

async function answers(folders: DatabaseFolders): Promise<boolean> {
  const client = new pg.Client({ ...connectionOf(folders), connectionTimeoutMillis: 5_000 });
  client.on("error", () => undefined);
  try {
    await client.connect();
    await client.query("SELECT 1");
    return true;
  } catch (error) {
    const code = errno(error);
    // Without a code: the connection ended or timed out, as while it restarts its processes after a
    // crash.
    if (code === "" || NOT_YET.has(code)) return false;
    throw error;
  } finally {
    await client.end().catch(() => undefined);
  }
}

/**
 * The eighth line of postmaster.pid says whether connections are taken; before that line a try is
 * not worth it.
 */
function isReady(data: string): boolean {
  const lines = tried(() => readFileSync(path.join(data, "postmaster.pid"), "utf8").split("\n"));
  return lines?.[7]?.trim() === "ready";
}

/** True once it answers; false once it is dead, or if it does not answer for too long. */
async function answersInTime(
  folders: DatabaseFolders,
  alive: () => boolean,
  limit: number,
): Promise<boolean> {
  const end = monotonic() + limit;
  while (alive() && monotonic() < end) {
    if (isReady(folders.data) && (await answers(folders))) return alive();
    await sleep(POLL_MS);
  }
  return false;
}

/** How long a postmaster that was found may keep silent while it starts or stops. */
const LONGEST_SILENCE_MS = 60_000;

/**
 * Takes over what runs on the data directory.
 * @returns its number; undefined if nothing runs (any more): one that cannot be reached, above all
 *   because its socket was removed, is stopped
 */
export async function adoptPostmaster(folders: DatabaseFolders): Promise<number | undefined> {
  const pid = postmasterOf(folders.data);
  if (pid === undefined) return undefined;
  const alive = () =>
    isPostmaster(pid, folders.data) && (!isReady(folders.data) || existsSync(socketOf(folders)));
  const reached = await answersInTime(folders, alive, LONGEST_SILENCE_MS).catch(() => false);
  if (reached) return pid;
  await endPostmaster(pid, folders.data);
  return undefined;
}

/**
 * After a crash or a reboot the number in postmaster.pid may be another process's; PostgreSQL then
 * refuses to start over it. Whether it may be removed is for a person to say.
 */
function otherHolder(data: string): string | undefined {
  const file = path.join(data, "postmaster.pid");
  try {
    const pid = Number.parseInt(readFileSync(file, "utf8"), 10);
    const state = readFileSync(`/proc/${pid}/stat`, "utf8")
      .replace(/^.*\) /s, "")
      .charAt(0);
    if (state === "Z")
      return `Process ${pid} is dead, but its parent does not take note: give the container an init process (docker run --init).`;
    return `${file} names process ${pid}. If that is no PostgreSQL, and none runs on this folder, remove the file.`;
  } catch {
    return undefined;
  }
}

/** The last errors in the log since a position, without times and process numbers. */
function lastErrors(handle: number, from: number): string {
  const buffer = Buffer.alloc(Math.min(8192, Math.max(0, fstatSync(handle).size - from)));
  readSync(handle, buffer, 0, buffer.length, from);
  const lines = buffer.toString("utf8").split("\n");
  const words = lines
    .filter((line) => /FATAL|PANIC|error/.test(line))
    .map((l) => l.replace(/^.*?\] /, ""));
  return words.slice(-3).join(" ");
}

/** Starts one and waits until it answers. In a session of its own: Ctrl-C of ours is not for it. */
export async function startPostmaster(
  folders: DatabaseFolders,
  { folder }: Binaries,
): Promise<number> {
  const log = openSync(logFile(folders), "a+", 0o600);
  try {
    const before = fstatSync(log).size;
    const args = [
      "-D",
      folders.data,
      "-c",
      `config_file=${path.join(folders.base, "postgresql.conf")}`,
    ];
    const child = spawn(path.join(folder, "postgres"), args, {
      cwd: "/",
      detached: true,
      env: BARE_ENVIRONMENT,
      stdio: ["ignore", log, log],
      ...folders.account,
    });
    let why: string | undefined;
    child.once("error", (error) => (why = errno(error) || error.name));
    child.once("exit", (status, signal) => (why ??= signal ?? `status ${status}`));
    child.unref();
    if (await answersInTime(folders, () => why === undefined, LONGEST_START_MS))
      return child.pid ?? 0;
    throw new BulkUnavailable(
      `The bulk queue's database could not be started (${why ?? "no answer"}). ${lastErrors(log, before)}`.trim(),
      otherHolder(folders.data) ?? `${logFile(folders)} says more.`,
    );
  } finally {
    closeSync(log);
  }
}

function signal(pid: number, name: NodeJS.Signals): void {
  try {
    process.kill(pid, name);
  } catch (error) {
    if (errno(error) !== "ESRCH") throw error;
  }
}

/**
 * Stops it: SIGINT is its fast shutdown, SIGQUIT its immediate one. Never SIGKILL, which would
 * leave its children.
 */
export async function endPostmaster(pid: number, data: string): Promise<void> {
  const begin = monotonic();
  let sent: NodeJS.Signals | undefined;
  while (isPostmaster(pid, data)) {
    const waited = monotonic() - begin;
    const wanted = waited < LONGEST_FAST_STOP_MS ? "SIGINT" : "SIGQUIT";
    if (sent !== wanted) signal(pid, wanted);
    sent = wanted;
    if (waited > LONGEST_STOP_MS)
      throw new BulkUnavailable(
        `The bulk queue's database (process ${pid}) does not stop.`,
        `End it with: kill -QUIT ${pid}`,
      );
    await sleep(POLL_MS);
  }
}
