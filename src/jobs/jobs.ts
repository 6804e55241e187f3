/** Jobs in the database: making them, looking at them, and what a client may do to them. */
import type { Pool, PoolClient } from "pg";
import { durations } from "../base/durations.js";
import { errors, type RadserveError } from "../base/errors.js";
import { transaction, type Queryable } from "./database.js";
import { forgetTraces, lostAt, purgeJobs } from "./known-jobs.js";
import { tablesLostAt } from "./migrations.js";
import { hasBegun, isRunBySome, SOME_NODE_RUNS, type Pins } from "./pins.js";
import type { ITEM_STATES, Job, JobDetails } from "./schema.js";

export type Counts = Job["counts"];

/** The request of a client, with the names that it has for files. */
export type JobRequest = Job["request"];

export interface NewJob {
  id: string;
  subject: string;
  inputRoots: string[] | undefined;
  outputRoots: string[] | undefined;
  request: JobRequest;
  requestSha256: string;
  idempotencyKey: string | undefined;
  /** Its output folders have its mark. */
  marked: boolean;
  /** What its images are to run with; null: with what the nodes have. */
  pins: Pins | null;
  /** Of the request that it came by, as W3C Trace Context has it. */
  traceparent?: string | undefined;
  /** Absent if a folder is scanned. */
  items?: { id: string; input: string; output: string }[];
}

export interface JobRow {
  id: string;
  seq: string;
  subject: string;
  /** The folders to which the token that submitted it narrows the roots; null if it does not. */
  input_roots: string[] | null;
  output_roots: string[] | null;
  request: JobRequest;
  /** What its images run with; null for a job of an earlier version. */
  pins: Pins | null;
  /** What those ran with that had ended when `pins` changed. */
  pinned_before: Pins[];
  /** When it got other pins before anything of it was done, on which node, and those of before. */
  pinned_anew: JobDetails["pinned_anew"];
  created_at: Date;
  started_at: Date | null;
  finished_at: Date | null;
  /** Nothing of it waits or runs; its marks may still be in its folders. */
  over: boolean;
  /** Of the request that it came by. */
  traceparent: string | null;
  cancelled_at: Date | null;
  /** It was cancelled before its scan had ended: more images may be in its folder than `total`. */
  scan_cut: boolean;
  total: number | null;
  state: Job["state"];
  /** Some node runs images now, though perhaps none of this job. */
  worked: boolean;
  /** Some node runs images now, and can run those of this job. */
  runnable: boolean;
  /** Some image runs or has run; null where that matters to nobody, because a node can run it. */
  begun: boolean | null;
  /** By request; a job that paused of itself has a `pause_code`. */
  paused: boolean;
  /** Why the job paused of itself; null once an image went well again. */
  pause_code: string | null;
  pause_message: string | null;
  /** Since when it is paused, and the node that found why. */
  paused_at: Date | null;
  pause_box: string | null;
  counts: Partial<Counts> | null;
  /** The report that is written at its end, or why there is none; null before. */
  report: JobDetails["report"];
  /** Ended in the last minute. */
  recent: number;
  now: Date;
}

export interface ItemRow {
  index: number;
  input: string;
  output: string | null;
  state: (typeof ITEM_STATES)[number];
  attempts: number;
  result: unknown;
  error: unknown;
}

/** The trace of a job, where it has one. */
export const traced = (traceparent: string | null) => (traceparent === null ? {} : { traceparent });

/** Which jobs are meant: the subject's own, or those of everybody for an admin. */
export interface JobScope {
  subject: string;
  admin: boolean;
}

/**
 * Seconds after which a subject with too many jobs may ask again: it has to wait until one has
 * ended.
 */
const RETRY_FULL_SECONDS = 30;
/** Any fixed number: with a subject it names the lock of whoever opens a job of that subject. */
const OPENING_LOCK = 7_233_019;

/**
 * @throws RadserveError rate_limited if a subject has as many open jobs, beside this one, as it may
 */
export async function refuseMany(
  client: Queryable,
  { id, subject }: Pick<NewJob, "id" | "subject">,
  mostOpen: number,
): Promise<void> {
  const { rows } = await client.query<{ number: number }>(
    `select count(*)::int as number from
       (select from radserve.job where subject = $1 and finished_at is null and id <> $2 limit $3) as open`,
    [subject, id, mostOpen],
  );
  if ((rows[0]?.number ?? 0) < mostOpen) return;
  throw errors.rate_limited(
    `Expected at most ${mostOpen} open jobs of one subject; found as many. Wait until one has ended, cancel one, or send more images in one job.`,
    { limit: mostOpen, retry_after: RETRY_FULL_SECONDS },
  );
}

