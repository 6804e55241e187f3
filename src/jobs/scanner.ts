/**
 * Scans of folders as jobs of pg-boss: durable steps that run on any node and again where one was
 * killed. A scan that runs again finds the same items, and those that are there already stay as
 * they are.
 */
import { setTimeout as delay } from "node:timers/promises";
import type { Pool, PoolClient } from "pg";
import { PgBoss } from "pg-boss";
import { v5 as uuidV5 } from "uuid";
import type { RunningClock } from "../files/running-clock.js";
import { durations } from "../base/durations.js";
import { RadserveError } from "../base/errors.js";
import { faultForLog } from "../base/log.js";
import { monotonic } from "../base/monotonic.js";
import type { ProcessMemory } from "../base/process-memory.js";
import { VERSION } from "../base/version.js";
import { candidatesOf } from "../inference/plan.js";
import type { KnownModels } from "../models/entry.js";
import { identitiesOf } from "../models/identity.js";
import { isUnwanted, wantingLabels } from "../models/wanted.js";
import { translateIn } from "../files/path-map.js";
import { narrowRoots } from "../files/roots.js";
import type { Instance, NodeContext } from "./nodes.js";
import {
  asUnavailable,
  isFarAfter,
  isTableLoss,
  jsonb,
  transaction,
  type Queryable,
} from "./database.js";
import { analyzeItems, finishJobs, PAUSE_ENDS, purgeOlderThan, type JobRow } from "./jobs.js";
import { hinderJob, isHindered, unhinderJob } from "./leases.js";
import { makeQueue } from "./migrations.js";
import { lackingOf, someNodeRuns, type Pins } from "./pins.js";
import { scanFolder, type ScanResult } from "./scan.js";
import { BulkUnavailable } from "./database-trouble.js";

const SCAN = "radserve-scan";
const SWEEP = "radserve-sweep";
const KEPT_DAYS = 30;
const SCANS_AT_ONCE = 2;
/**
 * A scan that is hindered lets others go first, and is tried again for as long as its job needs it.
 * Whichever node asks next gets it; one that leaves the job alone for now gives it back at once.
 */
const AGAIN = { retryLimit: 2 ** 31 - 1, retryDelay: 1, retryBackoff: true, retryDelayMax: 5 };
/** How often a node asks for a scan. */
const POLLING_MS = 2_000;
/** After so long a scan that was given back is there again, and every other node has asked. */
const REST_MS = AGAIN.retryDelayMax * 1000 + 2 * POLLING_MS;
const BATCH = 500;
/** The first items of a large folder need not wait for the others. */
const LONGEST_BATCH_MS = 1_000;
/** Jobs of which not every item is known. */
const SCANNING = "total is null and finished_at is null";
/** All that wait in a queue; pg-boss gives at most so many. */
const WAITING = { queued: true, limit: 100_000 };
/** How often times of the queue are held against the database's clock. */
const CLOCK_LOOK_MS = 30_000;
const MONTHS_SECONDS = 365 * 86_400;

export interface ScannerOptions extends NodeContext {
  /** By which ended jobs are old, too. */
  clock: Pick<RunningClock, "before">;
  works: boolean;
  /** This node, as the database knows it; undefined while it does not. */
  instance: () => Instance | undefined;
  /** Called when tables are gone. */
  onLost: () => void;
  /** Waits until they are loaded. */
  models: () => Promise<KnownModels>;
  /** Where what a scan reads is counted. */
  memory: ProcessMemory;
  /** Called when items were added, or a scan has ended. */
  onFound: () => void;
}

/** The data of a scan in the queue. */
interface Scan {
  job_id: string;
  /** The folder was empty when its job was taken. */
  was_empty?: boolean;
}

const HINDERED = {
  code: "share_unavailable",
  message:
    "The input folder is gone, empty or cannot be read: its share is probably not mounted. The scan continues by itself when it is back.",
};

