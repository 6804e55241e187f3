/**
 * Request bodies on their way from the socket: bounded, read as JSON, and drained where they are
 * refused.
 */
import type { IncomingMessage } from "node:http";
import { finished } from "node:stream/promises";
import bodyParser from "koa-bodyparser";
import { errors } from "../base/errors.js";
import { count } from "../base/table.js";
import { parseJsonBody } from "../base/json-body.js";
import type { Context } from "./services.js";
import type { Config } from "../config.js";
import type { Route } from "./route.js";

const SINGLE_BODY_LIMIT = 64 * 1024;

/**
 * Reads a JSON body; that of a bulk request as text. Throws bad_request with the place of the
 * fault, or body_too_large.
 */
export function jsonBody({
  config,
}: {
  config: Config;
}): (ctx: Context, route: Route) => Promise<void> {
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
      throw errors.bad_request(
        `Expected a JSON body with Content-Type application/json; found ${/^[\w.+/-]{1,64}/.exec(type)?.[0] ?? "none"}.`,
      );
    // RFC 8259, 8.1: JSON between systems is UTF-8; in another set the same bytes would be other
    // names
    const charset = ctx.request.charset.toLowerCase();
    if (!["", "utf-8", "utf8", "us-ascii"].includes(charset))
      throw errors.bad_request(
        "Expected a JSON body in UTF-8; found another charset in Content-Type.",
      );
    const isBulk = route.hasLargeBody === true;
    await (isBulk ? bulkText : single)(ctx, () => Promise.resolve());
    // Megabytes of JSON are parsed in the bulk thread.
    if (!isBulk && typeof ctx.request.body === "string")
      ctx.request.body = parseJsonBody(ctx.request.body);
  };
}

function refuseBody(error: Error, limit: number): never {
  const { status, type, code } = error as Error & {
    status?: number;
    type?: string;
    code?: unknown;
  };
  if (status === 413)
    throw errors.body_too_large(
      `Expected a body of at most ${count(limit)} bytes; found a larger one.`,
      {
        limit,
      },
    );
  if (status === 415)
    throw errors.bad_request(
      "Expected Content-Encoding gzip, deflate, br or identity; found another.",
    );
  // zlib's codes: Z_DATA_ERROR, Z_BUF_ERROR, ERR__ERROR_FORMAT_... of Brotli
  if (typeof code === "string" && /^(?:Z_|ERR__ERROR_)/.test(code))
    throw errors.bad_request(
      "Expected a whole body that is packed as Content-Encoding says; it could not be unpacked.",
    );
  throw errors.bad_request(
    `Expected a complete request body; it could not be read (${type ?? "broken"}).`,
  );
}

const LONGEST_DRAIN_MS = 10_000;

/**
 * Reads and drops what is left of a body: a client that is still sending when the connection closes
 * sees a broken pipe and not its answer. False where that would take too long.
 */
export async function drained(request: IncomingMessage): Promise<boolean> {
  request.unpipe();
  request.resume();
  const limit = { signal: AbortSignal.timeout(LONGEST_DRAIN_MS) };
  return finished(request, limit).then(
    () => true,
    () => false,
  );
}
