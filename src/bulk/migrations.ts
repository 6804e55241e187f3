/** The bulk tables, in a schema of their own, and their changes from release to release. */
import type { Pool, PoolClient } from "pg";

/** Any fixed number: whoever holds it migrates, others wait. */
const MIGRATION_LOCK = 7_233_018;

/**
 * Each entry takes the tables one version further; entries that were released are never changed.
 *
 * Items are leased here and not as jobs of pg-boss: which item is next depends on its job (fair between jobs, paused,
 * cancelled), on the box (suspects run alone) and on time, and all of it changes together with the item's state in
 * one statement. pg-boss fetches in order of priority and age alone, counts a retry whenever a job is given back, and
 * cannot hold the jobs of a group; every item would be a row in two tables with two states. It does what it is good
 * at: the scans of folders and the daily sweep.
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
];

/** Brings the tables up to this release; many boxes may start at once. Throws where the database is of a newer one. */
export async function migrate(pool: Pool): Promise<void> {
  const client = await pool.connect();
  try {
    await client.query("begin");
    await client.query("select pg_advisory_xact_lock($1)", [MIGRATION_LOCK]);
    await client.query("create schema if not exists radserve");
    await client.query(
      "create table if not exists radserve.migration (version integer primary key, applied_at timestamptz default now())",
    );
    await apply(client);
    await client.query("commit");
  } catch (error) {
    await client.query("rollback").catch(() => undefined);
    throw error;
  } finally {
    client.release();
  }
}

async function apply(client: PoolClient): Promise<void> {
  const { rows } = await client.query<{ version: number }>(
    "select coalesce(max(version), 0)::int as version from radserve.migration",
  );
  const version = rows[0]?.version ?? 0;
  if (version > MIGRATIONS.length)
    throw new Error("The bulk tables are of a newer release of Radserve; upgrade this one.");
  for (const [index, statements] of MIGRATIONS.entries()) {
    if (index < version) continue;
    await client.query(statements);
    await client.query("insert into radserve.migration (version) values ($1)", [index + 1]);
  }
}
