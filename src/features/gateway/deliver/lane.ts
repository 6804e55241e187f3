/**
 * The way to one destination: what is due is sent, and read back, some objects at a time. One node
 * at a time sends to a destination, so that what is urgent goes first whoever has it. A destination
 * that is away delays nothing but its own.
 */
import { setTimeout as delay } from "node:timers/promises";
import { backOff } from "../../../base/back-off.js";
import { durations } from "../../../base/durations.js";
import { groupsOf } from "../../../base/groups.js";
import { monotonic } from "../../../base/monotonic.js";
import { faultForLog, type Logger } from "../../../base/log.js";
import { NameLock } from "../../../files/name-lock.js";
import type { Delivered, Delivery, DeliveryState } from "../../../results/receipt/delivery.js";
import { belongsTo } from "../../../results/receipt/names.js";
import { gatewayRetry } from "../retry.js";
import type { Destination, ObjectToSend, Proved, Sent } from "./destination.js";
import type { DeliveryTold } from "./messages.js";
import { isUnderway, objectsFor, objectToSend, type Outbox, type Pending } from "./outbox.js";

/**
 * Objects that are sent over one association or in requests one after the other, before something
 * more urgent may go.
 */
const MOST_OBJECTS = 64;
/** Times that a destination may fail with an object, or say that it has one and have it not. */
const MOST_TRIES = 5;
const PROVED_AT_ONCE = 4;

/** What becomes of an object by an answer. */
type DeliveryChange = Pick<Delivered, "state"> &
  Partial<Pick<Delivered, "how" | "reason" | "warning" | "coerced">> & { failed?: boolean };

function afterSending(sent: Sent, proves: boolean): DeliveryChange {
  if (sent.state === "stored")
    return {
      state: proves ? "sent" : "accepted",
      ...(sent.warning === undefined ? {} : { warning: sent.warning }),
    };
  if (sent.state === "refused") return { state: "refused", reason: sent.reason };
  return {
    state: "waiting",
    reason: sent.reason,
    ...(sent.answered === true ? { failed: true } : {}),
  };
}

function afterProof(proved: Proved): DeliveryChange {
  switch (proved.state) {
    case "proven": {
      const { how, coerced } = proved;
      return { state: "proven", how, ...(coerced === undefined ? {} : { coerced }) };
    }
    case "differs":
    case "missing":
      return { state: "waiting", reason: `${proved.state}: ${proved.reason}`, failed: true };
    case "not_provable":
      return { state: "accepted", reason: proved.reason };
    case "away":
      return { state: "sent", reason: proved.reason };
  }
}

/**
 * Writes an answer down. What failed too often is set aside: unproven if the destination said once
 * that it has it.
 */
function apply(object: Delivered, { failed, ...change }: DeliveryChange): void {
  const { state } = object;
  const tries = object.tries + (failed === true ? 1 : 0);
  const next: DeliveryState =
    tries < MOST_TRIES || failed !== true
      ? change.state
      : state === "sent"
        ? "unproven"
        : "refused";
  const at = next === state ? object.at : new Date().toISOString();
  delete object.how;
  delete object.reason;
  Object.assign(object, change, { tries, at, state: next });
}

/** A result on its way. */
interface Going {
  pending: Pending;
  /** What is to be sent or proven, by SOP Instance UID. */
  objects: Map<string, ObjectToSend>;
  /** Of these, what was sent now and not stored. */
  unstored: Set<string>;
  /** Resolves when what has become of it stands beside its receipt. */
  written: Promise<void>;
}

const GONE: DeliveryChange = { state: "refused", reason: "Its file is not there any more." };

export interface DestinationLaneOptions {
  name: string;
  destination: Destination;
  /** What it is sent is read back. */
  proves: boolean;
  outbox: Outbox;
  /** The folder of the queue. */
  queue: string;
  log: Logger;
  /**
   * Resolves when what a process before has left was looked at, so that what is urgent goes first.
   */
  ready: Promise<unknown>;
  /** Called when something was sent or proven: what that took is free. */
  rested: () => void;
  /**
   * Resolves when the audit has the line of what will be sent. @throws RadserveError audit_failed
   */
  asked: (told: DeliveryTold) => Promise<void>;
  /** The line of what has become of it, which holds up nothing. */
  became: (told: DeliveryTold) => void;
}

export class DestinationLane {
  /** Objects by what became of them, since the thread began. */
  readonly totals: Partial<Record<DeliveryState, number>> = {};
  #failures = 0;
  /** The back-off is over. */
  #waited = false;
  #awaySince: Date | undefined;
  #alarm = new AbortController();
  readonly #closing = new AbortController();
  #lock: NameLock | undefined;
  readonly #writing = new Set<Promise<void>>();
  readonly #loop: Promise<void>;

  constructor(private readonly options: DestinationLaneOptions) {
    this.#loop = this.#run();
  }

  /** Since when the destination is away; undefined if it is not, as far as anybody has tried. */
  get awaySince(): Date | undefined {
    return this.#awaySince;
  }

