/**
 * Which node writes the report of a job that has ended. A claim holds for some seconds and is
 * renewed meanwhile, so that another node takes over what a dead one has begun. The job counts as
 * ended when its report is there.
 */
import { durations } from "../base/durations.js";
import type { Pool } from "pg";
import { hasPassed, jsonb } from "./database.js";
import type { Instance } from "./nodes.js";
import type { JobDetails } from "./schema.js";

/** The node $3 leaves the job alone for now. */
const HINDERED = `exists (select from radserve.hindrance h
  where h.job_id = job.id and h.instance = $3 and not ${hasPassed("h.until")})`;

export interface ReportClaim {
  job: string;
  subject: string;
  finishedAt: Date;
  token: string;
  /** The token of the node that began a report of the job before. */
  before: string | null;
}

/**
 * Takes a job whose report is due, and that the node does not leave alone; undefined if there is
 * none.
 */
export async function claimReport(
  pool: Pool,
  token: string,
  instance: Pick<Instance, "id">,
): Promise<ReportClaim | undefined> {
  const { rows } = await pool.query<Omit<ReportClaim, "token">>(
    `with due as materialized (
       select id, report_token as before from radserve.job
       where marked and finished_at is not null and report is null
         and ${hasPassed("report_until")} and not ${HINDERED}
       order by seq limit 1 for update skip locked
     )
     update radserve.job j set report_token = $1, report_until = now() + make_interval(secs => $2)
     from due where j.id = due.id
     returning j.id as job, j.subject, j.finished_at as "finishedAt", due.before`,
    [token, durations.reportClaim / 1000, instance.id],
  );
  const [row] = rows;
  return row === undefined ? undefined : { ...row, token };
}

const MINE = "id = $1 and report_token = $2 and finished_at = $3 and report is null";

/**
 * @param milliseconds for how long it holds from now on; 0 gives a claim back
 * @returns false if the job was set to work again, or another node has taken over
 */
export async function renewClaim(
  pool: Pool,
  { job, token, finishedAt }: ReportClaim,
  milliseconds = durations.reportClaim,
): Promise<boolean> {
  const { rowCount } = await pool.query(
    `update radserve.job set report_until = now() + make_interval(secs => $4) where ${MINE}`,
    [job, token, finishedAt, milliseconds / 1000],
  );
  return rowCount === 1;
}

/** Writes down that the report is there, or why there is none. */
export async function settleReport(
  pool: Pool,
  { job, token, finishedAt }: ReportClaim,
  report: NonNullable<JobDetails["report"]>,
): Promise<void> {
  await pool.query(`update radserve.job set report = $4, report_until = null where ${MINE}`, [
    job,
    token,
    finishedAt,
    jsonb(report),
  ]);
}
