/** A receiver of messages of webhooks in this process, which checks them as the documents say. */
import { createHmac, randomBytes, timingSafeEqual } from "node:crypto";
import { writeFileSync } from "node:fs";
import type { IncomingHttpHeaders } from "node:http";
import path from "node:path";
import { text } from "node:stream/consumers";
import { httpPeer } from "./http-peer.js";

export interface Received {
  id: string;
  /** Its signature is that of the secret, over its id, its time and its bytes. */
  isSigned: boolean;
  headers: IncomingHttpHeaders;
  body: string;
  type: string;
  timestamp: string;
  data: Record<string, unknown>;
}

/** What it answers: a status, or never. */
export type Answer = number | "hang";
/** To each message. */
export type Answers = Answer | ((message: Received) => Answer);

export interface WebReceiver {
  url: string;
  secret: string;
  /** File with the secret. */
  secretFile: string;
  /** All that was posted, in its order, whatever was answered. */
  received: Received[];
  behave(answer: Answers): void;
  stop(): Promise<void>;
  start(): Promise<void>;
}

export async function webReceiver(
  t: { teardown: (end: () => Promise<void>) => void },
  directory: string,
  headers: Record<string, string> = {},
): Promise<WebReceiver> {
  const secret = randomBytes(32);
  const secretFile = path.join(directory, "webhook.secret");
  writeFileSync(secretFile, `whsec_${secret.toString("base64")}\n`, { mode: 0o600 });
  const received: Received[] = [];
  let answer: Answers = 204;
  const isSigned = (head: IncomingHttpHeaders, body: string) => {
    const signed = `${String(head["webhook-id"])}.${String(head["webhook-timestamp"])}.${body}`;
    const expected = Buffer.from(createHmac("sha256", secret).update(signed).digest("base64"));
    return String(head["webhook-signature"])
      .split(" ")
      .map((one) => Buffer.from(one.slice("v1,".length)))
      .some((one) => one.length === expected.length && timingSafeEqual(one, expected));
  };
  const peer = await httpPeer(t, (request, response) => {
    void (async () => {
      const body = await text(request);
      const message = {
        id: String(request.headers["webhook-id"]),
        isSigned: isSigned(request.headers, body),
        headers: request.headers,
        body,
        ...(JSON.parse(body) as Pick<Received, "type" | "timestamp" | "data">),
      };
      received.push(message);
      const status = typeof answer === "function" ? answer(message) : answer;
      if (status !== "hang") response.writeHead(status, headers).end();
    })();
  });
  return {
    url: `${peer.url}/radserve`,
    secret: `whsec_${secret.toString("base64")}`,
    secretFile,
    received,
    behave: (next) => (answer = next),
    stop: () => peer.stop(),
    start: () => peer.start(),
  };
}