/**
 * The same in the transaction that opens the job: of two that open the last one, on whatever nodes,
 * the second waits and then sees the first. Others wait until the commit, so this comes last.
 */
export async function refuseManyInTurn(
  client: PoolClient,
  job: Pick<NewJob, "id" | "subject">,
  mostOpen: number,
): Promise<void> {
  await client.query("select pg_advisory_xact_lock($1, hashtext($2))", [OPENING_LOCK, job.subject]);
  await refuseMany(client, job, mostOpen);
}

/**
 * Writes a job and its items; the caller commits.
 * @param mostOpen jobs that a subject may have open
 * @returns false if the subject has used the idempotency key before
 * @throws RadserveError rate_limited
 */
export async function insertJob(
  client: PoolClient,
  job: NewJob,
  mostOpen: number,
): Promise<boolean> {
  const { rowCount } = await client.query(
    `insert into radserve.job (id, subject, input_roots, output_roots, request, request_sha256, idempotency_key,
       total, next_index, marked, traceparent, pins)
     values ($1, $2, $3, $4, $5, $6, $7, $8, coalesce($8, 0), $9, $10, $11) on conflict do nothing`,
    [
      job.id,
      job.subject,
      job.inputRoots,
      job.outputRoots,
      job.request,
      job.requestSha256,
      job.idempotencyKey,
      job.items?.length,
      job.marked,
      job.traceparent ?? null,
      job.pins,
    ],
  );
  if (rowCount === 0) return false;
  const { items } = job;
  if (items !== undefined)
    await client.query(
      `insert into radserve.item (job_id, index, id, input, output, state)
       select $1, place - 1, id, input, output, 'queued'
       from unnest($2::uuid[], $3::text[], $4::text[]) with ordinality as given (id, input, output, place)`,
      [
        job.id,
        items.map(({ id }) => id),
        items.map(({ input }) => input),
        items.map(({ output }) => output),
      ],
    );
  await refuseManyInTurn(client, job, mostOpen);
  return true;
}

/** A job with fewer items changes no plan. */
const ANALYZED_FROM = 1_000;

/**
 * After a job was kept with so many items: until the next autovacuum the planner would believe the
 * table to be as small as before. That it could not be looked at, for a lock say, is no failure of
 * the job.
 */
export async function analyzeItems(pool: Pool, items: number): Promise<void> {
  if (items >= ANALYZED_FROM) await pool.query("analyze radserve.item").catch(() => undefined);
}

export type KeyedJob = Pick<JobRow, "id"> & { request_sha256: string };

export async function jobOfKey(
  pool: Pool,
  subject: string,
  key: string,
): Promise<KeyedJob | undefined> {
  const { rows } = await pool.query<KeyedJob>(
    "select id, request_sha256 from radserve.job where subject = $1 and idempotency_key = $2",
    [subject, key],
  );
  return rows[0];
}

/**
 * A job has ended when its marks are out of its folders too, so that nothing of it is left there.
 */
const ENDED_AT = "case when j.marked then null else j.finished_at end";

const state = (stalled: boolean) => `case when j.cancelled_at is not null then 'cancelled'
    when ${ENDED_AT} is not null then 'completed'
    when j.held or j.pause_code is not null or ${stalled} then 'paused'
    when not ${isRunBySome("j")} and j.created_at < now() - interval '${durations.jobLonely} ms' then 'paused'
    when j.total is null then 'scanning' else 'running' end`;

/** How many items of a job are in each state; null if it has none. */
const COUNTS = `(select jsonb_object_agg(state, number) from
  (select state, count(*)::int as number from radserve.item where job_id = j.id group by state) s)`;