/**
 * This node has not what the job was submitted with, or goes on with by now: what an item is
 * depends on the models.
 */
class OtherVersions extends Error {}

const OF_MODELS = new Set<string>(["model_unavailable", "model_not_found"]);
/** Why this node cannot scan a folder; what a scan finds shows that it is over. */
const CODES = [HINDERED.code, ...OF_MODELS];

/** Why a job waits whose folder cannot be scanned now. */
const hindrance = (thrown: unknown): typeof HINDERED =>
  thrown instanceof RadserveError && OF_MODELS.has(thrown.code)
    ? { code: thrown.code, message: thrown.message }
    : HINDERED;

const executor = (client: Queryable) => ({
  executeSql: (text: string, values?: unknown[]) => client.query(text, values),
});

/**
 * The time of day when the thread began, counted on from there by a clock that nobody sets. A timer
 * of pg-boss (ClaimTimer, 12.38) waits for a time of day: after the clock was set back by years it
 * goes round each millisecond, and what it is for is not done.
 */
const CLOCK = {
  setTimeout,
  clearTimeout,
  setInterval,
  clearInterval,
  now: () => performance.timeOrigin + performance.now(),
};

export class Scanner {
  #boss: PgBoss;
  #worker: string | undefined;
  #stopping = new AbortController();
  #clockLook: NodeJS.Timeout | undefined;
  /** Jobs whose folders could not be scanned the last time. */
  readonly #hindered = new Set<string>();

  constructor(private readonly options: ScannerOptions) {
    this.#boss = this.#queue();
  }

