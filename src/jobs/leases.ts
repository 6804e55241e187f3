/**
 * Which node works on which item: items are leased, and what became of them is written down.
 * `owner` (the node) and `lease` fence them: whoever comes back after its items were given to
 * others changes nothing any more.
 */
import type { Pool } from "pg";
import { durations } from "../base/durations.js";
import type { ErrorObject } from "../base/errors.js";
import type { Summary } from "../results/commit/compose.js";
import { hasPassed, jsonb } from "./database.js";
import { finishJobs, PAUSE_ENDS, REPEATED_FAILURES, type JobRequest } from "./jobs.js";
import {
  canRun,
  isRunBySome,
  NO_NODE_CAN_RUN,
  OTHER_VERSIONS,
  runsNow,
  SOME_NODE_RUNS,
  someNodeRuns,
  type Pins,
} from "./pins.js";
import { isMissed, mayBeOn, MISSING_HERE, missingOn } from "./missing-images.js";
import { isYounger, type Instance } from "./nodes.js";

/** How many jobs and items there are on all nodes. */
export interface Depth {
  /** Jobs that have not ended, or whose marks are still in their folders. */
  open: number;
  queued: number;
  running: number;
  paused: number;
  /** How many jobs are paused for each reason. */
  paused_for: Readonly<Record<string, number>>;
}

export interface LeasedItem {
  job_id: string;
  index: number;
  /** Whose job it is. */
  subject: string;
  input: string;
  output: string | null;
  created_at: Date;
  lease: number;
  attempts: number;
  alone: boolean;
  /** When the first item of its job was taken. */
  started_at: Date | null;
  request: JobRequest;
  input_roots: string[] | null;
  output_roots: string[] | null;
  marked: boolean;
  /** What it is to run with; null for a job of an earlier version. */
  pins: Pins | null;
  /** Of the request that its job came by. */
  traceparent: string | null;
}

/** How the work on a leased item ended. */
export type Ending =
  | { state: "succeeded" | "partial"; result: Summary }
  | { state: "failed"; error: ErrorObject }
  | { state: "skipped"; reason: { code: string; message: string } }
  | { state: "cancelled" }
  /**
   * It is taken again after some seconds. `counts` is false if the item was not to blame for the
   * attempt's end; `why` is the code of what it waits for, if that is not its job's pause.
   */
  | { state: "queued"; afterSeconds: number; counts: boolean; why?: string };

export interface Settled {
  item: LeasedItem;
  ending: Ending;
  /** It failed because this node does not find it; another may. */
  missing?: boolean | undefined;
}

/** The items that the database says this node has. */
export async function ownItems(pool: Pool, { id }: Instance): Promise<LeasedItem[]> {
  const { rows } = await pool.query<LeasedItem>(
    `select ${LEASED} from radserve.item i join radserve.job j on j.id = i.job_id
     where i.owner = $1 and i.state = 'running'`,
    [id],
  );
  return rows;
}

const RUNNABLE = `j.finished_at is null and j.cancelled_at is null and not j.held
  and ${hasPassed("j.pause_until")}`;

/**
 * The condition for items that may be taken now by the node $1; $3 says whether suspects are.
 */
const TAKEABLE = `i.state = 'queued' and i.suspect = $3 and ${hasPassed("i.not_before")}
  and ${mayBeOn("i", "$1::uuid")}`;

/** Whether a suspect waits for this node, once it does nothing else. */
export async function someSuspect(pool: Pool, { id }: Pick<Instance, "id">): Promise<boolean> {
  const { rows } = await pool.query<{ some: boolean }>(
    `select exists (select from radserve.item i join radserve.job j on j.id = i.job_id
       join radserve.instance me on me.id = $1 and not ${isYounger("me")} and ${canRun("j", "me")}
       left join radserve.hindrance h on h.job_id = j.id and h.instance = $1
       where i.state = 'queued' and i.suspect and ${hasPassed("i.not_before")} and ${mayBeOn("i", "$1::uuid")}
       and ${RUNNABLE} and ${hasPassed("h.until")}) as some`,
    [id],
  );
  return rows[0]?.some === true;
}

/**
 * Suspects by turns: the first of them would be the one that is alone at every kill from outside,
 * and fail for it.
 */
const LEAST_BLAMED = "i.blame, i.index";

const LEASED = `i.job_id, i.index, i.input, i.output, i.created_at, i.lease, i.attempts, i.alone,
  j.started_at, j.subject, j.request, j.input_roots, j.output_roots, j.marked, j.traceparent, j.pins`;

