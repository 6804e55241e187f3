/**
 * Which box works on which item. A box is in the table of instances and says twice in a lease time that it lives; its
 * items are its own as long as it does. `owner` and `lease` fence them: whoever comes back after its items were given
 * to others changes nothing any more.
 */
import type { Pool, PoolClient } from "pg";
import type { ErrorObject } from "../base/errors.js";
import type { Summary } from "../results/receipt/summary.js";
import { jsonb, transaction } from "./database.js";
import { announce, finishJobs, finishLocked, type JobRequest } from "./jobs.js";

/** A box that is silent for so long has lost its items. */
export const LEASE_SECONDS = 12;
export const BEAT_MS = 3_000;
/**
 * How much an item is to blame for the end of a process in which it ran alone; one with the most has failed. A crash
 * that the supervisor saw is certain: two are enough. Who was killed, or vanished with its supervisor, may have been
 * ended by anybody, or by the system when an image took all memory: five are.
 */
const CERTAIN = 5;
const UNCERTAIN = 2;
const MOST_BLAME = 10;

export interface Instance {
  id: string;
  /** Of the state directory: one process at a time. */
  box: string;
  /** Of the serving process. */
  process: string;
  /** The serving process before this one ended by its own fault. */
  afterCrash: boolean;
  works: boolean;
}

export interface LeasedItem {
  job_id: string;
  index: number;
  input: string;
  output: string | null;
  created_at: Date;
  lease: number;
  attempts: number;
  alone: boolean;
  /** Of its job. */
  started_at: Date | null;
  request: JobRequest;
  input_roots: string[] | null;
  output_roots: string[] | null;
  marked: string[];
}

/** What became of a leased item. */
export type Ending =
  | { state: "succeeded" | "partial"; result: Summary }
  | { state: "failed"; error: ErrorObject }
  | { state: "skipped"; reason: { code: string; message: string } }
  | { state: "cancelled" }
  /** Waits again after some seconds, and the attempt is not counted where it was not the item's. */
  | { state: "queued"; afterSeconds: number; counts: boolean };

export interface Settled {
  item: LeasedItem;
  ending: Ending;
}

/** An item that ran in a box that is gone, as it is now. */
export interface FreedItem {
  job_id: string;
  state: "queued" | "failed" | "cancelled";
  input: string;
  output: string | null;
  request: JobRequest;
}

/**
 * Enters a box. Items of earlier processes of the same box are free again: those are known to be dead. Where it throws
 * the box may take no items: nobody would know whose they are.
 */
export function enter(pool: Pool, instance: Instance, ready: boolean): Promise<FreedItem[]> {
  const { id, box, process, works, afterCrash } = instance;
  return transaction(pool, async (client) => {
    await client.query(
      "insert into radserve.instance (id, box, process, works, ready) values ($1, $2, $3, $4, $5)",
      [id, box, process, works, ready],
    );
    const blame = afterCrash ? CERTAIN : UNCERTAIN;
    return freeItems(client, instance, blame, "i.box = $1 and i.id <> $2", [box, id]);
  });
}

/** @returns false where this box was taken for dead meanwhile */
export async function beat(pool: Pool, instance: Instance, ready: boolean): Promise<boolean> {
  const { rowCount } = await pool.query(
    "update radserve.instance set beat_at = now(), ready = $2 where id = $1",
    [instance.id, ready],
  );
  return rowCount === 1;
}

/** Takes a box out; what is still its own is free again. */
export async function leave(pool: Pool, instance: Instance): Promise<void> {
  await transaction(pool, (client) => freeItems(client, instance, UNCERTAIN, "i.id = $1", [instance.id]));
}

/** What the database holds for this box's own. */
export async function ownItems(pool: Pool, { id }: Instance): Promise<LeasedItem[]> {
  const { rows } = await pool.query<LeasedItem>(
    `select ${LEASED} from radserve.item i join radserve.job j on j.id = i.job_id
     where i.owner = $1 and i.state = 'running'`,
    [id],
  );
  return rows;
}

/** Frees the items of boxes that are silent. */
export function freeSilent(pool: Pool, instance: Instance): Promise<FreedItem[]> {
  const silent = "i.beat_at < now() - make_interval(secs => $1) and i.id <> $2";
  return transaction(pool, (client) =>
    freeItems(client, instance, UNCERTAIN, silent, [LEASE_SECONDS, instance.id]),
  );
}

/**
 * Items that ran when their box died are suspects and run alone next time; one that was alone then has crashed it.
 * A thread that ended within a process that lives crashed nothing.
 */
