/**
 * The thread that delivers: the queue, the ways to the destinations, and whoever waits for an
 * outcome, so that none of it holds up the thread that serves HTTP.
 */
import { workerData } from "node:worker_threads";
import { givingBack } from "../../../addon/idle.js";
import { durations } from "../../../base/durations.js";
import { createLog, faultForLog } from "../../../base/log.js";
import { answerOwner } from "../../../base/service-thread.js";
import { within } from "../../../base/waiting.js";
import { deliveryName } from "../../../files/helper-names.js";
import { receiptName } from "../../../results/receipt/names.js";
import { readDelivery, type Delivered, type Delivery } from "../../../results/receipt/delivery.js";
import { isInside } from "../../../files/roots.js";
import type { OutboxEntry } from "./entry.js";
import { DestinationLane } from "./lane.js";
import type {
  Changed,
  DeliverThreadOptions,
  DeliveryFigures,
  DeliveryFilter,
  DeliverOwner,
  DeliverThread,
  Undelivered,
} from "./messages.js";
import { openDestination } from "./open-destination.js";
import { proofPolicy } from "./destination-settings.js";
import { isSetAside, isUnderway, Outbox, turnName, type Pending } from "./outbox.js";
import { asNew } from "./progress.js";

const { config, outputRoots, queue, destinations } = workerData as DeliverThreadOptions;
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
    await Promise.all([...lanes.values()].map((lane) => lane.close()));
    outbox.close();
  },
};
const owner = answerOwner<DeliverOwner>(methods);
let hurried = false;
let told = "";

const rested = givingBack();
const lanes = new Map<string, DestinationLane>();
const outbox = new Outbox({
  folder: queue,
  outputRoots,
  destinations,
  log,
  minimumFreeBytes: config.minimum_free_disk,
  found: () => {
    for (const lane of lanes.values()) lane.wake();
  },
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
      asked: (told) => owner.call.asked(told),
      became: (told) => owner.note.became(told),
    }),
  );

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
      if (hurried || !pending.delivery.open) end();
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

async function list(filter: DeliveryFilter, most: number): Promise<Undelivered[]> {
  const some = chosen(filter).slice(0, most);
  // Another node, or a newer result, may have changed them
  await Promise.all(some.map((one) => outbox.refresh(one).catch(() => false)));
  return some.map(undelivered);
}

function undelivered({ id, folder, name, place, delivery }: Pending): Undelivered {
  const { subject, request_id, asked_at, priority } = delivery;
  return {
    id,
    subject,
    request_id,
    asked_at,
    priority,
    replaced: place !== "",
    receipt_path: `${folder}/${receiptName(name)}`,
    destinations: Object.fromEntries(
      Object.entries(delivery.destinations).map(([to, objects]) => [
        to,
        (objects ?? []).map((one) => ({ ...one, path: `${folder}/${one.path}` })),
      ]),
    ),
  };
}

/** Changes what was set aside, of the destinations of a filter. */
async function eachSetAside(
  filter: DeliveryFilter,
  edit: (delivery: Delivery, name: string, objects: Delivered[]) => boolean,
): Promise<Changed> {
  const all = chosen(filter);
  const changed: Changed = {
    results: [],
    waiting: 0,
    without_destination: 0,
    chosen: all.length,
  };
  for (const pending of all) {
    const { id, folder } = pending;
    const receipt_path = `${folder}/${receiptName(pending.name)}`;
    await outbox.change(pending, (delivery) => {
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
        changed.results.push({ id, receipt_path, destination, objects: some.length });
      }
    });
  }
  for (const lane of lanes.values()) lane.wake();
  return changed;
}

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
  return eachSetAside(filter, (delivery, name, some) => {
    const target = to ?? name;
    // Of a name that the settings do not have, only a move helps
    if (!lanes.has(target)) return false;
    const waiting = some.map(asNew);
    without(delivery, name, some);
    const there = delivery.destinations[target] ?? [];
    const isNew = ({ sop_instance_uid: uid }: Delivered) =>
      !there.some((one) => one.sop_instance_uid === uid);
    delivery.destinations[target] = [...there, ...waiting.filter(isNew)];
    return true;
  });
}

/** Gives up what was set aside: nothing of it is sent any more, and its file says so no longer. */
function drop(filter: DeliveryFilter): Promise<Changed> {
  return eachSetAside(filter, (delivery, name, some) => {
    without(delivery, name, some);
    return true;
  });
}

function tellFigures(): void {
  const figures: DeliveryFigures = {};
  const of = (name: string) =>
    (figures[name] ??= {
      waiting: 0,
      sent: 0,
      set_aside: 0,
      away_since: lanes.get(name)?.awaySince?.toISOString() ?? null,
      silent_since: lanes.get(name)?.silentSince?.toISOString() ?? null,
      totals: { ...lanes.get(name)?.totals },
    });
  for (const name of lanes.keys()) of(name);
  for (const { delivery } of outbox.pending)
    for (const [name, objects] of Object.entries(delivery.destinations))
      for (const object of objects ?? []) {
        if (object.state === "sent") of(name).sent += 1;
        else if (isUnderway(object)) of(name).waiting += 1;
        else if (isSetAside(object)) of(name).set_aside += 1;
      }
  const { untrusted } = outbox;
  const text = JSON.stringify([figures, untrusted]);
  if (text !== told) owner.note.figures(figures, untrusted);
  told = text;
}