/**
 * Jobs that one lease looks into, each of which gives something. One subject may have more; the
 * others of it come when these have given what they had.
 */
const MOST_JOBS = 100;
/**
 * How many times the items of a lease are looked at, where the jobs have as many: each subject's
 * part of them, and of that each job's. Where most have fewer than their part, a lease brings less
 * than was asked for, and the next one the rest.
 */
const CANDIDATES = 4;

/**
 * The statement that takes items: chosen first, and only what is taken is locked. Where other nodes
 * choose the same at that moment, the next ones are taken, so there are several times as many
 * candidates. Subjects take turns, then the jobs of a subject, and `stat` jobs of it before all its
 * others. A turn counts what already runs.
 */
const leaseStatement = (alone: boolean) => `with alive as materialized (
    select release, models, result_keys from radserve.instance me where id = $1 and not ${isYounger("me")} for key share
  ), open as materialized (
    select j.id, j.seq, j.subject, coalesce(j.request->>'priority' = 'stat', false) as stat, r.active,
      greatest(case when j.pause_count > 0 then r.active end, case when h.job_id is not null then r.own end) as trying,
      sum(r.active) over (partition by j.subject)::int as of_subject
    from alive, radserve.job j left join radserve.hindrance h on h.job_id = j.id and h.instance = $1
    cross join lateral (select count(*)::int as active, (count(*) filter (where owner = $1))::int as own
      from radserve.item where job_id = j.id and state = 'running') r
    where ${RUNNABLE} and ${hasPassed("h.until")} and ${canRun("j", "alive")}
  ), ranked as (
    select o.*, row_number() over (partition by subject order by stat desc, active, seq) as rank
    from open o cross join lateral
      (select from radserve.item i where i.job_id = o.id and ${TAKEABLE} order by i.index limit 1) w
    where o.trying is null or o.trying < 1
  ), looked as materialized (
    select * from ranked order by rank, of_subject, seq limit ${MOST_JOBS}
  ), runnable as materialized (
    select r.*,
      ceil($2::int * ${CANDIDATES} / (s.subjects * count(*) over (partition by r.subject, r.stat)))::bigint as most
    from looked r cross join (select count(distinct subject)::float8 as subjects from looked) s
  ), candidate as materialized (
    select r.id as job_id, r.subject, r.seq, r.stat, r.active, r.of_subject, c.index, c.blame
    from runnable r cross join lateral (
      select i.index, i.blame from radserve.item i where i.job_id = r.id and ${TAKEABLE}
      order by ${alone ? LEAST_BLAMED : "i.index"}
      limit case when r.trying is null then r.most else 1 end) c
  ), turns as (
    select *, active + row_number() over (partition by job_id order by blame, index) as turn from candidate
  ), placed as materialized (
    select job_id, index, row_number() over (order by of_subject + place, seq) as place from (
      select *, row_number() over (partition by subject order by stat desc, turn, blame, seq) as place from turns) t
    order by place limit $2::int * ${CANDIDATES}
  ), picked as materialized (
    select i.job_id, i.index, p.place from placed p join radserve.item i using (job_id, index)
    where ${TAKEABLE} order by p.place limit $2 for update of i skip locked
  ), taken as (
    update radserve.item i set state = 'running', owner = $1, lease = i.lease + 1, attempts = i.attempts + 1,
      alone = $3, not_before = null
    from picked p, radserve.job j
    where i.job_id = p.job_id and i.index = p.index and i.state = 'queued' and j.id = i.job_id
    returning p.place, ${LEASED}
  )
  select * from taken order by place`;

/**
 * Takes items: by turns of the subjects, then of their jobs. Of a job that paused of itself one
 * item at a time is tried until one goes well, and so of one that this node left alone. They come
 * in the order in which they are to run. Nothing if this node was taken for dead meanwhile; that it
 * is not holds until the items are its own.
 * @param alone suspects only
 */
export async function lease(
  pool: Pool,
  instance: Instance,
  limit: number,
  alone: boolean,
): Promise<LeasedItem[]> {
  const { rows } = await pool.query<LeasedItem>(leaseStatement(alone), [instance.id, limit, alone]);
  const first = rows.filter(({ started_at }) => started_at === null).map(({ job_id }) => job_id);
  if (first.length > 0)
    await pool.query(
      "update radserve.job set started_at = now() where id = any($1) and started_at is null",
      [[...new Set(first)]],
    );
  return rows;
}

