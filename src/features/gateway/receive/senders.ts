/**
 * What has come from whom, for people: how much of it lies in the spool, when the last of it came,
 * and what was refused since the start.
 */
import { z } from "zod";
import type { PeerHolds } from "./shares.js";

/** Senders, and reasons of each, that are told apart: no stranger can make more of them. */
const MOST = 200;

const count = z.int().min(0);

export const senderSchema = z.object({
  peer: z.string(),
  studies: count.describe("That lie in the spool"),
  series: count,
  objects: count,
  bytes: count,
  last_at: z.iso.datetime().nullable().describe("When the last object came"),
  refused: z
    .record(z.string(), count)
    .describe("Objects and presentation contexts that were refused, by reason, since the start"),
});
export type SenderFigures = z.infer<typeof senderSchema>;

export const sendersSchema = z.object({
  since: z.iso.datetime().describe("When this node began to count what it refuses"),
  associations: count.describe("Open DICOM associations"),
  senders: z.array(senderSchema),
  contexts: z
    .array(z.object({ peer: z.string(), sop_class: z.string(), why: z.string(), count }))
    .describe("Presentation contexts that were refused, by peer and SOP class"),
  callers: z
    .array(z.object({ why: z.string(), name: z.string(), count }))
    .describe("Callers that were refused, by AE title or fault of the certificate"),
});
export type Senders = z.infer<typeof sendersSchema>;

/** What was refused of each sender. */
export class Refusals {
  readonly #of = new Map<string, Map<string, number>>();

  note(peer: string, reason: string): void {
    const known = this.#of.get(peer);
    if (known === undefined && this.#of.size >= MOST) return;
    const reasons = known ?? new Map<string, number>();
    this.#of.set(peer, reasons);
    if (reasons.has(reason) || reasons.size < MOST)
      reasons.set(reason, (reasons.get(reason) ?? 0) + 1);
  }

  get peers(): string[] {
    return [...this.#of.keys()];
  }

  of(peer: string): Record<string, number> {
    return Object.fromEntries(this.#of.get(peer) ?? []);
  }
}

/**
 * One line for each peer of the settings, and for whoever else has sent something.
 * @param named peers of the settings, which may have sent nothing
 */
export function sendersOf(
  named: readonly string[],
  holds: ReadonlyMap<string, PeerHolds>,
  refusals: Refusals,
): SenderFigures[] {
  const peers = new Set([...named, ...holds.keys(), ...refusals.peers]);
  return [...peers].sort().map((peer) => {
    const { studies = 0, series = 0, objects = 0, bytes = 0, lastAt } = holds.get(peer) ?? {};
    const last_at = lastAt === undefined ? null : new Date(lastAt).toISOString();
    return { peer, studies, series, objects, bytes, last_at, refused: refusals.of(peer) };
  });
}
