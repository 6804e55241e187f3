/**
 * `radserve explain REQUEST_ID|JOB|PATH`: why something failed, for whoever runs the server. The
 * audit knows who asked and what came of it, and names paths by keyed hashes only; a receipt knows
 * what each model said; the server knows the message of each image of a job. What to do comes from
 * the table of errors.
 */
import { withoutEnd } from "../base/ends.js";
import { createReadStream, existsSync } from "node:fs";
import path from "node:path";
import { createInterface } from "node:readline/promises";
import { readLine, type AuditEntry } from "../audit/entry.js";
import { auditFolder, auditPaths, dayFiles, hashOf, readKey } from "../audit/folders.js";
import { asRadserveError, ConfigError, ERRORS, type ErrorCode } from "../base/errors.js";
import { itemListSchema, jobDetailsSchema, type Item, type JobDetails } from "../jobs/schema.js";
import type { Config } from "../config.js";
import { translateIn } from "../files/path-map.js";
import { readReceipt } from "../results/receipt/read-receipt.js";
import { knownFaults } from "../results/commit/known-faults.js";
import type { Receipt } from "../results/receipt/receipt.js";
import { distrust, type Trust } from "../results/receipt/seal.js";
import { clientWithToken, type Client } from "./client.js";
import { placeText, whereObjectsAre, type ObjectPlace } from "./explain-delivery.js";
import { countsText } from "./job-text.js";
import { during } from "./activity.js";
import { limitOf } from "./jobs.js";
import { print, remark, type ExitStatus, type JsonOption } from "./run.js";

export interface ExplainOptions extends JsonOption {
  /** The folder for the results of an image: its receipt is read there. */
  output?: string;
  limit: string;
}

/** One thing that happened. */
interface Event {
  time?: string;
  what: string;
  request_id?: string | undefined;
  job_id?: string | undefined;
  item?: number | undefined;
  subject?: string | undefined;
  /** completed, partial, reused, done, asked, or the code of an error. */
  outcome: string;
  /** Which of the reasons of its outcome it has, and what that means. */
  reason?: string;
  /** The message that was answered, where somebody has kept it. */
  message?: string;
  details?: unknown;
  /** The number of images in a group of a job, and some of them. */
  images?: number;
  examples?: { item: number; path: string }[];
  models?: { name: string; status: string; error?: string; message?: string }[];
  /** Objects of the result on their way to a destination. */
  objects?: ObjectPlace[];
  /** Known faults of the version that made a result, in such a case. */
  known_faults?: string[];
  meaning?: string;
  cause?: string;
  remedy?: string;
}

/** What the reasons in details of errors mean (docs/troubleshooting.md). */
const REASONS: Readonly<Record<string, { meaning: string; remedy: string }>> = {
  token: {
    meaning: "The path lies outside of the folders that the token allows.",
    remedy: "Issue a token with --input-root or --output-root for it, or without them.",
  },
  permission: {
    meaning: "The server's user has no permission for the file, or for a folder above it.",
    remedy: "Give it that permission on the file and on every folder above it (namei -l PATH).",
  },
  path_map: {
    meaning: "The path is another machine's, and RADSERVE_PATH_MAP does not translate it.",
    remedy: "Add its beginning to RADSERVE_PATH_MAP.",
  },
  not_mounted: {
    meaning: "The share of the root is not mounted on this node, or does not answer.",
    remedy: "Mount the share; radserve status says what was found.",
  },
  link: {
    meaning: "The path leads over a link that leads nowhere.",
    remedy: "Correct the link, or mount the share that it leads to.",
  },
  read_only: {
    meaning: "The file system of the folder is mounted read-only.",
    remedy: "Mount it for writing, and name it in ReadWritePaths= of a systemd unit.",
  },
  mark: {
    meaning: "The output folder is not the one that its job began with.",
    remedy: "Mount its share again, or put the folder back.",
  },
};

const isCode = (text: string): text is ErrorCode => text in ERRORS;

/** Adds what the table of errors says of the outcome, or of the error of a model. */
function explained(told: Event): Event {
  const code = isCode(told.outcome)
    ? told.outcome
    : told.models?.map(({ error }) => error ?? "").find((error) => isCode(error));
  if (code === undefined || !isCode(code)) return told;
  const { description, cause, remedy } = ERRORS[code];
  const known = told.reason === undefined ? undefined : REASONS[told.reason];
  // Where the reason is known, a list of all that it may be says less
  return known === undefined
    ? { ...told, meaning: description, cause, remedy }
    : { ...told, meaning: known.meaning, remedy: known.remedy };
}