function rowOf({ item, ending }: Settled) {
  const queued = ending.state === "queued" ? ending : undefined;
  return {
    job_id: item.job_id,
    index: item.index,
    lease: item.lease,
    state: ending.state,
    after: queued?.afterSeconds ?? null,
    why: queued?.why ?? null,
    uncounted: queued?.counts === false ? 1 : 0,
    result: "result" in ending ? ending.result : null,
    error: "error" in ending ? ending.error : "reason" in ending ? ending.reason : null,
  };
}

/**
 * The condition for jobs that paused of themselves and try again: one image that goes well ends the
 * pause.
 */
const PAUSE_OVER = `pause_count > 0 and ${hasPassed("pause_until")}`;

/**
 * Records how items ended. A paused job goes on if one of its items succeeded, and a job ends with
 * its last item. Items that no longer belong to this node are left alone; items of a cancelled job
 * that would wait again are cancelled. Each step is a statement of its own. Only the first must not
 * be lost: if a crash follows it, `tidy` ends jobs that have no items left.
 * @param busy jobs that do not end now, because this node has other items of them @param limit
 * number of failures in a row, for one reason, that pauses a job; 0: a job is never paused for this
 */
export async function settle(
  pool: Pool,
  instance: Instance,
  settled: readonly Settled[],
  busy: ReadonlySet<string>,
  limit = 0,
): Promise<void> {
  const rows = settled.map(rowOf);
  const jobs = [...new Set(rows.map(({ job_id }) => job_id))];
  // The job first, as everybody does, so that no cancelling comes between.
  const { rows: found } = await pool.query<{
    id: string;
    pause_over: boolean;
    failing: boolean;
    written: number[];
  }>(
    `with j as materialized (
       select id, cancelled_at, pause_count, pause_until, streak from radserve.job where id = any($3) order by id for update
     ), written as (
       update radserve.item i set
         state = case when r.state = 'queued' and j.cancelled_at is not null then 'cancelled' else r.state end,
         finished_at = case when r.state <> 'queued' or j.cancelled_at is not null then now() end,
         attempts = i.attempts - r.uncounted,
         not_before = now() + make_interval(secs => r.after), result = r.result, error = r.error,
         waits = case when r.why is not null then jsonb_build_object('reason', r.why, 'box', $4::text, 'since',
           case when i.waits->>'reason' = r.why then i.waits->'since' else to_jsonb(now()) end)
             || ${missingOn("i", "$1::uuid", `r.why = '${MISSING_HERE}'`)}
           when r.state = 'queued' and (i.suspect or ${isMissed("i")}) then i.waits end,
         suspect = i.suspect and r.state = 'queued', alone = false, owner = null
       from jsonb_to_recordset($2::jsonb) as r (job_id uuid, index int, lease int, state text, after float8,
           why text, uncounted int, result jsonb, error jsonb), j
       where i.job_id = r.job_id and i.index = r.index and i.owner = $1 and i.lease = r.lease
         and i.state = 'running' and j.id = i.job_id
       returning i.job_id, i.index
     )
     select id, ${PAUSE_OVER} as pause_over, streak > 0 as failing,
       array(select index from written where job_id = j.id) as written from j`,
    [instance.id, jsonb(rows), jobs, instance.name],
  );
  // What was written before, when a later statement failed, has been counted
  const written = new Map(found.map((job) => [job.id, new Set(job.written)]));
  const counting = settled.filter(({ item }) => written.get(item.job_id)?.has(item.index));
  if (
    limit > 0 &&
    (found.some(({ failing }) => failing) ||
      counting.some(({ ending }) => ending.state === "failed"))
  )
    await countFailures(pool, instance, streaksOf(counting), limit);
  // Images that were under way when the pause began say nothing about its end: only those that
  // tried it after.
  const well = new Set(
    counting
      .filter(({ ending: { state } }) => state === "succeeded" || state === "partial")
      .map(({ item }) => item.job_id),
  );
  const resumed = found
    .filter(({ id, pause_over }) => pause_over && well.has(id))
    .map(({ id }) => id);
  if (resumed.length > 0)
    await pool.query(
      `update radserve.job set ${PAUSE_ENDS} where id = any($1) and not held and ${PAUSE_OVER}`,
      [resumed],
    );
  if (well.size > 0)
    await pool.query(
      `delete from radserve.hindrance where instance = $1 and job_id = any($2) and ${hasPassed("until")}`,
      [instance.id, [...well]],
    );
  await finishJobs(
    pool,
    jobs.filter((id) => !busy.has(id)),
  );
}

/**
 * A job waits: for something that mends itself, or that an operator mends. Longer each time in a
 * row.
 * @param node the name of the node that found why
 */