  /** Something may be due. */
  wake(): void {
    this.#alarm.abort();
  }

  async close(): Promise<void> {
    this.#closing.abort();
    this.wake();
    this.options.destination.close();
    await this.#loop;
  }

  async #run(): Promise<void> {
    const { outbox, name, log, ready } = this.options;
    await ready;
    while (!this.#isClosed()) {
      this.#alarm = new AbortController();
      try {
        const due = this.#failures === 0 || this.#waited ? outbox.due(name, monotonic()) : [];
        this.#waited = false;
        if (due.length > 0) {
          await this.#deliver(due);
          continue;
        }
      } catch (error) {
        if (this.#isClosed()) break;
        log.warn(
          { destination: name, fault: faultForLog(error) },
          "results could not be delivered; it is tried again",
        );
        this.#away();
      }
      await this.#rest();
    }
    await Promise.all(this.#writing);
    await this.#release();
  }

  /** Waits until something is due; while the destination is away, until it is tried again. */
  async #rest(): Promise<void> {
    // Another node may reach what this one does not, but would send again what does not stand
    // beside its receipt yet
    if (this.#writing.size === 0) await this.#release();
    const next = this.options.outbox.nextDue(this.options.name);
    const until = this.#failures > 0 ? backOff(this.#failures, gatewayRetry()) : next - monotonic();
    const ms = Math.max(0, Math.min(until, durations.gatewayRetryMost));
    const signal = this.#failures > 0 ? this.#closing.signal : this.#alarm.signal;
    await delay(ms, undefined, { signal }).catch(() => undefined);
    this.#waited = true;
  }

  async #release(): Promise<void> {
    await this.#lock?.release();
    this.#lock = undefined;
  }

  async #take(): Promise<void> {
    if (this.#lock !== undefined && (await this.#lock.isHeld())) return;
    await this.#release();
    const check = () => this.#closing.signal.throwIfAborted();
    const limits = { check, pauseMs: durations.deliveryLook / 4 };
    this.#lock = await NameLock.take(this.options.queue, `to-${this.options.name}`, limits);
  }

  async #deliver(due: readonly Pending[]): Promise<void> {
    await this.#take();
    const { name } = this.options;
    const going: Going[] = [];
    let count = 0;
    for (const pending of due) {
      if (count >= MOST_OBJECTS) break;
      pending.busy.add(name);
      const objects = await this.#objectsOf(pending);
      count += objects.size;
      going.push({ pending, objects, unstored: new Set(), written: Promise.resolve() });
    }
    try {
      await this.#send(going);
      await this.#prove(going);
    } finally {
      this.options.rested();
      // Whoever computes a newer result has NAME, and nothing else waits for that
      for (const { pending, written } of going) {
        const done = written.finally(() => this.#done(pending, done));
        this.#writing.add(done);
      }
    }
  }

