/**
 * The HTTP server: one table of routes, and what every request passes on its way: request id, log, errors,
 * authentication, rate limit, body, handler.
 */
import { randomUUID } from "node:crypto";
import http, { STATUS_CODES, type IncomingMessage } from "node:http";
import { BlockList, isIP } from "node:net";
import type { Duplex } from "node:stream";
import Router from "@koa/router";
import Koa from "koa";
import bodyParser from "koa-bodyparser";
import { authenticate } from "./auth.js";
import type { Operation } from "./bulk/messages.js";
import { itemQuerySchema, jobQuerySchema } from "./bulk/schema.js";
import { RadserveError, asRadserveError, type ErrorCode, type ErrorObject } from "./errors.js";
import {
  bulk,
  index,
  listModels,
  live,
  metrics,
  ready,
  singleInference,
  type Context,
  type Handler,
  type Services,
  type State,
} from "./handlers.js";
import type { Keyring } from "./keys.js";
import { RateLimit } from "./limits.js";
import { faultForLog, type Logger } from "./log.js";
import { openApi, type DescribedRoute } from "./openapi.js";
import { parseJsonBody } from "./requests.js";

interface Route extends DescribedRoute {
  handler: Handler;
  /** Not served where the role is worker. */
  serves?: "requests";
}

const PATH_ERRORS = ["path_not_allowed", "input_not_found", "disk_full"] as const;
const IMAGE_ERRORS: readonly ErrorCode[] = [
  ...PATH_ERRORS,
  "output_name_taken",
  "unsupported_format",
  "unsupported_transfer_syntax",
  "no_pixel_data",
  "corrupt_image",
  "truncated_image",
  "decode_suspect",
  "series_invalid",
  "no_model_accepts",
  "output_invalid",
  "overloaded",
  "model_unavailable",
  "shutting_down",
  "deadline_exceeded",
];
const bulkPage = (operation: Operation, errors: readonly ErrorCode[] = []) =>
  ({
    auth: "token",
    serves: "requests",
    errors: [...errors, "bulk_unavailable", "shutting_down"],
    handler: bulk(operation),
  }) as const;
const ofJob = (operation: Operation, errors: readonly ErrorCode[] = []) => ({
  ...bulkPage(operation, ["job_not_found", ...errors]),
  answer: "Job" as const,
});

export const ROUTES: readonly Route[] = [
  {
    method: "POST",
    path: "/single_inference",
    auth: "token",
    serves: "requests",
    summary: "Runs the models that accept one image, and writes their results",
    body: "SingleRequest",
    answer: "Answer",
    errors: IMAGE_ERRORS,
    handler: singleInference,
  },
  {
    method: "POST",
    path: "/bulk_inference",
    summary: "Takes many images as one job; 200 with the job of before where its idempotency_key was used",
    body: "BulkRequest",
    answer: "Accepted",
    status: 202,
    ...bulkPage("submit", [...PATH_ERRORS, "idempotency_conflict", "model_unavailable"]),
  },
  {
    method: "GET",
    path: "/bulk_inference",
    summary: "This subject's jobs, newest first (all subjects' with the claim admin)",
    query: jobQuerySchema,
    answer: "JobList",
    ...bulkPage("list", ["bad_request"]),
  },
  { method: "GET", path: "/bulk_inference/:id", summary: "One job", ...ofJob("show") },
  {
    method: "GET",
    path: "/bulk_inference/:id/items",
    summary: "The images of a job, in their order",
    query: itemQuerySchema,
    ...bulkPage("items", ["bad_request", "job_not_found"]),
    answer: "ItemList",
  },
  {
    method: "DELETE",
    path: "/bulk_inference/:id",
    summary: "Cancels a job: what waits never starts, what runs finishes or stops, results stay",
    ...ofJob("cancel"),
  },
  {
    method: "POST",
    path: "/bulk_inference/:id/retry",
    summary: "Runs a job's failed images again",
    ...ofJob("retry", ["job_state"]),
  },
  {
    method: "POST",
    path: "/bulk_inference/:id/pause",
    summary: "Begins no more images of a job until it is resumed",
    ...ofJob("pause", ["job_state"]),
  },
  {
    method: "POST",
    path: "/bulk_inference/:id/resume",
    summary: "Lets a job go on at once, whatever it waited for",
    ...ofJob("resume", ["job_state"]),
  },
  {
    method: "POST",
    path: "/bulk_inference/:id/purge",
    summary: "Forgets a job that is over; its results stay",
    ...ofJob("purge", ["job_state"]),
  },
  {
    method: "GET",
    path: "/models",
    auth: "token",
    summary: "Each model: what it takes, how it does, what its work costs",
    answer: "ModelList",
    errors: [],
    handler: listModels,
  },
  {
    method: "GET",
    path: "/health/live",
    auth: "open",
    summary: "The process answers",
    errors: [],
    handler: live,
  },
  {
    method: "GET",
    path: "/health/ready",
    auth: "open",
    summary: "Every required model is loaded and checked",
    errors: ["model_unavailable", "shutting_down"],
    handler: ready,
  },
  {
    method: "GET",
    path: "/metrics",
    auth: "local",
    summary: "Figures for Prometheus",
    errors: [],
    handler: metrics,
  },
  {
    method: "GET",
    path: "/openapi.json",
    auth: "open",
    summary: "This document",
    errors: [],
    handler: (ctx) => {
      ctx.type = "json";
      ctx.body = contract();
    },
  },
  { method: "GET", path: "/", auth: "open", summary: "A page for people", errors: [], handler: index },
];