export async function pauseJob(
  pool: Pool,
  id: string,
  { code, message }: { code: string; message: string },
  node: string,
): Promise<void> {
  await pool.query(
    `update radserve.job set pause_count = pause_count + 1,
       pause_until = now() + make_interval(secs => least($5::float8, $4::float8 * 2 ^ least(pause_count, 10))),
       paused_at = case when pause_code = $2 then paused_at else now() end, pause_box = $6,
       pause_code = $2, pause_message = $3
     where id = $1 and not held and finished_at is null and cancelled_at is null
       and ${hasPassed("pause_until")}`,
    [id, code, message, durations.jobPause / 1000, durations.jobPauseMost / 1000, node],
  );
}

/** The condition that a node other than $2 can run the job $1, and does not leave it alone. */
const ANOTHER_MAY_RUN = someNodeRuns(
  `n.id <> $2 and not ${isYounger("n")} and ${canRun("j", "n")}
   and not exists (select from radserve.hindrance where job_id = $1 and instance = n.id)`,
);

/**
 * A node leaves a job alone that it cannot run: others go on with it. Longer each time in a row.
 * The job pauses where every node that lives, and could run it, says the same.
 * @returns whether the job pauses
 */
export async function hinderJob(
  pool: Pool,
  id: string,
  why: { code: string; message: string },
  instance: Instance,
): Promise<boolean> {
  await pool.query(
    `insert into radserve.hindrance as h (job_id, instance, code, message, until)
     select j.id, i.id, $3, $4, now() + make_interval(secs => $5::float8)
     from radserve.job j, (select id from radserve.instance where id = $2 for key share) i
     where j.id = $1
     on conflict (job_id, instance) do update set code = excluded.code, message = excluded.message,
       since = case when h.code = excluded.code then h.since else now() end, count = h.count + 1,
       until = now() + make_interval(secs => least($6::float8, $5::float8 * 2 ^ least(h.count, 10)))
     where ${hasPassed("h.until")}`,
    [
      id,
      instance.id,
      why.code,
      why.message,
      durations.jobPause / 1000,
      durations.jobPauseMost / 1000,
    ],
  );
  const { rows } = await pool.query<{ others: boolean }>(
    `select ${ANOTHER_MAY_RUN} as others from radserve.job j where j.id = $1`,
    [id, instance.id],
  );
  if (rows[0]?.others === true) return false;
  await pauseJob(pool, id, why, instance.name);
  return true;
}

/** Whether a node leaves a job alone for now. */
export async function isHindered(
  pool: Pool,
  job: string,
  { id }: Pick<Instance, "id">,
): Promise<boolean> {
  const { rowCount } = await pool.query(
    `select from radserve.hindrance where job_id = $1 and instance = $2 and not ${hasPassed("until")}`,
    [job, id],
  );
  return rowCount === 1;
}

/** What kept a node from a job, for one of these reasons, is over. */
export async function unhinderJob(
  pool: Pool,
  job: string,
  { id }: Pick<Instance, "id">,
  codes: readonly string[],
): Promise<void> {
  await pool.query(
    "delete from radserve.hindrance where job_id = $1 and instance = $2 and code = any($3)",
    [job, id, codes],
  );
}

/**
 * How many jobs a node leaves to others, by reason. One that pauses, or that no node can run, is
 * told by itself.
 */
export async function hindrancesOf(
  pool: Pool,
  id: string | undefined,
): Promise<Record<string, number>> {
  if (id === undefined) return {};
  const { rows } = await pool.query<{ code: string; jobs: number }>(
    `select h.code, count(*)::int as jobs from radserve.hindrance h join radserve.job j on j.id = h.job_id
     where h.instance = $1 and j.finished_at is null and j.cancelled_at is null and not j.held
       and j.pause_code is distinct from h.code
     group by 1
     union all
     select $2::text, count(*)::int from radserve.job j join radserve.instance me on me.id = $1 and ${runsNow("me")}
     where j.finished_at is null and j.cancelled_at is null and not j.held and j.pause_code is null
       and not ${canRun("j", "me")} and ${isRunBySome("j")}
     having count(*) > 0
     order by 1`,
    [id, OTHER_VERSIONS],
  );
  return Object.fromEntries(rows.map(({ code, jobs }) => [code, jobs]));
}

/** How the items of one job ended, in their order: the failures since the last that went well. */
interface Streak {
  job_id: string;
  /** The last reason: a code and, if a model failed, the model. Null if the last item went well. */
  reason: string | null;
  /** Failures for that reason at the end, without another between. */
  count: number;
  /** All that ended are these failures: they go on with those that were counted before. */
  all: boolean;
}

