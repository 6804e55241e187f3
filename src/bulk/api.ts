/** The bulk pages: what each does to the jobs, and how a job and an item are shown. */
import type { PathMapping } from "../files/path-map.js";
import { parseBody } from "../base/json-body.js";
import type { Summary } from "../results/receipt/compose.js";
import type { Database } from "./database.js";
import {
  cancelJob,
  findJob,
  setPaused,
  listItems,
  listJobs,
  noSuchJob,
  purgeJob,
  retryJob,
  type ItemRow,
  type JobRequest,
  type JobRow,
} from "./jobs.js";
import type { BulkAnswer, BulkCall } from "./messages.js";
import { pathsOf } from "./item-paths.js";
import { Reach } from "./reach.js";
import { ITEM_STATES, itemQuerySchema, jobQuerySchema, type Item, type Job } from "./schema.js";
import { submit, type SubmitContext } from "./submit.js";

const BY_REQUEST = {
  code: "paused_by_request",
  message: "Paused by request. POST .../resume lets it go on.",
};
const NO_WORKER = {
  code: "no_worker",
  message:
    "No server that runs bulk items is ready. Start one with role worker or both, and see GET /health/ready of those that run.",
};

const statusUrl = (id: string) => `/bulk_inference/${id}`;

function pausedReason(row: JobRow): Job["paused_reason"] {
  if (row.state !== "paused") return null;
  if (row.paused) return BY_REQUEST;
  return row.pause_code === null ? NO_WORKER : { code: row.pause_code, message: row.pause_message ?? "" };
}

const ENDED = ["succeeded", "partial", "failed"] as const;

function countsOf({ counts }: JobRow): Job["counts"] {
  return Object.fromEntries(ITEM_STATES.map((state) => [state, counts?.[state] ?? 0])) as Job["counts"];
}

/** Over the last minute while it runs, over all its time afterwards. */
function rateOf(row: JobRow, counts: Job["counts"]): number | null {
  if (row.started_at === null) return null;
  const seconds = ((row.finished_at ?? row.now).getTime() - row.started_at.getTime()) / 1000;
  const ended = row.finished_at === null ? row.recent : ENDED.reduce((sum, state) => sum + counts[state], 0);
  if (ended === 0) return null;
  const rate = ended / Math.max(row.finished_at === null ? Math.min(60, seconds) : seconds, 0.1);
  return Math.round(rate * 1000) / 1000;
}

export function jobOf(row: JobRow): Job {
  const counts = countsOf(row);
  const rate = rateOf(row, counts);
  const left = counts.queued + counts.running;
  const running = row.state === "scanning" || row.state === "running";
  return {
    job_id: row.id,
    state: row.state,
    paused_reason: pausedReason(row),
    created_at: row.created_at.toISOString(),
    finished_at: row.finished_at?.toISOString() ?? null,
    total: row.total,
    counts,
    images_per_second: rate,
    estimated_end:
      running && rate !== null && row.total !== null
        ? new Date(row.now.getTime() + (left / rate) * 1000).toISOString()
        : null,
    request: row.request,
    status_url: statusUrl(row.id),
  };
}

function itemOf(row: ItemRow, request: JobRequest, pathMap: readonly PathMapping[]): Item {
  const paths = pathsOf(request, row, pathMap);
  const result = row.result as Summary | null;
  return {
    index: row.index,
    input_image_path: paths.clientInput,
    output_folder_path: paths.clientOutputFolder,
    state: row.state,
    attempts: row.attempts,
    ...(result === null ? {} : { reused: result.reused, receipt_path: paths.clientOutput(result.receipt) }),
    outputs: (result?.outputs ?? []).map((file) => ({ ...file, path: paths.clientOutput(file.path) })),
    models: result?.models ?? [],
    warnings: result?.warnings ?? [],
    ...(row.state === "failed" && row.error !== null ? { error: row.error as Item["error"] } : {}),
    ...(row.state === "skipped" && row.error !== null ? { reason: row.error as Item["reason"] } : {}),
  };
}

const answer = (body: unknown, status = 200): BulkAnswer => ({ status, body: JSON.stringify(body) });

async function shown(database: Database, { caller, jobId = "" }: BulkCall): Promise<Job> {
  return jobOf(await findJob(database.pool, caller, jobId));
}

async function submitted(call: BulkCall, context: SubmitContext): Promise<BulkAnswer> {
  const { id, fresh } = await submit(call, context);
  const { job_id, state, total, status_url, request } = await shown(await context.database(), {
    ...call,
    jobId: id,
  });
  const { input_folder_path: input, output_folder_path: output } = request;
  const job = { id, ...(input === undefined ? {} : { input }), ...(output === undefined ? {} : { output }) };
  return { ...answer({ job_id, state, total, status_url }, fresh ? 202 : 200), location: status_url, job };
}

/** The rows of a page, and the cursor behind the last of them where more follow. */
function paged<T>(rows: T[], limit: number, cursor: (row: T) => string): [T[], string | null] {
  const page = rows.slice(0, limit);
  const last = page.at(-1);
  return [page, rows.length > limit && last !== undefined ? cursor(last) : null];
}

async function listed(call: BulkCall, database: Database, reach: Reach): Promise<BulkAnswer> {
  const { limit, cursor, state } = parseBody(jobQuerySchema, call.query ?? {});
  const rows: JobRow[] = [];
  for (let before = cursor; ;) {
    const found = await listJobs(database.pool, call.caller, { before, state, limit: limit + 1 });
    for (const row of found) if (await reach.includes(row, database)) rows.push(row);
    if (found.length <= limit || rows.length > limit) break;
    before = found.at(-1)?.seq;
  }
  const [page, next_cursor] = paged(rows, limit, (row) => row.seq);
  return answer({ jobs: page.map(jobOf), next_cursor });
}

async function items(
  call: BulkCall,
  { pool }: Database,
  pathMap: readonly PathMapping[],
): Promise<BulkAnswer> {
  const { limit, cursor, state } = parseBody(itemQuerySchema, call.query ?? {});
  const job = await findJob(pool, call.caller, call.jobId ?? "");
  const after = cursor === undefined ? -1 : Number(cursor);
  const rows = await listItems(pool, job.id, { after, state, limit: limit + 1 });
  const [page, next_cursor] = paged(rows, limit, (row) => String(row.index));
  return answer({ items: page.map((row) => itemOf(row, job.request, pathMap)), next_cursor });
}

/** Answers one call. @throws RadserveError of any code that the page documents */
export async function perform(call: BulkCall, context: SubmitContext): Promise<BulkAnswer> {
  if (call.operation === "submit") return submitted(call, context);
  const database = await context.database();
  const { pool } = database;
  const id = call.jobId ?? "";
  const reach = new Reach(call.caller, context);
  if (call.operation === "list") return listed(call, database, reach);
  if (!(await reach.includes(await findJob(pool, call.caller, id), database))) throw noSuchJob();
  switch (call.operation) {
    case "items":
      return items(call, database, context.config.path_map);
    case "purge":
      return answer(jobOf(await purgeJob(pool, call.caller, id)));
    case "cancel":
      await cancelJob(pool, call.caller, id);
      break;
    case "retry":
      await retryJob(pool, call.caller, id);
      break;
    case "pause":
    case "resume":
      await setPaused(pool, call.caller, id, call.operation === "pause");
      break;
    case "show":
      break;
  }
  return answer(await shown(database, call));
}