async function freeItems(
  client: PoolClient,
  instance: Instance,
  blame: number,
  which: string,
  values: unknown[],
): Promise<FreedItem[]> {
  const { rows: gone } = await client.query<{ id: string; process: string }>(
    `delete from radserve.instance i where ${which} returning id, process`,
    values,
  );
  if (gone.length === 0) return [];
  const owners = gone.map(({ id }) => id);
  // The job first, as everybody does
  await client.query(
    `select from radserve.job where id in
       (select job_id from radserve.item where owner = any($1) and state = 'running') order by id for update`,
    [owners],
  );
  const error: ErrorObject = {
    error: "engine_crash",
    message:
      "The server ended again and again while this image ran alone. The others went on. Report the file and its models.",
  };
  const { rows: items } = await client.query<FreedItem>(
    `update radserve.item i set
       state = case when j.cancelled_at is not null then 'cancelled'
         when crashed and alone and blame + $5 >= $3 then 'failed' else 'queued' end,
       error = case when crashed and alone and blame + $5 >= $3 and j.cancelled_at is null then $4::jsonb end,
       finished_at = case when j.cancelled_at is not null or (crashed and alone and blame + $5 >= $3)
         then now() end,
       blame = blame + case when crashed and alone then $5 else 0 end,
       suspect = suspect or crashed, alone = false, owner = null
     from radserve.job j, unnest($1::uuid[], $2::boolean[]) as gone (id, crashed)
     where i.owner = gone.id and i.state = 'running' and j.id = i.job_id
     returning i.job_id, i.state, i.input, i.output, j.request`,
    [owners, gone.map((one) => one.process !== instance.process), MOST_BLAME, error, blame],
  );
  await finishLocked(client, [...new Set(items.map(({ job_id }) => job_id))]);
  if (items.length > 0) await announce(client, "items");
  return items;
}

const RUNNABLE = `j.finished_at is null and j.cancelled_at is null and not j.held
  and (j.pause_until is null or j.pause_until <= now())`;

/** Of an item that may be taken now; $3: a suspect. */
const WAITING = "i.state = 'queued' and i.suspect = $3 and (i.not_before is null or i.not_before <= now())";

/** Whether a suspect waits for a box that does nothing else. */
export async function someSuspect(pool: Pool): Promise<boolean> {
  const { rows } = await pool.query<{ some: boolean }>(
    `select exists (select from radserve.item i join radserve.job j on j.id = i.job_id
       where i.state = 'queued' and i.suspect and (i.not_before is null or i.not_before <= now())
       and ${RUNNABLE}) as some`,
  );
  return rows[0]?.some === true;
}

/** Suspects by turns: the first of them would be the one that is alone at every kill from outside, and fail for it. */
const LEAST_BLAMED = "i.blame, i.index";

const LEASED = `i.job_id, i.index, i.input, i.output, i.created_at, i.lease, i.attempts, i.alone,
  j.started_at, j.request, j.input_roots, j.output_roots, j.marked`;

/**
 * Takes items: in turn from every job, first from those that have the fewest running. A job that paused of itself
 * tries one item at a time until one goes well. Nothing where this box was taken for dead meanwhile; that it is not
 * holds until the items are its own.
 * @param alone suspects only
 */
export async function lease(
  pool: Pool,
  instance: Instance,
  limit: number,
  alone: boolean,
): Promise<LeasedItem[]> {
  const { rows } = await pool.query<LeasedItem>(
    `with alive as materialized (
       select from radserve.instance where id = $1 for key share
     ), runnable as materialized (
       select j.id, j.seq, j.pause_count, r.active from alive, radserve.job j cross join lateral
         (select count(*)::int as active from radserve.item where job_id = j.id and state = 'running') r
         cross join lateral (select from radserve.item i where i.job_id = j.id and ${WAITING} limit 1) w
       where ${RUNNABLE} order by r.active, j.seq limit 100
     ), candidate as materialized (
       select r.id as job_id, r.seq, r.active, c.index, c.blame from runnable r cross join lateral (
         select i.index, i.blame from radserve.item i
         where i.job_id = r.id and ${WAITING}
         order by ${alone ? LEAST_BLAMED : "i.index"}
         limit case when r.pause_count > 0 then greatest(0, 1 - r.active) else $2::int end
         for update skip locked) c
     ), picked as (
       select job_id, index from (
         select job_id, seq, index, blame, active + row_number() over (partition by job_id order by index) as turn
         from candidate) t
       order by turn, blame, seq limit $2::int
     )
     update radserve.item i set state = 'running', owner = $1, lease = i.lease + 1, attempts = i.attempts + 1,
       alone = $3, not_before = null
     from picked p, radserve.job j
     where i.job_id = p.job_id and i.index = p.index and i.state = 'queued' and j.id = i.job_id
     returning ${LEASED}`,
    [instance.id, limit, alone],
  );
  const first = rows.filter(({ started_at }) => started_at === null).map(({ job_id }) => job_id);
  if (first.length > 0)
    await pool.query("update radserve.job set started_at = now() where id = any($1) and started_at is null", [
      [...new Set(first)],
    ]);
  return rows;
}

interface Row {
  job_id: string;
  index: number;
  lease: number;
  state: string;
  after: number | null;
  uncounted: number;
  result: Summary | null;
  error: unknown;
}

function rowOf({ item, ending }: Settled): Row {
  const queued = ending.state === "queued" ? ending : undefined;
  return {
    job_id: item.job_id,
    index: item.index,
    lease: item.lease,
    state: ending.state,
    after: queued?.afterSeconds ?? null,
    uncounted: queued?.counts === false ? 1 : 0,
    result: "result" in ending ? ending.result : null,
    error: "error" in ending ? ending.error : "reason" in ending ? ending.reason : null,
  };
}

