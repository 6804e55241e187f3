/**
 * The thread that delivers: the queue, the ways to the destinations, and whoever waits for an
 * outcome, so that none of it holds up the thread that serves HTTP.
 */
import { workerData } from "node:worker_threads";
import { givingBack } from "../../../addon/idle.js";
import { durations } from "../../../base/durations.js";
import { asRadserveError } from "../../../base/errors.js";
import { createLog, faultForLog } from "../../../base/log.js";
import { answerOwner } from "../../../base/service-thread.js";
import { within } from "../../../base/waiting.js";
import { deliveryName } from "../../../files/helper-names.js";
import { receiptName } from "../../../results/receipt/names.js";
import {
  readDelivery,
  type Delivered,
  type Delivery,
  type DeliveryEvent,
} from "../../../results/receipt/delivery.js";
import { isInside } from "../../../files/roots.js";
import type { OutboxEntry } from "./entry.js";
import { DestinationLane } from "./lane.js";
import type {
  Changed,
  DeliverThreadOptions,
  DeliveryFigures,
  DeliveryFilter,
  DeliveryList,
  DeliverOwner,
  DeliverThread,
  Undelivered,
  WebhookFigures,
} from "./messages.js";
import { openDestination } from "./open-destination.js";
import { proofPolicy } from "./destination-settings.js";
import { dueAgain, isToTell } from "./events.js";
import { isSettled, Outbox, turnName, type Pending } from "./outbox.js";
import { asNew, isSetAside, isUnderway } from "./progress.js";
import { WebhookLane } from "./webhook-lane.js";

const { config, outputRoots, queue, destinations, webhooks } = workerData as DeliverThreadOptions;
const log = createLog(config.log_level);
const methods: DeliverThread = {
  outcome,
  list,
  retry,
  drop,
  hurry() {
    hurried = true;
    outbox.answerAll();
  },
  async close() {
    clearTimeout(looking);
    clearInterval(figuring);
    await Promise.all([...lanes.values(), ...webhookLanes.values()].map((lane) => lane.close()));
    outbox.close();
  },
};
const owner = answerOwner<DeliverOwner>(methods);
let hurried = false;
let figuresTold = "";

const rested = givingBack();
const lanes = new Map<string, DestinationLane>();
/** The ways to webhooks. */
const webhookLanes = new Map<string, WebhookLane>();
const outbox = new Outbox({
  folder: queue,
  outputRoots,
  destinations,
  webhooks,
  log,
  minimumFreeBytes: config.minimum_free_disk,
  found: () => {
    for (const lane of lanes.values()) lane.wake();
    wakeWebhooks();
  },
  news: wakeWebhooks,
});
let looking: NodeJS.Timeout | undefined;
// A share that is away holds up what lies on others no longer than that
const ready = within(look(), durations.gatewayRetryMost);
for (const [name, settings] of Object.entries(destinations))
  lanes.set(
    name,
    new DestinationLane({
      name,
      outbox,
      queue,
      log,
      ready,
      rested,
      proves: settings.prove !== false,
      policy: proofPolicy(settings),
      destination: openDestination(name, settings),
      asked: (line) => owner.call.asked(line),
      became: (line) => owner.note.became(line),
    }),
  );
for (const [name, settings] of Object.entries(webhooks))
  webhookLanes.set(
    name,
    new WebhookLane({
      name,
      settings,
      node: config.node_name,
      outbox,
      queue,
      log,
      ready,
      asked: (line) => owner.call.asked(line),
      became: (line) => owner.note.became(line),
    }),
  );

function wakeWebhooks(): void {
  for (const lane of webhookLanes.values()) lane.wake();
}

const figuring = setInterval(tellFigures, durations.gatewayFigures).unref();
async function look(): Promise<void> {
  try {
    await outbox.look();
  } catch (error) {
    log.warn({ fault: faultForLog(error) }, "the queue of deliveries could not be looked through");
  }
  if (!hurried) looking = setTimeout(() => void look(), durations.deliveryLook).unref();
}

async function outcome(
  id: string,
  { folder, name }: Pick<OutboxEntry, "folder" | "name">,
  ms: number | undefined,
): Promise<Delivery | undefined> {
  const pending = await outbox.adopt(id);
  if (pending === undefined) return readDelivery(`${folder}/${deliveryName(name)}`, name);
  if (ms !== undefined) await untilSettled(pending, ms);
  return pending.delivery;
}

