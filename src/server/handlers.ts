/** The endpoints: their work begins once the request is known to be allowed. */
import { randomUUID } from "node:crypto";
import path from "node:path";
import { z } from "zod";
import { type Caller } from "./tokens.js";
import type { OperationName } from "../jobs/api.js";
import { conditionSchema } from "./condition.js";
import { asRadserveError, errors, RadserveError } from "../base/errors.js";
import type { Sending } from "../inference/result-hook.js";
import { taskOf, type InferTask } from "../inference/task.js";
import { modelList, modelListSchema } from "./model-list.js";
import { translateIn } from "../files/path-map.js";
import { openInput, openOutputFolder } from "../files/guarded-paths.js";
import { seesFolders } from "../files/seen-folders.js";
import { folderOf, narrowRoots, type Root, type Roots } from "../files/roots.js";
import { shuttingDown } from "../inference/worker-pool.js";
import { checkGroup, destinationsFor, singleRequestSchema } from "../inference/request.js";
import { parseBody } from "../base/json-body.js";
import { monotonic } from "../base/monotonic.js";
import { deliveriesOf } from "../results/receipt/delivery.js";
import { answerSchema, type DeliveryInAnswer } from "../results/receipt/receipt.js";
import { candidatesOf } from "../inference/plan.js";
import { wantingLabels } from "../models/wanted.js";
import {
  failedRequestsSchema,
  type FailedRequest,
  type FailedRequestList,
} from "./failed-requests.js";
import { overview, overviewSchema } from "./overview.js";
import { healthOfModels } from "./readiness.js";
import type { Context, Handler, Endpoint, Services } from "./services.js";
import { VERSION } from "../base/version.js";
import { within } from "../base/waiting.js";

/** The uses of HTTP that the setting files_by_http may allow, in words. */
const BY_HTTP = {
  upload: "upload files over HTTP",
  download: "download files over HTTP",
  view: "show results and their images",
};

/**
 * An endpoint that the setting files_by_http has to allow, and whose query is checked before its
 * work begins.
 */
export function endpointByHttp<T>(
  setting: keyof typeof BY_HTTP,
  query: z.ZodObject & z.ZodType<T>,
  answer: Endpoint["answer"],
  work: (ctx: Context, services: Services, query: T) => Promise<void>,
): Endpoint {
  const fields = query.shape as Readonly<Record<string, z.ZodType | undefined>>;
  const isDeprecated = (name: string) => fields[name]?.meta()?.deprecated === true;
  const handler: Handler = (ctx, services) => {
    requireByHttp(setting, services);
    const asked = parseBody(query, { ...ctx.query });
    if (Object.keys(ctx.query).some(isDeprecated)) ctx.set("Deprecation", DEPRECATED);
    return work(ctx, services, asked);
  };
  return { query, answer, handler };
}

/** Since when names, paths and patients in addresses are deprecated (RFC 9745): 2026-11-28. */
const DEPRECATED = "@1795824000";

/** The same for what is asked for in a body, so that it stands in no address. */
export function postedByHttp<T>(
  setting: keyof typeof BY_HTTP,
  name: string,
  schema: z.ZodType<T>,
  answer: Endpoint["answer"],
  work: (ctx: Context, services: Services, asked: T) => Promise<void>,
): Endpoint {
  const handler: Handler = (ctx, services) => {
    requireByHttp(setting, services);
    return work(ctx, services, parseBody(schema, ctx.request.body));
  };
  return { body: { [name]: schema }, answer, handler };
}

function requireByHttp(
  setting: keyof typeof BY_HTTP,
  { config, stopping }: Pick<Services, "config" | "stopping">,
): void {
  if (!config.files_by_http.includes(setting))
    throw errors.not_found(
      `This server does not ${BY_HTTP[setting]}. RADSERVE_FILES_BY_HTTP=${setting} allows it.`,
    );
  // A file is given out to the last moment
  if (setting !== "download" && stopping()) throw shuttingDown();
}

/**
 * Longest wait for models that are still being loaded; after that the client is told to come back.
 */
const LONGEST_LOADING_WAIT_MS = 60_000;

export function callerOf(ctx: Context): Caller {
  if (ctx.state.caller === undefined)
    throw new Error("This endpoint needs a token and its route does not ask for one.");
  return ctx.state.caller;
}

/** Real paths, those of the server narrowed by the token. */
export interface RootsOfCaller {
  input: readonly Root[];
  output: readonly Root[];
}

export async function rootsOf(
  caller: Caller,
  { roots }: Pick<Services, "roots">,
): Promise<RootsOfCaller> {
  const [input, output] = await Promise.all([
    narrowRoots(roots.input, caller.inputRoots),
    narrowRoots(roots.output, caller.outputRoots),
  ]);
  return { input, output };
}

/**
 * Refuses early what cannot work. The worker opens both paths again: descriptors of this thread
 * would have to outlive an answer that comes before the work has ended.
 * @returns whether both lie on disks of this machine
 */
