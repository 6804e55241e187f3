/** The endpoints of jobs: what each does to the jobs, and how a job and an item are shown. */
import { durations } from "../base/durations.js";
import { withInput } from "../files/guarded-paths.js";
import { deliveryName } from "../files/helper-names.js";
import { deliveriesOf, readDelivery } from "../results/receipt/delivery.js";
import { translateIn, type PathMapping } from "../files/path-map.js";
import { narrowRoots } from "../files/roots.js";
import { RadserveError } from "../base/errors.js";
import { parseBody, parseJsonBody } from "../base/json-body.js";
import { requireMaySend } from "../inference/request.js";
import { within } from "../base/waiting.js";
import type { Summary } from "../results/commit/compose.js";
import type { BulkAnswer, BulkCall, Caller, JobEnd, Submitted } from "./call.js";
import type { Database } from "./database.js";
import {
  cancelJob,
  findJob,
  isUuid,
  setPaused,
  listItems,
  listJobs,
  namedPaths,
  noSuchJob,
  purgeJob,
  refuseManyInTurn,
  REPEATED_FAILURES,
  requeueItems,
  retryJob,
  type Again,
  type ItemRow,
  type JobRequest,
  type JobRow,
} from "./jobs.js";
import { makeFolders, unmark } from "./job-folders.js";
import { forgetLost } from "./known-jobs.js";
import { pathsOf } from "./item-paths.js";
import { reconcile } from "./reconcile.js";
import {
  ITEM_STATES,
  itemQuerySchema,
  jobQuerySchema,
  reconcileQuerySchema,
  type Item,
  type Job,
  type JobDetails,
  type Reconciliation,
} from "./schema.js";
import { submit, type SubmitContext } from "./submit.js";
import { BulkUnavailable, type DatabaseTroubles, type Trouble } from "./database-trouble.js";
import { visibleTo } from "./visible-jobs.js";
import { pinAnew } from "./pin-anew.js";
import { NO_NODE_CAN_RUN, pinsFor } from "./pins.js";
import { detailsOf } from "./job-details.js";

const BY_REQUEST = {
  code: "paused_by_request",
  message: "Paused by request. POST .../resume continues it.",
};
const NO_WORKER = {
  code: "no_worker",
  message:
    "No server that runs bulk items is ready. Start one with role worker or both, and see GET /health/ready of those that run.",
};

const NO_NODE_HAS_THEM =
  "no live node has the models and the release that the job was submitted with: `pinned` has them, and `waiting` says what each node lacks.";
const UNRUNNABLE_BEGUN = {
  code: NO_NODE_CAN_RUN,
  message: `Images of the job are done, and ${NO_NODE_HAS_THEM} So that no other versions are mixed with them, it waits. It goes on by itself once a node has them (radserve models reload). POST .../resume goes on with what the nodes have now; results of several versions are then in one job.`,
};
const UNRUNNABLE_UNBEGUN = {
  code: NO_NODE_CAN_RUN,
  message: `No image of the job is done, and ${NO_NODE_HAS_THEM} If that is still so after half a minute, it goes on by itself with what a node has then (\`pinned_anew\`). POST .../resume does that at once.`,
};

export interface ApiContext extends SubmitContext {
  troubles: DatabaseTroubles;
}

/** It paused of itself, and no node that works can go on with it by now. */
const lacksNode = ({ paused, pause_code, worked, runnable }: JobRow): boolean =>
  !paused && pause_code !== null && worked && !runnable;

function pausedReason(row: JobRow, trouble: Trouble | undefined): Job["paused_reason"] {
  if (row.state !== "paused") return null;
  const since = row.paused_at?.toISOString() ?? null;
  if (row.paused && row.pause_code !== REPEATED_FAILURES) return { ...BY_REQUEST, since };
  const unrunnable = row.begun === true ? UNRUNNABLE_BEGUN : UNRUNNABLE_UNBEGUN;
  // What it waited for before may be there again: nobody can try while no node has its versions
  if (lacksNode(row)) return { ...unrunnable, since: null };
  if (row.pause_code !== null)
    return { code: row.pause_code, message: row.pause_message ?? "", since };
  if (trouble === undefined) return { ...(row.worked ? unrunnable : NO_WORKER), since: null };
  return { code: trouble.code, message: trouble.message, since: trouble.since.toISOString() };
}

/** A job that would go on, if this node could write into the database, is paused. */
function stalled(row: JobRow, trouble: Trouble | undefined): JobRow {
  const goes = row.state === "running" || row.state === "scanning";
  return goes && trouble !== undefined ? { ...row, state: "paused" } : row;
}

