/** What each page does once the request is known to be allowed. */
import type { ParameterizedContext } from "koa";
import type { Caller } from "./auth.js";
import type { Config } from "./config.js";
import type { Engine } from "./engine.js";
import type { EngineModelStats } from "./engine-stats.js";
import { RadserveError, type ErrorObject } from "./errors.js";
import type { InferTask } from "./infer.js";
import type { Metrics } from "./metrics.js";
import type { ModelEntry } from "./models.js";
import { narrowRoots, openInput, openOutputFolder, translateIn, type Roots } from "./paths.js";
import { shuttingDown, type InferencePool } from "./pool.js";
import { bulkRequestSchema, parseBody, singleRequestSchema } from "./requests.js";
import type { Answer } from "./results/receipt.js";
import { nearestName } from "./validation.js";
import { VERSION } from "./version.js";

export interface State {
  requestId: string;
  /** The pattern of the page, for logs and metrics; the path itself may hold what a client likes. */
  route: string;
  caller?: Caller;
}
export type Context = ParameterizedContext<State>;

/** The models as the server needs them. */
export interface ServedModels {
  readonly entries: readonly ModelEntry[];
  /** Models that do not serve as their folders say, those without a readable manifest among them. */
  readonly problems: readonly { name: string; required: boolean; error: ErrorObject }[];
  /** True when every required model is loaded, warm and its canary passed. */
  ready(): boolean;
  /** Resolves when the first loading has ended, well or not. */
  readonly loaded: Promise<void>;
}

export interface Services {
  config: Config;
  /** Real paths. */
  roots: { input: string[]; output: string[] };
  models: ServedModels;
  engine: Pick<Engine, "stats">;
  pool: InferencePool;
  metrics: Metrics;
  /** True once the server was told to stop. */
  stopping(): boolean;
}

export type Handler = (ctx: Context, services: Services) => Promise<void> | void;

/** Longest wait for models that are still being loaded; after that the client is told to come back. */
const LONGEST_LOADING_WAIT_MS = 60_000;

let lastCancelId = 0;

function callerOf(ctx: Context): Caller {
  if (ctx.state.caller === undefined)
    throw new Error("This page needs a token and its route does not ask for one.");
  return ctx.state.caller;
}

async function rootsOf(caller: Caller, services: Services): Promise<Required<Roots>> {
  const [input, output] = await Promise.all([
    narrowRoots(services.roots.input, caller.inputRoots),
    narrowRoots(services.roots.output, caller.outputRoots),
  ]);
  return { input, output };
}

/** Refuses early what cannot work; the worker opens both again and holds them. */
async function checkPaths(
  input: string,
  output: string,
  roots: Roots,
  minimumFreeBytes: number,
): Promise<void> {
  const image = await openInput(input, roots.input);
  await image.close();
  const folder = await openOutputFolder(output, roots.output, { create: false, minimumFreeBytes });
  await folder.close();
}

function checkModels(wanted: readonly string[] | undefined, entries: readonly ModelEntry[]): void {
  for (const name of wanted ?? []) {
    const entry = entries.find((model) => model.name === name);
    if (entry === undefined) {
      const names = entries.map((model) => model.name);
      const nearest = nearestName(name, names);
      throw new RadserveError(
        "bad_request",
        `models: no model is called "${name}"${nearest === undefined ? "" : `; the nearest is "${nearest}"`}.`,
        { field: "models", known: names },
      );
    }
    if (entry.state !== "ready")
      throw new RadserveError(
        "model_unavailable",
        entry.state === "off"
          ? `The model "${name}" is switched off (release "off" in its model.json).`
          : `The model "${name}" could not be loaded; GET /models says why.`,
        { model: name },
      );
  }
}

async function waitForModels(services: Services, deadline: number | undefined): Promise<void> {
  const patience = Math.min(LONGEST_LOADING_WAIT_MS, (deadline ?? Infinity) - Date.now());
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => {
      reject(
        deadline !== undefined && Date.now() >= deadline
          ? new RadserveError(
              "deadline_exceeded",
              "Expected the work to start within timeout_ms; the models are still being loaded.",
            )
          : new RadserveError(
              "model_unavailable",
              "The models are still being loaded. Send the request again shortly.",
            ),
      );
    }, patience);
  });
  await Promise.race([services.models.loaded, late]).finally(() => clearTimeout(timer));
}

/** The answer in the client's own names of files. */
function inClientsNames(answer: Answer, inputPath: string, back: (local: string) => string): Answer {
  return {
    ...answer,
    input_image_path: inputPath,
    receipt_path: back(answer.receipt_path),
    models: answer.models.map((model) => ({
      ...model,
      outputs: model.outputs.map((output) => ({ ...output, path: back(output.path) })),
    })),
  };
}