async function checkPaths(
  input: string,
  output: string,
  roots: Roots,
  minimumFreeBytes: number,
  group: InferTask["group"],
): Promise<boolean> {
  const looks = await Promise.allSettled([
    openInput(input, roots.input),
    openOutputFolder(output, roots.output, { create: false, minimumFreeBytes }),
  ]);
  for (const look of looks) if (look.status === "fulfilled") look.value.close();
  // If both fail, the fault of the input is answered
  for (const look of looks) if (look.status === "rejected") throw look.reason;
  const [named] = looks;
  if (named.status === "fulfilled") checkGroup(group, named.value.kind);
  return looks.every((look) => look.status === "fulfilled" && look.value.local);
}

/**
 * What a look at the request's folders gives. Where their share does not answer, it goes on, and
 * holds its thread until it does.
 * @throws RadserveError deadline_exceeded; what the look throws
 */
async function inTime<T>(look: Promise<T>, deadline: number): Promise<T> {
  if (await within(look, deadline - monotonic())) return look;
  throw errors.deadline_exceeded(
    "Expected the work to start within its time; the share of the input or output folder does not answer.",
  );
}

async function waitForModels(
  { loaded }: Services["inference"]["models"],
  deadline: number,
): Promise<void> {
  const left = deadline - monotonic();
  if (await within(loaded, Math.min(LONGEST_LOADING_WAIT_MS, left))) return;
  // Not by the clock again: a timer may end a moment before its time by that clock
  throw left <= LONGEST_LOADING_WAIT_MS
    ? errors.deadline_exceeded(
        "Expected the work to start within its time; the models are still being loaded.",
      )
    : errors.model_unavailable(
        "The models are still being loaded. Send the request again shortly.",
      );
}

const inferSingle: Handler = async (ctx, { config, roots: all, inference, features, stopping }) => {
  const { models, pool } = inference;
  const body = parseBody(singleRequestSchema, ctx.request.body);
  const admitted = Date.now();
  const { path_map, minimum_free_disk, deadline_seconds } = config;
  const deadline = monotonic() + (body.timeout_ms ?? deadline_seconds * 1000);
  const input = translateIn(body.input_image_path, path_map);
  const output = translateIn(body.output_folder_path, path_map);
  ctx.state.action?.note({ inputPath: input.path, outputPath: output.path });
  const caller = callerOf(ctx);
  const to = destinationsFor(body, features.sending?.destinations, caller.destinations);
  const roots = await inTime(rootsOf(caller, { roots: all }), deadline);
  const local = await inTime(
    checkPaths(input.path, output.path, roots, minimum_free_disk, body.group),
    deadline,
  );
  if (stopping()) throw shuttingDown();
  await waitForModels(models, deadline);
  wantingLabels(candidatesOf(models.entries, body.models, models.problems), body.labels);
  const { requestId, traceparent } = ctx.state;
  const task: InferTask = {
    ...taskOf({
      requestId,
      traceparent,
      subject: caller.subject,
      priority: body.priority ?? "routine",
      startedAt: new Date(admitted).toISOString(),
      inputPath: input.path,
      outputFolder: output.path,
      named: { input: body.input_image_path, output: body.output_folder_path, pathMap: path_map },
      roots,
      local,
      deadline,
      seriesInstanceUid: body.series_instance_uid,
      group: body.group,
      models: body.models,
      outputs: body.outputs,
      labels: body.labels,
      destinations: to,
      deliveryId: randomUUID(),
    }),
    cancelId: pool.newCancelId(),
  };
  const leave = () => {
    if (!ctx.res.writableFinished) pool.cancel(task.cancelId);
  };
  ctx.res.once("close", leave);
  if (ctx.req.socket.destroyed) throw errors.cancelled("The client has gone.");
  const answer = await pool.run(task, caller.subject, ctx.state.action);
  const { json, receiptPath } = answer;
  ctx.state.models = answer.models;
  const until = body.deliver === "wait" ? deadline : undefined;
  const deliveries = await delivered(features.sending, task, receiptPath, until);
  const named = deliveries?.map((one) => ({ ...one, path: output.back(one.path) }));
  ctx.type = "json";
  ctx.body =
    named === undefined ? json : `${json.slice(0, -1)},"deliveries":${JSON.stringify(named)}}`;
};

/**
 * What has become of the objects of an answer. The result is there: nothing that comes after it is
 * an error of the request.
 * @param deadline until when it is waited for what is under way
 */
async function delivered(
  sending: Sending | undefined,
  { delivery }: InferTask,
  receipt: string,
  deadline: number | undefined,
): Promise<DeliveryInAnswer[] | undefined> {
  if (sending === undefined || delivery === undefined) return undefined;
  const ms = deadline === undefined ? undefined : Math.max(0, deadline - monotonic());
  const outcome = await sending.published(delivery.id, receipt, ms).catch(() => null);
  if (outcome === null) return undefined;
  return deliveriesOf(outcome, (name) => path.posix.join(path.posix.dirname(receipt), name)).filter(
    ({ destination }) => destination in delivery.destinations,
  );
}