/** Images per second: over the last minute while it runs, over all its time afterwards. */
function rateOf(row: JobRow, counts: Job["counts"]): number | null {
  if (row.started_at === null) return null;
  const seconds = ((row.finished_at ?? row.now).getTime() - row.started_at.getTime()) / 1000;
  const ended =
    row.finished_at === null ? row.recent : counts.succeeded + counts.partial + counts.failed;
  if (ended === 0) return null;
  const rate = ended / Math.max(row.finished_at === null ? Math.min(60, seconds) : seconds, 0.1);
  return Math.round(rate * 1000) / 1000;
}

/** A job that found no image says so: it is not done like one whose images all succeeded. */
const NOTHING_ANALYSED = {
  code: "nothing_analysed",
  message:
    "No image of the job was analysed: every file that was found was skipped. The reason of each item says why.",
};

const SEVERAL_VERSIONS = {
  code: "several_versions",
  message:
    "The results of the job are of several versions of a model or of Radserve, because it went on with others than it was submitted with. `pinned_before` and the receipts say which.",
};

const pinnedAnew = ({ at, node }: JobRow["pinned_anew"][number]) => ({
  code: "pinned_anew",
  message: `No node had what the job was submitted with any more, and nothing of it was done: since ${at} it has the models and the release of node ${node}. \`pinned_anew\` says what it had before.`,
});

const NOTHING_FOUND = {
  code: NOTHING_ANALYSED.code,
  message:
    "No image of the job was analysed: the scan found no file in the input folder, apart from results of Radserve.",
};

function nothingAnalysed({ skipped, ...others }: Job["counts"]): Job["warnings"] {
  if (Object.values(others).some((count) => count > 0)) return [];
  return [skipped > 0 ? NOTHING_ANALYSED : NOTHING_FOUND];
}

/** @param trouble what keeps this node from writing into the database, if something does */
export function jobOf(found: JobRow, trouble?: Trouble): Job {
  const row = stalled(found, trouble);
  const counts = Object.fromEntries(
    ITEM_STATES.map((state) => [state, row.counts?.[state] ?? 0]),
  ) as Job["counts"];
  const rate = rateOf(row, counts);
  const left = counts.queued + counts.running;
  const running = row.state === "scanning" || row.state === "running";
  return {
    job_id: row.id,
    state: row.state,
    paused_reason: pausedReason(row, trouble),
    created_at: row.created_at.toISOString(),
    finished_at: row.finished_at?.toISOString() ?? null,
    total: row.total,
    counts,
    warnings: [
      ...(row.state === "completed" ? nothingAnalysed(counts) : []),
      ...(row.pinned_before.length > 0 ? [SEVERAL_VERSIONS] : []),
      ...row.pinned_anew.slice(-1).map(pinnedAnew),
    ],
    images_per_second: rate,
    estimated_end:
      running && rate !== null && row.total !== null
        ? new Date(row.now.getTime() + (left / rate) * 1000).toISOString()
        : null,
    request: row.request,
    status_url: `/bulk_inference/${row.id}`,
  };
}

export function itemOf(row: ItemRow, request: JobRequest, pathMap: readonly PathMapping[]): Item {
  const paths = pathsOf(request, row, pathMap);
  const result = row.result as Summary | null;
  return {
    index: row.index,
    input_image_path: paths.clientInput,
    ...(paths.series === undefined ? {} : { series_instance_uid: paths.series }),
    output_folder_path: paths.clientOutputFolder,
    state: row.state,
    attempts: row.attempts,
    ...(result === null
      ? {}
      : {
          reused: result.reused,
          receipt_path: paths.clientOutput(result.receipt),
          finished_at: result.finished_at,
        }),
    outputs: (result?.outputs ?? []).map((file) => ({
      ...file,
      path: paths.clientOutput(file.path),
    })),
    models: result?.models ?? [],
    warnings: result?.warnings ?? [],
    ...(row.state === "failed" && row.error !== null ? { error: row.error as Item["error"] } : {}),
    ...(row.state === "skipped" && row.error !== null
      ? { reason: row.error as Item["reason"] }
      : {}),
  };
}

const jsonAnswer = (body: unknown, status = 200): BulkAnswer => ({
  status,
  body: JSON.stringify(body),
});

type Perform = (call: BulkCall, context: ApiContext) => Promise<BulkAnswer>;

/** Keeps a job. @param asked a BulkRequest, if it is one @throws RadserveError of the endpoint */
export async function submitJob(
  caller: Caller,
  asked: unknown,
  context: ApiContext,
  traceparent?: string,
): Promise<Submitted> {
  const { id, fresh } = await submit(caller, asked, context, traceparent);
  const { readPool } = await context.database();
  const job = jobOf(await findJob(readPool, caller, id));
  const { job_id, request } = job;
  const here = (folder: string) => translateIn(folder, context.config.path_map).path;
  const { input_folder_path: input, output_folder_path: output } = request;
  const note = {
    job_id,
    ...(input === undefined ? {} : { inputPath: here(input) }),
    ...(output === undefined ? {} : { outputPath: here(output) }),
  };
  return { job, fresh, note };
}