let contractText: string | undefined;
function contract(): string {
  contractText ??= JSON.stringify(openApi(ROUTES));
  return contractText;
}

export interface ServerOptions extends Services {
  keyring: Keyring;
  log: Logger;
}

/** A request id that is safe in headers and logs, else a new one. */
function requestIdOf(given: string): string {
  return /^[\w.:-]{1,64}$/.test(given) ? given : randomUUID();
}

/** The HTTP server, not listening: connections come from `listen` or from `emit("connection", socket)`. */
export function createServer(options: ServerOptions): http.Server {
  const app = new Koa<State>();
  app.silent = true;
  app.on("error", (error: unknown) => options.log.error({ fault: faultForLog(error) }, "response failed"));
  app.use(identify(options));
  app.use(answerErrors(options));
  app.use((ctx, next) => {
    checkHost(ctx);
    return next();
  });
  const router = new Router<State>();
  const access = accessTo(options);
  const body = jsonBody(options);
  for (const route of ROUTES) {
    router.register(route.path, [route.method], async (ctx) => {
      ctx.state.route = `${route.method} ${route.path}`;
      access(ctx, route);
      if (route.serves === "requests" && options.config.role === "worker") throw workerOnly();
      if (route.body !== undefined) await body(ctx, route);
      await route.handler(ctx, options);
    });
  }
  app.use(router.routes());
  app.use((ctx) => {
    throw noSuchPage(ctx, router);
  });
  const handle = app.callback();
  const server = http.createServer(
    {
      headersTimeout: 5_000,
      requestTimeout: 60_000,
      keepAliveTimeout: 65_000,
      connectionsCheckingInterval: 1_000,
      // Node's own answer would have no body; checkHost gives it one.
      requireHostHeader: false,
    },
    (request, response) => void handle(request, response),
  );
  // An expectation that is not known may be passed over (RFC 9110, 10.1.1); Node's own answer would have no body.
  server.on("checkExpectation", (request, response) => server.emit("request", request, response));
  server.on("connect", (_request: IncomingMessage, socket: Duplex) =>
    endWith(
      options.log,
      socket,
      405,
      "Expected a request for a page of this server; found CONNECT.",
      "Allow: GET, POST, DELETE\r\n",
    ),
  );
  server.on("clientError", refuseConnection(options.log));
  return server;
}

/** Throws bad_request where HTTP/1.1 asks for one Host header and there is none or several (RFC 9112, 3.2). */
function checkHost({ req }: Context): void {
  const hosts = req.headersDistinct.host?.length ?? 0;
  if (hosts === 1 || (hosts === 0 && req.httpVersion === "1.0")) return;
  throw new RadserveError("bad_request", `Expected one Host header; found ${hosts === 0 ? "none" : hosts}.`);
}

function workerOnly(): RadserveError {
  return new RadserveError(
    "not_found",
    "This server's role is worker: it runs bulk items and takes no requests. Send them to one whose role is api or both.",
  );
}

type Middleware = Koa.Middleware<State>;