  #done({ busy }: Pending, done: Promise<void>): void {
    this.#writing.delete(done);
    busy.delete(this.options.name);
    this.wake();
  }

  /** What is to be sent or proven of a result: nothing where it cannot be read now. */
  async #objectsOf(pending: Pending): Promise<Map<string, ObjectToSend>> {
    const { outbox, name, log } = this.options;
    const found = new Map<string, ObjectToSend>();
    const gone: [string, DeliveryChange][] = [];
    const later = durations.gatewayRetry;
    try {
      if (!(await outbox.refresh(pending)) || (await outbox.waitsForOlder(pending, name)))
        pending.notBefore.set(name, monotonic() + later);
      else
        for (const object of objectsFor(pending, name)) {
          const place = [pending.folder, pending.place, object.path].filter((part) => part !== "");
          // Nobody else's file, whatever somebody has written beside the receipt
          const isOurs = belongsTo(pending.name, object.path);
          const toSend = isOurs
            ? await objectToSend(place.join("/"), pending.study, object)
            : undefined;
          if (toSend === undefined) gone.push([object.sop_instance_uid, GONE]);
          else found.set(object.sop_instance_uid, toSend);
        }
      if (gone.length === 0) return found;
      // A newer result may have moved it away just now; then the file that names it went first
      if (await outbox.refresh(pending)) void this.#write(pending, gone);
    } catch (error) {
      const { request_id } = pending.delivery;
      const fault = faultForLog(error);
      log.warn({ destination: name, request_id, fault }, "the files of a result cannot be read");
    }
    pending.notBefore.set(name, monotonic() + later);
    return new Map();
  }

  async #send(going: readonly Going[]): Promise<void> {
    const { destination, name, proves, log } = this.options;
    const sending = going.map((one) => ({
      one,
      objects: objectsFor(one.pending, name).flatMap(({ state, sop_instance_uid }) =>
        state === "waiting" ? (one.objects.get(sop_instance_uid) ?? []) : [],
      ),
    }));
    const some = sending.filter(({ objects }) => objects.length > 0);
    if (some.length === 0) return;
    const began = performance.now();
    // Nothing leaves that is not written down
    await Promise.all(
      some.map(({ one, objects }) =>
        this.options.asked(this.#told(one.pending, "asked", objects.length)),
      ),
    );
    const all = new Map(
      some.flatMap(({ objects }) => objects).map((one) => [one.sop_instance_uid, one]),
    );
    const answers = new Map<string, Sent>();
    for await (const [uid, sent] of destination.send([...all.values()], this.#closing.signal))
      answers.set(uid, sent);
    const answerOf = (uid: string): Sent =>
      answers.get(uid) ?? {
        state: "away",
        reason: "The destination did not say what became of it.",
      };
    // What a stop has broken off is sent again by the next process, and is no news
    const isTold = (uid: string) => !this.#isClosed() || answerOf(uid).state === "stored";
    for (const { one, objects } of some) {
      for (const { sop_instance_uid: uid } of objects)
        if (answerOf(uid).state !== "stored") one.unstored.add(uid);
      one.written = this.#write(
        one.pending,
        objects
          .map(({ sop_instance_uid: uid }) => uid)
          .filter(isTold)
          .map((uid) => [uid, afterSending(answerOf(uid), proves)]),
      );
    }
    const stored = [...answers.values()].filter(({ state }) => state === "stored").length;
    const ms = Math.round(performance.now() - began);
    const told = { destination: name, results: some.length, objects: all.size, stored, ms };
    if (stored === all.size) log.info(told, "results were sent");
    else log.warn(told, "results were not all stored");
    const isAway = (answer: Sent) => answer.state === "away" && answer.answered !== true;
    if ([...all.keys()].some((uid) => isAway(answerOf(uid)))) this.#away();
    else this.#reached();
  }

  /** Reads back what was sent now, or by a process before. */
  async #prove(going: readonly Going[]): Promise<void> {
    if (!this.options.proves) return;
    for (const some of groupsOf(going, PROVED_AT_ONCE))
      await Promise.all(some.map((one) => this.#proveOne(one)));
  }

  async #proveOne(one: Going): Promise<void> {
    const { destination } = this.options;
    const { signal } = this.#closing;
    const changes: [string, DeliveryChange][] = [];
    for (const [uid, object] of one.objects) {
      if (one.unstored.has(uid) || signal.aborted) continue;
      const proved = await destination.prove(object, signal);
      if (this.#isClosed()) break;
      if (proved.state === "away") this.#away();
      else this.#reached();
      changes.push([uid, afterProof(proved)]);
    }
    if (changes.length > 0) {
      const before = one.written;
      one.written = before.then(() => this.#write(one.pending, changes));
    }
  }

  #isClosed(): boolean {
    return this.#closing.signal.aborted;
  }

  #away(): void {
    this.#failures += 1;
    this.#awaySince ??= new Date();
  }

  #reached(): void {
    this.#failures = 0;
    this.#awaySince = undefined;
  }

  /**
   * Writes answers into the file beside the receipt, and what is new of them into the audit. It
   * never throws.
   */
  async #write(pending: Pending, answers: Iterable<[string, DeliveryChange]>): Promise<void> {
    const { outbox, name, log } = this.options;
    const { request_id } = pending.delivery;
    const known = new Map(objectsFor(pending, name).map((one) => [one.sop_instance_uid, one]));
    // What says again that the destination is away need not wait for who has NAME
    const isNew = ([uid, { failed, state, reason }]: [string, DeliveryChange]) =>
      failed === true || state !== known.get(uid)?.state || reason !== known.get(uid)?.reason;
    const changes = new Map([...answers].filter(isNew));
    if (changes.size === 0) return;
    const news: Partial<Record<DeliveryState, number>> = {};
    let tries = 0;
    try {
      await outbox.change(pending, (delivery: Delivery) => {
        for (const object of delivery.destinations[name] ?? []) {
          const change = changes.get(object.sop_instance_uid);
          if (change === undefined || !isUnderway(object)) continue;
          const before = object.state;
          apply(object, change);
          if (change.failed === true) tries = Math.max(tries, object.tries);
          if (object.state !== before && object.state !== "waiting")
            news[object.state] = (news[object.state] ?? 0) + 1;
        }
      });
    } catch (error) {
      if (this.#isClosed()) return;
      log.warn(
        { destination: name, request_id, fault: faultForLog(error) },
        "what became of a result could not be written down",
      );
      pending.notBefore.set(name, monotonic() + durations.gatewayRetryMost);
    }
    if (tries > 0) pending.notBefore.set(name, monotonic() + backOff(tries, gatewayRetry()));
    for (const [state, count] of Object.entries(news) as [DeliveryState, number][]) {
      this.totals[state] = (this.totals[state] ?? 0) + count;
      if (state === "refused" || state === "unproven")
        log.warn(
          { destination: name, request_id, objects: count, state },
          "objects of a result were set aside",
        );
      this.options.became(this.#told(pending, state, count));
    }
  }

  #told({ study, delivery }: Pending, outcome: string, count: number): DeliveryTold {
    const { subject, request_id } = delivery;
    return { outcome, destination: this.options.name, study, subject, request_id, count };
  }
}
