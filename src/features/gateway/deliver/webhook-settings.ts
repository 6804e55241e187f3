/** A webhook in the gateway's file: who is told what became of results. */
import type { SecureContextOptions } from "node:tls";
import { z } from "zod";
import { absolute, duration } from "../../../config.js";
import { DELIVERY_EVENTS } from "../../../results/receipt/delivery.js";
import {
  ca,
  client,
  isLoopback,
  plainUrl,
  secretIn,
  secureContext,
} from "./destination-settings.js";

const WITH_MEANING =
  "What a message has beside opaque ids: receipt_path (paths may hold names), " +
  "study_instance_uid, objects (class, series, instance and state of each), accession_number, patient_id";

export const webhookSchema = z
  .strictObject({
    url: plainUrl.describe("Address that messages are posted to, for example https://ris/radserve"),
    secret_file: absolute.describe(
      "File of mode 0600 with the secret that signs: whsec_ and 24 to 64 bytes in Base64; in a second line, the one before it",
    ),
    events: z
      .array(z.enum(DELIVERY_EVENTS))
      .min(1)
      .default([...DELIVERY_EVENTS])
      .describe("Which outcomes it is told (proven, accepted, set_aside); all if absent"),
    with: z
      .array(
        z.enum(["receipt_path", "study_instance_uid", "objects", "accession_number", "patient_id"]),
      )
      .default([])
      .describe(WITH_MEANING),
    ca: ca.optional(),
    client: client.optional(),
    give_up_after: duration
      .refine((seconds) => seconds <= 30 * 86_400, "Expected at most 30d")
      .default(86_400)
      .describe("A message that it did not accept for so long is given up (default 1d)"),
    timeout: duration
      .refine((seconds) => seconds <= 300, "Expected at most 5m")
      .default(10)
      .describe("Time that it has for its whole answer (default 10s)"),
  })
  .superRefine(({ url, with: more, ca, client }, context) => {
    if (!url.startsWith("http:")) return;
    const secrets = Object.entries({ ca, client }).filter(([, one]) => one !== undefined);
    const beside = [
      ...secrets.map(([name]) => name),
      ...(more.length > 0 && !isLoopback(new URL(url).hostname) ? ["with"] : []),
    ];
    if (beside.length > 0)
      context.addIssue({
        code: "custom",
        path: ["url"],
        message: `Expected https beside ${beside.join(" and ")}`,
      });
  });
export type WebhookSettings = z.output<typeof webhookSchema>;

/** Secrets of Standard Webhooks: a prefix, and 24 to 64 bytes in Base64. */
const PREFIX = "whsec_";
const SECRETS = /^whsec_[A-Za-z0-9+/]{32,86}={0,2}(?:\r?\nwhsec_[A-Za-z0-9+/]{32,86}={0,2})?$/;

/** What a webhook's files say, read at each use so that new ones count. */
export interface WebhookCredentials {
  /** Undefined for http. */
  tls: SecureContextOptions | undefined;
  /** Each signs; the newest first. */
  secrets: readonly Buffer[];
}

/**
 * @throws ConfigError naming the setting whose file cannot be read, is open to others, or does not
 * hold what it should
 */
export async function readWebhookFiles(
  name: string,
  settings: WebhookSettings,
): Promise<WebhookCredentials> {
  const at = (field: string) => `RADSERVE_GATEWAY: webhooks.${name}.${field}`;
  const what = "a line with whsec_ and 24 to 64 bytes in Base64, or two of them";
  const text = await secretIn(at("secret_file"), settings.secret_file, SECRETS, what);
  return {
    tls: settings.url.startsWith("https:") ? await secureContext(at, settings) : undefined,
    secrets: text.split(/\r?\n/).map((line) => Buffer.from(line.slice(PREFIX.length), "base64")),
  };
}
