/**
 * The HTTP server: one table of routes, and what every request passes on its way: request id, log,
 * errors, authentication, rate limit, body, handler.
 */
import { randomUUID } from "node:crypto";
import http from "node:http";
import type https from "node:https";
import type { Duplex } from "node:stream";
import type tls from "node:tls";
import Router from "@koa/router";
import Koa from "koa";
import { z } from "zod";
import { givingBack } from "../addon/idle.js";
import { durations } from "../base/durations.js";
import { asRadserveError, errors, reasonOf, type RadserveError } from "../base/errors.js";
import { type Context, type Services, type RequestState } from "./services.js";
import { faultForLog, type Logger } from "../base/log.js";
import { traceparentOf } from "../base/traceparent.js";
import type { Route } from "./route.js";
import { accessTo } from "./access.js";
import { admitted, recorded } from "./audited.js";
import { jsonBody, leaveUnread } from "./body.js";
import type { ClientAddresses } from "./client-address.js";
import type { LivingKeyring } from "./keys.js";
import type { Connections } from "./connections.js";
import { oneAtATime } from "./pipelining.js";
import { rawAnswer } from "./raw-answer.js";

export interface ServerOptions extends Services {
  keyring: LivingKeyring;
  routes: readonly Route[];
  addresses: ClientAddresses;
  connections: Pick<Connections, "follow" | "tooManyWait">;
  log: Logger;
  /** Absent where the server speaks plain HTTP. */
  tls?: tls.TlsOptions | undefined;
}

/** A request id that is safe in headers and logs, else a new one. */
const requestIdOf = (given: string): string =>
  /^[\w.:-]{1,64}$/.test(given) ? given : randomUUID();

/**
 * The HTTP server, not listening: connections come from `listen` or from `emit("connection",
 * socket)`.
 */
export function createServer(options: ServerOptions): http.Server | https.Server {
  const app = new Koa<RequestState>();
  app.silent = true;
  app.on("error", (error: unknown) =>
    options.log.error({ fault: faultForLog(error) }, "response failed"),
  );
  app.use(identify(options));
  app.use(answerErrors(options));
  app.use((ctx, next) => {
    checkHead(ctx);
    return next();
  });
  const router = new Router<RequestState>();
  const access = accessTo(options);
  const body = jsonBody(options);
  for (const route of options.routes) {
    router.register(route.path, [route.method], async (ctx) => {
      ctx.state.route = `${route.method} ${route.path}`;
      await admitted(ctx, route, options.audit, () => access.check(ctx, route));
      await recorded(ctx, route, async () => {
        if (route.onWorkers !== true && options.config.role === "worker")
          throw errors.not_found(
            "This server's role is worker: it runs bulk items and takes no requests. Send them to one whose role is api or both.",
          );
        const leave = access.enter(ctx, route);
        try {
          if (route.body !== undefined) await body(ctx, route);
          await route.handler(ctx, options);
        } finally {
          leave();
          // A connection that is kept for another request keeps the last one
          Object.assign(ctx.request, { body: undefined, rawBody: undefined });
        }
      });
    });
  }
  app.use(router.routes());
  app.use((ctx) => {
    throw noSuchPage(ctx, router);
  });
  const handle = app.callback();
  const rested = givingBack();
  let large = 0;
  const settings: http.ServerOptions = {
    headersTimeout: durations.requestHeaders,
    requestTimeout:
      options.features.spool !== undefined || options.config.files_by_http.includes("upload")
        ? LONGEST_UPLOAD_MS
        : durations.requestWhole,
    keepAliveTimeout: 65_000,
    connectionsCheckingInterval: durations.requestLook,
    // Node's own answer would have no body; checkHead gives it one.
    requireHostHeader: false,
  };
  const answer = oneAtATime((request, response) => {
    if (!sendsFile(request)) limitTime(request, server);
    limitChunks(request, server);
    options.connections.follow(request.socket, response);
    const text = textOf(request);
    // Node.js keeps a request as long as its connection
    if (text > 0)
      request.socket.once("close", () => {
        large += text;
        if (large < WORTH_COLLECTING) return;
        large = 0;
        rested();
      });
    void handle(request, response);
  }, options.connections.tooManyWait);
  // A server without TLS does not load it
  const server =
    options.tls === undefined
      ? http.createServer(settings, answer)
      : process
          .getBuiltinModule("node:https")
          .createServer({ ...settings, ...options.tls }, answer);
  // Node would leave out the headers after the 2,000th: of two tokens the second, and what a proxy
  // adds at the end. How many there can be is bounded by their bytes.
  server.maxHeadersCount = 0;
  // Node's own 417 would have no body; what a client expects beside 100-continue is no reason to
  // refuse its request.
  server.on("checkExpectation", answer);
  // A failed handshake comes as clientError too, unless this is taken away: it can have no answer
  // over HTTP.
  server.removeAllListeners("tlsClientError");
  server.on("clientError", refuseConnection(options.log));
  return server;
}

