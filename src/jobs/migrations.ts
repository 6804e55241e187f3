/** The bulk tables, in a schema of their own, and their changes from release to release. */
import type { Pool, PoolClient, QueryConfig } from "pg";
import { durations } from "../base/durations.js";
import { transaction, type Queryable } from "./database.js";
import { BulkUnavailable } from "./database-trouble.js";

/** The first version of the tables in which a node says its release. */
const NODES_TELL_THEIR_RELEASE = 11;

/** Any fixed number: whoever holds it makes or changes tables, others wait. */
const MIGRATION_LOCK = 7_233_018;

/** Tables are made within a second; a slow disk with many nodes may take some. */
const LONGEST_TURN_MS = 30_000;

/**
 * Each entry takes the tables one version further; entries that were released are never changed.
 *
 * Items are rows that are leased here, and not jobs of pg-boss, which has the scans and the daily
 * sweep: docs/architecture.md says why, with figures.
 */
const MIGRATIONS = [
  `create table radserve.job (
     id uuid primary key,
     seq bigint generated always as identity unique,
     subject text not null,
     input_roots text[],
     output_roots text[],
     request jsonb not null,
     request_sha256 text not null,
     idempotency_key text,
     created_at timestamptz(3) not null default now(),
     started_at timestamptz(3),
     finished_at timestamptz(3),
     cancelled_at timestamptz(3),
     total integer,
     next_index integer not null default 0,
     counts jsonb,
     held boolean not null default false,
     pause_code text,
     pause_message text,
     pause_until timestamptz,
     pause_count integer not null default 0
   );
   create unique index job_idempotency on radserve.job (subject, idempotency_key) where idempotency_key is not null;
   create index job_subject on radserve.job (subject, seq desc);
   create index job_open on radserve.job (seq) where finished_at is null;

   create table radserve.item (
     job_id uuid not null references radserve.job on delete cascade,
     index integer not null,
     id uuid not null,
     input text not null,
     output text,
     state text not null check (state in
       ('queued', 'running', 'succeeded', 'partial', 'failed', 'skipped', 'cancelled')),
     created_at timestamptz(3) not null default now(),
     not_before timestamptz,
     finished_at timestamptz(3),
     attempts integer not null default 0,
     lease integer not null default 0,
     owner uuid,
     suspect boolean not null default false,
     alone boolean not null default false,
     crashes integer not null default 0,
     result jsonb,
     error jsonb,
     primary key (job_id, index)
   );
   create unique index item_id on radserve.item (job_id, id);
   create index item_state on radserve.item (job_id, state, index);
   create index item_suspect on radserve.item (job_id, index) where state = 'queued' and suspect;
   create index item_owner on radserve.item (owner) where state = 'running';
   create index item_finished on radserve.item (job_id, finished_at) where finished_at is not null;

   create table radserve.instance (
     id uuid primary key,
     box uuid not null,
     process uuid not null,
     works boolean not null,
     ready boolean not null,
     beat_at timestamptz not null default now()
   );`,
  // Output folders, as the client named them, that were mount points when the job was taken.
  "alter table radserve.job add column marked text[] not null default '{}'",
  // No longer a number of crashes: how sure it is that the item was their cause.
  "alter table radserve.item rename column crashes to blame",
  // Every output folder of a job has its mark, until the job has ended. Why a job or an item waits,
  // since when, and which node found it. A job whose items fail one after the other for one reason.
  `alter table radserve.job drop column marked;
   alter table radserve.job add column marked boolean not null default false,
     add column paused_at timestamptz(3), add column pause_box text,
     add column streak_reason text, add column streak integer not null default 0,
     add column accepted_reasons text[] not null default '{}';
   create index job_marked on radserve.job (seq) where marked and finished_at is not null;
   alter table radserve.item add column waits jsonb;
   create index item_waits on radserve.item (job_id) where state = 'queued' and waits is not null;
   alter table radserve.instance add column name text not null default '';`,
  // By its row nodes know the tables again: those that were lost and made anew have another.
  `create table radserve.origin (
     id uuid primary key default gen_random_uuid(),
     made_at timestamptz(3) not null default now(),
     lost_before boolean not null default false
   );
   insert into radserve.origin default values;`,
  // The report that is written when a job ends: what became of it, and which node is at it until
  // when.
  `alter table radserve.job add column report jsonb, add column report_token uuid, add column report_until timestamptz`,
  // No table changes: requests may hold a group and destinations, which versions before would pass
  // over without a word.
  "select 1",
  // What waits of a job, in its order, whatever the statistics say of its size. The index is made
  // in the transaction of the tables, so that no half of it is left: writing waits meanwhile, and
  // reading does not. The room in each page is for the versions that a row has when it is taken
  // and when it ends.
  `create index item_queued on radserve.item (job_id, index) where state = 'queued';
   alter table radserve.item set (fillfactor = 70)`,
  // Which node leaves which job alone, and why; it goes with the node.
  `create table radserve.hindrance (
     job_id uuid not null references radserve.job on delete cascade,
     instance uuid not null references radserve.instance on delete cascade,
     code text not null,
     message text not null,
     since timestamptz(3) not null default now(),
     until timestamptz not null,
     count integer not null default 1,
     primary key (job_id, instance)
   );
   create index hindrance_instance on radserve.hindrance (instance)`,
  // Version 0.6 called the gateway's subject otherwise: its jobs are taken over, once, so that what
  // is received belongs to the job that it has. From now on "doors" is a subject like any other.
  `update radserve.job as earlier set subject = 'gateway' where subject = 'doors'
   and not exists (select from radserve.job as now
     where now.subject = 'gateway' and now.idempotency_key = earlier.idempotency_key)`,
  // What nodes tell of themselves, and what a job was submitted with. A row of before has no place,
  // and no release.
  `alter table radserve.instance add column release text not null default '',
     add column address text not null default '',
     add column place text not null default '',
     add column entered_at timestamptz not null default now(),
     add column models jsonb not null default '{}',
     add column keys text[] not null default '{}',
     add column result_keys text[] not null default '{}',
     add column roots jsonb not null default '[]',
     add column clock_offset_ms float8;
   alter table radserve.job add column pins jsonb, add column pinned_before jsonb not null default '[]'`,
  // The trace that a job was asked for in. Jobs that somebody purged, and those that a node misses
  // since a backup or a standby took the place of newer tables.
  `alter table radserve.job add column traceparent text;
   create table radserve.gone_job (
     id uuid primary key,
     subject text not null,
     gone_at timestamptz(3) not null default now(),
     missed_by text
   )`,
  // When a job of which nothing was done got other pins, on which node, and those of before.
  "alter table radserve.job add column pinned_anew jsonb not null default '[]'",
  // Settings by which nodes are compared, too.
  "alter table radserve.instance add column settings jsonb not null default '{}'",
  // The scan of a cancelled job had not ended: a retry goes on with it.
  "alter table radserve.job add column scan_cut boolean not null default false",
];