const submitted: Perform = async ({ caller, body, traceparent }, context) => {
  const { job, fresh, note } = await submitJob(caller, parseJsonBody(body), context, traceparent);
  const { job_id, state, total, status_url } = job;
  return {
    ...jsonAnswer({ job_id, state, total, status_url }, fresh ? 202 : 200),
    location: status_url,
    note,
  };
};

/** What has become of a job. */
export async function stateOfJob(
  caller: Caller,
  jobId: string,
  context: ApiContext,
): Promise<JobEnd> {
  try {
    const { readPool } = await openedSoon(context);
    const { finished_at, counts } = await findJob(readPool, caller, jobId);
    if (finished_at === null) return "open";
    return (counts?.failed ?? 0) + (counts?.cancelled ?? 0) > 0 ? "failed" : "ended";
  } catch (error) {
    if (error instanceof RadserveError && error.code === "job_not_found") return "gone";
    throw error;
  }
}

/** The rows of a page, and the cursor behind the last of them if more follow. */
function paged<T>(rows: T[], limit: number, cursor: (row: T) => string): [T[], string | null] {
  const page = rows.slice(0, limit);
  const last = page.at(-1);
  return [page, rows.length > limit && last !== undefined ? cursor(last) : null];
}

const showJobs: Perform = async ({ caller, query }, context) => {
  const database = await openedSoon(context);
  const { limit, cursor, state } = parseBody(jobQuerySchema, query);
  const { troubles } = context;
  const isVisible = visibleTo(caller, context);
  const rows: JobRow[] = [];
  for (let before = cursor; ;) {
    const found = await listJobs(database.readPool, caller, {
      before,
      state,
      limit: limit + 1,
      stalled: troubles.ofAll !== undefined,
    });
    for (const row of found) if (await isVisible(row, database)) rows.push(row);
    if (found.length <= limit || rows.length > limit) break;
    before = found.at(-1)?.seq;
  }
  const [page, next_cursor] = paged(rows, limit, (row) => row.seq);
  return jsonAnswer({ jobs: page.map((row) => jobOf(row, troubles.of(row.id))), next_cursor });
};

/** A call about one job that its caller may see. */
interface JobCall extends BulkCall {
  job: JobRow;
  database: Database;
  context: ApiContext;
}

/** Finds the job before any change: a database that does not answer is found out here, in time. */
function ofJob(perform: (call: JobCall) => Promise<BulkAnswer>): Perform {
  return async (call, context) => {
    const database = await openedSoon(context);
    const job = await findJob(database.readPool, call.caller, call.jobId);
    if (!(await visibleTo(call.caller, context)(job, database)))
      throw await noSuchJob(database.readPool, call.caller, call.jobId);
    return perform({ ...call, job, database, context });
  };
}

async function shown({ job, database, context, progress }: JobCall): Promise<BulkAnswer> {
  const { troubles } = context;
  return jsonAnswer(
    await detailsOf(database.readPool, job, jobOf(job, troubles.of(job.id)), progress),
  );
}

/**
 * Whoever sets a job to work has its results sent.
 * @throws RadserveError path_not_allowed
 */
function requireMayDeliver({ job, caller }: Pick<JobCall, "job" | "caller">): void {
  requireMaySend(job.request.destinations ?? [], caller.destinations);
}

/** A change of a job, answered with the job as it is then. */
const change = (
  perform: (pool: Database["pool"], call: JobCall) => Promise<unknown>,
): Operation => ({
  perform: ofJob(async (call) => {
    await perform(call.database.pool, call);
    const job = await findJob(call.database.readPool, call.caller, call.jobId);
    return shown({ ...call, job, progress: [] });
  }),
  wakes: true,
});

async function items({ job, query, database, context }: JobCall): Promise<BulkAnswer> {
  const { limit, cursor, state, code } = parseBody(itemQuerySchema, query);
  const after = cursor === undefined ? -1 : Number(cursor);
  const rows = await listItems(database.readPool, job.id, { after, state, code, limit: limit + 1 });
  const [page, next_cursor] = paged(rows, limit, (row) => String(row.index));
  const shown = page.map(async (row) => itemWithDeliveries(row, job.request, context));
  return jsonAnswer({ items: await Promise.all(shown), next_cursor });
}

/**
 * The item, with what became of its objects: the file beside its receipt says that, which may be of
 * another request by now.
 */
