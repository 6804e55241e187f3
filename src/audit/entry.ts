/**
 * One line of the audit: who did what, to whose image, and what came of it. Patients, studies and
 * paths are there as keyed hashes only. A line is the canonical JSON of its fields, and behind them
 * its MAC: HMAC-SHA256 over the MAC of the line before and this line's text without its own, so
 * that no line can be edited, removed, added or moved by anybody who does not have the key.
 */
import { createHmac, timingSafeEqual, type KeyObject } from "node:crypto";
import { z } from "zod";
import { canonicalJson } from "../base/canonical-json.js";

const hash = z.string().regex(/^[0-9a-f]{32}$/);

/** Subjects that a line may have. */
export const KINDS = [
  /** The first line of a file: where the chain comes from. */
  "day",
  "start",
  "stop",
  /** The models that serve, after the first loading and after each reload. */
  "models",
  /** A request for one image. */
  "inference",
  /** One image of a bulk job, each time that it was tried. */
  "item",
  /**
   * Objects of one series that came over one association or in one request. The subject is the name
   * of the peer.
   */
  "received",
  /** A received series or study that became a job. */
  "submitted",
  /** Received objects that are removed because their time is over and their job has ended. */
  "removed",
  /**
   * Objects of one result and a destination: asked, before they are sent; then what became of them
   * (`sent`, `proven`, `accepted`, `refused`, `unproven`). The subject asked for it.
   */
  "delivery",
  /** A job compared with what lies in its output folders: one page of that. */
  "reconcile",
  /**
   * A job of which nothing was done got the models and the release of this node, because no node
   * had those that it was submitted with. The subject is whose job it is.
   */
  "pinned",
  /** Any other endpoint that needs a token. */
  "page",
  "refused",
  /** A command that made or revoked a token, or made a key. */
  "command",
  /**
   * Bytes at the end of the file that are no line: a process or the machine stopped while it wrote.
   */
  "torn",
  /**
   * Lines could not be written for a time; or, with the reason `head_gone`, lines may have been
   * taken away.
   */
  "trouble",
] as const;

const modelSchema = z.object({
  name: z.string(),
  version: z.string(),
  sha256: z.string(),
  /**
   * The outcome: succeeded, failed or not_accepted of an inference; ready, failed or off of a
   * loading.
   */
  status: z.string(),
});
export type AuditedModel = z.infer<typeof modelSchema>;

/** The fields that the caller of the audit knows. */
const factsSchema = z.object({
  kind: z.enum(KINDS),
  /**
   * asked (written before an endpoint changes anything), done, completed, partial, reused, or the
   * code of an error. Of an inference or an item, completed and partial are written before the
   * result appears.
   */
  outcome: z.string().optional(),
  request_id: z.string().optional(),
  subject: z.string().optional(),
  jti: z.string().optional(),
  /** How the subject signed in, where it sent no token: oidc, through a proxy. */
  signed_in: z.string().optional(),
  address: z.string().optional(),
  /** Method and pattern of the endpoint. */
  endpoint: z.string().optional(),
  /** The parameters of a list that mean something. */
  query: z.string().optional(),
  destination: z.string().optional(),
  job_id: z.string().optional(),
  item: z.int().optional(),
  patient: hash.optional(),
  study: hash.optional(),
  input: hash.optional(),
  output: hash.optional(),
  models: z.array(modelSchema).optional(),
  /**
   * Counts of a comparison: images that were looked at, what differs, and images that run again for
   * it.
   */
  checked: z.int().optional(),
  differences: z.int().optional(),
  requeued: z.int().optional(),
  /** Milliseconds from the request, or from the item's begin. */
  ms: z.number().optional(),
  /**
   * Why a token was refused; which of several reasons an error has (`permission`, `not_mounted`);
   * of trouble, `head_gone`.
   */
  reason: z.string().optional(),
  /**
   * How often: refusals that are told together; actions that were refused because no line could be
   * written. How many objects were received, or are delivered.
   */
  count: z.int().optional(),
  since: z.string().optional(),
  /** token issue, token revoke, key new. */
  command: z.string().optional(),
  /** A token that was issued or revoked, or the key that was made. */
  token: z
    .object({ jti: z.string(), subject: z.string().optional(), admin: z.boolean().optional() })
    .optional(),
  kid: z.string().optional(),
  version: z.string().optional(),
  /** The process before ended by its own fault. */
  after_crash: z.boolean().optional(),
  /** How many bytes are no line, were uploaded (with their SHA-256), or were received. */
  bytes: z.int().optional(),
  sha256: z.string().optional(),
  /** The day whose file a line begins, and the line before it with the day of its file. */
  day: z.string().optional(),
  previous: z.object({ seq: z.int(), mac: z.string(), day: z.string().optional() }).optional(),
});
export type AuditFacts = z.infer<typeof factsSchema>;

export const entrySchema = factsSchema.extend({
  seq: z.int().min(1),
  /** ISO 8601, UTC. */
  time: z.string(),
  /** Name of the machine. */
  host: z.string(),
});
export type AuditEntry = z.infer<typeof entrySchema>;

/** The place of a line in the chain. */
export interface Head {
  seq: number;
  mac: string;
}

/** Before the first line of all. */
export const NO_HEAD: Head = { seq: 0, mac: "0".repeat(64) };

/** As logs and commands name a head. */
export const headText = ({ seq, mac }: Head): string => `${seq}:${mac}`;

export function parseHead(text: string): Head | undefined {
  const [, seq, mac] = /^(\d{1,15}):([0-9a-f]{64})$/.exec(text.trim()) ?? [];
  return seq === undefined || mac === undefined ? undefined : { seq: Number(seq), mac };
}

function macOf(key: KeyObject, before: Head, text: string): string {
  return createHmac("sha256", key).update(before.mac).update("\n").update(text).digest("hex");
}

/** A line with its line feed, and the head that it makes. */
export function lineOf(
  key: KeyObject,
  before: Head,
  entry: AuditEntry,
): { text: string; head: Head } {
  const text = canonicalJson(entry);
  const mac = macOf(key, before, text);
  return { text: `${text.slice(0, -1)},"mac":"${mac}"}\n`, head: { seq: entry.seq, mac } };
}

export interface ReadLine {
  entry: AuditEntry;
  mac: string;
  /** The bytes that the MAC is over. */
  text: string;
}

/**
 * A line without its line feed; undefined where it is none, or not in the one form that is written.
 */
export function readLine(line: string): ReadLine | undefined {
  const [, body, mac] = /^(\{.*),"mac":"([0-9a-f]{64})"\}$/s.exec(line) ?? [];
  if (body === undefined || mac === undefined) return undefined;
  const text = `${body}}`;
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return undefined;
  }
  const parsed = entrySchema.loose().safeParse(value);
  return parsed.success && canonicalJson(value) === text
    ? { entry: parsed.data, mac, text }
    : undefined;
}

/** Whether a line is what the key's holder wrote after `before`. */
export function follows(key: KeyObject, before: Head, { mac, text }: ReadLine): boolean {
  return timingSafeEqual(Buffer.from(macOf(key, before, text), "hex"), Buffer.from(mac, "hex"));
}