/** A change of the tables may read all of them; no network is that slow. */
const LONGEST_CHANGE_MS = 6 * 3_600_000;

/** The tables, and the version that brought each. */
const TABLES: Readonly<Record<string, number>> = {
  job: 1,
  item: 1,
  instance: 1,
  origin: 5,
  hindrance: 9,
  gone_job: 12,
};

export interface Migrated {
  /** Identifies these tables: others have another. */
  origin: string;
  /** They were made now. */
  made: boolean;
  /**
   * The schema that holds the rest, and its jobs that had not ended; absent unless some of the
   * tables were gone.
   */
  setAside?: { schema: string; jobs: string[] };
}

/**
 * Brings the tables up to this release; many nodes may start at once. If some of them are gone,
 * what is left is kept under another name, and all are made anew: jobs without items would end at
 * once as if all were done. Throws if the database is of a newer release, or if other nodes of one
 * that knows no pins work with it.
 * @param node this one's number: what it left itself is no other node
 */
export function migrate(pool: Pool, node?: string): Promise<Migrated> {
  return inTurn(pool, async (client) => {
    const setAside = await setAsideParts(client);
    await refuseEarlierNodes(client, node);
    await client.query("create schema if not exists radserve");
    await client.query(
      "create table if not exists radserve.migration (version integer primary key, applied_at timestamptz default now())",
    );
    const made = (await apply(client)) === 0;
    const { rows } = await client.query<{ id: string }>("select id from radserve.origin");
    return { origin: rows[0]?.id ?? "", made, ...(setAside === undefined ? {} : { setAside }) };
  });
}

/**
 * Releases up to 0.6 would run images of any job, and pass over what they do not know of its
 * request. Such a node goes on until it is restarted, and is refused then (`knownVersion`).
 */
async function refuseEarlierNodes(client: Queryable, node?: string): Promise<void> {
  if ((await tablesIn(client, "radserve", ["migration", "instance"])).length < 2) return;
  if ((await versionOf(client)) >= NODES_TELL_THEIR_RELEASE) return;
  const { rows } = await client.query<{ name: string }>(
    `select coalesce(to_jsonb(i) ->> 'name', box::text) as name from radserve.instance i
     where box is distinct from $1 and beat_at > now() - make_interval(secs => $2) order by name`,
    [node, durations.nodeLease / 1000],
  );
  if (rows.length === 0) return;
  throw new BulkUnavailable(
    `Nodes of 0.6 or earlier work with this database: ${rows.map(({ name }) => name).join(", ")}.`,
    "Stop them: this node then takes over by itself (docs/operations.md, upgrading from 0.6).",
  );
}