/** Why a token was refused, or the code of what else was refused before the work. */
function outcomeOf({ outcome, kind, reason = "" }: AuditEntry): string {
  if (outcome !== undefined) return outcome;
  if (kind !== "refused") return "done";
  return isCode(reason) ? reason : "unauthorized";
}

/** A path without another reason lies outside. */
function reasonIn(entry: AuditEntry): { reason?: string } {
  if (entry.kind === "refused") return {};
  const reason = entry.reason ?? (entry.outcome === "path_not_allowed" ? "outside" : undefined);
  return reason === undefined ? {} : { reason };
}

function toldOf(entry: AuditEntry): Event {
  const { time, kind, endpoint, request_id, job_id, item, subject, models, reason } = entry;
  const what = endpoint ?? (kind === "item" ? "an image of a bulk job" : kind);
  return {
    time,
    what,
    outcome: outcomeOf(entry),
    ...reasonIn(entry),
    ...(kind === "refused" && reason !== undefined ? { message: `refused: ${reason}` } : {}),
    request_id,
    job_id,
    item,
    subject,
    ...(models === undefined
      ? {}
      : { models: models.map(({ name, status }) => ({ name, status })) }),
  };
}

/** The id or path that is explained. */
interface ExplainTarget {
  text: string;
  /** Undefined for an id. */
  path?: string;
  /** The forms of the path that a request may have had. */
  forms: readonly string[];
}

function targetOf(config: Config, given: string): ExplainTarget {
  const isPath = /[\\/]/.test(given) || existsSync(given);
  if (!isPath) return { text: given, forms: [] };
  const local = translateIn(given, config.path_map).path;
  const absolute = path.isAbsolute(local) ? local : path.resolve(local);
  const bare = withoutEnd(absolute, "/") || "/";
  return { text: given, path: bare, forms: [absolute, bare, `${bare}/`] };
}

/** As lines of the audit name it. @throws ConfigError where the key of the audit cannot be read */
function hashesOf({ state_dir }: Config, { forms }: ExplainTarget): ReadonlySet<string> {
  if (forms.length === 0) return new Set();
  const key = readKey(auditPaths(state_dir).namesKey);
  return new Set(forms.map((name) => hashOf(key, "path", name)));
}

function isAbout(
  { request_id, job_id, input, output }: AuditEntry,
  { text }: ExplainTarget,
  hashes: ReadonlySet<string>,
): boolean {
  if (request_id === text || job_id === text) return true;
  return [input, output].some((hash) => hash !== undefined && hashes.has(hash));
}

/** Lines that explain nothing: that something was asked for, or that somebody looked. */
const saysNothing = ({ outcome, endpoint = "" }: AuditEntry) =>
  outcome === "asked" || (outcome === "done" && endpoint.startsWith("GET "));

const BEGUN = "images of the job that were begun";

/**
 * The last lines about the target, the oldest first. For a job, lines of images that ended well are
 * only counted, because a failed one would be lost among them. Only the last try of each image is
 * used.
 */
async function fromAudit(config: Config, target: ExplainTarget, most: number): Promise<Event[]> {
  const folder = auditFolder(config.state_dir);
  const hashes = hashesOf(config, target);
  let found: AuditEntry[] = [];
  const well = new Set<number>();
  const ill = new Set<number>();
  for (const name of dayFiles(folder))
    for await (const text of createInterface({
      input: createReadStream(path.join(folder, name)),
    })) {
      const entry = readLine(text)?.entry;
      if (entry === undefined || saysNothing(entry) || !isAbout(entry, target, hashes)) continue;
      const { job_id, item } = entry;
      if (job_id === target.text && item !== undefined) {
        found = found.filter((one) => one.item !== item);
        const [to, from] = ["completed", "reused"].includes(entry.outcome ?? "")
          ? [well, ill]
          : [ill, well];
        to.add(item);
        from.delete(item);
        if (to === well) continue;
      }
      found = [...found, entry].slice(-most);
    }
  const told = found.map(toldOf);
  if (well.size + ill.size === 0) return told;
  const shown = found.filter(({ item }) => item !== undefined).length;
  const hidden =
    ill.size > shown ? `; the last ${shown} of them are shown, --limit shows more` : "";
  const outcome = `${well.size} ended well, ${ill.size} did not${hidden}`;
  return [...told, { what: BEGUN, job_id: target.text, outcome }];
}

