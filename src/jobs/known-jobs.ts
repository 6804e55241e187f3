/**
 * The open jobs that this node has taken or worked at. A backup that is put back, or a standby that
 * had not heard of everything, makes the tables older than that: a job that was promised since is
 * gone from them without a trace. Jobs that somebody purged leave one; so each node sees, whenever
 * it says that it lives, which of its jobs were lost.
 */
import { readFile } from "node:fs/promises";
import type { Pool } from "pg";
import { z } from "zod";
import { storedJson } from "../base/stored-json.js";
import { replacePrivately } from "../files/private-file.js";
import { jsonb, type Queryable } from "./database.js";

const keptSchema = z.object({ jobs: z.record(z.string(), z.string()) });

/** A node that was down for longer takes a job that was purged meanwhile for lost. */
const TRACE_DAYS = 90;

/** Kept in the state directory, so that it outlives this process. */
export class KnownJobs {
  /** The subject of each job. */
  readonly #jobs = new Map<string, string>();
  #kept = "";
  readonly #read: Promise<void>;

  constructor(private readonly file: string) {
    this.#read = this.#restore();
  }

  async #restore(): Promise<void> {
    this.#kept = await readFile(this.file, "utf8").catch(() => "");
    // What cannot be read is as good as nothing: the node begins to know its jobs anew
    const { success, data } = keptSchema.safeParse(storedJson(this.#kept));
    if (!success) return;
    for (const [id, subject] of Object.entries(data.jobs)) this.#jobs.set(id, subject);
  }

  /** This node took a job, or works at it. */
  add(id: string, subject: string): void {
    this.#jobs.set(id, subject);
  }

  /**
   * Forgets jobs that have ended, and writes down which are missing in the tables.
   * @param node its name, for people
   * @returns those that no node has written down before
   */
  async look(pool: Pool, node: string): Promise<string[]> {
    await this.#read;
    const lost: string[] = [];
    for (const found of await this.#stateOf(pool, node)) {
      if (!found.open) this.#jobs.delete(found.id);
      if (found.lost) lost.push(found.id);
    }
    await this.keep();
    return lost;
  }

  /** In one statement, so that tables that change meanwhile are seen before that or after it. */
  async #stateOf(
    pool: Pool,
    node: string,
  ): Promise<{ id: string; open: boolean; lost: boolean }[]> {
    if (this.#jobs.size === 0) return [];
    const { rows } = await pool.query<{ id: string; open: boolean; lost: boolean }>(
      `with known as (
         select key::uuid as id, value as subject from jsonb_each_text($1::jsonb)
       ), missed as (
         insert into radserve.gone_job (id, subject, missed_by)
         select id, subject, $2 from known where not exists (select from radserve.job where id = known.id)
         on conflict do nothing returning id
       )
       select known.id, missed.id is not null as lost, exists (
         select from radserve.job where id = known.id and finished_at is null
       ) as open
       from known left join missed using (id)`,
      [jsonb(Object.fromEntries(this.#jobs)), node],
    );
    return rows;
  }

  /**
   * Writes down what has changed, also where the database does not answer: it may be an older one
   * when this node is back. A node without open jobs has nothing to lose, and does not write for
   * each sign of life.
   */
  async keep(): Promise<void> {
    await this.#read;
    const jobs = Object.fromEntries(this.#jobs);
    const text = this.#jobs.size === 0 ? "" : `${JSON.stringify({ jobs })}\n`;
    if (text === this.#kept) return;
    try {
      replacePrivately(this.file, text);
      this.#kept = text;
    } catch {
      // The next sign of life tries it again; a disk that fails is told by others
    }
  }
}

/**
 * Deletes jobs and leaves their traces.
 * @param which a condition on radserve.job, with the parameters
 * @returns how many
 */
export async function purgeJobs(
  pool: Queryable,
  which: string,
  parameters: readonly unknown[],
): Promise<number> {
  const { rowCount } = await pool.query(
    `with purged as (delete from radserve.job where ${which} returning id, subject)
     insert into radserve.gone_job (id, subject) select id, subject from purged
     on conflict (id) do update set gone_at = now()`,
    [...parameters],
  );
  return rowCount ?? 0;
}

/** What no node asks for any more. */
export async function forgetTraces(pool: Pool): Promise<void> {
  await pool.query(
    `delete from radserve.gone_job
     where missed_by is null and gone_at < now() - make_interval(days => ${TRACE_DAYS})`,
  );
}

/** The jobs that were lost so, the latest first; one that a later backup brought back is not. */
export async function lostJobs(pool: Pool): Promise<string[]> {
  const { rows } = await pool.query<{ id: string }>(
    `select id from radserve.gone_job where missed_by is not null
     and not exists (select from radserve.job where id = gone_job.id)
     order by gone_at desc, id limit 1000`,
  );
  return rows.map(({ id }) => id);
}

/** When it was noticed that a job was lost so; undefined if it was not. */
export async function lostAt(
  pool: Queryable,
  { subject, admin }: { subject: string; admin: boolean },
  id: string,
): Promise<Date | undefined> {
  const { rows } = await pool.query<{ gone_at: Date }>(
    `select gone_at from radserve.gone_job
     where id = $1 and missed_by is not null and (subject = $2 or $3)`,
    [id, subject, admin],
  );
  return rows[0]?.gone_at;
}

/** Somebody knows of it, and it is told no more. @returns whether it was told */
export async function forgetLost(
  pool: Pool,
  { subject, admin }: { subject: string; admin: boolean },
  id: string,
): Promise<boolean> {
  const { rowCount } = await pool.query(
    `update radserve.gone_job set missed_by = null
     where id = $1 and missed_by is not null and (subject = $2 or $3)`,
    [id, subject, admin],
  );
  return rowCount === 1;
}
