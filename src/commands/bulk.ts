/**
 * `radserve bulk`: gives a folder to a running server as one job and stays with it until it ends.
 */
import { randomUUID } from "node:crypto";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import {
  acceptedSchema,
  itemListSchema,
  jobSchema,
  type Accepted,
  type Job,
} from "../jobs/schema.js";
import type { Config } from "../config.js";
import { durations } from "../base/durations.js";
import { asRadserveError, type RadserveError } from "../base/errors.js";
import { ABSOLUTE_NAME } from "../files/path-map.js";
import { clientWithToken, type Client } from "./client.js";
import { hasEnded, summaryText, whyOf } from "./job-text.js";
import { ProgressBar } from "./progress.js";
import { during } from "./activity.js";
import { print, printError, remark, type ExitStatus, type JsonOption } from "./run.js";

/** How long the first contact may take: a server that has just been started, or restarts. */
const FIRST_CONTACT_MS = 15_000;
const POLL_MS = 500;
/** Failed images that are named at the end. */
const MOST_NAMED = 20;

export interface BulkCommand extends JsonOption {
  model?: string[];
  label?: string[];
  group?: "series";
  outputs?: string;
  detach?: boolean;
  idempotencyKey?: string;
}

/**
 * 0: all succeeded or were skipped; 1: some failed or are partial, or it was cancelled; 2: refused;
 * 130: left alone.
 */
export async function bulk(
  config: Config,
  input: string,
  output: string,
  options: BulkCommand,
): Promise<ExitStatus> {
  const client = clientWithToken(config);
  let accepted: Accepted;
  try {
    const submitting = clientWithToken(config, durations.commandWork);
    accepted = await submit(submitting, input, output, options);
  } catch (thrown) {
    printError(asRadserveError(thrown), options.json);
    return 2;
  }
  if (options.detach === true) {
    if (options.json === true) print(JSON.stringify(accepted, null, 2));
    else print(accepted.job_id);
    remark(`Left to the server. radserve jobs show ${accepted.job_id} says how it is.`);
    return 0;
  }
  const job = await follow(client, accepted.job_id, options.json === true);
  if (job === undefined) {
    remark(`Detached: the job continues. radserve jobs show ${accepted.job_id} shows it.`);
    return 130;
  }
  await tellEnd(client, job, options.json === true);
  return job.state === "completed" && job.counts.failed + job.counts.partial === 0 ? 0 : 1;
}

/**
 * A client may name folders as another machine does (`\\server\share`): the server's path_map
 * translates those.
 */
const asServerSees = (folder: string) =>
  ABSOLUTE_NAME.test(folder) ? folder : path.resolve(folder);

function submit(client: Client, input: string, output: string, options: BulkCommand) {
  const body = {
    input_folder_path: asServerSees(input),
    output_folder_path: asServerSees(output),
    models: options.model,
    labels: options.label,
    group: options.group,
    outputs: options.outputs?.split(",").map((one) => one.trim()),
    // An answer lost on its way must not make a second job when the request is repeated.
    idempotency_key: options.idempotencyKey ?? randomUUID(),
  };
  const once = new Set<string>();
  const onRetry = ({ message }: RadserveError) => {
    if (!once.has(message)) remark(`${message} Trying again.`);
    once.add(message);
  };
  const patience = { forMs: FIRST_CONTACT_MS, onRetry };
  return during("Waiting for the server, which makes its database with the first job", () =>
    client.callPatiently(acceptedSchema, patience, "POST", "/bulk_inference", body),
  );
}

/** Shows the job until it ends; undefined where Ctrl-C leaves it to the server. */
async function follow(client: Client, id: string, json: boolean): Promise<Job | undefined> {
  const progress = new ProgressBar(json ? process.stderr : process.stdout);
  const leaving = new AbortController();
  const leave = () => leaving.abort();
  process.once("SIGINT", leave);
  const page = `/bulk_inference/${id}`;
  remark(`job ${id}`);
  try {
    for (;;) {
      const patience = {
        signal: leaving.signal,
        onRetry: (why: RadserveError) => progress.unreachable(why),
      };
      const job = await client.callPatiently(jobSchema, patience, "GET", page);
      progress.show(job);
      if (hasEnded(job)) return job;
      await delay(POLL_MS, undefined, { signal: leaving.signal });
    }
  } catch (error) {
    if (leaving.signal.aborted) return undefined;
    throw error;
  } finally {
    process.off("SIGINT", leave);
    progress.end();
  }
}

async function tellEnd(client: Client, job: Job, json: boolean): Promise<void> {
  const pages = await Promise.all(
    (["failed", "partial"] as const)
      .filter((state) => job.counts[state] > 0)
      .map((state) =>
        client.callPatiently(
          itemListSchema,
          { forMs: FIRST_CONTACT_MS },
          "GET",
          `/bulk_inference/${job.job_id}/items?state=${state}&limit=${MOST_NAMED}`,
        ),
      ),
  );
  const named = pages.flatMap(({ items }) => items).slice(0, MOST_NAMED);
  if (json) {
    print(JSON.stringify({ ...job, problems: named }, null, 2));
    return;
  }
  print(summaryText(job));
  for (const { message } of job.warnings) print(`  Warning: ${message}`);
  for (const item of named) print(`  ${item.state}: ${item.input_image_path}: ${whyOf(item)}`);
  const bad = job.counts.failed + job.counts.partial;
  if (bad > named.length)
    print(
      `  and ${bad - named.length} more: radserve jobs items ${job.job_id} --state failed (or partial)`,
    );
}