function identify(options: ServerOptions): Middleware {
  const { log, metrics: figures } = options;
  return async (ctx, next) => {
    const start = performance.now();
    ctx.state.requestId = requestIdOf(ctx.get("X-Request-Id"));
    ctx.state.route = "-";
    ctx.set({
      "X-Request-Id": ctx.state.requestId,
      "X-Content-Type-Options": "nosniff",
      "Cache-Control": "no-store",
    });
    let gone = false;
    ctx.res.once("close", () => {
      gone = !ctx.res.writableFinished;
      const ms = Math.round((performance.now() - start) * 10) / 10;
      figures.answered(ctx.state.route, gone ? 499 : ctx.status, ms);
      log.info(
        {
          request_id: ctx.state.requestId,
          subject: ctx.state.caller?.subject,
          method: ctx.method,
          route: ctx.state.route,
          status: gone ? 499 : ctx.status,
          ms,
        },
        "request",
      );
    });
    await next();
    if (options.stopping()) ctx.set("Connection", "close");
  };
}

/** The one place where errors become answers. */
function answerErrors({ log }: ServerOptions): Middleware {
  return async (ctx, next) => {
    try {
      await next();
    } catch (thrown) {
      const error = asRadserveError(thrown);
      if (error.code === "internal" && error.cause !== undefined)
        log.error({ request_id: ctx.state.requestId, fault: faultForLog(error.cause) }, "unexpected failure");
      ctx.status = error.status;
      ctx.body = errorBody(error.toObject(), ctx.state.requestId);
      const { retry_after: wait = error.retryAfter, allowed } = error.details ?? {};
      if (typeof wait === "number") ctx.set("Retry-After", String(wait));
      if (error.code === "method_not_allowed" && typeof allowed === "string") ctx.set("Allow", allowed);
      if (error.code === "body_too_large" && !(await drained(ctx.req))) ctx.set("Connection", "close");
    }
  };
}

const MOST_DRAINED_BYTES = 32 * 1024 * 1024;
const LONGEST_DRAIN_MS = 10_000;

/**
 * Reads and drops what is left of a body: a client that is still sending when the connection closes sees a broken
 * pipe and not its answer. False where that would take too much or too long.
 */
function drained(request: IncomingMessage): Promise<boolean> {
  request.unpipe();
  return new Promise((resolve) => {
    let bytes = 0;
    const end = (all: boolean) => {
      clearTimeout(timer);
      request.removeAllListeners("data").pause();
      resolve(all);
    };
    const timer = setTimeout(() => end(false), LONGEST_DRAIN_MS);
    if (request.readableEnded || request.destroyed) {
      end(request.readableEnded);
      return;
    }
    request.once("end", () => end(true)).once("close", () => end(false));
    request.on("data", (part: Buffer) => {
      bytes += part.length;
      if (bytes > MOST_DRAINED_BYTES) end(false);
    });
    request.resume();
  });
}

function errorBody(object: ErrorObject, requestId: string): Record<string, unknown> {
  const { error, message, details } = object;
  return { error, message, request_id: requestId, ...(details === undefined ? {} : { details }) };
}

function noSuchPage(ctx: Context, router: Router<State>): RadserveError {
  const allowed = router.match(ctx.path, ctx.method).path.flatMap((layer) => layer.methods);
  if (allowed.length === 0)
    return new RadserveError("not_found", "There is no such page; GET /openapi.json lists what there is.");
  const methods = [...new Set(allowed)].join(", ");
  return new RadserveError("method_not_allowed", `Expected ${methods} for this page; found ${ctx.method}.`, {
    allowed: methods,
  });
}

/** True where the connection comes from this machine and no proxy speaks for somebody else. */
function isLocal(ctx: Context, allowed: BlockList): boolean {
  const address = (ctx.req.socket.remoteAddress ?? "").replace(/^::ffff:/, "");
  const family = isIP(address);
  if (family === 0 || ctx.get("X-Forwarded-For") !== "" || ctx.get("Forwarded") !== "") return false;
  return allowed.check(address, family === 6 ? "ipv6" : "ipv4");
}

function allowList(networks: readonly string[]): BlockList {
  const list = new BlockList();
  for (const network of ["127.0.0.0/8", "::1", ...networks]) {
    const [address = "", bits] = network.split("/");
    const family = isIP(address) === 6 ? "ipv6" : "ipv4";
    if (bits === undefined) list.addAddress(address, family);
    else list.addSubnet(address, Number(bits), family);
  }
  return list;
}

