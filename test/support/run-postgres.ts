/**
 * One PostgreSQL for all the test files of a run. It forgets nothing while it runs and keeps
 * nothing after: what makes a commit durable is off, so it is not for tests of that.
 *
 * The runner calls `startRunPostgres()` once, gives `environment` to the processes of the test
 * files, and calls `stop()` at the end. A file that is run alone starts its own
 * (test/support/database-maker.ts), so nobody has to. It ends with the process that started it, and
 * its folder goes, however that process ends: a shell waits for the end of a pipe that only that
 * process holds. Should the shell be killed, the kernel ends PostgreSQL.
 *
 * Test files use test/support/postgres.ts and nothing of this.
 */
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import {
  accessSync,
  chmodSync,
  chownSync,
  constants,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  statfsSync,
} from "node:fs";
import os from "node:os";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import pg from "pg";
import { pino } from "pino";
import { MemoryPlaces, ProcessMemory } from "../../src/base/process-memory.js";
import { openSharedDatabase } from "../../src/jobs/database.js";
import { migrate } from "../../src/jobs/migrations.js";
import { findBinaries } from "../../src/features/local-postgres/binaries.js";
import { Scanner } from "../../src/jobs/scanner.js";
import { DatabaseTroubles } from "../../src/jobs/database-trouble.js";
import { loadConfig } from "../../src/config.js";
import { ROLE, RUN_POSTGRES, TEMPLATE, urlOf } from "./run-database.js";

const SETTINGS = {
  listen_addresses: "",
  fsync: "off",
  synchronous_commit: "off",
  full_page_writes: "off",
  wal_level: "minimal",
  max_wal_senders: "0",
  max_connections: "400",
  max_wal_size: "256MB",
  shared_buffers: "64MB",
  dynamic_shared_memory_type: "mmap",
  jit: "off",
  max_parallel_workers_per_gather: "0",
  timezone: "UTC",
};

/** $1: its folder, which is removed at the end; the others: the command that runs PostgreSQL. */
const KEEPER = `folder=$1; shift
"$@" >"$folder/log" 2>&1 &
read -r _
kill -QUIT $!
wait $!
exec rm -rf "$folder"`;

export interface RunPostgres {
  /** What the processes of test files need in their environment. */
  environment: Record<string, string>;
  /** The folder of its socket. */
  socket: string;
  stop(): Promise<void>;
}

/** Databases of a run, at most a few at once, and the log of their changes take less. */
const ROOM_BYTES = 2 ** 31;

/**
 * Memory, where a new database's 300 files are made twenty times as fast as on a disk; else the
 * usual place.
 */
function roomyPlace(): string {
  const memory = "/dev/shm";
  try {
    const { bavail, bsize } = statfsSync(memory);
    accessSync(memory, constants.W_OK);
    return bavail * bsize > ROOM_BYTES ? memory : os.tmpdir();
  } catch {
    return os.tmpdir();
  }
}

/** PostgreSQL refuses root: the user that it runs as then. */
export function servant(): { uid: number; gid: number } | undefined {
  if (process.getuid?.() !== 0) return undefined;
  const id = (flag: string) => Number(execFileSync("id", [flag, "nobody"], { encoding: "utf8" }));
  return { uid: id("-u"), gid: id("-g") };
}

/** Starts one, with the template that databases are copied from. */
export async function startRunPostgres(): Promise<RunPostgres> {
  const directory = mkdtempSync(path.join(roomyPlace(), "radserve-run-"));
  chmodSync(directory, 0o755);
  const user = servant();
  const [data, socket] = ["data", "socket"].map((name) => path.join(directory, name)) as [
    string,
    string,
  ];
  for (const folder of [data, socket]) {
    mkdirSync(folder, { mode: 0o700 });
    if (user !== undefined) chownSync(folder, user.uid, user.gid);
  }
  const { folder } = await findBinaries({ account: user, copies: directory });
  const initdb = [
    "-D",
    data,
    "-U",
    "postgres",
    "-E",
    "UTF8",
    "--locale=C",
    "-A",
    "trust",
    "--no-sync",
  ];
  execFileSync(path.join(folder, "initdb"), initdb, { ...user, cwd: "/", stdio: "ignore" });
  const settings = Object.entries(SETTINGS).flatMap(([name, value]) => ["-c", `${name}=${value}`]);
  const identity =
    user === undefined ? [] : [`--reuid=${user.uid}`, `--regid=${user.gid}`, "--clear-groups"];
  const keeper = spawn(
    "/bin/sh",
    [
      "-c",
      KEEPER,
      "keeper",
      directory,
      "setpriv",
      ...identity,
      "--pdeathsig",
      "QUIT",
      path.join(folder, "postgres"),
      "-D",
      data,
      "-k",
      socket,
      ...settings,
    ],
    // In a session of its own: Ctrl-C is not for it
    { cwd: "/", detached: true, stdio: ["pipe", "ignore", "ignore"] },
  );
  const ended = once(keeper, "exit");
  const stop = async () => {
    keeper.ref();
    keeper.stdin.end();
    await ended;
  };
  try {
    await makeTemplate(socket, () => readFileSync(path.join(directory, "log"), "utf8"));
  } catch (error) {
    await stop();
    throw error;
  }
  // Whoever started it need not wait for it
  keeper.unref();
  (keeper.stdin as unknown as { unref(): void }).unref();
  return { environment: { [RUN_POSTGRES]: socket }, socket, stop };
}

/** Waits until it answers, and makes the role and the template. */
async function makeTemplate(socket: string, log: () => string): Promise<void> {
  const client = await connected(urlOf(socket, "postgres", "postgres"), log);
  try {
    await client.query(`create role ${ROLE} login`);
    await client.query(`create database ${TEMPLATE} owner ${ROLE}`);
  } finally {
    await client.end();
  }
  const silent = pino({ level: "silent" });
  const database = await openSharedDatabase(urlOf(socket, TEMPLATE), silent);
  // The tables of the queue of scans are made by the queue itself
  const scanner = new Scanner({
    clock: { before: () => undefined },
    config: loadConfig({ directory: os.tmpdir(), environment: {} }),
    roots: { input: [], output: [] },
    database,
    log: silent,
    works: false,
    instance: () => undefined,
    troubles: new DatabaseTroubles(),
    onLost: () => undefined,
    models: () => Promise.resolve({ entries: [], problems: [] }),
    memory: new ProcessMemory(new MemoryPlaces(1, 2 ** 30).take()),
    onFound: () => undefined,
  });
  try {
    await migrate(database.pool);
    await scanner.start();
    await scanner.stop();
  } finally {
    await database.close();
  }
}

const LONGEST_START_MS = 120_000;

async function connected(url: string, log: () => string): Promise<pg.Client> {
  const end = Date.now() + LONGEST_START_MS;
  for (;;) {
    const client = new pg.Client(url);
    client.on("error", () => undefined);
    try {
      await client.connect();
      return client;
    } catch (error) {
      await client.end().catch(() => undefined);
      if (Date.now() > end)
        throw new Error(`PostgreSQL does not start: ${log()}`, { cause: error });
      await delay(20);
    }
  }
}
