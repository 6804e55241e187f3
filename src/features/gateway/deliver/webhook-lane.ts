/**
 * The way to one webhook: it is told what became of results, one message after the other, in turns
 * of its own, so that nothing waits behind it. What it was told stands beside the receipts.
 */
import { ConfigError } from "../../../base/errors.js";
import { durations } from "../../../base/durations.js";
import { faultForLog, type Logger } from "../../../base/log.js";
import { openFile } from "../../../images/dicom/dicom-file.js";
import type { DeliveryEvent } from "../../../results/receipt/delivery.js";
import { belongsTo, receiptName } from "../../../results/receipt/names.js";
import { bytesToSend } from "./destination.js";
import { dueFor } from "./events.js";
import type { DeliveryTold } from "./messages.js";
import { objectToSend, type Outbox, type Pending, type Turn } from "./outbox.js";
import { isDue, timeOfDay } from "./progress.js";
import { Turns } from "./turns.js";
import { post, type Posted, type WebhookMessage } from "./webhook.js";
import type { WebhookSettings } from "./webhook-settings.js";

export interface WebhookLaneOptions {
  name: string;
  settings: WebhookSettings;
  /** The name of this node. */
  node: string;
  outbox: Outbox;
  /** The folder of the queue. */
  queue: string;
  log: Logger;
  /** Resolves when what a process before has left was looked at. */
  ready: Promise<unknown>;
  /**
   * Resolves when the audit has the line of what will be sent. @throws RadserveError audit_failed
   */
  asked: (told: DeliveryTold) => Promise<void>;
  /** The line of what has become of it, which holds up nothing. */
  became: (told: DeliveryTold) => void;
}

type EventState = DeliveryEvent["state"];
/** What becomes of a message. */
type Change = Pick<DeliveryEvent, "state" | "reason"> & {
  /** The webhook has answered, and did not take it: a pause comes. */
  answered?: true;
};

/** A webhook that fails with so many messages takes none, as far as is known. */
const MOST_FAILING = 3;

export class WebhookLane {
  /** Messages by what became of them, since the thread began. */
  readonly totals: Partial<Record<EventState, number>> = {};
  readonly #closing = new AbortController();
  readonly #turns: Turns;
  /**
   * Messages with which the webhook has failed since it took or refused one: they go after others.
   */
  readonly #failing = new Set<string>();