function accessTo({ config, keyring }: ServerOptions): (ctx: Context, route: Route) => void {
  const rate = new RateLimit(config.rate_limit);
  const local = allowList(config.metrics_allow);
  return (ctx, route) => {
    if (route.auth === "open" || (route.auth === "local" && isLocal(ctx, local))) return;
    // Node's headers.authorization is the first of several; joined, as RFC 9110, 5.3 reads them, they are no token.
    ctx.state.caller = authenticate(ctx.req.headersDistinct.authorization?.join(","), keyring, config);
    rate.take(ctx.state.caller.subject);
  };
}

const SINGLE_BODY_LIMIT = 64 * 1024;

/** Reads a JSON body; that of a bulk request as text. Throws bad_request with the place of the fault, or body_too_large. */
function jsonBody({ config }: ServerOptions): (ctx: Context, route: Route) => Promise<void> {
  const reader = (limit: number) =>
    bodyParser({
      enableTypes: ["text"],
      textLimit: String(limit),
      extendTypes: { text: ["json", "+json"] },
      onerror: (error) => refuseBody(error, limit),
    });
  const single = reader(Math.min(SINGLE_BODY_LIMIT, config.body_limit));
  const bulkText = reader(config.body_limit);
  return async (ctx, route) => {
    const type = ctx.get("Content-Type");
    if (ctx.request.is("json", "+json") === false)
      throw new RadserveError(
        "bad_request",
        `Expected a JSON body with Content-Type application/json; found ${/^[\w.+/-]{1,64}/.exec(type)?.[0] ?? "none"}.`,
      );
    const isBulk = route.body === "BulkRequest";
    await (isBulk ? bulkText : single)(ctx, () => Promise.resolve());
    // Megabytes of JSON are parsed in the bulk thread.
    if (!isBulk && typeof ctx.request.body === "string") ctx.request.body = parseJsonBody(ctx.request.body);
  };
}

function refuseBody(error: Error, limit: number): never {
  const { status, type, code } = error as Error & { status?: number; type?: string; code?: unknown };
  if (status === 413)
    throw new RadserveError(
      "body_too_large",
      `Expected a body of at most ${limit} bytes; found a larger one.`,
      { limit },
    );
  if (status === 415)
    throw new RadserveError(
      "bad_request",
      "Expected Content-Encoding gzip, deflate, br or identity; found another.",
    );
  // zlib's codes: Z_DATA_ERROR, Z_BUF_ERROR, ERR__ERROR_FORMAT_... of Brotli
  if (typeof code === "string" && /^(?:Z_|ERR__ERROR_)/.test(code))
    throw new RadserveError(
      "bad_request",
      "Expected a whole body that is packed as Content-Encoding says; it could not be unpacked.",
    );
  throw new RadserveError(
    "bad_request",
    `Expected a complete request body; it could not be read (${type ?? "broken"}).`,
  );
}

/** What is no HTTP at all, or too slow, is answered in the same shape, and the connection ends. */
function refuseConnection(
  log: Logger,
): (error: Error & { code?: string; reason?: string }, socket: Duplex) => void {
  return (error, socket) => {
    if (!socket.writable || error.code === "ECONNRESET") {
      socket.destroy();
      return;
    }
    const [status, message] = {
      HPE_HEADER_OVERFLOW: [431, "Expected headers of at most 16 KiB; found more."] as const,
      ERR_HTTP_REQUEST_TIMEOUT: [408, "Expected the whole request sooner; it came too slowly."] as const,
    }[error.code ?? ""] ?? [400, `Expected an HTTP request; found something else${whatOfHttp(error)}.`];
    endWith(log, socket, status, message);
  };
}

/** The parser's own words: sentences of llhttp's source, which quote nothing of what came. */
function whatOfHttp({ code = "", reason = "" }: { code?: string; reason?: string }): string {
  return code.startsWith("HPE_") && reason !== "" ? ` (${reason})` : "";
}

/** Writes an answer to a connection that has no request, and ends it. `headers`: whole lines. */
function endWith(log: Logger, socket: Duplex, status: number, message: string, headers = ""): void {
  const requestId = randomUUID();
  const error = status === 405 ? "method_not_allowed" : "bad_request";
  const body = JSON.stringify(errorBody({ error, message }, requestId));
  log.info({ request_id: requestId, status }, "connection refused");
  socket.end(
    `HTTP/1.1 ${status} ${STATUS_CODES[status] ?? ""}\r\nX-Request-Id: ${requestId}\r\n${headers}` +
      `Content-Type: application/json; charset=utf-8\r\nContent-Length: ${Buffer.byteLength(body)}\r\nConnection: close\r\n\r\n${body}`,
  );
}
