/**
 * The details of a job: why it waits, since when and on which node; the nodes; why images failed.
 */
import type { Pool } from "pg";
import { durations } from "../base/durations.js";
import type { JobRow } from "./jobs.js";
import { MISSING_HERE } from "./missing-images.js";
import { lackingOf, OTHER_VERSIONS } from "./pins.js";
import type { NodeState, Job, JobDetails, JobProgress } from "./schema.js";

type WaitReason = JobDetails["waiting"][number];

const SUSPECT =
  "The server ended while these images were being worked on. They run one at a time, with nothing beside them.";
const MESSAGES: Record<string, string> = {
  suspect: SUSPECT,
  name_locked:
    "Another node, which may stand still, holds the names of these results. They are tried again after half a minute.",
  silent_node:
    "A node that has these images shows no sign of life. If it stays silent for 12 seconds, they run elsewhere.",
  [MISSING_HERE]:
    "This node does not find these images, or may not read them. They are left to the other nodes, and fail where none finds them.",
  overloaded: "The server had all the work that it can hold. They are tried again within seconds.",
};
const AGAIN = "These images failed and are tried again within seconds.";

/** Groups of items that wait for something of their own, and those that a silent node has. */
async function waitingItems(pool: Pool, jobId: string): Promise<WaitReason[]> {
  const { rows } = await pool.query<Omit<WaitReason, "since"> & { since: Date }>(
    `select waits->>'reason' as reason, waits->>'box' as node, min((waits->>'since')::timestamptz) as since,
       count(*)::int as images
     from radserve.item where job_id = $1 and state = 'queued' and waits is not null group by 1, 2
     union all
     select 'silent_node', b.name, b.beat_at, count(*)::int
     from radserve.item i join radserve.instance b on b.id = i.owner
     where i.job_id = $1 and i.state = 'running' and b.beat_at < now() - make_interval(secs => $2)
     group by b.id order by since`,
    [jobId, durations.nodeSilent / 1000],
  );
  return rows.map(({ reason, node, since, images }) => ({
    reason,
    message: MESSAGES[reason] ?? AGAIN,
    since: since.toISOString(),
    node,
    images,
  }));
}

/** Nodes that leave the job to others. Where all do, the job is paused, and says so itself. */
async function leftAlone(pool: Pool, row: JobRow): Promise<WaitReason[]> {
  const { rows } = await pool.query<{ code: string; message: string; since: Date; name: string }>(
    `select h.code, h.message, h.since, i.name from radserve.hindrance h join radserve.instance i on i.id = h.instance
     where h.job_id = $1 and ($2::text is null or h.code <> $2) order by h.since, i.name`,
    [row.id, row.pause_code],
  );
  return rows.map(({ code, message, since, name }) => ({
    reason: code,
    message,
    since: since.toISOString(),
    node: name,
    images: null,
  }));
}

/** Nodes that have not what the job was submitted with, and what that is. */
function otherVersions({ pins }: JobRow, nodes: readonly NodeState[]): WaitReason[] {
  if (pins === null) return [];
  const { result_key: key = "" } = pins;
  const isKept = nodes.some(({ alive, result_keys }) => alive && result_keys.includes(key));
  return nodes.flatMap((node) => {
    const { alive, works, ready, release, models } = node;
    const runs = isKept ? node : { release, models };
    const lacking = alive && works && ready ? lackingOf(pins, runs) : [];
    if (lacking.length === 0) return [];
    return {
      reason: OTHER_VERSIONS,
      message: `The node lacks what the job was submitted with: ${lacking.join("; ")}.`,
      since: null,
      node: node.name,
      images: null,
    };
  });
}

/** @param jobId for how many of its images each node has; null: of no job */
async function nodesOf(pool: Pool, jobId: string | null): Promise<JobDetails["nodes"]> {
  type Times = "seen_at" | "entered_at";
  const { rows } = await pool.query<Omit<NodeState, Times> & Record<Times, Date>>(
    `select b.name, b.box as id, b.id as instance, b.address, b.release,
       b.beat_at > now() - make_interval(secs => $2) as alive, b.works, b.ready,
       b.beat_at as seen_at, b.entered_at, b.clock_offset_ms, b.models, b.keys, b.result_keys, b.roots, b.settings,
       (select count(*)::int from radserve.item i
        where i.job_id = $1 and i.state = 'running' and i.owner = b.id) as running
     from radserve.instance b order by b.name, b.box, b.beat_at`,
    [jobId, durations.nodeSilent / 1000],
  );
  return rows.map((row) => ({
    ...row,
    seen_at: row.seen_at.toISOString(),
    entered_at: row.entered_at.toISOString(),
  }));
}

/** The servers on this database. */
export async function allNodes(pool: Pool): Promise<Omit<NodeState, "running">[]> {
  // oxlint-disable-next-line eslint/no-unused-vars -- the count is what is left out
  return (await nodesOf(pool, null)).map(({ running, ...node }) => node);
}

/** Why images failed or were skipped, by code. */
export async function failuresOf(
  pool: Pool,
  jobId: string,
  state: "failed" | "skipped",
): Promise<JobDetails["failures"]> {
  const { rows } = await pool.query<JobDetails["failures"][number]>(
    `select $2 as state, coalesce(error->>'error', error->>'code', 'unknown') as code,
       coalesce(min(error->>'message'), '') as message, count(*)::int as images
     from radserve.item where job_id = $1 and state = $2 group by 2 order by 4 desc, 2 limit 20`,
    [jobId, state],
  );
  return rows;
}

/** When a node last could have worked on the job. */
function lastWorker(nodes: JobDetails["nodes"], createdAt: Date): string {
  const seen = nodes.filter(({ works, ready }) => works && ready).map(({ seen_at }) => seen_at);
  return [createdAt.toISOString(), ...seen].reduce((latest, one) => (one > latest ? one : latest));
}

/** Why the job as a whole waits, and for what it waited before, where it now waits for more. */
function ofJob(
  row: JobRow,
  reason: Job["paused_reason"],
  nodes: JobDetails["nodes"],
): WaitReason[] {
  if (reason === null) return [];
  const { code, message } = reason;
  const { pause_code, pause_message, pause_box, paused_at } = row;
  const since = reason.since ?? (code === "no_worker" ? lastWorker(nodes, row.created_at) : null);
  const isPause = pause_code === null || pause_code === code;
  const now = { reason: code, message, since, node: isPause ? pause_box : null, images: null };
  if (isPause || row.paused) return [now];
  const before = {
    reason: pause_code,
    message: pause_message ?? "",
    since: paused_at?.toISOString() ?? null,
    node: pause_box,
    images: null,
  };
  return [now, before];
}

/** @param job as it is shown, which says why it is paused */
export async function detailsOf(
  pool: Pool,
  row: JobRow,
  job: Job,
  progress: JobProgress[],
): Promise<JobDetails> {
  const nodes = await nodesOf(pool, row.id);
  const waiting =
    row.finished_at === null
      ? [
          ...(await leftAlone(pool, row)),
          ...otherVersions(row, nodes),
          ...(await waitingItems(pool, row.id)),
        ]
      : [];
  const failures: JobDetails["failures"] = [];
  for (const state of ["failed", "skipped"] as const)
    if (job.counts[state] > 0) failures.push(...(await failuresOf(pool, row.id, state)));
  return {
    ...job,
    waiting: [...ofJob(row, job.paused_reason, nodes), ...waiting],
    nodes,
    progress,
    failures,
    report: row.report,
    pinned: row.pins,
    pinned_before: row.pinned_before,
    pinned_anew: row.pinned_anew,
  };
}
