/**
 * The open jobs that this node has taken or worked at, and how far the tables were when it saw them
 * last. A backup that is put back, or a standby that had not heard of everything, makes the tables
 * older than that: what was promised since is gone without a trace in them. So nodes count in the
 * tables how often they have said that they live; who finds a smaller count than before, or is told
 * by another history that somebody did, says which of its jobs are missing.
 */
import { randomUUID } from "node:crypto";
import { readFile, rename, writeFile } from "node:fs/promises";
import type { Pool } from "pg";
import { z } from "zod";
import { storedJson } from "../base/stored-json.js";
import { jsonb, type Queryable } from "./database.js";

const keptSchema = z.object({
  history: z.string(),
  beats: z.number(),
  jobs: z.record(z.string(), z.string()),
});

/** Kept in the state directory, so that it outlives this process. */
export class KnownJobs {
  #history = "";
  #beats = 0;
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
    [this.#history, this.#beats] = [data.history, data.beats];
    for (const [id, subject] of Object.entries(data.jobs)) this.#jobs.set(id, subject);
  }

  /** This node took a job, or works at it. */
  add(id: string, subject: string): void {
    this.#jobs.set(id, subject);
  }

  /**
   * Counts one sign of life, and forgets jobs that have ended.
   * @param node its name, for people
   * @returns the jobs that tables lack which are older than this node knows them; undefined if they
   * are not
   */
  async look(pool: Pool, node: string): Promise<string[] | undefined> {
    await this.#read;
    const { rows } = await pool.query<{ history: string; beats: string }>(
      "update radserve.origin set beats = beats + 1 returning history, beats",
    );
    const [{ history, beats } = { history: "", beats: "0" }] = rows;
    const older = history === this.#history && Number(beats) <= this.#beats;
    const others = this.#history !== "" && history !== this.#history;
    this.#beats = Number(beats);
    this.#history = older ? await begunAnew(pool) : history;
    const lost = older || others ? await this.#missing(pool, node) : undefined;
    await this.#forgetEnded(pool);
    await this.#keep();
    return lost;
  }

  async #missing(pool: Pool, node: string): Promise<string[]> {
    const { rows } = await pool.query<{ id: string }>(
      `insert into radserve.lost_job (id, subject, node)
       select known.key::uuid, known.value, $2 from jsonb_each_text($1::jsonb) as known
       where not exists (select from radserve.job where id = known.key::uuid)
       on conflict do nothing returning id`,
      [jsonb(Object.fromEntries(this.#jobs)), node],
    );
    return rows.map(({ id }) => id);
  }

  async #forgetEnded(pool: Pool): Promise<void> {
    if (this.#jobs.size === 0) return;
    const { rows } = await pool.query<{ id: string }>(
      "select id from radserve.job where id = any($1) and finished_at is null",
      [[...this.#jobs.keys()]],
    );
    const open = new Set(rows.map(({ id }) => id));
    for (const id of this.#jobs.keys()) if (!open.has(id)) this.#jobs.delete(id);
  }

  /** A node without open jobs has nothing to lose, and does not write for each sign of life. */
  async #keep(): Promise<void> {
    const jobs = Object.fromEntries(this.#jobs);
    const text =
      this.#jobs.size === 0
        ? ""
        : `${JSON.stringify({ history: this.#history, beats: this.#beats, jobs })}\n`;
    if (text === this.#kept) return;
    try {
      await writeFile(`${this.file}.new`, text, { mode: 0o600 });
      await rename(`${this.file}.new`, this.file);
      this.#kept = text;
    } catch {
      // The next sign of life tries it again; a disk that fails is told by others
    }
  }
}

/** Tells all nodes that these tables have taken the place of newer ones. @returns the history */
async function begunAnew(pool: Pool): Promise<string> {
  const history = randomUUID();
  await pool.query("update radserve.origin set history = $1", [history]);
  return history;
}

/** The jobs that were lost so, the latest first. */
export async function lostJobs(pool: Pool): Promise<string[]> {
  const { rows } = await pool.query<{ id: string }>(
    "select id from radserve.lost_job order by noticed_at desc, id limit 1000",
  );
  return rows.map(({ id }) => id);
}

/** When it was noticed that a job was lost so; undefined if it was not. */
export async function lostAt(
  pool: Queryable,
  { subject, admin }: { subject: string; admin: boolean },
  id: string,
): Promise<Date | undefined> {
  const { rows } = await pool.query<{ noticed_at: Date }>(
    "select noticed_at from radserve.lost_job where id = $1 and (subject = $2 or $3)",
    [id, subject, admin],
  );
  return rows[0]?.noticed_at;
}

/** Somebody knows of it, and it is told no more. @returns whether it was told */
export async function forgetLost(
  pool: Pool,
  { subject, admin }: { subject: string; admin: boolean },
  id: string,
): Promise<boolean> {
  const { rowCount } = await pool.query(
    "delete from radserve.lost_job where id = $1 and (subject = $2 or $3)",
    [id, subject, admin],
  );
  return rowCount === 1;
}
