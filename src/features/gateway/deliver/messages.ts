/** What the thread that serves HTTP and the thread that delivers have to say to one another. */
import { z } from "zod";
import type { Config } from "../../../config.js";
import {
  deliveredSchema,
  deliveryEventSchema,
  type Delivery,
} from "../../../results/receipt/delivery.js";
import type { DestinationSettings } from "./destination-settings.js";
import type { OutboxEntry } from "./entry.js";
import type { WebhookSettings } from "./webhook-settings.js";

export interface DeliverThreadOptions {
  config: Pick<Config, "log_level" | "minimum_free_disk" | "node_name">;
  /** Real paths. */
  outputRoots: string[];
  /** The folder of the queue. */
  queue: string;
  destinations: Record<string, DestinationSettings>;
  webhooks: Record<string, WebhookSettings>;
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
  events: z
    .array(deliveryEventSchema)
    .describe("Messages to webhooks that are to be told, or were given up"),
});
export type Undelivered = z.infer<typeof undeliveredSchema>;

const hidden = z
  .int()
  .min(0)
  .describe(
    "Results that wait or were set aside beside these, of other subjects or in folders that this token does not reach",
  );

export const deliveryListSchema = z.object({ deliveries: z.array(undeliveredSchema), hidden });
export type DeliveryList = z.infer<typeof deliveryListSchema>;

/** What became of set-aside objects that somebody chose. */
export const changedSchema = z.object({
  results: z
    .array(
      z.object({
        id: z.string(),
        receipt_path: z.string(),
        destination: z.string().describe("That they were set aside for"),
        objects: z.int().min(1),
      }),
    )
    .describe("The results that they are of"),
  waiting: z
    .int()
    .min(0)
    .describe("Objects of the chosen results that are on their way; nothing is changed of them"),
  without_destination: z
    .int()
    .min(0)
    .describe(
      "Objects that stay set aside, because the settings do not name their destination; `to` moves them",
    ),
  messages: z
    .int()
    .min(0)
    .describe("Messages to webhooks that were given up, of which the same becomes"),
  failed: z
    .array(
      z.object({
        id: z.string(),
        receipt_path: z.string(),
        error: z.string().describe("Code of the error"),
        message: z.string(),
      }),
    )
    .describe("Results of which nothing could be changed; the others are"),
  hidden,
});
/** `chosen`: how many results of the queue the filter has. */
export type Changed = z.infer<typeof changedSchema> & { chosen: number };
export const objectsIn = ({ results }: Pick<Changed, "results">): number =>
  results.reduce((sum, { objects }) => sum + objects, 0);

/** What the thread that serves HTTP asks the thread that delivers. */
export interface DeliverThread {
  /**
   * What has become of a result's objects; undefined where nothing is to be delivered of it.
   * @param ms waits so long until that is over; not at all if undefined
   */
  outcome(
    id: string,
    result: Pick<OutboxEntry, "folder" | "name">,
    ms: number | undefined,
  ): Promise<Delivery | undefined>;
  /** The newest of a filter, and how many there are beside those that its caller may see. */
  list(filter: DeliveryFilter, most: number): Promise<DeliveryList>;
  /** Sends set-aside objects again. @param to in place of the destination that they were for */
  retry(filter: DeliveryFilter, to: string | undefined): Promise<Changed>;
  /** Gives set-aside objects up. */
  drop(filter: DeliveryFilter): Promise<Changed>;
  /** Nobody waits for an outcome any longer. */
  hurry(): void;
  close(): Promise<void>;
}

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
  /** Since when it takes nothing: ISO 8601. */
  away_since: string | null;
  /** Since when it answers no question for a proof: ISO 8601. */
  silent_since: string | null;
  /** Objects since the thread began, by what became of them. */
  totals: Record<string, number>;
}
export type DeliveryFigures = Record<string, DestinationFigures>;

export interface WebhookFigures {
  /** Messages that are to be told, and that were given up. */
  due: number;
  given_up: number;
  /** Since when it takes nothing: ISO 8601. */
  away_since: string | null;
  /** Messages since the thread began, by what became of them. */
  totals: Record<string, number>;
}

/** What is to be said of deliveries now. */
export interface OutgoingFigures {
  destinations: DeliveryFigures;
  webhooks: Record<string, WebhookFigures>;
  /** Results that wait because they are not trusted. */
  untrusted: number;
  /** Files of the queue that cannot be read. */
  unreadable: number;
}

/** What the thread that delivers tells the one that serves HTTP. */
export interface DeliverOwner {
  /** Resolves when the audit has the line. @throws RadserveError audit_failed */
  asked(told: DeliveryTold): Promise<void>;
  /** What has happened stays so: a line that cannot be written holds up nothing. */
  became(told: DeliveryTold): void;
  figures(figures: OutgoingFigures): void;
}
