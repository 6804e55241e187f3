/** The messages between the thread that serves HTTP and the thread that delivers. */
import { z } from "zod";
import type { Config } from "../../../config.js";
import { deliveredSchema } from "../../../results/receipt/delivery.js";
import type { DestinationSettings } from "./destination-settings.js";
import type { Entry } from "./outbox.js";

export interface DeliverThreadOptions {
  config: Pick<Config, "log_level" | "minimum_free_disk">;
  /** Real paths. */
  outputRoots: string[];
  /** The folder of the queue. */
  queue: string;
  destinations: Record<string, DestinationSettings>;
}

/** Of which results something is asked. */
export interface DeliveryFilter {
  id?: string | undefined;
  destination?: string | undefined;
  /** Whose: everybody's if absent. */
  subject?: string | undefined;
  /** Real paths that they lie in. */
  within: readonly string[];
}

/** A result that is not delivered (yet), or only in part. */
export const undeliveredSchema = z.object({
  id: z.string(),
  subject: z.string(),
  request_id: z.string(),
  asked_at: z.iso.datetime(),
  priority: z.enum(["stat", "routine", "bulk"]),
  receipt_path: z.string().describe("Path on the server, as the paths of the objects are"),
  replaced: z.boolean().describe("A newer result has the same path, and waits for this one"),
  destinations: z.record(z.string(), z.array(deliveredSchema)),
});
export type Undelivered = z.infer<typeof undeliveredSchema>;

export interface DeliverThread {
  ask(call: ToDeliver): Promise<unknown>;
}

export interface DeliverOwner {
  ask(call: FromDeliver): Promise<unknown>;
}

export type ToDeliver =
  /** Answered when the disk has it. */
  | { type: "intend"; entry: Entry }
  /**
   * Answered with the Delivery, or undefined: when it is over if `ms` is there, but so long after
   * at the latest.
   */
  | { type: "outcome"; id: string; folder: string; name: string; ms: number | undefined }
  /** Answered with Undelivered[]. */
  | { type: "list"; filter: DeliveryFilter; most: number }
  /** Answered with how many objects are tried again, at `to` in place of the one they were for. */
  | { type: "retry"; filter: DeliveryFilter; to: string | undefined }
  /** Answered with how many objects that were set aside are dropped. */
  | { type: "drop"; filter: DeliveryFilter }
  /** Nobody waits for an outcome any longer. */
  | { type: "hurry" }
  | { type: "close" };

/** A line of the audit. */
export interface DeliveryTold {
  outcome: string;
  destination: string;
  study: string;
  subject: string;
  request_id: string;
  count: number;
}

export interface DestinationFigures {
  /** Objects that are to be sent, that are to be proven, and that are set aside. */
  waiting: number;
  sent: number;
  set_aside: number;
  /** Since when it is away: ISO 8601. */
  away_since: string | null;
  /** Objects since the thread began, by what became of them. */
  totals: Record<string, number>;
}
export type DeliveryFigures = Record<string, DestinationFigures>;

export type FromDeliver =
  /** Answered when the audit has its line. */
  | { type: "tell"; told: DeliveryTold }
  /** `untrusted`: results that wait because they are not trusted. */
  | { type: "figures"; figures: DeliveryFigures; untrusted: number };
