/**
 * The way to one destination: what is due is sent, some objects at a time, and what was sent is
 * proven, in turns of their own, so that nothing waits behind a proof. A destination that is away
 * delays nothing but its own.
 */
import { durations } from "../../../base/durations.js";
import { groupsOf } from "../../../base/groups.js";
import { faultForLog, type Logger } from "../../../base/log.js";
import type { Delivered, Delivery, DeliveryState } from "../../../results/receipt/delivery.js";
import { belongsTo } from "../../../results/receipt/names.js";
import { newTransaction, NOT_NAMED } from "./commitment.js";
import type {
  CommitmentReport,
  Commitments,
  Destination,
  ObjectToSend,
  Proved,
  Sent,
} from "./destination.js";
import type { DeliveryTold } from "./messages.js";
import { objectsOfTurn, objectToSend, type Outbox, type Pending, type Turn } from "./outbox.js";
import {
  afterProof,
  afterRefusal,
  afterSending,
  afterSilence,
  apply,
  isDue,
  isUnderway,
  timeOfDay,
  type DeliveryChange,
  type ProofPolicy,
  type Stage,
} from "./progress.js";
import { Turns } from "./turns.js";

/** Objects that are sent in one turn, before something more urgent may go. */
const MOST_OF_TURN = 64;
/** Objects of one request for commitment; `call-back` has room for a report of so many. */
const MOST_OF_REQUEST = 64;
/** Results that are proven beside each other. */
const PROVED_AT_ONCE = 4;
/** Requests for commitment whose results are remembered here; all stand beside their receipts. */
const MOST_REQUESTS = 1000;

/** What becomes of an object, by what stands beside its receipt now. */
type Answer = (object: Delivered) => DeliveryChange | undefined;

const GONE: DeliveryChange = { state: "refused", reason: "Its file is not there any more." };
const MOVED = "A newer result has taken its place; it is sent from where it lies now.";

/** A result that is being sent, with what has its turn of it. */
interface Going {
  pending: Pending;
  objects: ObjectToSend[];
}

const pathOf = ({ folder, place }: Pick<Pending, "folder" | "place">, object: Delivered) =>
  [folder, place, object.path].filter((part) => part !== "").join("/");

export interface DestinationLaneOptions {
  name: string;
  destination: Destination;
  /** What it is sent is read back. */
  proves: boolean;
  policy: ProofPolicy;
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
  readonly #closing = new AbortController();
  readonly #sending: Turns;
  readonly #proving: Turns;
  /** Requests for commitment that were made here, by transaction, with their results. */
  readonly #requests = new Map<string, Pending>();
  /** Resolve when the requests for a result stand beside its receipt, by its id. */
  readonly #asking = new Map<string, Promise<void>>();
  /** Since when reports are taken here, in milliseconds since 1970. */
  readonly #since = timeOfDay();
  /** When something was stored for the last time, in milliseconds since 1970. */
  #storedAt = 0;