async function itemWithDeliveries(
  row: ItemRow,
  request: JobRequest,
  { config, roots }: ApiContext,
): Promise<Item> {
  const item = itemOf(row, request, config.path_map);
  const { destinations } = request;
  if (destinations === undefined || item.receipt_path === undefined) return item;
  const paths = pathsOf(request, row, config.path_map);
  const file = deliveryName(paths.name);
  const found = await withInput(
    paths.outputFolder,
    roots.output,
    async ({ fdPath }) =>
      deliveriesOf(await readDelivery(`${fdPath}/${file}`, paths.name), (name) =>
        paths.clientOutput(name),
      ),
    "output",
  ).catch(() => undefined);
  if (found === undefined) return item;
  const own = new Set(item.outputs.map(({ sop_instance_uid: uid }) => uid));
  const ofItem = found.filter(({ sop_instance_uid: uid }) => own.has(uid));
  if (found.length > 0 && ofItem.length === 0) return { ...item, replaced: true };
  return { ...item, deliveries: ofItem.filter((one) => destinations.includes(one.destination)) };
}

/** That a job was lost is told until somebody forgets it, as one that is over. */
const purge: Perform = async (call, context) => {
  try {
    return await ofJob(purged)(call, context);
  } catch (error) {
    if (error instanceof RadserveError && error.code === "job_not_found" && isUuid(call.jobId))
      await forgetLost((await openedSoon(context)).pool, call.caller, call.jobId);
    throw error;
  }
};

async function purged({ job, caller, database, context }: JobCall): Promise<BulkAnswer> {
  const { pool } = database;
  const { outputs } = await namedPaths(pool, job);
  const row = await purgeJob(pool, caller, job.id);
  // Not waited for: a share may not answer
  void unmark(job.id, outputs, context.config);
  const nothing = { waiting: [], nodes: [], progress: [], failures: [] };
  const { report, pins: pinned, pinned_before, pinned_anew } = row;
  return jsonAnswer({
    ...jobOf(row),
    ...nothing,
    report,
    pinned,
    pinned_before,
    pinned_anew,
  } satisfies JobDetails);
}

/**
 * A job that is set to work again is counted, and its folders are made and marked, as for a new
 * one.
 */
function again({ config, roots, scanner }: ApiContext): Again {
  return {
    mark: async (job, client) => {
      await refuseManyInTurn(client, job, config.jobs_per_subject);
      const { outputs } = await namedPaths(client, job);
      const narrowed = await narrowRoots(roots.output, job.output_roots ?? undefined);
      await makeFolders(job.id, outputs, narrowed, config);
    },
    scan: async (job, client) => (await scanner()).enqueue({ job_id: job.id }, client),
  };
}

async function reconciled({ job, query, caller, database, context }: JobCall): Promise<BulkAnswer> {
  const { limit, cursor, retry } = parseBody(reconcileQuerySchema, query);
  const { pool } = database;
  if (retry === "true") requireMayDeliver({ job, caller });
  const { lacking, ...found } = await reconcile(pool, job, { limit, cursor }, context);
  const requeued =
    retry === "true" && lacking.length > 0
      ? await requeueItems(pool, caller, job.id, again(context), lacking)
      : 0;
  return {
    ...jsonAnswer({ ...found, requeued } satisfies Reconciliation),
    note: { checked: found.checked, differences: found.differences.length, requeued },
  };
}

/** A submission does not ask this: it waits as long as the database needs. */
async function openedSoon({ database }: ApiContext): Promise<Database> {
  const opening = database();
  if (await within(opening, durations.bulkOpening)) return opening;
  // Nobody waits for its fault any more
  opening.catch(() => undefined);
  throw new BulkUnavailable(
    "The bulk queue's database is being made or started.",
    "Try again in a few seconds.",
  );
}

interface Operation {
  /** @throws RadserveError of any code that the endpoint documents */
  perform: Perform;
  /** Whether nodes may have something to do, or to stop, after it. */
  wakes: boolean;
}

/** The operations of the bulk queue; routes.ts has an endpoint for each. */
export const OPERATIONS = {
  submit: { perform: submitted, wakes: true },
  list: { perform: showJobs, wakes: false },
  show: { perform: ofJob(shown), wakes: false },
  items: { perform: ofJob(items), wakes: false },
  reconcile: { perform: ofJob(reconciled), wakes: true },
  purge: { perform: purge, wakes: false },
  cancel: change((pool, { caller, job }) => cancelJob(pool, caller, job.id)),
  retry: change((pool, call) => {
    requireMayDeliver(call);
    return retryJob(pool, call.caller, call.job.id, again(call.context));
  }),
  pause: change((pool, { caller, job }) => setPaused(pool, caller, job.id, true)),
  resume: change(async (pool, call) => {
    requireMayDeliver(call);
    await setPaused(pool, call.caller, call.job.id, false);
    const known = await call.context.models();
    const { request } = call.job;
    await pinAnew(pool, call.job.id, call.context.config.node_name, () => pinsFor(request, known));
  }),
} satisfies Record<string, Operation>;
export type OperationName = keyof typeof OPERATIONS;