  #queue(): PgBoss {
    const { database, log, onLost } = this.options;
    const careSeconds = durations.queueCare / 1000;
    const boss = new PgBoss({
      db: executor(database.pool),
      schema: "radserve_queue",
      superviseIntervalSeconds: careSeconds,
      monitorIntervalSeconds: careSeconds,
      clock: CLOCK,
    });
    boss.on("error", (error) => {
      log.warn({ fault: faultForLog(error) }, "the queue of scans reports a fault");
      if (isTableLoss(error)) onLost();
    });
    return boss;
  }

  /**
   * After tables were lost: those of the queue may be among them. Scans that were lost are found by
   * the sweep.
   */
  async restart(): Promise<void> {
    await this.#boss.stop({ graceful: false }).catch(() => undefined);
    if (this.#stopping.signal.aborted) return;
    this.#boss = this.#queue();
    await this.start();
  }

  async start(): Promise<void> {
    const boss = this.#boss;
    await makeQueue(this.options.database.pool, async (lost) => {
      if (lost !== undefined)
        this.options.log.error(
          { kept_as: lost },
          "tables of the queue of scans are gone; it is made again, and scans that had not ended run again",
        );
      await boss.start();
      const kept = { retentionSeconds: MONTHS_SECONDS, deleteAfterSeconds: 86_400 };
      await boss.createQueue(SCAN, {
        policy: "exclusive",
        heartbeatSeconds: 12,
        expireInSeconds: 86_000,
        ...kept,
      });
      await boss.createQueue(SWEEP, { policy: "exclusive", retryLimit: 3, ...kept });
    });
    if (!this.options.works) return;
    await this.#forgetFarTimes();
    clearInterval(this.#clockLook);
    this.#clockLook = setInterval(() => {
      this.#forgetFarTimes().catch((error: unknown) => boss.emit("error", error as Error));
    }, CLOCK_LOOK_MS).unref();
    await boss.schedule(SWEEP, "17 3 * * *");
    // A machine that is off at night sweeps when it starts
    await boss.send(SWEEP);
    await boss.work(SWEEP, { pollingIntervalSeconds: 60 }, async () => this.#sweep());
    await this.#askForScans(boss);
  }

  async #askForScans(boss: PgBoss): Promise<void> {
    this.#worker = await boss.work<Scan>(
      SCAN,
      {
        batchSize: 1,
        localConcurrency: SCANS_AT_ONCE,
        pollingIntervalSeconds: POLLING_MS / 1000,
      },
      async ([job]) => {
        if (job === undefined) return;
        // Whatever comes of it, the next is asked for at once, and not after the usual pause
        const hindered = await this.#scan(job.data, job.signal).finally(() => this.wake());
        if (!hindered) return;
        if (await this.#mayOthersScan()) this.#letOthersGoFirst(boss);
        // Not the fault itself: the queue keeps what is thrown, and messages of the system name
        // files
        throw new Error("The folder could not be scanned.");
      },
    );
  }

  async #mayOthersScan(): Promise<boolean> {
    const { database, instance } = this.options;
    const { rows } = await database.pool.query<{ some: boolean }>(
      `select ${someNodeRuns("n.id <> $1")} as some`,
      [instance()?.id],
    );
    return rows[0]?.some === true;
  }

  /**
   * A scan comes back after a fixed time, and nodes ask at fixed times: the one that gave it back
   * could get it again each time. It asks for none until every other node has asked once.
   */
  #letOthersGoFirst(boss: PgBoss): void {
    const id = this.#worker;
    if (id === undefined) return;
    this.#worker = undefined;
    const rest = async () => {
      await boss.offWork(SCAN, { id, wait: false });
      await delay(REST_MS, undefined, { signal: this.#stopping.signal, ref: false });
      if (boss === this.#boss) await this.#askForScans(boss);
    };
    rest().catch((error: unknown) => {
      if (!this.#stopping.signal.aborted) boss.emit("error", error as Error);
    });
  }

  /** @param client its transaction makes the job, too */
  async enqueue(scan: Scan, client: Queryable): Promise<void> {
    // Subjects take turns: the second folder of one comes after the first of another
    const { rows } = await client.query<{ others: number }>(
      `select count(*)::int as others from radserve.job own join radserve.job other using (subject)
       where own.id = $1 and other.id <> own.id and other.cancelled_at is null
         and other.total is null and other.finished_at is null`,
      [scan.job_id],
    );
    await this.#boss.send(SCAN, scan, {
      singletonKey: scan.job_id,
      priority: 0 - (rows[0]?.others ?? 0),
      db: executor(client),
      ...AGAIN,
    });
  }

  /** A job waits to be scanned. */
  wake(): void {
    if (this.#worker !== undefined) this.#boss.notifyWorker(this.#worker);
  }

  /**
   * What began to wait, or gave a sign of life, while the database's clock was far ahead goes on,
   * or is over, now. pg-boss cannot list the scans that run: they are those of jobs that are being
   * scanned and have none in the queue. Where none runs, it is made again: one that saw its job
   * cancelled may have ended when the job went on. What is known of all other jobs is forgotten.
   */
  async #forgetFarTimes(): Promise<void> {
    const { rows } = await this.options.database.pool.query<{ now: Date; scanning: string[] }>(
      `select now() as now, array(select id::text from radserve.job where ${SCANNING}) as scanning`,
    );
    const [{ now, scanning } = { now: new Date(), scanning: [] }] = rows;
    this.#forgetScanned(new Set(scanning));
    const boss = this.#boss;
    const queued = new Set<string | undefined>();
    for (const name of [SCAN, SWEEP])
      for (const { id, singletonKey, startAfter } of await boss.findJobs(name, WAITING)) {
        queued.add(singletonKey ?? undefined);
        if (isFarAfter(startAfter, now))
          await boss.update(name, undefined, { id, startAfter: now });
      }
    for (const key of scanning.filter((job) => !queued.has(job))) {
      const found = await boss.findJobs(SCAN, { key });
      const active = found.filter(({ state }) => state === "active");
      for (const { id, heartbeatOn } of active)
        if (isFarAfter(heartbeatOn, now)) await boss.touch(SCAN, id);
      if (active.length === 0) await this.enqueue({ job_id: key }, this.options.database.pool);
    }
  }

  /** Where another node scanned a folder in the end, or nobody has to, no success is seen here. */
  #forgetScanned(scanning: ReadonlySet<string>): void {
    this.options.troubles.keep(scanning);
    for (const job of Array.from(this.#hindered))
      if (!scanning.has(job)) this.#hindered.delete(job);
  }

  async stop(): Promise<void> {
    clearInterval(this.#clockLook);
    this.#stopping.abort(new Error("The server is stopping."));
    await this.#boss.stop({ graceful: true, timeout: 2_000 });
  }

  /**
   * Every day, and at each start: forgets jobs that ended long ago, and puts scans that the queue
   * has lost into it again.
   */
  async #sweep(): Promise<void> {
    const { pool } = this.options.database;
    const before = this.options.clock.before(KEPT_DAYS * 86_400_000);
    const forgotten = before === undefined ? 0 : await purgeOlderThan(pool, KEPT_DAYS, before);
    const { rows } = await pool.query<{ id: string }>(
      `select id from radserve.job where ${SCANNING}`,
    );
    for (const { id } of rows) await this.enqueue({ job_id: id }, pool);
    if (forgotten > 0) this.options.log.info({ jobs: forgotten }, "old bulk jobs forgotten");
  }

  /**
   * Ends when the folder is scanned or its job cancelled.
   * @returns true if it is hindered, and has to be tried again, perhaps by another node
   */
  async #scan(scan: Scan, lost: AbortSignal): Promise<boolean> {
    const { database, log, troubles, instance } = this.options;
    const signal = AbortSignal.any([lost, this.#stopping.signal]);
    const job = scan.job_id;
    const node = instance();
    try {
      if (node !== undefined && (await isHindered(database.pool, job, node))) return true;
      await this.#scanOnce(scan, signal);
      if (node !== undefined) await unhinderJob(database.pool, job, node, CODES);
      this.#hindered.delete(job);
      troubles.well(job);
      return false;
    } catch (thrown) {
      signal.throwIfAborted();
      if (thrown instanceof OtherVersions) return true;
      if (!this.#hindered.has(job))
        log.warn({ job, fault: faultForLog(thrown) }, "a folder cannot be scanned now");
      this.#hindered.add(job);
      const known = asUnavailable(thrown, database.connection);
      if (known instanceof BulkUnavailable) troubles.failed(known, job);
      else {
        troubles.well(job);
        if (node !== undefined) await hinderJob(database.pool, job, hindrance(thrown), node);
      }
      return true;
    }
  }

  async #scanOnce({ job_id: jobId, was_empty = false }: Scan, signal: AbortSignal): Promise<void> {
    const { config, database, roots, models, onFound } = this.options;
    const { rows } = await database.pool.query<
      Pick<JobRow, "request" | "input_roots"> & { pins: Pins | null }
    >(
      `select request, input_roots, pins from radserve.job
       where id = $1 and total is null and cancelled_at is null`,
      [jobId],
    );
    const job = rows[0];
    if (job === undefined) return;
    const { models: named, labels } = job.request;
    const { entries, problems } = await models();
    const runs = { release: VERSION, models: identitiesOf(entries) };
    if (job.pins !== null && lackingOf(job.pins, runs).length > 0) throw new OtherVersions();
    // What is an item depends on them: without one a series would be its slices for good
    const candidates = wantingLabels(candidatesOf(entries, named, problems), labels);
    const found = scanFolder({
      folder: translateIn(job.request.input_folder_path ?? "", config.path_map).path,
      roots: await narrowRoots(roots.input, job.input_roots ?? undefined),
      models: candidates.filter((one) => named?.includes(one.name) !== false && !isUnwanted(one)),
      mayBeEmpty: was_empty,
      grouped: job.request.group === "series",
      memory: this.options.memory,
      check: () => signal.throwIfAborted(),
    });
    let batch: ScanResult[] = [];
    let since = monotonic();
    for await (const one of found) {
      signal.throwIfAborted();
      batch.push(one);
      if (batch.length < BATCH && monotonic() - since < LONGEST_BATCH_MS) continue;
      if (!(await insertFound(database.pool, jobId, batch, job.pins))) return;
      onFound();
      batch = [];
      since = monotonic();
    }
    if (await insertFound(database.pool, jobId, batch, job.pins))
      await endScan(database.pool, jobId);
    onFound();
  }
}

/**
 * Adds items that are not there yet.
 * @param pins those of the job when it was scanned
 * @returns false if the job takes none any more
 * @throws OtherVersions if it has other pins by now
 */
export function insertFound(
  pool: Pool,
  jobId: string,
  found: readonly ScanResult[],
  pins: Pins | null,
): Promise<boolean> {
  return transaction(pool, async (client) => {
    const { rows } = await client.query<{ open: boolean; same: boolean }>(
      `select cancelled_at is null and total is null as open, pins is not distinct from $2::jsonb as same
       from radserve.job where id = $1 for update`,
      [jobId, pins],
    );
    if (rows[0]?.open !== true) return false;
    if (!rows[0].same) throw new OtherVersions();
    if (found.length === 0) return true;
    const byPath = new Map(found.map((one) => [one.path, one]));
    const given = [...byPath.values()].map((one) => ({
      id: uuidV5(one.path, jobId),
      input: one.path,
      state: one.is === "input" ? "queued" : one.is,
      error: one.is === "failed" ? one.error : one.is === "skipped" ? one.reason : null,
    }));
    const added = await insertNew(client, jobId, given);
    // A scan that finds something shows that the input is there again.
    await client.query("update radserve.job set next_index = next_index + $2 where id = $1", [
      jobId,
      added,
    ]);
    await client.query(
      `update radserve.job set ${PAUSE_ENDS} where id = $1 and pause_code = any($2)`,
      [jobId, CODES],
    );
    return true;
  });
}

/**
 * Inserts those of the items that are not there, numbered on without gaps. What is there shows as a
 * conflict of the insert and is not asked for first: the planner knows nothing about a new job, and
 * looks through all of its items for each one of these.
 * @returns how many were new
 */
async function insertNew(
  client: PoolClient,
  jobId: string,
  items: readonly { id: string }[],
): Promise<number> {
  const insert = async (some: typeof items) => {
    const { rowCount } = await client.query(
      `insert into radserve.item (job_id, index, id, input, state, error, finished_at)
       select j.id, j.next_index + f.place - 1, f.id, f.input, f.state, f.error,
         case when f.state <> 'queued' then now() end
       from rows from (jsonb_to_recordset($2::jsonb) as (id uuid, input text, state text, error jsonb))
         with ordinality as f (id, input, state, error, place), radserve.job j where j.id = $1
       on conflict (job_id, id) do nothing`,
      [jobId, jsonb(some)],
    );
    return rowCount ?? 0;
  };
  await client.query("savepoint numbered");
  const added = await insert(items);
  if (added === items.length || added === 0) return added;
  await client.query("rollback to savepoint numbered");
  const { rows } = await client.query<{ id: string }>(
    "select id from radserve.item where job_id = $1 and id = any($2::uuid[])",
    [jobId, items.map(({ id }) => id)],
  );
  const known = new Set(rows.map(({ id }) => id));
  return insert(items.filter(({ id }) => !known.has(id)));
}

async function endScan(pool: Pool, jobId: string): Promise<void> {
  const { rows } = await pool.query<{ total: number }>(
    "update radserve.job set total = next_index where id = $1 and total is null returning total",
    [jobId],
  );
  await pool.query(`update radserve.job set ${PAUSE_ENDS} where id = $1 and not held`, [jobId]);
  await analyzeItems(pool, rows[0]?.total ?? 0);
  await finishJobs(pool, [jobId]);
}