/** Waits until everything of a result is delivered or set aside. */
function untilSettled(pending: Pending, ms: number): Promise<void> {
  return new Promise((resolve) => {
    const end = () => {
      clearTimeout(timer);
      pending.waiters.delete(wake);
      resolve();
    };
    const wake = () => {
      if (hurried || isSettled(pending.delivery)) end();
    };
    const timer = setTimeout(end, ms);
    pending.waiters.add(wake);
    wake();
  });
}

function chosen({ id, destination, subject, within }: DeliveryFilter): Pending[] {
  return [...outbox.pending]
    .filter(
      (one) =>
        (id === undefined || one.id === id) &&
        (destination === undefined || destination in one.delivery.destinations) &&
        (subject === undefined || one.delivery.subject === subject) &&
        isInside(one.folder, within),
    )
    .sort((a, b) => b.delivery.asked_at.localeCompare(a.delivery.asked_at));
}

/** How many results there are beside those that a caller may see. */
const hiddenBeside = (all: readonly Pending[], { id, destination }: DeliveryFilter) =>
  chosen({ id, destination, within: outputRoots }).length - all.length;

async function list(filter: DeliveryFilter, most: number): Promise<DeliveryList> {
  const all = chosen(filter);
  // Of the same moment: looking at them again takes its time, and some end meanwhile
  const hidden = hiddenBeside(all, filter);
  const some = all.slice(0, most);
  // Another node, or a newer result, may have changed them
  await Promise.all(some.map((one) => outbox.refresh(one).catch(() => false)));
  return { deliveries: some.map(undelivered), hidden };
}

function undelivered(pending: Pending): Undelivered {
  const { id, folder, place, delivery } = pending;
  const { subject, request_id, asked_at, priority } = delivery;
  return {
    id,
    subject,
    request_id,
    asked_at,
    priority,
    replaced: place !== "",
    receipt_path: receiptPath(pending),
    destinations: Object.fromEntries(
      Object.entries(delivery.destinations).map(([to, objects]) => [
        to,
        (objects ?? []).map((one) => ({ ...one, path: `${folder}/${one.path}` })),
      ]),
    ),
    events: (delivery.events ?? []).filter(isToTell),
  };
}

/** @returns whether it could change them */
type EditSetAside = (delivery: Delivery, name: string, objects: Delivered[]) => boolean;
type EditGivenUp = (delivery: Delivery, event: DeliveryEvent) => void;

/**
 * Changes what was set aside or given up, of the destinations of a filter. A result that cannot be
 * changed holds up no other.
 */
async function eachSetAside(
  filter: DeliveryFilter,
  edit: EditSetAside,
  editGivenUp?: EditGivenUp,
): Promise<Changed> {
  const all = chosen(filter);
  const changed: Changed = {
    results: [],
    waiting: 0,
    without_destination: 0,
    messages: 0,
    failed: [],
    hidden: hiddenBeside(all, filter),
    chosen: all.length,
  };
  for (const pending of all) {
    const receipt_path = receiptPath(pending);
    try {
      const one = await changeSetAside(pending, filter, edit, editGivenUp);
      const results = one.results.map((part) => ({ id: pending.id, receipt_path, ...part }));
      changed.results.push(...results);
      changed.waiting += one.waiting;
      changed.without_destination += one.without_destination;
      changed.messages += one.messages;
    } catch (error) {
      // Whoever names one is answered with that
      if (filter.id !== undefined) throw error;
      const { request_id } = pending.delivery;
      log.warn(
        { request_id, fault: faultForLog(error) },
        "what was set aside of a result could not be changed",
      );
      const { code, message } = asRadserveError(error);
      changed.failed.push({ id: pending.id, receipt_path, error: code, message });
    }
  }
  for (const lane of lanes.values()) lane.wake();
  return changed;
}

const receiptPath = ({ folder, name }: Pending) => `${folder}/${receiptName(name)}`;

/**
 * The same of one result. @returns what was changed, once that is written
 * @throws RadserveError where its file cannot be read or written, or is not trusted
 */
