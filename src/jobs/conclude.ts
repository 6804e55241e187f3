/**
 * The end of jobs of which nothing waits or runs any more: their reports are written, and then
 * their marks are removed.
 */
import { randomUUID } from "node:crypto";
import { errno } from "../base/errno.js";
import { asRadserveError, errors, RadserveError } from "../base/errors.js";
import { faultForLog } from "../base/log.js";
import { NOT_MOUNTED } from "../files/path-judgement.js";
import { asUnavailable } from "./database.js";
import { unmarkEnded } from "./job-folders.js";
import { ReportLeft, type ReportContext, type WriteReport } from "./feature.js";
import { hinderJob } from "./leases.js";
import type { Instance } from "./nodes.js";
import { claimReport, renewClaim, settleReport, type ReportClaim } from "./report-claims.js";
import { BulkUnavailable } from "./database-trouble.js";

export interface ConcludeContext extends ReportContext {
  instance: Instance;
}

/** Why a node cannot write into a folder that other nodes may have. */
const LACKING = new Set<unknown>(["mark", NOT_MOUNTED]);

/**
 * Ends what can be ended. Failures are logged: the next round tries again, and a job ends without a
 * report too.
 * @param writeReport undefined where jobs have no reports
 */
export async function conclude(
  context: ConcludeContext,
  writeReport: WriteReport | undefined,
): Promise<void> {
  const { config, database, log, stopped } = context;
  try {
    if (writeReport !== undefined) while (!stopped() && (await reportOne(context, writeReport)));
  } catch (error) {
    log.debug({ fault: faultForLog(error) }, "reports of jobs that ended could not be written now");
  }
  await unmarkEnded(database, config, log, writeReport !== undefined);
}

/** @returns false if no report is due */
async function reportOne(context: ConcludeContext, writeReport: WriteReport): Promise<boolean> {
  const { instance } = context;
  const { pool } = context.database;
  const claim = await claimReport(pool, randomUUID(), instance);
  if (claim === undefined) return false;
  try {
    await settleReport(pool, claim, await writeReport(claim, context));
  } catch (error) {
    if (error instanceof ReportLeft || (await isOthers(claim, error, context)))
      await renewClaim(pool, claim, 0);
    else await giveUp(claim, error, context);
  }
  return true;
}

/** Whether this node alone lacks the folder: then another one writes the report. */
async function isOthers(
  { job }: ReportClaim,
  error: unknown,
  { database: { pool }, instance }: ConcludeContext,
): Promise<boolean> {
  if (!(error instanceof RadserveError) || !LACKING.has(error.details?.["reason"])) return false;
  return !(await hinderJob(
    pool,
    job,
    { code: "share_unavailable", message: error.message },
    instance,
  ));
}

/**
 * The fault of a folder or of a receipt ends the report and not the job; that of the database is
 * met again.
 */
async function giveUp(
  claim: ReportClaim,
  thrown: unknown,
  { database: { pool }, log }: ReportContext,
): Promise<void> {
  if (asUnavailable(thrown, pool.options) instanceof BulkUnavailable) throw thrown;
  const error = asRadserveError(thrown);
  log.warn(
    { job: claim.job, error: error.code, errno: errno(thrown), fault: faultForLog(thrown) },
    "the report of a job could not be written; the job ends without it",
  );
  const told =
    error.code === "internal"
      ? errors.internal("The report could not be written; the server's log says why.")
      : error;
  await settleReport(pool, claim, { html_path: null, csv_path: null, error: told.toObject() });
}
