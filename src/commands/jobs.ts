/** `radserve jobs`: the jobs of a running server, one page call each. */
import { type Config } from "../config.js";
import { ConfigError } from "../base/errors.js";
import { clientWithToken } from "./client.js";
import {
  ITEM_STATES,
  itemListSchema,
  JOB_STATES,
  jobDetailsSchema,
  jobListSchema,
  reconciliationSchema,
  type Item,
  type Job,
  type Reconciliation,
} from "../bulk/schema.js";
import { differencesTable, itemsTable, jobsTable, jobText } from "./job-text.js";
import { print, remark, type ExitStatus, type JsonOption } from "./run.js";

/** The server gives at most this many at once, of jobs and of items. */
const PAGE = 100;

interface Listing {
  state?: string;
  limit: string;
  json?: boolean;
}

function limitOf({ limit }: Listing): number {
  const number = Number(limit);
  if (Number.isInteger(number) && number > 0) return number;
  throw new ConfigError(`--limit: expected a whole number from 1; found "${limit}".`);
}

/** Pages until there are no more, or `most` were read. */
async function collect<T>(
  most: number,
  read: (parameters: string) => Promise<{ found: T[]; next: string | null }>,
  query: Record<string, string>,
): Promise<{ all: T[]; more: boolean }> {
  const all: T[] = [];
  let cursor: string | null = null;
  do {
    const parameters = new URLSearchParams({
      ...query,
      limit: String(Math.min(PAGE, most - all.length)),
      ...(cursor === null ? {} : { cursor }),
    });
    const { found, next } = await read(parameters.toString());
    all.push(...found);
    cursor = next;
  } while (cursor !== null && all.length < most);
  return { all, more: cursor !== null };
}

export async function jobsList(config: Config, options: Listing): Promise<ExitStatus> {
  const query = stateOf(options, JOB_STATES);
  const client = clientWithToken(config);
  const read = async (parameters: string) => {
    const { jobs, next_cursor } = await client.call(jobListSchema, "GET", `/bulk_inference?${parameters}`);
    return { found: jobs, next: next_cursor };
  };
  const { all, more } = await collect<Job>(limitOf(options), read, query);
  if (options.json === true) print(JSON.stringify({ jobs: all }, null, 2));
  else if (all.length === 0) remark("No jobs.");
  else print(jobsTable(all));
  if (more) remark("There are more: --limit.");
  return 0;
}

function stateOf({ state }: Listing, states: readonly string[]): Record<string, string> {
  if (state === undefined) return {};
  if (states.includes(state)) return { state };
  throw new ConfigError(`--state: expected one of ${states.join(", ")}; found "${state}".`);
}

export async function jobsItems(config: Config, id: string, options: Listing): Promise<ExitStatus> {
  const query = stateOf(options, ITEM_STATES);
  const client = clientWithToken(config);
  const page = `/bulk_inference/${encodeURIComponent(id)}/items`;
  const read = async (parameters: string) => {
    const { items, next_cursor } = await client.call(itemListSchema, "GET", `${page}?${parameters}`);
    return { found: items, next: next_cursor };
  };
  const { all, more } = await collect<Item>(limitOf(options), read, query);
  if (options.json === true) print(JSON.stringify({ items: all }, null, 2));
  else if (all.length === 0) remark("No such images in this job.");
  else print(itemsTable(all));
  if (more) remark("There are more: --limit.");
  return 0;
}

/** What can be done to one job: method and page after its id. */
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
  const client = clientWithToken(config);
  const page = `/bulk_inference/${encodeURIComponent(id)}/reconcile`;
  const found: Omit<Reconciliation, "next_cursor"> = { checked: 0, differences: [], requeued: 0 };
  let cursor: string | null = null;
  do {
    const parameters = new URLSearchParams({
      limit: String(PAGE),
      retry: String(options.retry === true),
      ...(cursor === null ? {} : { cursor }),
    });
    const part: Reconciliation = await client.call(
      reconciliationSchema,
      "POST",
      `${page}?${parameters.toString()}`,
    );
    found.checked += part.checked;
    found.requeued += part.requeued;
    found.differences.push(...part.differences);
    cursor = part.next_cursor;
  } while (cursor !== null);
  if (options.json === true) print(JSON.stringify(found, null, 2));
  else {
    if (found.differences.length > 0) print(differencesTable(found.differences));
    const again = found.requeued === 0 ? "" : ` ${found.requeued} run again.`;
    print(
      found.differences.length === 0
        ? `${found.checked} images compared: everything is there and equal.`
        : `${found.checked} images compared: ${found.differences.length} differences.${again}`,
    );
  }
  return found.differences.length === 0 ? 0 : 1;
}