  constructor(private readonly options: DestinationLaneOptions) {
    const { outbox, queue, log, ready, destination } = options;
    const turns = (
      stage: Stage,
      atOnce: number,
      work: (due: readonly Pending[]) => Promise<void>,
    ) =>
      new Turns({
        turn: this.#turn(stage),
        closing: this.#closing.signal,
        outbox,
        queue,
        log,
        ready,
        atOnce,
        work,
      });
    this.#sending = turns("send", 1, (due) => this.#send(due));
    this.#proving = turns("prove", PROVED_AT_ONCE, ([one]) => this.#prove(one));
    void ready.then(() => {
      if (!this.#isClosed()) destination.commitments?.listen((report) => this.#reported(report));
    });
  }

  /** Since when the destination takes nothing; undefined if it does, as far as is known. */
  get awaySince(): Date | undefined {
    return this.#sending.awaySince;
  }

  /** Since when it answers no question for a proof. */
  get silentSince(): Date | undefined {
    return this.#proving.awaySince;
  }

  /** Something new may be due. */
  wake(): void {
    this.#sending.wake();
    this.#proving.wake();
  }

  async close(): Promise<void> {
    this.#closing.abort();
    this.options.destination.close();
    await Promise.all([this.#sending.ended(), this.#proving.ended()]);
  }

  #isClosed(): boolean {
    return this.#closing.signal.aborted;
  }

  #turn(stage: Stage): Turn<Stage> {
    return { destination: this.options.name, stage };
  }

  /** What has its turn of a result: nothing where it cannot be read now. */
  async #objectsOf(pending: Pending, stage: Stage): Promise<ObjectToSend[]> {
    const { outbox, name, log } = this.options;
    const turn = this.#turn(stage);
    const found: ObjectToSend[] = [];
    const gone: [string, Answer][] = [];
    try {
      const waits = stage === "send" && (() => outbox.waitsForOlder(pending, name));
      const isThere = await outbox.refresh(pending);
      const { place: looked } = pending;
      if (isThere && !(waits && (await waits())))
        for (const object of objectsOfTurn(pending, turn).filter(isDue)) {
          const file = pathOf({ folder: pending.folder, place: looked }, object);
          // Nobody else's file, whatever somebody has written beside the receipt
          const isOurs = belongsTo(pending.name, object.path);
          const toSend = isOurs ? await objectToSend(file, pending.study, object) : undefined;
          if (toSend === undefined) gone.push([object.sop_instance_uid, () => GONE]);
          else found.push(toSend);
        }
      if (gone.length === 0 && found.length > 0) return found;
      // A newer result may have moved it away just now, and the file that names it before
      if (gone.length > 0 && (await outbox.refresh(pending)) && pending.place === looked)
        void this.#write(pending, gone);
    } catch (error) {
      const { request_id } = pending.delivery;
      const fault = faultForLog(error);
      log.warn({ destination: name, request_id, fault }, "the files of a result cannot be read");
    }
    const turns = stage === "send" ? this.#sending : this.#proving;
    turns.postpone(pending, durations.gatewayRetry);
    return [];
  }

