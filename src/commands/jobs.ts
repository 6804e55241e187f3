/** `radserve jobs`: the jobs of a running server, one call of an endpoint each. */
import type { z } from "zod";
import { type Config } from "../config.js";
import { durations } from "../base/durations.js";
import { ConfigError } from "../base/errors.js";
import { counted } from "../base/table.js";
import { clientWithToken, type Client } from "./client.js";
import {
  ITEM_STATES,
  itemListSchema,
  JOB_STATES,
  jobDetailsSchema,
  jobListSchema,
  reconciliationSchema,
  type Reconciliation,
} from "../jobs/schema.js";
import { differencesTable, itemsTable, jobsTable, jobText } from "./job-text.js";
import { print, remark, type ExitStatus, type JsonOption } from "./run.js";

/** The server gives at most this many at once, of jobs and of items. */
const PAGE = 100;

interface ListOptions extends JsonOption {
  state?: string;
  limit: string;
}

export function limitOf({ limit }: { limit: string }): number {
  const number = Number(limit);
  if (Number.isInteger(number) && number > 0) return number;
  throw new ConfigError(`--limit: expected a whole number from 1; found "${limit}".`);
}

/** The parts of a list that the server gives page by page. */
async function* pages<A extends { next_cursor: string | null }>(
  client: Client,
  schema: z.ZodType<A>,
  [method, page]: readonly [method: string, page: string],
  query: Record<string, string>,
): AsyncGenerator<A> {
  let cursor: string | null = null;
  do {
    const parameters = new URLSearchParams({ ...query, ...(cursor === null ? {} : { cursor }) });
    const part: A = await client.call(schema, method, `${page}?${parameters.toString()}`);
    yield part;
    cursor = part.next_cursor;
  } while (cursor !== null);
}

/** Reads pages until there are no more, or as many rows as `--limit` asks for. */
async function collect<A extends { next_cursor: string | null }, T>(
  listed: AsyncGenerator<A>,
  most: number,
  rowsOf: (answer: A) => T[],
): Promise<{ all: T[]; more: boolean }> {
  const all: T[] = [];
  for await (const part of listed) {
    all.push(...rowsOf(part));
    const more = part.next_cursor !== null || all.length > most;
    if (all.length >= most) return { all: all.slice(0, most), more };
  }
  return { all, more: false };
}

function queryOf(options: ListOptions, states: readonly string[]): Record<string, string> {
  const limit = String(Math.min(PAGE, limitOf(options)));
  const { state } = options;
  if (state === undefined) return { limit };
  if (states.includes(state)) return { limit, state };
  throw new ConfigError(`--state: expected one of ${states.join(", ")}; found "${state}".`);
}

export async function jobsList(config: Config, options: ListOptions): Promise<ExitStatus> {
  const query = queryOf(options, JOB_STATES);
  const listed = pages(clientWithToken(config), jobListSchema, ["GET", "/bulk_inference"], query);
  const { all, more } = await collect(listed, limitOf(options), ({ jobs }) => jobs);
  if (options.json === true) print(JSON.stringify({ jobs: all }, null, 2));
  else if (all.length === 0) remark("No jobs.");
  else print(jobsTable(all));
  if (more) remark("There are more: --limit.");
  return 0;
}

export async function jobsItems(
  config: Config,
  id: string,
  options: ListOptions,
): Promise<ExitStatus> {
  const query = queryOf(options, ITEM_STATES);
  const page = `/bulk_inference/${encodeURIComponent(id)}/items`;
  const listed = pages(clientWithToken(config), itemListSchema, ["GET", page], query);
  const { all, more } = await collect(listed, limitOf(options), ({ items }) => items);
  if (options.json === true) print(JSON.stringify({ items: all }, null, 2));
  else if (all.length === 0) remark("No such images in this job.");
  else print(itemsTable(all));
  if (more) remark("There are more: --limit.");
  return 0;
}

/** The actions on one job: method and path after its id. */
const ACTIONS = {
  show: ["GET", ""],
  pause: ["POST", "/pause"],
  resume: ["POST", "/resume"],
  cancel: ["DELETE", ""],
  retry: ["POST", "/retry"],
  purge: ["POST", "/purge"],
} as const;
export type JobAction = keyof typeof ACTIONS;

/** Does it and prints the job as it is then. */
export const jobsAct =
  (action: JobAction) =>
  async (config: Config, id: string, { json = false }: JsonOption): Promise<ExitStatus> => {
    const [method, page] = ACTIONS[action];
    const client = clientWithToken(config);
    const path = `/bulk_inference/${encodeURIComponent(id)}${page}`;
    const job = await client.call(jobDetailsSchema, method, path);
    print(json ? JSON.stringify(job, null, 2) : jobText(job));
    if (action === "purge" && !json) remark("This job is forgotten now; its results stay.");
    return 0;
  };

/**
 * Compares a job with what lies in its output folders: the server looks, page by page.
 * @returns 1 where anything differs, else 0
 */
export async function jobsReconcile(
  config: Config,
  id: string,
  options: { retry?: boolean; json?: boolean },
): Promise<ExitStatus> {
  const client = clientWithToken(config, durations.commandWork);
  const page = `/bulk_inference/${encodeURIComponent(id)}/reconcile`;
  const found: Omit<Reconciliation, "next_cursor"> = { checked: 0, differences: [], requeued: 0 };
  const query = { limit: String(PAGE), retry: String(options.retry === true) };
  for await (const part of pages(client, reconciliationSchema, ["POST", page], query)) {
    found.checked += part.checked;
    found.requeued += part.requeued;
    found.differences.push(...part.differences);
  }
  if (options.json === true) print(JSON.stringify(found, null, 2));
  else {
    if (found.differences.length > 0) print(differencesTable(found.differences));
    const again = found.requeued === 0 ? "" : ` ${found.requeued} run again.`;
    const differing = found.differences.length;
    const verdict =
      differing === 0 ? "every result is complete and unchanged" : counted(differing, "difference");
    print(`${counted(found.checked, "image")} compared: ${verdict}.${again}`);
  }
  return found.differences.length === 0 ? 0 : 1;
}
