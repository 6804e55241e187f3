/**
 * POST /bulk_inference: what is asked for is checked as far as it can be at once, and then kept.
 */
import { createHash, randomUUID } from "node:crypto";
import path from "node:path";
import { v5 as uuidV5 } from "uuid";
import type { Config } from "../config.js";
import { cached } from "../base/cached.js";
import { canonicalJson } from "../base/canonical-json.js";
import { errors, RadserveError } from "../base/errors.js";
import type { KnownModels } from "../models/entry.js";
import { translateIn } from "../files/path-map.js";
import { openInput, openOutputFolder } from "../files/guarded-paths.js";
import { narrowRoots, realPathToBe, type Roots } from "../files/roots.js";
import { bulkRequestSchema, type BulkRequest } from "./schema.js";
import { groupsOf } from "../base/groups.js";
import { parseBody } from "../base/json-body.js";
import { checkGroup, destinationsFor, type KnownDestinations } from "../inference/request.js";
import { holdsSomething } from "../files/folder-mark.js";
import type { KnownJobs } from "./known-jobs.js";
import { transaction, wasRefused, type Database } from "./database.js";
import { makeFolders, unmark } from "./job-folders.js";
import {
  analyzeItems,
  findJob,
  insertJob,
  jobOfKey,
  refuseMany,
  type KeyedJob,
  type NewJob,
} from "./jobs.js";
import type { Caller } from "./call.js";
import { pinsFor } from "./pins.js";
import type { Scanner } from "./scanner.js";
import { visibleTo } from "./visible-jobs.js";

const CHECKED_AT_ONCE = 16;

export interface SubmitContext {
  config: Config;
  roots: { input: string[]; output: string[] };
  destinations?: KnownDestinations | undefined;
  known: Pick<KnownJobs, "add">;
  models: () => Promise<KnownModels>;
  database: () => Promise<Database>;
  scanner: () => Promise<Scanner>;
}

/**
 * @param asked a BulkRequest, if it is one
 * @returns the job's id, and whether it is new: an idempotency key gives the job of before
 */
export async function submit(
  caller: Caller,
  asked: unknown,
  context: SubmitContext,
  traceparent?: string,
): Promise<{ id: string; fresh: boolean }> {
  const { idempotency_key: key, ...body } = parseBody(bulkRequestSchema, asked);
  const { items, deliver, destinations: named, ...rest } = body;
  const sha256 = createHash("sha256").update(canonicalJson(body)).digest("hex");
  const { subject, inputRoots, outputRoots } = caller;
  const to = destinationsFor(
    { deliver, destinations: named },
    context.destinations,
    caller.destinations,
  );
  const request = to.length === 0 ? rest : { ...rest, destinations: to };
  const before = async () =>
    key === undefined
      ? undefined
      : sameJob(await jobOfKey((await context.database()).pool, subject, key), sha256);
  const known = await before();
  // A job that a narrowed token does not reach is refused below, by its paths.
  if (known !== undefined && (await isReached(caller, known, context)))
    return { id: known, fresh: false };
  const roots = {
    input: await narrowRoots(context.roots.input, inputRoots),
    output: await narrowRoots(context.roots.output, outputRoots),
  };
  let wasEmpty = false;
  if (items !== undefined) await checkItems(items, roots, { ...context.config, group: body.group });
  else wasEmpty = await checkFolder(request.input_folder_path ?? "", roots, context.config);
  const pins = await pinsFor(body, await context.models());
  const id = randomUUID();
  await refuseMany(
    (await context.database()).readPool,
    { id, subject },
    context.config.jobs_per_subject,
  );
  // Last: for a request that is taken the output folders are made.
  const folders = items?.map((item) => item.output_folder_path) ?? [
    request.output_folder_path ?? "",
  ];
  await makeFolders(id, folders, roots.output, context.config);
  const job: NewJob = {
    id,
    subject,
    inputRoots,
    outputRoots,
    request,
    requestSha256: sha256,
    idempotencyKey: key,
    marked: true,
    pins,
    traceparent,
    ...(items === undefined ? {} : { items: itemsOf(id, items) }),
  };
  try {
    if (await keep(job, wasEmpty, context)) {
      context.known.add(id, subject);
      return { id, fresh: true };
    }
  } catch (error) {
    // If the connection broke, the job may have been kept all the same
    if (wasRefused(error)) await unmark(id, folders, context.config);
    throw error;
  }
  await unmark(id, folders, context.config);
  // Another request with the same key was faster.
  const other = await before();
  if (other === undefined) throw new Error("A job could not be kept although its key is free");
  return { id: other, fresh: false };
}