export const singleInference: Handler = async (ctx, services) => {
  const body = parseBody(singleRequestSchema, ctx.request.body);
  const admitted = Date.now();
  const deadline = body.timeout_ms === undefined ? undefined : admitted + body.timeout_ms;
  const { path_map, minimum_free_disk } = services.config;
  const input = translateIn(body.input_image_path, path_map);
  const output = translateIn(body.output_folder_path, path_map);
  const roots = await rootsOf(callerOf(ctx), services);
  await checkPaths(input.path, output.path, roots, minimum_free_disk);
  if (services.stopping()) throw shuttingDown();
  await waitForModels(services, deadline);
  checkModels(body.models, services.models.entries);
  const task: InferTask = {
    requestId: ctx.state.requestId,
    inputPath: input.path,
    outputFolder: output.path,
    priority: body.priority ?? "routine",
    cancelId: (lastCancelId += 1),
    startedAt: new Date(admitted).toISOString(),
    roots,
    ...(deadline === undefined ? {} : { deadline }),
    ...(body.models === undefined ? {} : { models: body.models }),
    ...(body.outputs === undefined ? {} : { outputs: body.outputs }),
  };
  const leave = () => {
    if (!ctx.res.writableFinished) services.pool.cancel(task.cancelId);
  };
  ctx.res.once("close", leave);
  if (ctx.req.socket.destroyed) return;
  const answer = await services.pool.run(task);
  ctx.body = inClientsNames(answer, body.input_image_path, output.back);
};

const CHECKED_AT_ONCE = 16;

export const bulkInference: Handler = async (ctx, services) => {
  const body = parseBody(bulkRequestSchema, ctx.request.body);
  const roots = await rootsOf(callerOf(ctx), services);
  const { path_map, minimum_free_disk } = services.config;
  const pairs = (
    body.items ?? [
      { input_image_path: body.input_folder_path ?? "", output_folder_path: body.output_folder_path ?? "" },
    ]
  ).map((item) => ({
    input: translateIn(item.input_image_path, path_map).path,
    output: translateIn(item.output_folder_path, path_map).path,
  }));
  for (let i = 0; i < pairs.length; i += CHECKED_AT_ONCE)
    await Promise.all(
      pairs
        .slice(i, i + CHECKED_AT_ONCE)
        .map(({ input, output }) => checkPaths(input, output, roots, minimum_free_disk)),
    );
  checkModels(body.models, services.models.entries);
  await noBulk(ctx, services);
};

export const noBulk: Handler = () => {
  throw new RadserveError(
    "bulk_unavailable",
    "This version of Radserve takes no bulk work yet. Send each image to POST /single_inference.",
  );
};

/** How a model does, in a few numbers; /metrics has the rest. */
function workOf(stats: EngineModelStats) {
  const { counts } = stats.runSeconds;
  const runs = counts.reduce((sum, n) => sum + n, 0);
  const largest = Math.max(0, ...stats.buckets.map((bucket) => bucket.cap));
  return {
    queued: stats.queued,
    completed: stats.completed,
    failed: stats.failed,
    refused: Object.values(stats.refused).reduce((sum, n) => sum + n, 0),
    mean_run_ms: runs === 0 ? null : Math.round((stats.runSeconds.sum / runs) * 1e5) / 100,
    largest_batch: stats.batched ? largest : 1,
    session_bytes: stats.sessions.reduce((sum, session) => sum + session.bytes, 0),
  };
}

export const listModels: Handler = (ctx, { models, engine }) => {
  const work = new Map(engine.stats().models.map((stats) => [stats.id, workOf(stats)]));
  ctx.body = {
    models: models.entries.map(({ name, version, sha256, manifest, state, provider, error, nativeId }) => ({
      name,
      version,
      sha256,
      description: manifest.description,
      intended_use: manifest.intended_use,
      regulatory: manifest.regulatory,
      accepts: manifest.accepts,
      stage: manifest.stage,
      release: manifest.release,
      required: manifest.required,
      provider: provider ?? null,
      health: state,
      work: work.get(nativeId ?? 0) ?? null,
      ...(error === undefined ? {} : { error }),
    })),
    problems: models.problems,
  };
};

export const live: Handler = (ctx) => {
  ctx.body = { status: "live", version: VERSION };
};

/** Without a token, so without paths: names of models and codes of errors only. */
export const ready: Handler = (ctx, services) => {
  if (services.stopping()) throw shuttingDown();
  const models = services.models.entries.map(({ name, state, manifest, error }) => ({
    name,
    required: manifest.required,
    health: state,
    ...(error === undefined ? {} : { error: error.error }),
  }));
  if (!services.models.ready())
    throw new RadserveError(
      "model_unavailable",
      "Expected every required model to be loaded and checked; not all are.",
      {
        models,
        problems: services.models.problems.map(({ name, error }) => ({ name, error: error.error })),
      },
    );
  ctx.body = { status: "ready", models };
};

export const metrics: Handler = async (ctx, services) => {
  ctx.type = services.metrics.contentType;
  ctx.body = await services.metrics.text();
};

const PAGE = `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Radserve</title></head>
<body><h1>Radserve ${VERSION}</h1>
<p>A medical image inference server. The contract: <a href="/openapi.json">/openapi.json</a>.
State: <a href="/health/ready">/health/ready</a>.</p></body></html>
`;

export const index: Handler = (ctx) => {
  ctx.set("Content-Security-Policy", "default-src 'none'");
  ctx.type = "html";
  ctx.body = PAGE;
};