  constructor(private readonly options: WebhookLaneOptions) {
    const { outbox, queue, log, ready } = options;
    this.#turns = new Turns({
      turn: this.#turn,
      closing: this.#closing.signal,
      outbox,
      queue,
      log,
      ready,
      atOnce: 1,
      work: (due) => this.#tell(due),
    });
  }

  /** Since when the webhook takes nothing; undefined if it does, as far as is known. */
  get awaySince(): Date | undefined {
    return this.#turns.awaySince;
  }

  /** Something may be to be told. A webhook that is away has its pause all the same. */
  wake(): void {
    this.#turns.again();
  }

  async close(): Promise<void> {
    this.#closing.abort();
    await this.#turns.ended();
  }

  get #turn(): Turn<"tell"> {
    return { destination: this.options.name, stage: "tell" };
  }

  async #tell(due: readonly Pending[]): Promise<void> {
    const hasFailed = ({ delivery }: Pending) =>
      dueFor(delivery, this.options.name).some(({ id }) => this.#failing.has(id));
    const pending = due.find((one) => !hasFailed(one)) ?? due[0];
    if (pending === undefined) return;
    const others = due.filter((one) => one !== pending);
    this.#turns.began(pending);
    const changes = new Map<string, Change>();
    try {
      for (const event of await this.#eventsOf(pending)) {
        const posted = await this.#post(pending, event);
        // What a stop has broken off is sent again by the next process
        if (posted.state !== "told" && this.#closing.signal.aborted) break;
        changes.set(event.id, this.#changeBy(event, posted));
        if (posted.state === "failed") this.#failing.add(event.id);
        else if (posted.state !== "away") this.#failing.clear();
        const failsWithAll = this.#failing.size >= MOST_FAILING;
        if (posted.state === "away" || (posted.state === "failed" && failsWithAll)) {
          this.#turns.away();
          for (const other of others) this.#giveUpLate(other, posted.reason);
          break;
        }
        // It may fail with this one alone: others go on
        if (posted.state === "failed") this.#turns.full();
        else this.#turns.reached();
      }
    } catch (error) {
      this.#wait(pending, error, "a webhook could not be told of a result; it is tried again");
    }
    this.#turns.wrote(pending, this.#write(pending, changes));
  }

  async #eventsOf(pending: Pending): Promise<DeliveryEvent[]> {
    const { outbox, name } = this.options;
    if (await outbox.refresh(pending)) return dueFor(pending.delivery, name).filter(isDue);
    this.#turns.postpone(pending, durations.gatewayRetry);
    return [];
  }

  #wait(pending: Pending, error: unknown, message: string): void {
    if (this.#closing.signal.aborted) return;
    const { name, log } = this.options;
    const fault = faultForLog(error);
    log.warn({ webhook: name, request_id: pending.delivery.request_id, fault }, message);
    this.#turns.postpone(pending, durations.gatewayRetryMost);
  }

  async #post(pending: Pending, event: DeliveryEvent): Promise<Posted> {
    const { name, settings, asked } = this.options;
    const message = await this.#messageOf(pending, event);
    // Nothing leaves that is not written down
    await asked(this.#told(pending, "asked", event));
    try {
      return await post(name, settings, message, this.#closing.signal);
    } catch (error) {
      if (!(error instanceof ConfigError)) throw error;
      return { state: "away", reason: error.message };
    }
  }

  #isLate({ since }: DeliveryEvent): boolean {
    return timeOfDay() - Date.parse(since) >= 1000 * this.options.settings.give_up_after;
  }

  #changeBy(event: DeliveryEvent, posted: Posted): Change {
    if (posted.state === "told") return { state: "told" };
    const { reason } = posted;
    if (this.#isLate(event)) return { state: "given_up", reason };
    return { state: "due", reason, ...(posted.state === "away" ? {} : { answered: true }) };
  }

  /** Gives up what waits behind a message in vain, and is late. */
  #giveUpLate(pending: Pending, reason: string): void {
    const late = dueFor(pending.delivery, this.options.name).filter((one) => this.#isLate(one));
    const changes = late.map(({ id }): [string, Change] => [id, { state: "given_up", reason }]);
    void this.#write(pending, new Map(changes));
  }

  /** The message of an event: opaque ids, and what the settings add to them. */
  async #messageOf(pending: Pending, event: DeliveryEvent): Promise<WebhookMessage> {
    const { settings, node } = this.options;
    const { delivery, folder, name, study } = pending;
    const { id, event: what, destination, at, objects } = event;
    const counts: Record<string, number> = {};
    for (const { state } of objects) counts[state] = (counts[state] ?? 0) + 1;
    const has = (field: (typeof settings.with)[number]) => settings.with.includes(field);
    const needsObject = has("accession_number") || has("patient_id");
    const found = needsObject ? await this.#identifiersOf(pending, event) : {};
    return {
      id,
      type: `delivery.${what}`,
      timestamp: at,
      data: {
        node,
        destination,
        delivery_id: delivery.id,
        request_id: delivery.request_id,
        counts,
        ...(has("receipt_path") ? { receipt_path: `${folder}/${receiptName(name)}` } : {}),
        ...(has("study_instance_uid") ? { study_instance_uid: study === "" ? null : study } : {}),
        ...(has("objects") ? { objects } : {}),
        ...(has("accession_number") ? { accession_number: found.AccessionNumber ?? null } : {}),
        ...(has("patient_id") ? { patient_id: found.PatientID ?? null } : {}),
      },
    };
  }

  /**
   * What an object of the result says of its patient and order, if its file is as it was written.
   */
  async #identifiersOf(
    pending: Pending,
    { destination, objects: [first] }: DeliveryEvent,
  ): Promise<{ AccessionNumber?: string | undefined; PatientID?: string | undefined }> {
    const { delivery, folder, place, name, study } = pending;
    const object = delivery.destinations[destination]?.find(
      (one) => one.sop_instance_uid === first?.sop_instance_uid,
    );
    if (object === undefined || !belongsTo(name, object.path)) return {};
    const file = [folder, place, object.path].filter((part) => part !== "").join("/");
    const toSend = await objectToSend(file, study, object);
    const bytes = toSend && (await bytesToSend(toSend));
    if (!Buffer.isBuffer(bytes)) return {};
    const { attributes } = openFile(bytes);
    return {
      AccessionNumber: attributes.string("AccessionNumber"),
      PatientID: attributes.string("PatientID"),
    };
  }

  /** Writes down what became of messages. It never throws. */
  async #write(pending: Pending, changes: ReadonlyMap<string, Change>): Promise<void> {
    const { outbox, name, log, became } = this.options;
    const known = new Map(dueFor(pending.delivery, name).map((one) => [one.id, one]));
    // What says again that the webhook is away need not wait for who has NAME
    const isNew = ([id, { state, reason, answered }]: [string, Change]) =>
      state !== "due" || answered === true || reason !== known.get(id)?.reason;
    const news = new Map([...changes].filter(isNew));
    if (news.size === 0) return;
    const now = new Date().toISOString();
    const ended: DeliveryEvent[] = [];
    try {
      await outbox.change(pending, (delivery) => {
        for (const event of dueFor(delivery, name)) {
          const change = news.get(event.id);
          if (change === undefined) continue;
          const { answered, ...said } = change;
          delete event.reason;
          Object.assign(event, said);
          if (event.state !== "due") {
            event.since = now;
            ended.push(event);
          } else if (answered === true)
            Object.assign(event, { attempts: (event.attempts ?? 0) + 1, attempted_at: now });
        }
      });
    } catch (error) {
      this.#wait(pending, error, "what a webhook was told could not be written down");
      return;
    }
    for (const event of ended) {
      const { state } = event;
      this.totals[state] = (this.totals[state] ?? 0) + 1;
      const { request_id } = pending.delivery;
      const facts = { webhook: name, request_id, event: event.event };
      if (state === "told") log.info(facts, "a webhook was told of a result");
      else log.warn(facts, "a message to a webhook was given up");
      became(this.#told(pending, state, event));
    }
    this.#turns.again();
  }

  #told({ study, delivery }: Pending, outcome: string, { objects }: DeliveryEvent): DeliveryTold {
    const { subject, request_id } = delivery;
    const destination = `webhook ${this.options.name}`;
    return { outcome, destination, study, subject, request_id, count: objects.length };
  }
}