const view = (
  stalled: boolean,
) => `select j.id, j.seq, j.subject, j.input_roots, j.output_roots, j.request, j.created_at, j.started_at, ${ENDED_AT} as finished_at,
    j.finished_at is not null as over,
    j.cancelled_at, j.scan_cut, j.traceparent,
    j.total, j.held as paused, now() as now, ${state(stalled)} as state, ${SOME_NODE_RUNS} as worked, j.pins, j.pinned_before, j.pinned_anew,
    ${isRunBySome("j")} as runnable, case when not ${isRunBySome("j")} then ${hasBegun("j")} end as begun,
    j.pause_code, j.pause_message, j.paused_at, j.pause_box, j.report,
    coalesce(j.counts, ${COUNTS}) as counts,
    (select count(*)::int from radserve.item i where i.job_id = j.id and i.finished_at > now() - interval '60 s'
      and i.state in ('succeeded', 'partial', 'failed')) as recent
  from radserve.job j`;

const IN_SCOPE = "(j.subject = $1 or $2)";

const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;
export const isUuid = (text: string): boolean => UUID.test(text);

/** It says so if the job, or the tables and jobs with them, were lost. */
export async function noSuchJob(
  pool: Queryable,
  scope: JobScope,
  id: string,
): Promise<RadserveError> {
  const lost = await tablesLostAt(pool);
  const older = UUID.test(id) ? await lostAt(pool, scope, id) : undefined;
  const why =
    lost !== undefined
      ? ` The bulk tables were lost and made again at ${lost.toISOString()}: jobs from before are gone. Send them again; only what is missing is computed.`
      : older !== undefined
        ? ` It was lost: since ${older.toISOString()} the database is an older one, from a backup or a standby. Send it again; only what is missing is computed.`
        : "";
  return errors.job_not_found(
    `This subject has no such job; GET /bulk_inference lists its jobs.${why}`,
  );
}

/** @throws RadserveError job_not_found, also for another subject's job */
export async function findJob(pool: Queryable, scope: JobScope, id: string): Promise<JobRow> {
  if (!UUID.test(id)) throw await noSuchJob(pool, scope, id);
  const { rows } = await pool.query<JobRow>(`${view(false)} where ${IN_SCOPE} and j.id = $3`, [
    scope.subject,
    scope.admin,
    id,
  ]);
  if (rows[0] === undefined) throw await noSuchJob(pool, scope, id);
  return rows[0];
}

/** @param stalled the database takes nothing from this node, so that no job goes on */
export async function listJobs(
  pool: Pool,
  scope: JobScope,
  {
    before,
    state: wanted,
    limit,
    stalled,
  }: { before: string | undefined; state: string | undefined; limit: number; stalled: boolean },
): Promise<JobRow[]> {
  const { rows } = await pool.query<JobRow>(
    `${view(stalled)} where ${IN_SCOPE} and ($3::bigint is null or j.seq < $3)
       and ($4::text is null or ${state(stalled)} = $4)
     order by j.seq desc limit $5`,
    [scope.subject, scope.admin, before, wanted, limit],
  );
  return rows;
}

/** Every path that a job names, as the client named it: its two folders, or those of its items. */
export async function namedPaths(
  pool: Queryable,
  { id, request }: Pick<JobRow, "id" | "request">,
): Promise<{ inputs: string[]; outputs: string[] }> {
  const { input_folder_path: input, output_folder_path: output } = request;
  if (input !== undefined && output !== undefined) return { inputs: [input], outputs: [output] };
  const { rows } = await pool.query<{ inputs: string[] | null; outputs: string[] | null }>(
    `select array_agg(distinct input) as inputs, array_agg(distinct output) as outputs
     from radserve.item where job_id = $1 and output is not null`,
    [id],
  );
  return { inputs: rows[0]?.inputs ?? [], outputs: rows[0]?.outputs ?? [] };
}

/** Which items of a job are listed. */
export interface ItemPage {
  /** The index of the last one of the page before. */
  after: number;
  limit: number;
  state?: string | undefined;
  /** The code of their error, or of the reason why they were skipped. */
  code?: string | undefined;
}

export async function listItems(
  pool: Pool,
  jobId: string,
  { after, state, code, limit }: ItemPage,
): Promise<ItemRow[]> {
  const { rows } = await pool.query<ItemRow>(
    `select index, input, output, state, attempts, result, error from radserve.item
     where job_id = $1 and index > $2 and ($3::text is null or state = $3)
       and ($5::text is null or coalesce(error->>'error', error->>'code', 'unknown') = $5)
     order by index limit $4`,
    [jobId, after, state, limit, code],
  );
  return rows;
}

/** Ends the pause of a job that paused of itself. */
export const PAUSE_ENDS = `pause_code = null, pause_message = null, pause_until = null, pause_count = 0,
  paused_at = null, pause_box = null`;