/** Runs work in a transaction while no other node makes or changes tables. */
function inTurn<T>(pool: Pool, work: (client: PoolClient) => Promise<T>): Promise<T> {
  return transaction(pool, async (client) => {
    await client.query(`set local lock_timeout = ${LONGEST_TURN_MS}`);
    await client.query("select pg_advisory_xact_lock($1)", [MIGRATION_LOCK]);
    return work(client);
  });
}

async function tablesIn(
  client: Queryable,
  schema: string,
  names: readonly string[],
): Promise<string[]> {
  const { rows } = await client.query<{ name: string }>(
    "select name from unnest($2::text[]) as name where to_regclass(format('%I.%I', $1::text, name)) is not null",
    [schema, names],
  );
  return rows.map(({ name }) => name);
}

/** Gives a schema another name. @returns that name */
async function setAside(client: Queryable, schema: string): Promise<string> {
  const { rows } = await client.query<{ name: string }>(
    "select $1 || '_lost_' || to_char(clock_timestamp() at time zone 'UTC', 'YYYYMMDD\"T\"HH24MISSMS') as name",
    [schema],
  );
  const name = rows[0]?.name ?? `${schema}_lost`;
  await client.query(`alter schema ${schema} rename to ${name.toLowerCase()}`);
  return name.toLowerCase();
}

async function setAsideParts(client: PoolClient): Promise<Migrated["setAside"]> {
  const there = await tablesIn(client, "radserve", ["migration", ...Object.keys(TABLES)]);
  if (there.length === 0 || (await isWhole(client, there))) return undefined;
  const jobs = there.includes("job")
    ? await client.query<{ id: string }>("select id from radserve.job where finished_at is null")
    : { rows: [] };
  return { schema: await setAside(client, "radserve"), jobs: jobs.rows.map(({ id }) => id) };
}

/** Whether the tables are all that their version has. */
async function isWhole(client: PoolClient, there: readonly string[]): Promise<boolean> {
  if (!there.includes("migration")) return false;
  const version = await versionOf(client);
  if (version === 0) return there.length === 1;
  return Object.entries(TABLES).every(([name, since]) => there.includes(name) || version < since);
}

/** Tables of pg-boss that are used for scans. */
const QUEUE_TABLES = ["version", "queue", "job", "job_common", "schedule"];

/**
 * Lets pg-boss make its schema while no other node does: two that make it at once fail. It makes
 * one if there is none, and believes it to be whole if there is one.
 * @param make uses clients of its own; it is told the name of what was set aside because tables
 * were gone from it
 */
export function makeQueue(
  pool: Pool,
  make: (lost: string | undefined) => Promise<void>,
): Promise<void> {
  return inTurn(pool, async () => {
    const there = await tablesIn(pool, "radserve_queue", QUEUE_TABLES);
    const broken = there.length > 0 && there.length < QUEUE_TABLES.length;
    await make(broken ? await setAside(pool, "radserve_queue") : undefined);
  });
}

/**
 * Keeps, for whoever asks about a job of before, that the tables are not those that a node knew.
 */
export async function keepLoss(pool: Pool): Promise<void> {
  await pool.query("update radserve.origin set lost_before = true where not lost_before");
}

/** When the tables were made, if others were lost before; undefined if none were. */
export async function tablesLostAt(client: Queryable): Promise<Date | undefined> {
  const { rows } = await client.query<{ made_at: Date }>(
    "select made_at from radserve.origin where lost_before",
  );
  return rows[0]?.made_at;
}

async function versionOf(client: Queryable): Promise<number> {
  const { rows } = await client.query<{ version: number }>(
    "select coalesce(max(version), 0)::int as version from radserve.migration",
  );
  return rows[0]?.version ?? 0;
}

/** Throws if the tables are of a newer release. */
async function knownVersion(client: Queryable): Promise<number> {
  const version = await versionOf(client);
  if (version > MIGRATIONS.length)
    throw new BulkUnavailable(
      "The tables of the bulk queue are of a newer release of Radserve.",
      "Upgrade this one, or give it an empty database (docs/operations.md, a version back).",
    );
  return version;
}

/**
 * Looks whether this node can use the tables, if there are any. Makes nothing; throws as `migrate`.
 */
export async function checkTables(client: Queryable, node?: string): Promise<void> {
  if ((await tablesIn(client, "radserve", ["migration"])).length > 0) await knownVersion(client);
  await refuseEarlierNodes(client, node);
}

/** @returns the version that was there before */
async function apply(client: PoolClient): Promise<number> {
  const version = await knownVersion(client);
  for (const [index, statements] of MIGRATIONS.slice(version).entries()) {
    const change: QueryConfig & { query_timeout: number } = {
      text: statements,
      query_timeout: LONGEST_CHANGE_MS,
    };
    await client.query(change);
    await client.query("insert into radserve.migration (version) values ($1)", [
      version + index + 1,
    ]);
  }
  return version;
}
