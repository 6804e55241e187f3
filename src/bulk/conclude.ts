/** The end of jobs of which nothing waits or runs any more: their reports are written, and then their marks are removed. */
import { randomUUID } from "node:crypto";
import { errno } from "../base/errno.js";
import { asRadserveError, RadserveError } from "../base/errors.js";
import { faultForLog } from "../base/log.js";
import type { Config } from "../config.js";
import type { Logger } from "../base/log.js";
import { asUnavailable, type Database } from "./database.js";
import { unmarkEnded } from "./job-folders.js";
import { claimReport, dropClaim, settleReport, type Claim } from "./report/claims.js";
import { ReportLeft, writeReport, type ReportContext } from "./report/write.js";
import { BulkUnavailable } from "./database-trouble.js";

export interface ConcludeContext extends Omit<ReportContext, "pool" | "config"> {
  config: Config;
  database: Database;
  log: Logger;
}

/** Ends what can be ended. Failures are logged: the next round tries again, and a job ends without a report too. */
export async function conclude(context: ConcludeContext): Promise<void> {
  const { config, database, log, stopped } = context;
  try {
    if (config.job_reports !== "off") while (!stopped() && (await reportOne(context)));
  } catch (error) {
    log.debug({ fault: faultForLog(error) }, "reports of jobs that ended could not be written now");
  }
  await unmarkEnded(database, config, log);
}

/** @returns false where no report is due */
async function reportOne({ database: { pool }, log, ...rest }: ConcludeContext): Promise<boolean> {
  const claim = await claimReport(pool, randomUUID());
  if (claim === undefined) return false;
  try {
    const report = await writeReport(claim, { ...rest, pool });
    await settleReport(pool, claim, report);
  } catch (error) {
    if (error instanceof ReportLeft) await dropClaim(pool, claim);
    else await giveUp(claim, error, { pool, log });
  }
  return true;
}

/** The fault of a folder or of a receipt ends the report and not the job; that of the database is met again. */
async function giveUp(
  claim: Claim,
  thrown: unknown,
  { pool, log }: Pick<ReportContext, "pool"> & Pick<ConcludeContext, "log">,
): Promise<void> {
  if (asUnavailable(thrown, pool.options) instanceof BulkUnavailable) throw thrown;
  const error = asRadserveError(thrown);
  log.warn(
    { job: claim.job, error: error.code, errno: errno(thrown), fault: faultForLog(thrown) },
    "the report of a job could not be written; the job ends without it",
  );
  const told =
    error.code === "internal"
      ? new RadserveError("internal", "The report could not be written; the server's log says why.")
      : error;
  await settleReport(pool, claim, { html_path: null, csv_path: null, error: told.toObject() });
}
