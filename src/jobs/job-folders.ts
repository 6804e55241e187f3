/**
 * The output folders of jobs: made and marked when work is taken for them, and without the mark
 * once that has ended.
 */
import type { Pool } from "pg";
import type { Config } from "../config.js";
import { errno } from "../base/errno.js";
import { RadserveError } from "../base/errors.js";
import { groupsOf } from "../base/groups.js";
import { faultForLog, type Logger } from "../base/log.js";
import { leaveMark, markName, removeMark } from "../files/folder-mark.js";
import { openOutputFolder, withInput } from "../files/guarded-paths.js";
import { translateIn } from "../files/path-map.js";
import type { Root, Roots } from "../files/roots.js";
import { transaction, type Database } from "./database.js";
import { namedPaths, traced, type JobRow } from "./jobs.js";
import { failuresOf } from "./job-details.js";

const MARKED_AT_ONCE = 16;

/**
 * Makes the folders, so that one which is missing later is known to be away, and leaves the job's
 * mark in each.
 * @param folders as the client named them; may have repetitions
 * @throws RadserveError path_not_allowed, disk_full, bad_request; then no mark is left
 */
export async function makeFolders(
  jobId: string,
  folders: readonly string[],
  roots: Roots["output"],
  config: Config,
): Promise<void> {
  const { path_map, minimum_free_disk: minimumFreeBytes } = config;
  const mark = markName(jobId);
  const make = async (folder: string) => {
    const output = await openOutputFolder(folder, roots, { minimumFreeBytes }, path_map);
    try {
      await leaveMark(output.fdPath, mark);
    } finally {
      output.close();
    }
  };
  try {
    for (const some of groupsOf([...new Set(folders)], MARKED_AT_ONCE))
      await Promise.all(some.map(make));
  } catch (error) {
    await unmark(jobId, folders, config);
    throw error;
  }
}

/** Takes the job's mark out of folders; one that cannot be reached keeps it, which does no harm. */
export async function unmark(
  jobId: string,
  folders: readonly string[],
  { path_map }: Pick<Config, "path_map">,
): Promise<void> {
  const mark = markName(jobId);
  const remove = (folder: string) =>
    removeMark(translateIn(folder, path_map).path, mark).catch(() => undefined);
  for (const some of groupsOf([...new Set(folders)], MARKED_AT_ONCE))
    await Promise.all(some.map(remove));
}

/**
 * Reads an output folder.
 * @param use is given a path that names the open folder
 * @param otherwise told why it cannot be read; undefined if it is not there
 */
export async function inFolder<T>(
  folder: string,
  roots: readonly Root[],
  use: (open: string) => Promise<T>,
  otherwise: (why: string | undefined) => T,
): Promise<T> {
  try {
    return await withInput(folder, roots, ({ fdPath }) => use(fdPath));
  } catch (error) {
    if (error instanceof RadserveError)
      return otherwise(error.code === "input_not_found" ? undefined : error.message);
    if (errno(error) === "") throw error;
    return otherwise(`The folder, or a file in it, cannot be read (${errno(error)}).`);
  }
}

/**
 * Takes the marks of jobs that have ended out of their folders. The job is locked meanwhile, so
 * that none is set to work again in between.
 * @param reports a job has ended only when its report is there
 */
export async function unmarkEnded(
  { pool }: Database,
  config: Config,
  log: Logger,
  reports: boolean,
): Promise<void> {
  const reported = reports ? "report is not null" : "true";
  const one = () =>
    transaction(pool, async (client) => {
      const { rows } = await client.query<EndedJob & Pick<JobRow, "request">>(
        `select id, request, subject, counts, cancelled_at, traceparent from radserve.job where marked and finished_at is not null and ${reported}
         order by seq limit 1 for update skip locked`,
      );
      const job = rows[0];
      if (job === undefined) return undefined;
      await unmark(job.id, (await namedPaths(client, job)).outputs, config);
      await client.query("update radserve.job set marked = false where id = $1", [job.id]);
      return job;
    });
  try {
    for (let job = await one(); job !== undefined; job = await one()) await logEnd(pool, job, log);
  } catch (error) {
    log.debug(
      { fault: faultForLog(error) },
      "the marks of jobs that ended could not be removed now",
    );
  }
}

type EndedJob = Pick<JobRow, "id" | "subject" | "counts" | "cancelled_at" | "traceparent">;

/** The line of a job's end: how its images ended, and for which reasons. */
async function logEnd(
  pool: Pool,
  { id, subject, counts, cancelled_at, traceparent }: EndedJob,
  log: Logger,
): Promise<void> {
  const reasons = async (state: "failed" | "skipped") =>
    Object.fromEntries(
      (await failuresOf(pool, id, state)).map(({ code, images }) => [code, images]),
    );
  const [failed, skipped] = [await reasons("failed"), await reasons("skipped")];
  const how = cancelled_at === null ? "a bulk job ended" : "a bulk job was cancelled";
  log.info({ job: id, subject, ...traced(traceparent), counts, failed, skipped }, how);
}
