/**
 * Answers that are the same for everybody: bytes held in memory, plain and packed, with an ETag
 * (RFC 9110, 8.8.3).
 */
import { createHash } from "node:crypto";
import { gzipSync } from "node:zlib";
import type { ParameterizedContext as Context } from "koa";

export interface HeldFile {
  readonly plain: Buffer;
  readonly packed: Buffer;
  /** Strong, and of the plain bytes; the packed ones have their own. */
  readonly hash: string;
}

export function hold(plain: Buffer): HeldFile {
  const hash = createHash("sha256").update(plain).digest("base64url").slice(0, 22);
  return { plain, packed: gzipSync(plain), hash };
}

/**
 * Whether the client has what this ETag names (RFC 9110, 13.1.2). Koa's own comparison says no
 * wherever a client also sends `Cache-Control: no-cache`, as fetch does.
 */
export function hasAlready(ctx: Context, etag: string): boolean {
  const given = ctx.get("If-None-Match").split(",");
  return given.some((one) => ["*", etag].includes(one.trim().replace(/^W\//, "")));
}

/** Gives held bytes, packed for whoever takes that, or 304 for whoever has them. */
export function giveHeld(ctx: Context, type: string, { plain, packed, hash }: HeldFile): void {
  ctx.vary("Accept-Encoding");
  const isPacked = ctx.acceptsEncodings("gzip", "identity") === "gzip";
  const etag = `"${hash}${isPacked ? "-gz" : ""}"`;
  ctx.set("ETag", etag);
  if (hasAlready(ctx, etag)) {
    ctx.status = 304;
    return;
  }
  ctx.type = type;
  if (isPacked) ctx.set("Content-Encoding", "gzip");
  ctx.body = isPacked ? packed : plain;
}
