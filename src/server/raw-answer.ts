/**
 * Answers to connections that have no request that could be answered: the same shape, written by
 * hand.
 */
import { randomUUID } from "node:crypto";
import { STATUS_CODES } from "node:http";
import { RadserveError, type ErrorCode } from "../base/errors.js";

/** The whole answer as it goes over the wire; it says that the connection ends. */
export function rawAnswer(
  error: ErrorCode,
  message: string,
  options: { status?: number; requestId?: string } = {},
): string {
  const { status: usual, retryAfter } = new RadserveError(error, message);
  const { status = usual, requestId = randomUUID() } = options;
  const body = JSON.stringify({ error, message, request_id: requestId });
  return [
    `HTTP/1.1 ${status} ${STATUS_CODES[status] ?? ""}`,
    `X-Request-Id: ${requestId}`,
    ...(retryAfter === undefined ? [] : [`Retry-After: ${retryAfter}`]),
    "Content-Type: application/json; charset=utf-8",
    `Content-Length: ${Buffer.byteLength(body)}`,
    "Connection: close",
    "",
    body,
  ].join("\r\n");
}