const NOT_PAUSED = `held = false, ${PAUSE_ENDS}`;

/**
 * The condition for jobs that are ready to end: every image is known, and none is queued or runs.
 */
const AT_ITS_END = `finished_at is null and total is not null
  and not exists (select from radserve.item where job_id = j.id and state in ('queued', 'running'))`;

/**
 * Ends jobs that have no waiting or running items, with their final counts.
 * @param ids only these
 */
export async function finishJobs(pool: Pool, ids: readonly string[]): Promise<void> {
  if (ids.length === 0) return;
  const { rows } = await pool.query<{ id: string }>(
    `select id from radserve.job j where id = any($1) and ${AT_ITS_END}`,
    [ids],
  );
  if (rows.length === 0) return;
  const ending = rows.map(({ id }) => id);
  await transaction(pool, async (client) => {
    await client.query("select from radserve.job where id = any($1) order by id for update", [
      ending,
    ]);
    await finishLocked(client, ending);
  });
}

/**
 * The same for a transaction that has the jobs' rows. Without them a job could end whose failed
 * items a client sets to work at that moment: a statement that waits for the row sees the items as
 * they were before.
 */
export async function finishLocked(client: PoolClient, ids: readonly string[]): Promise<void> {
  if (ids.length === 0) return;
  await client.query(
    `update radserve.job j set finished_at = now(), ${NOT_PAUSED}, counts = coalesce(${COUNTS}, '{}')
     where id = any($1) and ${AT_ITS_END}`,
    [ids],
  );
}

/** Takes a row in the scope for a change; other changes of the job wait. */
async function locked(client: PoolClient, scope: JobScope, id: string): Promise<JobRow> {
  await client.query("select from radserve.job where id = $1 for update", [id]);
  return findJob(client, scope, id);
}

function conflict(expected: string, row: JobRow): RadserveError {
  return errors.job_state(`Expected ${expected}; this one is ${row.state}.`, { state: row.state });
}

/**
 * Queued items never start; a second time nothing happens. A job whose items have all ended is
 * completed and stays it.
 */
export function cancelJob(pool: Pool, scope: JobScope, id: string): Promise<void> {
  return transaction(pool, async (client) => {
    await locked(client, scope, id);
    await finishLocked(client, [id]);
    const { rowCount } = await client.query(
      `update radserve.job set cancelled_at = now(), scan_cut = total is null, total = coalesce(total, next_index), ${NOT_PAUSED}
       where id = $1 and finished_at is null and cancelled_at is null`,
      [id],
    );
    if (rowCount === 0) return;
    await client.query(
      `update radserve.item set state = 'cancelled', finished_at = now() where job_id = $1 and state = 'queued'`,
      [id],
    );
    await finishLocked(client, [id]);
  });
}

/** What a job needs that is set to work again; the client's transaction does that. */
export interface Again {
  /** Makes its output folders and leaves its marks there, as when it was taken. */
  mark: (job: JobRow, client: PoolClient) => Promise<void>;
  /** Has its input folder scanned. */
  scan: (job: JobRow, client: PoolClient) => Promise<void>;
}

/** As on its first day. */
const QUEUED_AGAIN = `state = 'queued', result = null, error = null, finished_at = null, attempts = 0, blame = 0,
  not_before = null, waits = null, suspect = blame > 0`;

/** The detail of an error by which a scan says that it read nothing of a folder. */
export const UNREAD = "unread";

/**
 * Failed items wait again, but for folders that were never read: those have no image yet. Of a
 * cancelled job so do those that were cancelled, and it goes on; so does its scan, if it was cut
 * off.
 */
export function retryJob(pool: Pool, scope: JobScope, id: string, again: Again): Promise<number> {
  return requeue(pool, scope, id, again, {
    where:
      "state in ('failed', 'cancelled') and result is null and error->'details'->$2::text is null",
    value: UNREAD,
    withCancelled: true,
  });
}

/** Items whose results are gone wait again. */
export function requeueItems(
  pool: Pool,
  scope: JobScope,
  id: string,
  again: Again,
  indices: readonly number[],
): Promise<number> {
  const where = "state in ('succeeded', 'partial') and index = any($2::int[])";
  return requeue(pool, scope, id, again, { where, value: indices, withCancelled: false });
}

/** Items that wait again. */
interface WaitingItems {
  /** In SQL, with `value` as $2. */
  where: string;
  value: unknown;
  /** The items that were cancelled with the job are among them. */
  withCancelled: boolean;
}