/** Whether a request's body is of files, which may take long. */
const sendsFile = ({ method, url = "" }: http.IncomingMessage): boolean =>
  method === "PUT" || (method === "POST" && url.startsWith("/dicomweb/"));

/** Shorter bodies are collected with all the rest. */
const LARGE_TEXT = 256 * 1024;
/**
 * V8 collects large texts when more is asked for, and a thread that rests asks for nothing. So much
 * of them is worth the tenth of a second that collecting takes.
 */
const WORTH_COLLECTING = 32 * 1024 * 1024;

/** Bytes of a body that is read as a text; 0 of a short one, and of files, which are not kept. */
function textOf(request: http.IncomingMessage): number {
  const { "content-length": length = "0", "transfer-encoding": coding } = request.headers;
  const bytes = coding === undefined ? Number(length) : LARGE_TEXT;
  return sendsFile(request) || bytes < LARGE_TEXT ? 0 : bytes;
}

/** Milliseconds; a file may have gigabytes. */
const LONGEST_UPLOAD_MS = 3_600_000;

/** Refuses a body that comes too slowly, as Node does where all requests have the same time. */
function limitTime(request: http.IncomingMessage, server: http.Server | https.Server): void {
  const { "content-length": length = "0", "transfer-encoding": coding } = request.headers;
  if (server.requestTimeout === durations.requestWhole || (length === "0" && coding === undefined))
    return;
  const late = setTimeout(() => {
    const error = Object.assign(new Error("Request timeout"), { code: "ERR_HTTP_REQUEST_TIMEOUT" });
    if (!request.complete) server.emit("clientError", error, request.socket);
  }, durations.requestWhole);
  request.once("close", () => clearTimeout(late));
}

/** So many chunks may be of any length; of more, so many bytes come in each on average. */
const FREE_CHUNKS = 1024;
const LEAST_CHUNK_BYTES = 64;

/**
 * Refuses a body in chunks of a few bytes: each takes as much of the thread's time as a large one,
 * and one read of the socket brings thousands. They are counted where the parser hands them over,
 * because whoever reads the body gets several as one.
 */
function limitChunks(request: http.IncomingMessage, server: http.Server | https.Server): void {
  if (request.headers["transfer-encoding"] === undefined) return;
  const push = request.push.bind(request);
  let [chunks, bytes] = [0, 0];
  request.push = (chunk: Buffer | null) => {
    chunks += 1;
    bytes += chunk?.length ?? 0;
    if (chunks <= FREE_CHUNKS || bytes >= chunks * LEAST_CHUNK_BYTES) return push(chunk);
    if (request.socket.writable) {
      const error = Object.assign(new Error("Tiny chunks"), { code: "ERR_TINY_CHUNKS" });
      server.emit("clientError", error, request.socket);
      request.socket.destroySoon();
    }
    return false;
  };
}

/**
 * Throws bad_request where readers of HTTP could take a head in two ways: another version than
 * those that frame messages so (RFC 9112, 2.3), not one Host header (3.2), a framing that another
 * program could read as another length (6.1, 6.3), or two types of one body.
 */
function checkHead({ req }: Context): void {
  if (req.httpVersion !== "1.1" && req.httpVersion !== "1.0")
    throw errors.bad_request(`Expected HTTP/1.1; found HTTP/${req.httpVersion}.`);
  const hosts = req.headersDistinct.host?.length ?? 0;
  if (hosts !== 1 && !(hosts === 0 && req.httpVersion === "1.0"))
    throw errors.bad_request(`Expected one Host header; found ${hosts === 0 ? "none" : hosts}.`);
  const codings = req.headersDistinct["transfer-encoding"];
  if (codings !== undefined && (codings.length > 1 || codings[0]?.toLowerCase() !== "chunked"))
    throw errors.bad_request(
      "Expected a body with Content-Length, or with Transfer-Encoding: chunked alone; found another Transfer-Encoding.",
    );
  if (codings !== undefined && req.headers["content-length"] !== undefined)
    throw errors.bad_request("Expected Content-Length or Transfer-Encoding; found both.");
  const types = req.headersDistinct["content-type"]?.length ?? 0;
  if (types > 1) throw errors.bad_request(`Expected one Content-Type header; found ${types}.`);
}

type Middleware = Koa.Middleware<RequestState>;

