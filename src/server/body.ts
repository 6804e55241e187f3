/**
 * Request bodies on their way from the socket: bounded, read as JSON, and where they are refused
 * read no further than it takes to be understood.
 */
import type { IncomingMessage } from "node:http";
import bodyParser from "koa-bodyparser";
import { errors } from "../base/errors.js";
import { count } from "../base/table.js";
import { within } from "../base/waiting.js";
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

/** What is read and dropped of a body that nobody wants, and for how long. */
interface Unwanted {
  bytes: number;
  ms: number;
}
/** Of whoever has shown no token, or sends too much. */
const OF_STRANGERS: Unwanted = { bytes: 64 * 1024, ms: 1_000 };
/** Of whoever may send. */
const OF_CALLERS: Unwanted = { bytes: 256 * 1024 * 1024, ms: 10_000 };
/** A client whose body is read no further has so long to read its answer. */
const LAST_LOOK_MS = 1_000;

/**
 * What becomes of a body that was not read when its answer is ready. Closed with unread bytes, TCP
 * would take the answer back; so a little of the body is read away. A caller's is read before the
 * answer, because programs that send do not all read meanwhile; a stranger's after it. A connection
 * whose body ends within that goes on; of any other the sending side is closed behind the answer,
 * and soon after the whole.
 */
export async function leaveUnread(ctx: Context): Promise<void> {
  const { req: request, res: response, state } = ctx;
  const { "content-length": length = "0", "transfer-encoding": coding } = request.headers;
  if (request.complete || (coding === undefined && Number(length) === 0)) return;
  const isCaller = state.caller !== undefined && state.error !== "rate_limited";
  const most = isCaller ? OF_CALLERS : OF_STRANGERS;
  const isLong = Number(length) > most.bytes;
  const ended = readAway(request, most);
  if (isCaller && !isLong && (await within(ended, most.ms)) && (await ended)) return;
  if (isCaller || isLong) ctx.set("Connection", "close");
  const { socket } = request;
  let closes = false;
  // By this Node.js closes behind the last answer, whatever is unread
  socket.destroySoon = () => {
    closes = true;
    socket.end();
  };
  response.once("finish", () => void lastLook());
  const lastLook = async () => {
    const late = setTimeout(() => socket.destroy(), most.ms);
    const isWhole = await ended;
    clearTimeout(late);
    Reflect.deleteProperty(socket, "destroySoon");
    if (!isWhole) {
      socket.end();
      setTimeout(() => socket.destroy(), LAST_LOOK_MS).unref();
    } else if (closes) socket.destroySoon();
  };
}

/** Reads and drops so much at most. Resolves with whether the body has ended, or its connection. */
function readAway(request: IncomingMessage, most: Unwanted): Promise<boolean> {
  return new Promise((resolve) => {
    let bytes = 0;
    const count = (piece: Buffer) => {
      bytes += piece.length;
      if (bytes <= most.bytes) return;
      request.off("data", count).pause();
      resolve(false);
    };
    request.once("end", () => resolve(true)).once("close", () => resolve(true));
    request.unpipe();
    request.on("data", count).resume();
  });
}