async function changeSetAside(
  pending: Pending,
  filter: DeliveryFilter,
  edit: EditSetAside,
  editGivenUp: EditGivenUp | undefined,
) {
  const results: { destination: string; objects: number }[] = [];
  const changed = { results, waiting: 0, without_destination: 0, messages: 0 };
  await outbox.change(pending, (delivery) => {
    for (const event of editGivenUp === undefined ? [] : givenUp(delivery, filter)) {
      changed.messages += 1;
      editGivenUp?.(delivery, event);
      pending.notBefore.delete(turnName({ destination: event.webhook, stage: "tell" }));
    }
    for (const [destination, objects] of Object.entries(delivery.destinations)) {
      if ((filter.destination ?? destination) !== destination) continue;
      changed.waiting += (objects ?? []).filter(isUnderway).length;
      const some = (objects ?? []).filter(isSetAside);
      if (some.length === 0) continue;
      if (!edit(delivery, destination, some)) {
        changed.without_destination += some.length;
        continue;
      }
      for (const stage of ["send", "prove"] as const)
        pending.notBefore.delete(turnName({ destination, stage }));
      results.push({ destination, objects: some.length });
    }
  });
  return changed;
}

const givenUp = ({ events = [] }: Delivery, { destination }: DeliveryFilter) =>
  events.filter(
    (one) => one.state === "given_up" && (destination ?? one.destination) === one.destination,
  );

/** Takes objects off a destination, and the destination where nothing is left of it. */
function without(delivery: Delivery, name: string, some: readonly Delivered[]): void {
  const left = (delivery.destinations[name] ?? []).filter((one) => !some.includes(one));
  const others = Object.entries(delivery.destinations).filter(([other]) => other !== name);
  delivery.destinations = Object.fromEntries(left.length > 0 ? [...others, [name, left]] : others);
}

/**
 * Sends again what was set aside. @param to another destination than that which it was for
 */
async function retry(filter: DeliveryFilter, to: string | undefined): Promise<Changed> {
  const again = (delivery: Delivery, name: string, some: Delivered[]) => {
    const target = to ?? name;
    // Of a name that the settings do not have, only a move helps
    if (!lanes.has(target)) return false;
    const waiting = some.map(asNew);
    without(delivery, name, some);
    const isAmong = (all: readonly Delivered[], { sop_instance_uid: uid }: Delivered) =>
      all.some((one) => one.sop_instance_uid === uid);
    // What was set aside there, too, is tried again there
    const there = (delivery.destinations[target] ?? []).map((one) =>
      isSetAside(one) && isAmong(some, one) ? asNew(one) : one,
    );
    const fresh = waiting.filter((one) => !isAmong(there, one));
    delivery.destinations[target] = [...there, ...fresh];
    return true;
  };
  // A move to another destination is about objects alone
  return eachSetAside(filter, again, to === undefined ? (_, event) => dueAgain(event) : undefined);
}

/** Gives up what was set aside: nothing of it is sent any more, and its file says so no longer. */
function drop(filter: DeliveryFilter): Promise<Changed> {
  const giveUp = (delivery: Delivery, name: string, some: Delivered[]) => {
    without(delivery, name, some);
    return true;
  };
  return eachSetAside(filter, giveUp, (delivery, event) => {
    delivery.events = delivery.events?.filter((one) => one !== event);
  });
}

function tellFigures(): void {
  const figures: DeliveryFigures = {};
  const figuresOf = (name: string) =>
    (figures[name] ??= {
      waiting: 0,
      sent: 0,
      set_aside: 0,
      away_since: lanes.get(name)?.awaySince?.toISOString() ?? null,
      silent_since: lanes.get(name)?.silentSince?.toISOString() ?? null,
      totals: { ...lanes.get(name)?.totals },
    });
  for (const name of lanes.keys()) figuresOf(name);
  const messages: Record<string, WebhookFigures> = {};
  for (const [name, lane] of webhookLanes) {
    const away_since = lane.awaySince?.toISOString() ?? null;
    messages[name] = { due: 0, given_up: 0, away_since, totals: { ...lane.totals } };
  }
  for (const { delivery } of outbox.pending) {
    for (const { webhook, state } of delivery.events ?? []) {
      const counts = messages[webhook];
      if (counts !== undefined && state !== "told") counts[state] += 1;
    }
    for (const [name, objects] of Object.entries(delivery.destinations))
      for (const object of objects ?? []) {
        if (object.state === "sent") figuresOf(name).sent += 1;
        else if (isUnderway(object)) figuresOf(name).waiting += 1;
        else if (isSetAside(object)) figuresOf(name).set_aside += 1;
      }
  }
  const { untrusted, unreadable } = outbox;
  const all = { destinations: figures, webhooks: messages, untrusted, unreadable };
  const text = JSON.stringify(all);
  if (text !== figuresTold) owner.note.figures(all);
  figuresTold = text;
}