function ofReceipt(file: string, receipt: Receipt, trust: Trust): Event {
  // What it says may be anybody's
  if (!trust.trusted)
    return { what: `the receipt ${file}`, outcome: "result_untrusted", message: distrust(trust) };
  const { timings, status, models } = receipt;
  const faults = knownFaults({ receipt });
  return {
    time: timings.finished_at,
    what: `the receipt ${file}`,
    request_id: timings.request_id,
    outcome: status,
    models: models.map(({ name, status, error, reasons }) => ({
      name,
      status,
      ...(error === undefined ? {} : { error: error.error, message: error.message }),
      ...(reasons === undefined
        ? {}
        : { message: reasons.map(({ message }) => message).join(" ") }),
    })),
    ...(faults.length === 0 ? {} : { known_faults: faults }),
  };
}

/** The receipt that a path names, or the one of an image in the folder that its results go to. */
async function fromReceipt(
  { path: named }: ExplainTarget,
  output: string | undefined,
): Promise<Event[]> {
  if (named === undefined) return [];
  const inOutput =
    output === undefined ? [] : [path.join(path.resolve(output), `${path.basename(named)}.json`)];
  const files = [...(named.endsWith(".json") ? [named] : []), ...inOutput];
  const found = await Promise.all(
    files.map(async (file) => ({
      file,
      read: await readReceipt(file),
      places: await whereObjectsAre(file),
    })),
  );
  return found.flatMap(({ file, read, places }) =>
    read.kind === "receipt" ? [ofReceipt(file, read.receipt, read.trust), ...places] : [],
  );
}

/**
 * Asks the server; undefined if it cannot be asked, or has forgotten. @param what the answer, in
 * words for people
 */
async function fromServer<T>(
  config: Config,
  what: string,
  ask: (client: Client) => Promise<T>,
): Promise<T | undefined> {
  try {
    return await ask(clientWithToken(config));
  } catch (error) {
    const why = error instanceof ConfigError ? error.message : asRadserveError(error).message;
    remark(`${what} the server: ${why}`);
    return undefined;
  }
}

/** An image of a job with its message, if the server still knows it. */
async function itemOf(config: Config, { job_id, item }: Event): Promise<Item | undefined> {
  if (job_id === undefined || item === undefined) return undefined;
  const after = item === 0 ? "" : `&cursor=${item - 1}`;
  const page = `/bulk_inference/${job_id}/items?limit=1${after}`;
  const list = await fromServer(config, "Messages of images of jobs need", (client) =>
    client.call(itemListSchema, "GET", page),
  );
  return list?.items.find(({ index }) => index === item);
}

/** Examples of a group of images that are shown. */
const EXAMPLES = 3;

async function groupOf(
  client: Client,
  job_id: string,
  { state, code, message, images }: JobDetails["failures"][number],
): Promise<Event> {
  const page = `/bulk_inference/${job_id}/items?state=${state}&code=${code}&limit=${EXAMPLES}`;
  const { items } = await client.call(itemListSchema, "GET", page);
  const details = (items[0]?.error ?? items[0]?.reason)?.details;
  return {
    what: `images that ${state === "failed" ? "failed" : "were skipped"}`,
    job_id,
    outcome: code,
    message,
    images,
    ...(details === undefined ? {} : { details }),
    examples: items.map(({ index, input_image_path }) => ({ item: index, path: input_image_path })),
  };
}

/**
 * A job as the server knows it: why images failed, then why they were skipped, what waits for what,
 * and how far it is.
 */
function jobFromServer(config: Config, job_id: string): Promise<Event[] | undefined> {
  return fromServer(
    config,
    "What a job waits for and why its images failed needs",
    async (client) => {
      const job = await client.call(jobDetailsSchema, "GET", `/bulk_inference/${job_id}`);
      const groups: Event[] = [];
      for (const failure of job.failures) groups.push(await groupOf(client, job_id, failure));
      const waiting = job.waiting.map(({ reason, message, since, node, images }): Event => ({
        what: `${images === null ? "the job waits" : "images that wait"}${node === null ? "" : ` (node ${node})`}`,
        job_id,
        outcome: reason,
        message,
        ...(since === null ? {} : { time: since }),
        ...(images === null ? {} : { images }),
      }));
      return [
        ...groups,
        ...waiting,
        { what: "the job", job_id, outcome: job.state, message: countsText(job) },
      ];
    },
  );
}