/** The reason that failed items have in common. */
function reasonOf({ error, details }: ErrorObject): string {
  const model = details?.["model"];
  return typeof model === "string" ? `${error} (model ${model})` : error;
}

/** Items that wait again, were skipped or cancelled say nothing. */
function streaksOf(settled: readonly Settled[]): Streak[] {
  const streaks = new Map<string, Streak>();
  for (const { item, ending } of settled) {
    if (ending.state !== "failed" && ending.state !== "succeeded" && ending.state !== "partial")
      continue;
    const reason = ending.state === "failed" ? reasonOf(ending.error) : null;
    const before = streaks.get(item.job_id);
    const same = before === undefined || before.reason === reason;
    streaks.set(item.job_id, {
      job_id: item.job_id,
      reason,
      count: reason === null ? 0 : same ? (before?.count ?? 0) + 1 : 1,
      all: reason !== null && same && before?.all !== false,
    });
  }
  return [...streaks.values()];
}

/**
 * Counts failures in a row, and holds jobs in which they are too many, but for reasons after which
 * one was resumed. Of a job that is held the count stays, with its reason: those are what it is
 * resumed after.
 */
async function countFailures(
  pool: Pool,
  instance: Instance,
  streaks: readonly Streak[],
  limit: number,
): Promise<void> {
  const counted = `case when s."all" and j.streak_reason = s.reason then j.streak else 0 end + s.count`;
  await pool.query(
    `update radserve.job j set streak = ${counted}, streak_reason = s.reason
     from jsonb_to_recordset($1::jsonb) as s (job_id uuid, reason text, count int, "all" boolean)
     where j.id = s.job_id and not j.held and (s.reason is not null or j.streak > 0)`,
    [jsonb(streaks)],
  );
  const failing = streaks.filter(({ reason }) => reason !== null).map(({ job_id }) => job_id);
  if (failing.length === 0) return;
  await pool.query(
    `update radserve.job set held = true, pause_code = $3, paused_at = now(), pause_box = $4, pause_until = null,
       pause_count = 0, pause_message = format($5::text, streak, streak_reason)
     where id = any($1) and streak >= $2 and not held and finished_at is null and cancelled_at is null
       and not streak_reason = any(accepted_reasons)`,
    [failing, limit, REPEATED_FAILURES, instance.name, FAILED_AGAIN],
  );
}

const FAILED_AGAIN =
  "%s images in a row failed with %s, and none succeeded between them. See GET .../items?state=failed. POST .../resume continues, and the job does not pause for this reason again; POST .../retry runs the failed ones again.";

/**
 * Ends what a race between nodes may have left: items that wait in a cancelled job, jobs without an
 * open item.
 */
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

/** Which of the given jobs were cancelled. */
export async function cancelledAmong(pool: Pool, ids: readonly string[]): Promise<Set<string>> {
  const { rows } = await pool.query<{ id: string }>(
    "select id from radserve.job where id = any($1) and cancelled_at is not null",
    [ids],
  );
  return new Set(rows.map(({ id }) => id));
}

/** The condition that a job waits because no node can run it, whatever it waited for before. */
const LACKS_NODE = `(not j.held and j.pins is not null and ${SOME_NODE_RUNS} and not ${isRunBySome("j")})`;

/** Two partial indices serve the question for open jobs, which is asked by their conditions. */
export async function depth(pool: Pool): Promise<Depth> {
  const { rows } = await pool.query<Omit<Depth, "paused">>(
    `select count(*)::int as open, coalesce(sum(n.queued), 0)::int as queued, coalesce(sum(n.running), 0)::int as running,
       (select coalesce(jsonb_object_agg(reason, jobs), '{}') from (
          select coalesce(case when ${LACKS_NODE} then $1::text end, pause_code, 'paused_by_request') as reason,
            count(*)::int as jobs
          from radserve.job j where finished_at is null and cancelled_at is null
            and (held or pause_code is not null or ${LACKS_NODE}) group by 1) p) as paused_for
     from radserve.job j cross join lateral
       (select count(*) filter (where state = 'queued') as queued, count(*) filter (where state = 'running') as running
        from radserve.item where job_id = j.id and state in ('queued', 'running')) n
     where j.finished_at is null or (j.marked and j.finished_at is not null)`,
    [NO_NODE_CAN_RUN],
  );
  const found = rows[0] ?? { open: 0, queued: 0, running: 0, paused_for: {} };
  return { ...found, paused: Object.values(found.paused_for).reduce((sum, jobs) => sum + jobs, 0) };
}