/** Of a job that waited and tries again: one image that goes well now ends it. */
const PAUSE_OVER = "pause_count > 0 and (pause_until is null or pause_until <= now())";

/**
 * Writes what became of items, resumes jobs that waited where one went well, and ends jobs where that was all. Items
 * that are no longer this box's are left alone; items of a cancelled job that would wait again are cancelled. Each step
 * is a statement of its own: the first is what must not be lost, and a job that a crash after it leaves without an item
 * is ended by `tidy`.
 * @param busy jobs of which this box has other items, so that none of them ends now
 */
export async function settle(
  pool: Pool,
  instance: Instance,
  settled: readonly Settled[],
  busy: ReadonlySet<string>,
): Promise<void> {
  const rows = settled.map(rowOf);
  const jobs = [...new Set(rows.map(({ job_id }) => job_id))];
  // The job first, as everybody does, so that no cancelling comes between.
  const { rows: over } = await pool.query<{ id: string }>(
    `with j as materialized (
       select id, cancelled_at, pause_count, pause_until from radserve.job where id = any($3) order by id for update
     ), written as (
       update radserve.item i set
         state = case when r.state = 'queued' and j.cancelled_at is not null then 'cancelled' else r.state end,
         finished_at = case when r.state <> 'queued' or j.cancelled_at is not null then now() end,
         attempts = i.attempts - r.uncounted,
         not_before = now() + make_interval(secs => r.after), result = r.result, error = r.error,
         suspect = i.suspect and r.state = 'queued', alone = false, owner = null
       from jsonb_to_recordset($2::jsonb) as r (job_id uuid, index int, lease int, state text, after float8,
           uncounted int, result jsonb, error jsonb), j
       where i.job_id = r.job_id and i.index = r.index and i.owner = $1 and i.lease = r.lease
         and i.state = 'running' and j.id = i.job_id
     )
     select id from j where ${PAUSE_OVER}`,
    [instance.id, jsonb(rows), jobs],
  );
  // Images that were under way when the pause began say nothing about its end: only those that tried it after.
  const well = new Set(
    rows.filter(({ state }) => state === "succeeded" || state === "partial").map((row) => row.job_id),
  );
  const resumed = over.map(({ id }) => id).filter((id) => well.has(id));
  if (resumed.length > 0) await resume(pool, resumed);
  await finishJobs(
    pool,
    jobs.filter((id) => !busy.has(id)),
  );
}

async function resume(pool: Pool, jobs: readonly string[]): Promise<void> {
  await pool.query(
    `update radserve.job set pause_count = 0, pause_code = null, pause_message = null, pause_until = null
     where id = any($1) and ${PAUSE_OVER}`,
    [jobs],
  );
}

const FIRST_PAUSE_SECONDS = 2;
const LONGEST_PAUSE_SECONDS = 60;

/** A job waits: for something that mends itself, or that an operator mends. Longer each time in a row. */
export async function pauseJob(pool: Pool, id: string, code: string, message: string): Promise<void> {
  await pool.query(
    `update radserve.job set pause_code = $2, pause_message = $3, pause_count = pause_count + 1,
       pause_until = now() + make_interval(secs => least($5::float8, $4::float8 * 2 ^ least(pause_count, 10)))
     where id = $1 and finished_at is null and cancelled_at is null and (pause_until is null or pause_until <= now())`,
    [id, code, message, FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS],
  );
}

/** What a race between boxes may have left: items that wait in a cancelled job, jobs without an item that do not end. */
export async function tidy(pool: Pool): Promise<void> {
  await pool.query(
    `update radserve.item i set state = 'cancelled', finished_at = now() from radserve.job j
     where j.id = i.job_id and j.finished_at is null and j.cancelled_at is not null and i.state = 'queued'`,
  );
  const { rows } = await pool.query<{ id: string }>(
    "select id from radserve.job where finished_at is null and total is not null",
  );
  await finishJobs(
    pool,
    rows.map(({ id }) => id),
  );
}

/** Of the jobs given, those that were cancelled. */
export async function cancelledAmong(pool: Pool, ids: readonly string[]): Promise<Set<string>> {
  const { rows } = await pool.query<{ id: string }>(
    "select id from radserve.job where id = any($1) and cancelled_at is not null",
    [ids],
  );
  return new Set(rows.map(({ id }) => id));
}

/** Items of all boxes, for the metrics. */
export async function depth(pool: Pool): Promise<{ queued: number; running: number; paused: number }> {
  const { rows } = await pool.query<{ queued: number; running: number; paused: number }>(
    `select coalesce(sum(n.queued), 0)::int as queued, coalesce(sum(n.running), 0)::int as running,
       count(*) filter (where j.held or j.pause_code is not null)::int as paused
     from radserve.job j cross join lateral
       (select count(*) filter (where state = 'queued') as queued, count(*) filter (where state = 'running') as running
        from radserve.item where job_id = j.id and state in ('queued', 'running')) n
     where j.finished_at is null`,
  );
  return rows[0] ?? { queued: 0, running: 0, paused: 0 };
}
