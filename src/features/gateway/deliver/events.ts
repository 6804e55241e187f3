/**
 * What webhooks are to be told of a delivery. It stands in the same file as what has happened, and
 * is written with it: no process can end between the two.
 */
import { randomUUID } from "node:crypto";
import type { Delivered, Delivery, DeliveryEvent } from "../../../results/receipt/delivery.js";
import { isSetAside, isUnderway } from "./progress.js";
import type { WebhookSettings } from "./webhook-settings.js";

/** It was not told: it is due, or was given up. */
export const isToTell = ({ state }: DeliveryEvent): boolean => state !== "told";

/** What a webhook is to be told. */
export const dueFor = ({ events = [] }: Delivery, webhook: string): DeliveryEvent[] =>
  events.filter((one) => one.webhook === webhook && one.state === "due");

/** Destinations for which something is to be sent or proven, or of which nobody knows that yet. */
export const unsettledIn = ({ destinations }: Delivery): Set<string> =>
  new Set(
    Object.entries(destinations).flatMap(([name, objects]) =>
      objects?.some(isUnderway) === false ? [] : [name],
    ),
  );

function eventOf(objects: readonly Delivered[]): DeliveryEvent["event"] {
  if (objects.some(isSetAside)) return "set_aside";
  return objects.every(({ state }) => state === "proven") ? "proven" : "accepted";
}

/** What is told of a destination that is settled, and of how many objects. */
interface Settled {
  event: DeliveryEvent["event"];
  count: number;
}

/** Destinations that are settled. */
export function settledIn(delivery: Delivery): Map<string, Settled> {
  const unsettled = unsettledIn(delivery);
  return new Map(
    Object.entries(delivery.destinations).flatMap(([name, objects]) =>
      objects === null || objects.length === 0 || unsettled.has(name)
        ? []
        : [[name, { event: eventOf(objects), count: objects.length }]],
    ),
  );
}

/**
 * Adds what is to be told of destinations that are settled now: where they were not before, or
 * something else is to be told of the same objects, of which one was proven late.
 * @param before those that were settled
 */
export function noteEvents(
  delivery: Delivery,
  before: ReadonlyMap<string, Settled>,
  webhooks: Readonly<Record<string, WebhookSettings>>,
): void {
  const at = new Date().toISOString();
  for (const [destination, { event, count }] of settledIn(delivery)) {
    const known = before.get(destination);
    // What was dropped is no news of the others
    if (known !== undefined && (known.event === event || known.count > count)) continue;
    const all = delivery.destinations[destination] ?? [];
    const objects = all.map(({ sop_class_uid, sop_instance_uid, series_instance_uid, state }) => ({
      sop_class_uid,
      sop_instance_uid,
      series_instance_uid,
      state,
    }));
    const fresh = Object.entries(webhooks)
      .filter(([, { events }]) => events.includes(event))
      .map(([webhook]): DeliveryEvent => {
        const id = `msg_${randomUUID()}`;
        return { id, event, webhook, destination, at, objects, state: "due", since: at };
      });
    if (fresh.length > 0) delivery.events = [...(delivery.events ?? []), ...fresh];
  }
}

/** A message that was given up, as it was before anything was tried. */
export function dueAgain(event: DeliveryEvent): void {
  Object.assign(event, { state: "due", since: new Date().toISOString() });
  delete event.reason;
  delete event.attempts;
  delete event.attempted_at;
}