async function isReached(caller: Caller, id: string, context: SubmitContext): Promise<boolean> {
  const database = await context.database();
  return visibleTo(caller, context)(await findJob(database.pool, caller, id), database);
}

async function keep(job: NewJob, wasEmpty: boolean, context: SubmitContext): Promise<boolean> {
  const { pool } = await context.database();
  const scanner = job.items === undefined ? await context.scanner() : undefined;
  const kept = await transaction(pool, async (client) => {
    if (!(await insertJob(client, job, context.config.jobs_per_subject))) return false;
    await scanner?.enqueue({ job_id: job.id, ...(wasEmpty ? { was_empty: true } : {}) }, client);
    return true;
  });
  await analyzeItems(pool, job.items?.length ?? 0);
  return kept;
}

function sameJob(found: KeyedJob | undefined, sha256: string): string | undefined {
  if (found === undefined || found.request_sha256 === sha256) return found?.id;
  throw errors.idempotency_conflict(
    "Expected the same request as before under this idempotency_key; found another. Use a new key for a new request.",
    { job_id: found.id },
  );
}

type Items = NonNullable<BulkRequest["items"]>;
type Checked = Config & Pick<BulkRequest, "group">;

function itemsOf(jobId: string, items: Items) {
  return items.map(({ input_image_path: input, output_folder_path: output }, index) => ({
    id: uuidV5(String(index), jobId),
    input,
    output,
  }));
}

async function checkItems(items: Items, roots: Roots, config: Checked): Promise<void> {
  /** The real path of an output folder, or the one that it will have once it exists. */
  const realFolder = cached(async (folder: string) => {
    const options = { create: false, minimumFreeBytes: config.minimum_free_disk };
    (await openOutputFolder(folder, roots.output, options)).close();
    return (await realPathToBe(folder)) ?? path.posix.normalize(folder);
  });
  const taken = new Map<string, number>();
  for (const some of groupsOf([...items.entries()], CHECKED_AT_ONCE)) {
    const results = some.map(async ([i, item]) => {
      return [i, await checkItem(item, roots, config, realFolder).catch(atIndex(i))] as const;
    });
    for (const [i, result] of await Promise.all(results)) {
      const other = taken.get(result);
      if (other !== undefined)
        throw errors.bad_request(
          `items[${other}] and items[${i}] would write their results under the same name into the same folder. Give them different output folders, or send one of them.`,
          { indices: [other, i] },
        );
      taken.set(result, i);
    }
  }
}

/** @returns whether the folder held nothing */
async function checkFolder(folder: string, roots: Roots, { path_map }: Config): Promise<boolean> {
  const input = await openInput(folder, roots.input, path_map);
  try {
    if (input.kind === "folder") return !(await holdsSomething(input.fdPath));
  } finally {
    input.close();
  }
  throw errors.bad_request(
    "Expected input_folder_path to name a folder; found a file. Send single files as items.",
    { field: "input_folder_path" },
  );
}

/** @returns what its results are called, for the whole machine */
async function checkItem(
  { input_image_path, output_folder_path }: Items[number],
  roots: Roots,
  { path_map, group }: Checked,
  realFolder: (folder: string) => Promise<string>,
): Promise<string> {
  const given = translateIn(input_image_path, path_map).path;
  let name = path.posix.basename(given);
  try {
    const input = await openInput(given, roots.input);
    name = input.name;
    input.close();
    checkGroup(group, input.kind);
  } catch (error) {
    // One file that is missing is that item's failure and refuses no other.
    if (!(error instanceof RadserveError) || error.code !== "input_not_found") throw error;
  }
  const folder = await realFolder(translateIn(output_folder_path, path_map).path);
  return `${folder}\0${name}`;
}

function atIndex(index: number) {
  return (error: unknown): never => {
    if (!(error instanceof RadserveError)) throw error;
    throw new RadserveError(error.code, `items[${index}]: ${error.message}`, {
      ...error.details,
      index,
    });
  };
}