/** @returns how many items wait again */
async function requeue(
  pool: Pool,
  scope: JobScope,
  id: string,
  { mark, scan }: Again,
  { where, value, withCancelled }: WaitingItems,
): Promise<number> {
  const waiting = await transaction(pool, async (client) => {
    const row = await locked(client, scope, id);
    if (row.cancelled_at !== null && row.finished_at === null)
      throw conflict("a cancelled job of which nothing runs any more", row);
    // It would end as completed, with the images that were cancelled
    if (row.cancelled_at !== null && !withCancelled)
      throw conflict("a job that was not cancelled; `retry` goes on with one", row);
    const { rowCount } = await client.query(
      `update radserve.item set ${QUEUED_AGAIN} where job_id = $1 and ${where}`,
      [id, value],
    );
    const items = rowCount ?? 0;
    if (items === 0 && !row.scan_cut) return undefined;
    // Also where its marks may still be there: they may have gone with an end that was not kept
    if (row.over) await mark(row, client);
    await client.query(
      `update radserve.job set finished_at = null, cancelled_at = null, counts = null, marked = marked or finished_at is not null,
         total = case when not scan_cut then total end, scan_cut = false,
         streak = 0, streak_reason = case when pause_code = $2 then streak_reason end,
         report = null, report_until = null where id = $1`,
      [id, REPEATED_FAILURES],
    );
    if (row.scan_cut) await scan(row, client);
    return items;
  });
  if (waiting !== undefined) await forgetHindrances(pool, id);
  return waiting ?? 0;
}

/**
 * The pause of a job whose items fail one after the other for one reason: it ends by request only.
 */
export const REPEATED_FAILURES = "repeated_failures";

/**
 * Pausing leaves a job alone that is held already. A job that goes on after it failed again and
 * again for one reason does not pause for that reason any more: whoever resumed it has read it.
 */
export async function setPaused(
  pool: Pool,
  scope: JobScope,
  id: string,
  paused: boolean,
): Promise<void> {
  await transaction(pool, async (client) => {
    const row = await locked(client, scope, id);
    if (row.finished_at !== null || row.cancelled_at !== null)
      throw conflict(`a job that is not over, to ${paused ? "pause" : "resume"} it`, row);
    if (paused)
      await client.query(
        `update radserve.job set held = true, pause_code = null, pause_message = null, pause_until = null,
           pause_count = 0, paused_at = now(), pause_box = null
         where id = $1 and not held and finished_at is null`,
        [id],
      );
    else
      await client.query(
        `update radserve.job set ${NOT_PAUSED}, streak = 0, streak_reason = null,
           accepted_reasons = case when pause_code = $2 and streak_reason is not null
             then array_append(accepted_reasons, streak_reason) else accepted_reasons end
         where id = $1`,
        [id, REPEATED_FAILURES],
      );
  });
  if (!paused) await forgetHindrances(pool, id);
}

/**
 * Every node tries the job anew. Apart from the job's lock: the end of a node takes both in the
 * other order.
 */
async function forgetHindrances(pool: Pool, id: string): Promise<void> {
  await pool.query("delete from radserve.hindrance where job_id = $1", [id]);
}

/** What a job waited for is there again. */
export async function endPause(pool: Pool, id: string, code: string): Promise<void> {
  await pool.query(
    `update radserve.job set ${PAUSE_ENDS} where id = $1 and pause_code = $2 and not held`,
    [id, code],
  );
  await forgetHindrances(pool, id);
}

/** Forgets a job that is over; its results stay where they are. */
export function purgeJob(pool: Pool, scope: JobScope, id: string): Promise<JobRow> {
  return transaction(pool, async (client) => {
    const row = await locked(client, scope, id);
    if (!row.over)
      throw conflict("a job of which nothing waits or runs any more, to forget it", row);
    await purgeJobs(client, "id = $1", [id]);
    return row;
  });
}

/**
 * Forgets jobs that ended longer ago than `days` by the database's clock, and before a time of day
 * (ms since 1970) by which they are as old by another clock, too.
 */
export async function purgeOlderThan(pool: Pool, days: number, before: number): Promise<number> {
  await forgetTraces(pool);
  return purgeJobs(
    pool,
    "finished_at < now() - make_interval(days => $1) and finished_at < to_timestamp($2)",
    [days, before / 1000],
  );
}