async function withMessages(config: Config, all: readonly Event[]): Promise<Event[]> {
  const told: Event[] = [];
  for (const one of all) {
    const item =
      isCode(one.outcome) || one.outcome === "partial" ? await itemOf(config, one) : undefined;
    const { message, details } = item?.error ?? item?.reason ?? {};
    told.push(
      message === undefined
        ? one
        : { ...one, message, ...(details === undefined ? {} : { details }) },
    );
  }
  return told;
}

function text(told: Event): string {
  const { time, what, request_id, job_id, item, subject, outcome, reason, message, models } = told;
  const {
    known_faults: faults = [],
    meaning,
    cause,
    remedy,
    details,
    images,
    examples = [],
    objects = [],
  } = told;
  const who = subject === undefined ? "" : ` of ${subject}`;
  const ids = [
    request_id === undefined ? "" : `request ${request_id}`,
    job_id === undefined ? "" : `job ${job_id}${item === undefined ? "" : `, image ${item}`}`,
  ].filter((id) => id !== "");
  const lines = [
    `${time === undefined ? "" : `${time}  `}${images === undefined ? "" : `${images} `}${what}${who}: ${outcome}${ids.length === 0 ? "" : ` (${ids.join("; ")})`}`,
    ...(reason === undefined ? [] : [`  reason:  ${reason}`]),
    ...(message === undefined ? [] : [`  message: ${message}`]),
    ...(details === undefined ? [] : [`  details: ${JSON.stringify(details)}`]),
    ...examples.map((one) => `  image ${one.item}: ${one.path}`),
    ...(images === undefined || images <= examples.length || examples.length === 0
      ? []
      : [
          `  and ${images - examples.length} more: radserve jobs items ${job_id ?? ""} --state ${what.endsWith("failed") ? "failed" : "skipped"}`,
        ]),
    ...(models ?? []).map(
      (model) =>
        `  model ${model.name}: ${model.status}${model.error === undefined ? "" : ` (${model.error})`}${model.message === undefined ? "" : `: ${model.message}`}`,
    ),
    ...objects.map(placeText),
    ...faults.map((fault) => `  known fault: ${fault}`),
    ...(meaning === undefined ? [] : [`  meaning: ${meaning}`]),
    ...(cause === undefined ? [] : [`  why:     ${cause}`]),
    ...(remedy === undefined ? [] : [`  to do:   ${remedy}`]),
  ];
  return lines.join("\n");
}

/**
 * The last of what happened to an image, a request or a job. Status 1 where nothing is known of it.
 */
export async function explain(
  config: Config,
  given: string,
  options: ExplainOptions,
): Promise<ExitStatus> {
  const most = limitOf(options);
  const target = targetOf(config, given);
  const receipts = await fromReceipt(target, options.output);
  const lines = await during("Reading the audit", () => fromAudit(config, target, most)).catch(
    (error: unknown) => {
      // After the state was lost there is no audit, and the receipt says by itself what is wrong
      if (receipts.length === 0 || !(error instanceof ConfigError)) throw error;
      remark(error.message);
      return [];
    },
  );
  const isJob = lines.some(({ job_id }) => job_id === given);
  const ofJob = isJob ? await jobFromServer(config, given) : undefined;
  // The server's groups say more than a line for each image, and what failed comes first
  const audited =
    ofJob === undefined
      ? await withMessages(config, lines)
      : [...ofJob, ...lines.filter(({ item, what }) => item === undefined && what !== BEGUN)];
  const all = [...audited, ...receipts].map(explained);
  if (options.json === true) print(JSON.stringify(all, null, 2));
  else for (const told of all) print(text(told));
  if (all.length > 0) return 0;
  remark(
    `Nothing is known of ${given}. The audit knows requests with a good token, and refused ones; ` +
      "paths have to be as they were sent. Where several nodes serve, ask on each.",
  );
  return 1;
}
