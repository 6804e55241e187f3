/**
 * The private PostgreSQL of one state directory: started if none runs, taken over if it survived a
 * crash of ours, started again when it dies, stopped at the end. Any thread may run it; it touches
 * nothing process-wide.
 */
import { copyFileSync, existsSync, statSync, truncateSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { backOff, type BackOff } from "../../base/back-off.js";
import { ConfigError } from "../../base/errors.js";
import { errno } from "../../base/errno.js";
import { lockState, type StateLock } from "../../files/state-lock.js";
import { faultForLog, type Logger } from "../../base/log.js";
import { monotonic } from "../../base/monotonic.js";
import { findBinaries, type Binaries } from "./binaries.js";
import { createData, dataVersion } from "./cluster.js";
import {
  checkWritable,
  connectionOf,
  makeFolders,
  databaseFolders,
  socketOf,
  writeSettings,
  type DatabaseFolders,
} from "./folders.js";
import {
  adoptPostmaster,
  endPostmaster,
  isPostmaster,
  logFile,
  postmasterOf,
  startPostmaster,
} from "./process.js";
import { BulkUnavailable } from "../../jobs/database-trouble.js";

export interface PostgresSettings {
  state_dir: string;
  postgres_bin?: string | undefined;
}

const POLL_MS = 250;
/** When one that does not start, or has ended, is started again. */
const RESTART: BackOff = { first: 100, most: 10_000 };
/** One that lived this long was healthy: after its end the delays begin anew. */
const HEALTHY_MS = 60_000;
/**
 * After kill -9 its children and its shared memory live on for a second or two, and a new one
 * refuses to start over them; a start that fails is tried again for this long.
 */
const LONGEST_TROUBLE_MS = 10_000;
/** Another process may be making the database, or waiting for its recovery. */
const LONGEST_LOCK_MS = 180_000;
const LARGEST_LOG = 8 * 1024 * 1024;

/** One starter at a time on a state directory, in this process or another. */
async function locked<T>(folders: DatabaseFolders, work: () => Promise<T>): Promise<T> {
  const end = monotonic() + LONGEST_LOCK_MS;
  let lock: StateLock | undefined;
  while (lock === undefined) {
    try {
      lock = lockState(folders.own);
    } catch (error) {
      if (error instanceof ConfigError && monotonic() < end) await sleep(POLL_MS / 5);
      else
        throw new BulkUnavailable(
          `The bulk queue's folder ${folders.own} cannot be locked (${errno(error) || "another process holds it"}).`,
          "Let this user write there, or stop the other process.",
          { cause: error },
        );
    }
  }
  try {
    return await work();
  } catch (error) {
    if (error instanceof BulkUnavailable) throw error;
    const why = errno(error) || (error instanceof Error ? error.name : typeof error);
    throw new BulkUnavailable(
      `The bulk queue's database could not be started (${why}).`,
      `Check that the disks of ${folders.base} and ${folders.own} can be written and have free space.`,
      { cause: error },
    );
  } finally {
    lock.release();
  }
}

async function startPatiently(folders: DatabaseFolders, binaries: Binaries): Promise<number> {
  const end = monotonic() + LONGEST_TROUBLE_MS;
  for (let failures = 1; ; failures++) {
    const delay = backOff(failures, RESTART);
    try {
      return await startPostmaster(folders, binaries);
    } catch (error) {
      if (!(error instanceof BulkUnavailable) || monotonic() + delay > end) throw error;
      await sleep(delay);
    }
  }
}

/**
 * Finds it running, or starts it; makes it at first. postmaster.pid is PostgreSQL's own and is
 * never removed.
 */
function bringUp(
  folders: DatabaseFolders,
  settings: PostgresSettings,
): Promise<{ pid: number; adopted: boolean }> {
  return locked(folders, async () => {
    const living = await adoptPostmaster(folders);
    if (living !== undefined) return { pid: living, adopted: true };
    await makeFolders(folders);
    const { account, base: copies } = folders;
    const major = await dataVersion(folders.data);
    const binaries = await findBinaries({ setting: settings.postgres_bin, major, account, copies });
    await writeSettings(folders, binaries.major);
    if (major === undefined) await createData(folders, binaries);
    trimLog(folders);
    return { pid: await startPatiently(folders, binaries), adopted: false };
  });
}

/** PostgreSQL appends, so a log that was cut goes on from its new end. One older part is kept. */
function trimLog(folders: DatabaseFolders): void {
  const file = logFile(folders);
  if ((statSync(file, { throwIfNoEntry: false })?.size ?? 0) < LARGEST_LOG) return;
  copyFileSync(file, `${file}.1`);
  truncateSync(file);
}

/**
 * Says for `radserve doctor` which PostgreSQL would be used and where; nothing is made. Throws
 * BulkUnavailable.
 */
export async function inspectPostgres(settings: PostgresSettings): Promise<string> {
  const folders = databaseFolders(settings.state_dir);
  const major = await dataVersion(folders.data);
  const { folder, version } = await findBinaries({
    setting: settings.postgres_bin,
    major,
    account: folders.account,
  });
  checkWritable(folders);
  const pid = postmasterOf(folders.data);
  const state =
    pid !== undefined ? "running" : major !== undefined ? "not running" : "not made yet";
  return `private PostgreSQL ${version} from ${folder}, data in ${folders.data} (${state})`;
}

export class PrivatePostgres {
  #pid = 0;
  #problem: BulkUnavailable | undefined;
  #watch: Promise<void> = Promise.resolve();
  #stopped: Promise<void> | undefined;
  readonly #stop = new AbortController();

  private constructor(
    private readonly folders: DatabaseFolders,
    private readonly settings: PostgresSettings,
    private readonly log: Logger,
  ) {}

  /** Resolves when it answers. Throws BulkUnavailable with what to do; a later call may succeed. */
  static async start(settings: PostgresSettings, log: Logger): Promise<PrivatePostgres> {
    const postgres = new PrivatePostgres(databaseFolders(settings.state_dir), settings, log);
    await postgres.#bringUp();
    postgres.#watch = postgres.#watchLoop();
    return postgres;
  }

  /** How to connect, as the user that runs this process. It stays the same over restarts. */
  get connection() {
    return connectionOf(this.folders);
  }

  /** The postmaster's process number. */
  get pid(): number {
    return this.#pid;
  }

  /** Why it is down now; undefined while it runs. */
  get problem(): BulkUnavailable | undefined {
    return this.#problem;
  }

  /** Ends all sessions and PostgreSQL itself, cleanly. Repeated calls wait for the same end. */
  stop(): Promise<void> {
    this.#stopped ??= this.#end();
    return this.#stopped;
  }

  async #end(): Promise<void> {
    this.#stop.abort();
    await this.#watch;
    const pid = postmasterOf(this.folders.data);
    if (pid === undefined) return;
    await endPostmaster(pid, this.folders.data);
    this.log.info({ postgres: pid }, "bulk database stopped");
  }

  async #bringUp(): Promise<void> {
    const { pid, adopted } = await bringUp(this.folders, this.settings);
    this.#pid = pid;
    this.#problem = undefined;
    this.log.info(
      { postgres: pid },
      adopted ? "bulk database found running, taken over" : "bulk database started",
    );
  }

  /** Waits for the next check; ends at once if stop() was called. */
  async #pause(milliseconds: number): Promise<void> {
    await sleep(milliseconds, undefined, { signal: this.#stop.signal, ref: false }).catch(
      () => undefined,
    );
  }

  /** A postmaster whose socket was removed is as good as dead. */
  #isUp(): boolean {
    return isPostmaster(this.#pid, this.folders.data) && existsSync(socketOf(this.folders));
  }

  /** Runs until stop(). */
  async #watchLoop(): Promise<void> {
    let ends = 0;
    let since = monotonic();
    while (!this.#stop.signal.aborted) {
      if (this.#isUp()) {
        if (monotonic() - since > HEALTHY_MS) ends = 0;
        this.#trimLog();
        await this.#pause(POLL_MS);
        continue;
      }
      const delay = backOff((ends += 1), RESTART);
      this.#problem ??= new BulkUnavailable(
        "The bulk queue's database ended.",
        "It is being started again.",
      );
      this.log.error(
        { postgres: this.#pid, delay_ms: delay },
        "bulk database ended; starting it again",
      );
      await this.#pause(delay);
      await this.#tryToBringUp();
      since = monotonic();
    }
  }

  async #tryToBringUp(): Promise<void> {
    if (this.#stop.signal.aborted) return;
    try {
      await this.#bringUp();
    } catch (error) {
      if (error instanceof BulkUnavailable) this.#problem = error;
      this.log.error({ fault: faultForLog(error) }, "bulk database could not be started");
    }
  }

  #trimLog(): void {
    try {
      trimLog(this.folders);
    } catch (error) {
      this.log.warn(
        { fault: faultForLog(error) },
        "the bulk database's log could not be shortened",
      );
    }
  }
}