const namedSchema = singleRequestSchema
  .pick({ input_image_path: true, output_folder_path: true })
  .strip();

/** Remembers what fails, as far as it names an image. */
const inferAndRemember: Handler = async (ctx, services) => {
  const { failed } = services;
  const caller = callerOf(ctx);
  const { subject } = caller;
  const named = () => {
    const { data } = namedSchema.safeParse(ctx.request.body);
    return data && { request_id: ctx.state.requestId, subject, ...data };
  };
  try {
    await inferSingle(ctx, services);
  } catch (error) {
    const request = named();
    if (request !== undefined) failed.add(request, asRadserveError(error), caller);
    throw error;
  }
  const request = failed.has(subject) ? named() : undefined;
  if (request !== undefined) failed.succeeded(request);
};

export const singleInference: Endpoint = {
  body: { SingleRequest: singleRequestSchema },
  answer: { Answer: answerSchema },
  handler: inferAndRemember,
};

/** GET /failed_requests */
export const listFailedRequests: Endpoint = {
  answer: { FailedRequestList: failedRequestsSchema },
  handler: async (ctx, { failed: all, roots, config }) => {
    const caller = callerOf(ctx);
    const { failures, since, dropped } = all.of(caller);
    const sees = seesFolders(caller, roots, config.path_map);
    const failed: FailedRequest[] = [];
    for (const { request, sender } of failures) {
      const { input_image_path: input, output_folder_path: output } = request;
      if (await sees(sender, () => ({ inputs: [input], outputs: [output] }))) failed.push(request);
    }
    ctx.body = { failed, since, dropped } satisfies FailedRequestList;
  },
};

/** An endpoint of the bulk queue: everything about it is done in the bulk thread. */
export function bulk(operation: OperationName): Handler {
  return async (ctx, { jobs, stopping }) => {
    if (stopping()) throw shuttingDown();
    const { subject, admin, inputRoots, outputRoots, destinations } = callerOf(ctx);
    const { id = "" } = ctx["params"] as { id?: string };
    const answer = await jobs.call(operation, {
      caller: { subject, admin, inputRoots, outputRoots, destinations },
      jobId: id,
      query: { ...ctx.query },
      body: typeof ctx.request.body === "string" ? ctx.request.body : "",
      traceparent: ctx.state.traceparent,
    });
    ctx.status = answer.status;
    ctx.type = "json";
    ctx.body = answer.body;
    if (answer.location !== undefined) ctx.set("Location", answer.location);
    if (answer.note !== undefined) ctx.state.action?.note(answer.note);
  };
}

export const listModels: Endpoint = {
  answer: { ModelList: modelListSchema },
  handler: (ctx, { inference: { models, engine } }) => {
    ctx.body = modelList(models.entries, models.problems, engine.stats());
  },
};

export const live: Endpoint = {
  answer: { Live: z.object({ status: z.literal("live"), version: z.string() }) },
  handler: (ctx) => {
    ctx.body = { status: "live", version: VERSION };
  },
};

export const readySchema = z.object({
  status: z.literal("ready"),
  models: z.array(
    z.object({
      name: z.string(),
      required: z.boolean(),
      health: z.enum(["ready", "failed", "off"]),
      error: z.string().optional().describe("A code; radserve status says more"),
    }),
  ),
  conditions: z
    .array(conditionSchema)
    .describe(
      "Problems that do not keep the server from being ready; answers 503 and 507 have them in details",
    ),
  warnings: z
    .array(conditionSchema)
    .describe(
      "What may become a problem, or is one of others: a clock that is 5 s off the database's, a sender that the gateway refuses again and again",
    ),
});

/**
 * Anybody may ask, without a token: the answer has names of models and codes of errors, and no
 * paths.
 */
export const ready: Endpoint = {
  answer: { Ready: readySchema },
  handler: (ctx, { inference, monitoring }) => {
    const fault = monitoring.fault();
    const conditions = monitoring.conditions.list();
    const warnings = monitoring.conditions.warnings();
    if (fault !== undefined) {
      const details = { ...fault.details, conditions, warnings };
      throw new RadserveError(fault.code, fault.message, details, { cause: fault.cause });
    }
    ctx.body = { status: "ready", models: healthOfModels(inference), conditions, warnings };
  },
};

export const showOverview: Endpoint = {
  answer: { Overview: overviewSchema },
  handler: async (ctx, services) => {
    const output = await narrowRoots(services.roots.output, callerOf(ctx).outputRoots);
    ctx.body = await overview(services, output.map(folderOf));
  },
};

export const metrics: Endpoint = {
  answer: "text/plain",
  handler: async (ctx, { monitoring: { metrics: figures } }) => {
    ctx.type = figures.contentType;
    ctx.body = await figures.text();
  },
};
