/**
 * A message to a webhook, as Standard Webhooks 1.0 says: JSON that is posted, signed by HMAC-SHA256
 * over its id, the time and its bytes, so that the receiver knows who sent it, when, and whether
 * it has it already. Nothing but its status is used of an answer.
 */
import { createHmac, randomUUID } from "node:crypto";
import { request as plainRequest, type IncomingMessage } from "node:http";
import { request as tlsRequest, type RequestOptions } from "node:https";
import { timeOfDay } from "./progress.js";
import { readWebhookFiles, type WebhookSettings } from "./webhook-settings.js";

/** A longer answer is not read to its end. */
const MOST_ANSWER_BYTES = 16 * 1024;

export interface WebhookMessage {
  /** Each repeat has the same. */
  id: string;
  /** For example `delivery.proven`. */
  type: string;
  /** When it happened, ISO 8601. */
  timestamp: string;
  data: Record<string, unknown>;
}

/** What a webhook made of a message. */
export type Posted =
  | { state: "told" }
  /** The webhook is there and does not take this message: others may go on. */
  | { state: "refused"; reason: string }
  /** It has failed with this message, and perhaps with all: others are tried. */
  | { state: "failed"; reason: string }
  /** It takes none, as far as is known. */
  | { state: "away"; reason: string };

/** Statuses of HTTP by which a receiver says something about this message. */
const OF_MESSAGE = [400, 406, 409, 411, 413, 415, 422];
/**
 * Those by which it takes no message: not now, or, as Standard Webhooks has 410, not any more.
 */
const OF_ALL = [410, 429, 503];

/**
 * The value of the header `webhook-signature`: one signature for each secret.
 * @param seconds since 1970, as the header `webhook-timestamp` has them
 */
const signatureOf = (
  secrets: readonly Buffer[],
  id: string,
  seconds: number,
  body: string,
): string =>
  secrets
    .map((secret) => createHmac("sha256", secret).update(`${id}.${seconds}.${body}`))
    .map((mac) => `v1,${mac.digest("base64")}`)
    .join(" ");

/**
 * Posts a message. A webhook that cannot be reached is no error. Redirects are not followed: the
 * settings name who is called.
 * @throws ConfigError where a file of the settings cannot be used
 */
export async function post(
  name: string,
  settings: WebhookSettings,
  { id, ...message }: WebhookMessage,
  signal: AbortSignal,
): Promise<Posted> {
  const { tls, secrets } = await readWebhookFiles(name, settings);
  const body = JSON.stringify(message);
  const seconds = Math.floor(timeOfDay() / 1000);
  const options: RequestOptions = {
    ...tls,
    agent: false,
    method: "POST",
    signal: AbortSignal.any([signal, AbortSignal.timeout(1000 * settings.timeout)]),
    headers: {
      "Content-Type": "application/json",
      "Content-Length": Buffer.byteLength(body),
      "User-Agent": "Radserve",
      "webhook-id": id,
      "webhook-timestamp": seconds,
      "webhook-signature": signatureOf(secrets, id, seconds, body),
    },
  };
  try {
    const status = await new Promise<number>((resolve, reject) => {
      const send = tls === undefined ? plainRequest : tlsRequest;
      const request = send(settings.url, options, (response) => {
        leave(response);
        resolve(response.statusCode ?? 0);
      });
      request.on("error", reject);
      request.end(body);
    });
    return ofStatus(status);
  } catch (error) {
    return { state: "away", reason: faultText(error) };
  }
}

/** Reads the answer to its end, if that comes soon. */
function leave(response: IncomingMessage): void {
  let length = 0;
  response.on("data", (piece: Buffer) => {
    length += piece.length;
    if (length > MOST_ANSWER_BYTES) response.destroy();
  });
  response.on("error", () => undefined);
}

function ofStatus(status: number): Posted {
  if (status >= 200 && status < 300) return { state: "told" };
  if (OF_MESSAGE.includes(status)) return { state: "refused", reason: `HTTP ${status}` };
  const isRedirect = status >= 300 && status < 400;
  const hint = isRedirect
    ? "; redirects are not followed, the setting url has to name the place itself"
    : status === 401 || status === 403
      ? "; it does not take the signature, or the client certificate"
      : "";
  return { state: OF_ALL.includes(status) ? "away" : "failed", reason: `HTTP ${status}${hint}` };
}

function faultText(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  return error.name === "TimeoutError" || error.name === "AbortError"
    ? "It took too long to answer."
    : error.message;
}

/** A message that says nothing, to see whether a webhook takes messages. */
export const ping = (node: string): WebhookMessage => ({
  id: `msg_${randomUUID()}`,
  type: "ping",
  timestamp: new Date().toISOString(),
  data: { node },
});
