/**
 * Jobs that no node can run any more, because the models or the release that they were submitted
 * with are gone: they go on with what the nodes have now. Those of which nothing was done do so by
 * themselves, because nothing can be mixed in them; the others when somebody wants it.
 */
import type { Pool } from "pg";
import { durations } from "../base/durations.js";
import { monotonic } from "../base/monotonic.js";
import { VERSION } from "../base/version.js";
import { BulkUnavailable } from "./database-trouble.js";
import { hasPassed, jsonb, transaction } from "./database.js";
import type { JobRequest } from "./jobs.js";
import { isYounger, type Instance } from "./nodes.js";
import { hasBegun, isRunBySome, runsNow, type Pins } from "./pins.js";

/** Nodes tell that they live meanwhile, and must not be silent for it. */
const LONGEST_LOCK_MS = 1_000;

const HAS_RESULTS =
  "exists (select from radserve.item where job_id = j.id and state in ('succeeded', 'partial'))";
/** The time of the database, as answers have it. */
const NOW_TEXT = `to_char(now() at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')`;
/** What a job had before stays with it where results were made with that. */
const KEEP_BEFORE = `pinned_before = case when ${HAS_RESULTS}
  then j.pinned_before || jsonb_build_array(j.pins) else j.pinned_before end`;

/** The condition for jobs that wait for a node that has what they were submitted with. */
const WAITS = `j.pins is not null and j.finished_at is null and j.cancelled_at is null
  and not ${isRunBySome("j")}`;
/** The same for those that go on by themselves. One that is held waits for somebody anyway. */
const WAITS_UNBEGUN = `${WAITS} and not j.held and not ${hasBegun("j")}`;

/** A job that goes on with other models, or another release, than it had. */
export interface JobPinnedAnew {
  id: string;
  subject: string;
  pins: Pins;
  before: Pins;
}

/**
 * Gives jobs other pins, and keeps those of before with them. Meanwhile no node changes what it
 * has, and none takes items: one that has the earlier versions again could lease some by them.
 * @param node the name of the node whose models they are
 * @param which a condition for jobs `j`
 */
function changePins(
  pool: Pool,
  jobs: readonly { id: string; pins: Pins }[],
  node: string,
  which: string,
): Promise<JobPinnedAnew[]> {
  return transaction(pool, async (client) => {
    await client.query(`set local lock_timeout = ${LONGEST_LOCK_MS}`);
    await client.query("lock table radserve.instance in share row exclusive mode");
    await client.query("select from radserve.instance for update");
    const { rows } = await client.query<JobPinnedAnew>(
      `with before as materialized (
         select j.id, j.pins as before, anew.pins, not ${HAS_RESULTS} as unmixed
         from jsonb_to_recordset($1::jsonb) as anew (id uuid, pins jsonb) join radserve.job j using (id)
         where ${which} and j.pins <> anew.pins
         order by j.id for update of j
       )
       update radserve.job j set pins = b.pins, ${KEEP_BEFORE},
         pinned_anew = case when unmixed then j.pinned_anew
           || jsonb_build_array(jsonb_build_object('at', ${NOW_TEXT}, 'node', $2::text, 'before', b.before))
           else j.pinned_anew end
       from before b where j.id = b.id
       returning j.id, j.subject, j.pins, b.before`,
      [jsonb(jobs), node],
    );
    return rows;
  });
}

/**
 * A job that no node can run goes on with what this node has now, because somebody wants it to.
 * @throws RadserveError for a model that is not there or not loaded
 */
export async function pinAnew(
  pool: Pool,
  id: string,
  node: string,
  anew: () => Promise<Pins>,
): Promise<void> {
  const { rowCount } = await pool.query(`select from radserve.job j where j.id = $1 and ${WAITS}`, [
    id,
  ]);
  if (rowCount === 0) return;
  await changePins(pool, [{ id, pins: await anew() }], node, WAITS);
}

/**
 * The jobs that no node can run, by when this node saw it first: a node that starts again may have
 * what they need.
 */
export class UnrunnableJobs {
  #since = new Map<string, number>();

  /**
   * Jobs that have waited long enough, and of which nothing was done, get what this node has, if it
   * may run them at all.
   * @param pinsOf what this node has of the models that a request may run
   */
  async pinAnew(
    pool: Pool,
    instance: Instance,
    pinsOf: (request: JobRequest) => Promise<Pins>,
  ): Promise<JobPinnedAnew[]> {
    const { rows } = await pool.query<{ id: string; request: JobRequest }>(
      `select j.id, j.request from radserve.job j
       join radserve.instance me on me.id = $1 and ${runsNow("me")} and not ${isYounger("me")}
       left join radserve.hindrance h on h.job_id = j.id and h.instance = $1
       where ${WAITS_UNBEGUN} and ${hasPassed("h.until")}`,
      [instance.id],
    );
    const now = monotonic();
    const waiting = rows.map((row) => ({ ...row, since: this.#since.get(row.id) ?? now }));
    this.#since = new Map(waiting.map(({ id, since }) => [id, since]));
    const due = waiting.filter(({ since }) => now - since >= durations.jobPinAnew);
    if (due.length === 0) return [];
    const anew = await Promise.all(
      due.map(async ({ id, request }) => {
        // A model that is not here either: perhaps another node has it
        const pins = await pinsOf(request).catch(() => undefined);
        return pins === undefined ? [] : { id, pins };
      }),
    );
    return changePins(pool, anew.flat(), instance.name, WAITS_UNBEGUN).catch((error: unknown) => {
      // A node that stands still has a lock
      if (error instanceof BulkUnavailable && error.reason === "database_locked") return [];
      throw error;
    });
  }
}

/**
 * The only node of a database was upgraded: all its jobs go on with this release, and those that
 * have results keep the one of before.
 */
export async function takeOverRelease(pool: Pool): Promise<void> {
  await pool.query(
    `update radserve.job j set pins = jsonb_set(pins, '{release}', to_jsonb($1::text)), ${KEEP_BEFORE}
     where finished_at is null and pins->>'release' <> $1`,
    [VERSION],
  );
}