function identify(options: ServerOptions): Middleware {
  const { metrics: figures, history } = options.monitoring;
  const { log } = options;
  return async (ctx, next) => {
    const start = performance.now();
    ctx.state.requestId = requestIdOf(ctx.get("X-Request-Id"));
    ctx.state.traceparent = traceparentOf(ctx.get("traceparent"));
    ctx.state.route = "-";
    // Now, because a socket that is closed has none any more
    ctx.state.address = options.addresses.of(ctx.req.socket.remoteAddress, ctx.req.headers);
    ctx.set({
      "X-Request-Id": ctx.state.requestId,
      "X-Content-Type-Options": "nosniff",
      "Cache-Control": "no-store",
    });
    ctx.res.once("close", () => {
      const { requestId: request_id, traceparent } = ctx.state;
      const { route, error, reason, models, address, caller } = ctx.state;
      const status = ctx.res.writableFinished ? ctx.status : 499;
      const ms = Math.round((performance.now() - start) * 10) / 10;
      figures.answered({ route, error, models }, status, ms);
      history.answered(route, status, ms);
      const { method } = ctx;
      const subject = caller?.subject;
      log.info(
        {
          request_id,
          traceparent,
          subject,
          method,
          route,
          status,
          error,
          reason,
          models,
          address,
          ms,
        },
        "request",
      );
    });
    await next();
    if (options.leaving()) ctx.set("Connection", "close");
    await leaveUnread(ctx);
  };
}

/** The one place where errors become answers. */
function answerErrors({ log, monitoring }: ServerOptions): Middleware {
  return async (ctx, next) => {
    try {
      await next();
    } catch (thrown) {
      const error = asRadserveError(thrown);
      if (error.code === "internal" && error.cause !== undefined)
        log.error(
          { request_id: ctx.state.requestId, fault: faultForLog(error.cause) },
          "unexpected failure",
        );
      monitoring.conditions.noteFault(error);
      ctx.state.error = error.code;
      ctx.state.reason = reasonOf(error);
      ctx.state.models ??= refusedModels(error);
      ctx.status = error.status;
      const { code, message, details } = error;
      ctx.body = { error: code, message, request_id: ctx.state.requestId, details };
      const { retry_after: wait = error.retryAfter, allowed } = details ?? {};
      if (typeof wait === "number") ctx.set("Retry-After", String(wait));
      if (error.code === "method_not_allowed" && typeof allowed === "string")
        ctx.set("Allow", allowed);
    }
  };
}

/** The models that a refusal names, for the log: names, and codes of reasons. */
function refusedModels({ code, details }: RadserveError): RequestState["models"] {
  const named = { model: z.string() };
  const refused = { name: z.string(), reasons: z.array(z.object({ code: z.string() })) };
  const one = z.object(named).safeParse(details);
  if (one.success) return [{ name: one.data.model, status: "failed", error: code }];
  const several = z.object({ models: z.array(z.object(refused)) }).safeParse(details);
  return several.data?.models.map(({ name, reasons }) => ({
    name,
    status: "not_accepted",
    reasons: reasons.map((reason) => reason.code),
  }));
}

/** No endpoint has more parts between its slashes. */
const MOST_PARTS = 12;

/**
 * The endpoint of a method that a longer path begins with: clients add ids that it does not take.
 */
function endpointAbove({ path, method }: Context, router: Router<RequestState>) {
  const begun = path.split("/", MOST_PARTS + 2).join("/");
  for (let at = begun.lastIndexOf("/"); at > 0; at = begun.lastIndexOf("/", at - 1)) {
    const [found] = router.match(begun.slice(0, at), method).pathAndMethod;
    if (found !== undefined) return String(found.path);
  }
  return undefined;
}

function noSuchPage(ctx: Context, router: Router<RequestState>): RadserveError {
  const allowed = router.match(ctx.path, ctx.method).path.flatMap((layer) => layer.methods);
  if (allowed.length === 0) {
    const above = endpointAbove(ctx, router);
    const nearest = above === undefined ? "" : `the nearest is ${ctx.method} ${above}. `;
    return errors.not_found(`There is no such endpoint; ${nearest}GET /openapi.json lists all.`);
  }
  const methods = [...new Set(allowed)].join(", ");
  return errors.method_not_allowed(`Expected ${methods} for this endpoint; found ${ctx.method}.`, {
    allowed: methods,
  });
}

/**
 * Requests that are no HTTP, or too slow, are answered in the same shape, and their connection
 * ends.
 */
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
      ERR_TINY_CHUNKS: [
        400,
        `Expected a body with Content-Length, or chunks of ${LEAST_CHUNK_BYTES} bytes and more; found more than ${FREE_CHUNKS} smaller ones.`,
      ] as const,
      ERR_HTTP_REQUEST_TIMEOUT: [
        408,
        "Expected the whole request sooner; it came too slowly.",
      ] as const,
    }[error.code ?? ""] ?? [
      400,
      `Expected an HTTP request; found something else${whatOfHttp(error)}.`,
    ];
    endWith(log, socket, status, message);
  };
}

/** The parser's own words: sentences of llhttp's source, which quote nothing of what came. */
function whatOfHttp({ code = "", reason = "" }: { code?: string; reason?: string }): string {
  return code.startsWith("HPE_") && reason !== "" ? ` (${reason})` : "";
}

/** Writes an answer to a connection that has no request, and ends it. */
function endWith(log: Logger, socket: Duplex, status: number, message: string): void {
  const requestId = randomUUID();
  log.info({ request_id: requestId, status }, "connection refused");
  socket.end(rawAnswer("bad_request", message, { status, requestId }));
}