  async #send(due: readonly Pending[]): Promise<void> {
    const going: (Going & { written: Promise<void> })[] = [];
    let count = 0;
    for (const pending of due) {
      if (count >= MOST_OF_TURN) break;
      this.#sending.began(pending);
      const objects = await this.#objectsOf(pending, "send");
      count += objects.length;
      going.push({ pending, objects, written: Promise.resolve() });
    }
    try {
      const some = going.filter(({ objects }) => objects.length > 0);
      // Nothing leaves that is not written down
      await Promise.all(
        some.map(({ pending, objects }) =>
          this.options.asked(this.#told(pending, "asked", objects.length)),
        ),
      );
      const answers = await this.#sendAll(some);
      for (const one of some)
        one.written = this.#write(
          one.pending,
          one.objects.flatMap(({ sop_instance_uid: uid }) => {
            const answer = answers.get(uid);
            return answer === undefined ? [] : [[uid, answer]];
          }),
        );
    } finally {
      this.options.rested();
      for (const { pending, written } of going) this.#sending.wrote(pending, written);
    }
  }

  /**
   * A newer result may have taken the place of one while that had its turn: what was found there is
   * no word about the old one, which is sent from where it lies now.
   */
  async #lookForMoved({ pending, objects }: Going, answers: Map<string, Sent>): Promise<void> {
    const { outbox, name } = this.options;
    const changed = objects.filter(({ sop_instance_uid: uid }) => {
      const sent = answers.get(uid);
      return sent?.state === "refused" && sent.changed === true;
    });
    if (changed.length === 0) return;
    const isThere = await outbox.refresh(pending).catch(() => false);
    const now = isThere ? (pending.delivery.destinations[name] ?? []) : [];
    const places = new Set(now.map((one) => pathOf(pending, one)));
    for (const { path, sop_instance_uid: uid } of changed)
      if (!places.has(path))
        answers.set(uid, { state: "away", reason: MOVED, local: true, untried: true });
  }

  /** @returns what becomes of each object, by UID */
  async #sendAll(some: readonly Going[]): Promise<Map<string, Answer>> {
    const { destination, name, proves, log } = this.options;
    const objects = some.flatMap((one) => one.objects);
    const all = new Map(objects.map((one) => [one.sop_instance_uid, one]));
    if (all.size === 0) return new Map();
    const began = performance.now();
    const answers = new Map<string, Sent>();
    for await (const [uid, sent] of destination.send([...all.values()], this.#closing.signal))
      answers.set(uid, sent);
    for (const uid of all.keys())
      if (!answers.has(uid))
        answers.set(uid, {
          state: "away",
          reason: "The destination did not say what became of it.",
        });
    for (const one of some) await this.#lookForMoved(one, answers);
    const sents = [...answers.values()];
    const stored = sents.filter(({ state }) => state === "stored").length;
    const [storedAt, endedAt] = [this.#storedAt, timeOfDay()];
    if (stored > 0) this.#storedAt = endedAt;
    const ms = Math.round(performance.now() - began);
    const told = { destination: name, results: some.length, objects: all.size, stored, ms };
    if (stored === all.size) log.info(told, "results were sent");
    else log.warn(told, "results were not all stored");
    // What was not sent, or cannot be read here, says nothing of the destination
    const isAway = (sent: Sent) =>
      sent.state === "away" && !(sent.answered ?? sent.local ?? sent.untried ?? false);
    const isFull = (sent: Sent) => isAway(sent) && "full" in sent;
    const isAnswer = (sent: Sent) => sent.state !== "away" || sent.answered === true;
    if (stored > 0) this.#sending.reached();
    else if (sents.some((sent) => isAway(sent) && !isFull(sent))) this.#sending.away();
    else if (sents.some(isFull)) this.#sending.full();
    else if (sents.some(isAnswer)) this.#sending.reached();
    const turn = { proves, storedSome: stored > 0, storedAt, endedAt };
    return new Map(
      [...answers]
        // What a stop has broken off is sent again by the next process, and is no news
        .filter(([, sent]) => !this.#isClosed() || sent.state === "stored")
        .map(([uid, sent]) => [uid, (object) => afterSending(object, sent, turn)]),
    );
  }

  /** Has the destination prove what was sent now, or by a process before. */
  async #prove(pending: Pending | undefined): Promise<void> {
    if (pending === undefined) return;
    this.#proving.began(pending);
    let written: Promise<void> = Promise.resolve();
    let settle: () => void = () => undefined;
    const { commitments } = this.options.destination;
    if (commitments !== undefined)
      this.#asking.set(pending.id, new Promise((resolve) => (settle = resolve)));
    try {
      const objects = await this.#objectsOf(pending, "prove");
      const answers =
        commitments === undefined
          ? await this.#readBack(objects)
          : await this.#askFor(pending, objects, commitments);
      written = this.#write(pending, answers);
    } finally {
      this.options.rested();
      const stands = () => {
        this.#asking.delete(pending.id);
        settle();
      };
      this.#proving.wrote(pending, written.finally(stands));
    }
  }

  /** Notes whether the destination is there. @returns whether it is */
  #heard(answer: Proved | "asked"): boolean {
    // One object that it always fails with says nothing of the others
    const isAway = answer !== "asked" && answer.state === "away" && answer.answered !== true;
    const isLocal = isAway && answer.local === true;
    if (!isAway) this.#proving.reached();
    else if (!isLocal) this.#proving.away();
    return !isAway || isLocal;
  }

  async #readBack(objects: readonly ObjectToSend[]): Promise<[string, Answer][]> {
    const { destination, policy } = this.options;
    const { signal } = this.#closing;
    const answers: [string, Answer][] = [];
    for (const object of objects) {
      if (signal.aborted) break;
      const proved = await destination.prove(object, signal);
      if (this.#isClosed()) break;
      answers.push([object.sop_instance_uid, (one) => afterProof(one, proved, policy)]);
      // The others of the result have the next turn
      if (!this.#heard(proved)) break;
    }
    return answers;
  }

  /** Asks for commitment to objects; the reports come when the peer likes. */
  async #askFor(
    pending: Pending,
    objects: readonly ObjectToSend[],
    commitments: Commitments,
  ): Promise<[string, Answer][]> {
    const { policy } = this.options;
    const known = new Map(
      pending.delivery.destinations[this.options.name]?.map((one) => [one.sop_instance_uid, one]),
    );
    const answers: [string, Answer][] = [];
    const toAsk: ObjectToSend[] = [];
    for (const object of objects) {
      const { sop_instance_uid: uid } = object;
      const one = known.get(uid);
      const late = one && afterSilence(one, policy, this.#since);
      if (late === undefined) toAsk.push(object);
      else answers.push([uid, () => late]);
    }
    for (const some of groupsOf(toAsk, MOST_OF_REQUEST)) {
      const transaction = newTransaction(pending.id);
      // The report may come before the answer
      this.#remember(transaction, pending);
      const answer = await commitments
        .ask(transaction, some, this.#closing.signal)
        .catch((error: unknown): Proved => ({
          state: "away",
          reason: error instanceof Error ? error.message : String(error),
        }));
      if (this.#isClosed()) break;
      const isAsked = answer === "asked";
      for (const { sop_instance_uid: uid } of some)
        answers.push([
          uid,
          isAsked
            ? () => ({
                state: "sent",
                reason: "The peer was asked to commit to it, and has not reported yet.",
                vain: "tried",
                pause: "commitment",
                transaction,
              })
            : (one) => afterRefusal(one, answer, policy, this.#since),
        ]);
      if (!this.#heard(answer)) break;
    }
    return answers;
  }

  #remember(transaction: string, pending: Pending): void {
    this.#requests.set(transaction, pending);
    const [oldest] = this.#requests.keys();
    if (this.#requests.size > MOST_REQUESTS && oldest !== undefined) this.#requests.delete(oldest);
  }

  /** A report has come, whoever has asked. @returns whether it is of a result of ours */
  async #reported({ transaction, outcomes }: CommitmentReport): Promise<boolean> {
    const { outbox, name, policy } = this.options;
    const found = () => this.#requests.get(transaction) ?? outbox.ofTransaction(transaction, name);
    let pending = found();
    if (pending === undefined) {
      // Another node may have asked
      await outbox.refreshAll(name);
      pending = found();
    }
    if (pending === undefined) return false;
    const of = pending;
    const answer: Answer = (object) => {
      if (object.transactions?.includes(transaction) !== true) return undefined;
      const proved = outcomes.get(object.sop_instance_uid) ?? NOT_NAMED;
      // That it is not there, the last request alone says, of what was not sent again since
      const isLast = object.transactions.at(-1) === transaction && object.state === "sent";
      if (proved.state !== "proven" && !isLast) return undefined;
      return afterProof(object, proved, policy, "answered");
    };
    const written = this.#asking.get(of.id) ?? Promise.resolve();
    void written.then(() => {
      const uids = of.delivery.destinations[name]?.map((one) => one.sop_instance_uid) ?? [];
      return this.#write(
        of,
        uids.map((uid) => [uid, answer]),
      );
    });
    return true;
  }

  /**
   * Writes answers into the file beside the receipt, and what is new of them into the audit. It
   * never throws.
   */
  async #write(pending: Pending, all: Iterable<[string, Answer]>): Promise<void> {
    const { outbox, name, log } = this.options;
    const { request_id } = pending.delivery;
    const objects = pending.delivery.destinations[name] ?? [];
    const known = new Map(objects.map((one) => [one.sop_instance_uid, one]));
    // What says again that the destination is away need not wait for who has NAME
    const isNew = ([uid, answer]: [string, Answer]) => {
      const object = known.get(uid);
      const change = object && answer(object);
      return change === undefined
        ? object === undefined
        : change.vain !== undefined ||
            change.failed === true ||
            change.state !== object?.state ||
            change.reason !== object.reason;
    };
    const answers = new Map([...all].filter(isNew));
    if (answers.size === 0) return;
    const news: Partial<Record<DeliveryState, number>> = {};
    try {
      await outbox.change(pending, (delivery: Delivery) => {
        for (const object of delivery.destinations[name] ?? []) {
          const change = answers.get(object.sop_instance_uid)?.(object);
          // A success that is reported late counts
          const isLate = object.state === "unproven" && change?.state === "proven";
          if (change === undefined || !(isUnderway(object) || isLate)) continue;
          const before = object.state;
          apply(object, change);
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
      for (const turns of [this.#sending, this.#proving])
        turns.postpone(pending, durations.gatewayRetryMost);
    }
    for (const turns of [this.#sending, this.#proving]) turns.again();
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
