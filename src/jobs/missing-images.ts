/**
 * Images that one node does not find, and another may: a folder that is not mounted on that node
 * alone, or a mirror that lags behind. Each is left to the nodes that have not looked for it, and
 * fails where no node that lives is left. Which nodes have looked is kept with the item, beside why
 * it waits.
 */
import type { Pool } from "pg";
import { jsonb } from "./database.js";
import { isYounger, type Instance } from "./nodes.js";
import { canRun, runsNow } from "./pins.js";

/** What such an item waits for. */
export const MISSING_HERE = "missing_here";

/** @param item alias of its row */
export const isMissed = (item: string): string => `coalesce(${item}.waits ? 'missing_on', false)`;

/** The condition that a node has not looked for an item in vain. @param node an expression */
export const mayBeOn = (item: string, node: string): string =>
  `(${item}.waits is null or not coalesce(${item}.waits->'missing_on' ? (${node})::text, false))`;

/** What is kept of that with an item. @param missing the condition that the node looked in vain */
export const missingOn = (item: string, node: string, missing: string): string =>
  `case when ${missing} or ${isMissed(item)} then jsonb_build_object('missing_on',
     coalesce(${item}.waits->'missing_on', '[]') || case when ${missing} then to_jsonb((${node})::text) else '[]' end)
   else '{}' end`;

/** The condition that a node other than $1 runs images now, and may find one. */
const SOME_OTHER = `exists (select from radserve.instance n where n.id <> $1 and ${runsNow("n")}
  and not ${isYounger("n")} and ${canRun("j", "n")} and ${mayBeOn("i", "n.id")})`;

/**
 * Which of the items that this node does not find another one may.
 * @returns for each of them
 */
export async function mayBeElsewhere(
  pool: Pool,
  { id }: Pick<Instance, "id">,
  items: readonly { job_id: string; index: number }[],
): Promise<boolean[]> {
  if (items.length === 0) return [];
  const { rows } = await pool.query<{ place: number }>(
    `select r.place from jsonb_to_recordset($2::jsonb) as r (place int, job_id uuid, index int)
     join radserve.item i using (job_id, index) join radserve.job j on j.id = i.job_id where ${SOME_OTHER}`,
    [id, jsonb(items.map(({ job_id, index }, place) => ({ place, job_id, index })))],
  );
  const found = new Set(rows.map(({ place }) => place));
  return items.map((_, place) => found.has(place));
}

/**
 * Images that were left to a node that is gone now, and that no other one may find, are looked for
 * anew.
 * @param jobs of which this node has left some
 * @returns those of which some still wait for another node
 */
export async function lookAgain(
  pool: Pool,
  { id }: Instance,
  jobs: readonly string[],
): Promise<string[]> {
  if (jobs.length === 0) return [];
  const left = "i.job_id = any($2) and i.state = 'queued' and i.waits is not null";
  await pool.query(
    `update radserve.item i set waits = waits - 'missing_on' from radserve.job j
     where j.id = i.job_id and ${left} and not ${mayBeOn("i", "$1::uuid")} and not ${SOME_OTHER}`,
    [id, jobs],
  );
  const { rows } = await pool.query<{ job_id: string }>(
    `select distinct i.job_id from radserve.item i where ${left} and not ${mayBeOn("i", "$1::uuid")}`,
    [id, jobs],
  );
  return rows.map(({ job_id }) => job_id);
}
