/** Request bodies on their way from the socket: bounded, read as JSON, and drained where they are refused. */
import type { IncomingMessage } from "node:http";
import type { Readable } from "node:stream";
import { finished } from "node:stream/promises";
import { createBrotliDecompress, createUnzip } from "node:zlib";
import { RadserveError } from "../base/errors.js";
import { parseJsonBody } from "../base/json-body.js";
import type { Context } from "./handlers.js";
import type { Config } from "../config.js";
import type { Route } from "./routes.js";

declare module "koa" {
  interface Request {
    /** What a JSON body says, or the text of one that is parsed elsewhere; an empty object where there is no body. */
    body?: unknown;
  }
}

const SINGLE_BODY_LIMIT = 64 * 1024;

/** Reads a JSON body; that of a bulk request as text. Throws bad_request with the place of the fault, or body_too_large. */
export function jsonBody({ config }: { config: Config }): (ctx: Context, route: Route) => Promise<void> {
  const singleLimit = Math.min(SINGLE_BODY_LIMIT, config.body_limit);
  return async (ctx, route) => {
    const type = ctx.get("Content-Type");
    // Null where the request has no body
    const isJson = ctx.request.is("json", "+json");
    if (isJson === false)
      throw new RadserveError(
        "bad_request",
        `Expected a JSON body with Content-Type application/json; found ${/^[\w.+/-]{1,64}/.exec(type)?.[0] ?? "none"}.`,
      );
    // RFC 8259, 8.1: JSON between systems is UTF-8; in another set the same bytes would be other names
    const charset = ctx.request.charset.toLowerCase();
    if (!["", "utf-8", "utf8", "us-ascii"].includes(charset))
      throw new RadserveError(
        "bad_request",
        "Expected a JSON body in UTF-8; found another charset in Content-Type.",
      );
    if (isJson === null) ctx.request.body = {};
    // Megabytes of JSON are parsed in the bulk thread.
    else if (route.hasLargeBody === true) ctx.request.body = await textOf(ctx.req, config.body_limit);
    else ctx.request.body = parseJsonBody(await textOf(ctx.req, singleLimit));
  };
}

/** The codings of contents that are unpacked (RFC 9110, 8.4.1). */
const UNPACKERS = new Map([
  ["gzip", createUnzip],
  ["deflate", createUnzip],
  ["br", createBrotliDecompress],
]);

/** The bytes of a body as it was before it was packed. */
function unpacked(request: IncomingMessage, packing: string): Readable {
  const unpacker = UNPACKERS.get(packing)?.();
  if (unpacker === undefined)
    throw new RadserveError(
      "bad_request",
      "Expected Content-Encoding gzip, deflate, br or identity; found another.",
    );
  request.once("error", (error) => unpacker.destroy(error));
  return request.pipe(unpacker);
}

/**
 * The text of a body, which is UTF-8. A request whose body is refused stays open, for the answer.
 * @param limit bytes, unpacked
 */
async function textOf(request: IncomingMessage, limit: number): Promise<string> {
  const tooLarge = () =>
    new RadserveError("body_too_large", `Expected a body of at most ${limit} bytes; found a larger one.`, {
      limit,
    });
  const packing = request.headers["content-encoding"] || "identity";
  const isPacked = packing !== "identity";
  if (!isPacked && Number(request.headers["content-length"]) > limit) throw tooLarge();
  const stream = isPacked ? unpacked(request, packing) : request;
  const chunks: Buffer[] = [];
  let bytes = 0;
  try {
    for await (const chunk of stream.iterator({ destroyOnReturn: isPacked }) as AsyncIterable<Buffer>) {
      bytes += chunk.length;
      if (bytes > limit) throw tooLarge();
      chunks.push(chunk);
    }
  } catch (thrown) {
    throw thrown instanceof RadserveError ? thrown : unreadable(thrown);
  }
  return new TextDecoder().decode(Buffer.concat(chunks, bytes));
}

function unreadable(thrown: unknown): RadserveError {
  const { code } = thrown as { code?: unknown };
  // zlib's codes: Z_DATA_ERROR, Z_BUF_ERROR, ERR__ERROR_FORMAT_... of Brotli
  if (typeof code === "string" && /^(?:Z_|ERR__ERROR_)/.test(code))
    return new RadserveError(
      "bad_request",
      "Expected a whole body that is packed as Content-Encoding says; it could not be unpacked.",
    );
  return new RadserveError("bad_request", "Expected a complete request body; it could not be read.");
}

const LONGEST_DRAIN_MS = 10_000;

/**
 * Reads and drops what is left of a body: a client that is still sending when the connection closes sees a broken
 * pipe and not its answer. False where that would take too long.
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
