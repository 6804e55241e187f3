/**
 * Results on their way to destinations, of all nodes that share the folder of the queue.
 *
 *     ID.json          a result that is to be delivered: where it lies
 *     .to-NAME.lock    held by the node that sends to the destination NAME just now
 *     .proof-NAME.lock held by the node that has NAME prove what it was sent
 *
 * The file beside a receipt says what was asked for and what became of it; the queue only says
 * where to look. Its entry is written before the result is decided: after a crash, what was
 * published is found by it, and where nothing was, the entry is dropped. `radserve deliver scan`
 * makes lost entries again, and so does a node that knows the result.
 */
import { readdir, rm, unlink } from "node:fs/promises";
import path from "node:path";
import { durations } from "../../../base/durations.js";
import { rangeOf } from "../../../base/range.js";
import { errno } from "../../../base/errno.js";
import { groupsOf } from "../../../base/groups.js";
import { monotonic } from "../../../base/monotonic.js";
import { errors, RadserveError } from "../../../base/errors.js";
import { faultForLog, type Logger } from "../../../base/log.js";
import { storedJson } from "../../../base/stored-json.js";
import { within } from "../../../base/waiting.js";
import { readStart } from "../../../files/descriptor.js";
import { ifMissing, withPlain } from "../../../files/durable-files.js";
import { holdsSomething } from "../../../files/folder-mark.js";
import { withInput } from "../../../files/guarded-paths.js";
import { deliveryName, undeliveredNumber } from "../../../files/helper-names.js";
import { replaceFile } from "../../../files/new-file.js";
import { textOfRegular } from "../../../files/regular-file.js";
import { innermostRoot, isOnOtherDisk, isUnmountedNow } from "../../../files/roots.js";
import { withName, type HeldName } from "../../../results/commit/commit.js";
import { readReceipt } from "../../../results/receipt/read-receipt.js";
import { PREVIOUS, PREVIOUS_DELIVERY } from "../../../results/commit/staging.js";
import {
  deliveryText,
  notTrusted,
  readDelivery,
  readDeliveryFile,
  type Delivered,
  type Delivery,
  type DeliveryEvent,
} from "../../../results/receipt/delivery.js";
import { receiptName } from "../../../results/receipt/names.js";
import { hashOfObjects, isOfReceipt } from "../../../results/receipt/of-receipt.js";
import { objectsOf, type Receipt } from "../../../results/receipt/receipt.js";
import type { Trust } from "../../../results/receipt/seal.js";
import { readFileMeta } from "../../../images/dicom/dicom-file.js";
import type { ObjectToSend } from "./destination.js";
import type { DestinationSettings } from "./destination-settings.js";
import { entrySchema, keepEntry, type OutboxEntry } from "./entry.js";
import { dueFor, isToTell, noteEvents, settledIn, unsettledIn } from "./events.js";
import {
  isOfStage,
  isSetAside,
  isUnderway,
  mayBeReported,
  pauseLeft,
  type Stage,
} from "./progress.js";
import { isTaken } from "./takes.js";
import type { WebhookSettings } from "./webhook-settings.js";

const AT_ONCE = 8;
/** In which the File Meta Information of an object lies. */
const META_BYTES = 4096;
const NAME_OF_ENTRY = /^([0-9a-f][0-9a-f.-]{0,80})\.json$/;

/** A result that is to be delivered, as it was when it was last looked at. */
export interface Pending {
  readonly id: string;
  readonly folder: string;
  readonly name: string;
  /** As its entry says. */
  readonly apart: boolean;
  delivery: Delivery;
  study: string;
  /** Where its objects lie, below the folder; empty beside the receipt. */
  place: string;
  /** Older results of a NAME have smaller numbers. */
  order: number;
  /** Turns that it has just now. */
  readonly busy: Set<string>;
  /** When it may have another turn (milliseconds of `monotonic`). */
  readonly notBefore: Map<string, number>;
  /** Called at each change. */
  readonly waiters: Set<() => void>;
  work: Promise<unknown>;
}

const isUnsent = (object: Delivered): boolean => isOfStage(object, "send");
const all = ({ destinations }: Delivery) => Object.values(destinations);
/** Nothing is to be sent or proven any more; webhooks may still have to be told so. */
export const isSettled = (delivery: Delivery): boolean => unsettledIn(delivery).size === 0;
const isOpen = (delivery: Delivery) =>
  !isSettled(delivery) || (delivery.events ?? []).some(({ state }) => state === "due");
/** Nothing of it is to be done, and nothing was set aside or given up. */
export const isFinished = (delivery: Delivery) =>
  !isOpen(delivery) &&
  !(delivery.events ?? []).some(isToTell) &&
  !all(delivery)
    .flat()
    .some((one) => one && isSetAside(one));

/** The objects of a result that have to go to a destination, or to be proven there. */
const objectsFor = ({ delivery }: Pick<Pending, "delivery">, destination: string): Delivered[] =>
  (delivery.destinations[destination] ?? []).filter(isUnderway);

/** What is done with a destination, one result after the other; or what a webhook is told. */
export interface Turn<S extends Stage | "tell" = Stage | "tell"> {
  /** Name of the destination, or of the webhook. */
  destination: string;
  stage: S;
}

const PREFIXES = { send: "to", prove: "proof", tell: "tell" };
/** The name by which one node at a time has a turn. */
export const turnName = ({ destination, stage }: Turn): string =>
  `${PREFIXES[stage]}-${destination}`;

/** Of these, what a turn is about. */
export const objectsOfTurn = (
  pending: Pick<Pending, "delivery">,
  { destination, stage }: Turn<Stage>,
): Delivered[] => objectsFor(pending, destination).filter((one) => isOfStage(one, stage));

/** What a turn is about: objects, or messages. */
const itemsOfTurn = (pending: Pending, { destination, stage }: Turn) =>
  stage === "tell"
    ? dueFor(pending.delivery, destination)
    : objectsOfTurn(pending, { destination, stage });

/**
 * An object as it is sent, by its file.
 * @returns undefined where that is not there @throws what the system says
 */
export async function objectToSend(
  file: string,
  study_instance_uid: string,
  object: Delivered,
): Promise<ObjectToSend | undefined> {
  const { sop_class_uid, sop_instance_uid, series_instance_uid, sha256 } = object;
  return withPlain(file, async (fd) => ({
    path: file,
    sop_class_uid,
    sop_instance_uid,
    series_instance_uid,
    study_instance_uid,
    sha256,
    // A file that is none of DICOM any more has another hash
    transfer_syntax_uid: readFileMeta(await readStart(fd, META_BYTES))?.transferSyntax ?? "",
  }));
}

const NO_NAME = "The settings have no destination of this name.";

const PRIORITIES = ["stat", "routine", "bulk"];
const inOrder = (a: Pending, b: Pending) =>
  PRIORITIES.indexOf(a.delivery.priority) - PRIORITIES.indexOf(b.delivery.priority) ||
  a.delivery.asked_at.localeCompare(b.delivery.asked_at);

/** The file of a delivery, and where the objects lie that it is of. */
interface Located {
  delivery: Delivery;
  file: string;
  place: string;
  /** Older results of a NAME have smaller numbers. */
  order: number;
  receipt: string;
}

const besideReceipt = (name: string, delivery: Delivery): Located => ({
  delivery,
  file: deliveryName(name),
  receipt: receiptName(name),
  place: "",
  order: Infinity,
});

/**
 * Finds a delivery by its id, beside the receipt or set aside by a newer result.
 * @param dir any path of the folder
 * @throws RadserveError result_untrusted where a file says that it is this one, and is not trusted;
 * where none says it, and one that was changed or damaged may have been it
 */
async function locate(dir: string, name: string, id: string): Promise<Located | undefined> {
  let lost: Trust | undefined;
  const trusted = async (file: string, isCurrent = false) => {
    const found = await readDeliveryFile(file, name);
    if (found === undefined) return undefined;
    const { delivery, trust } = found;
    if (delivery?.id === id && trust.trusted) return delivery;
    if (delivery?.id === id) throw notTrusted("delivery", trust);
    if (delivery === undefined || (isCurrent && !trust.trusted)) lost ??= trust;
    return undefined;
  };
  const current = await trusted(`${dir}/${deliveryName(name)}`, true);
  if (current !== undefined) return besideReceipt(name, current);
  for (const folder of await readdir(dir)) {
    const order = undeliveredNumber(folder, name);
    if (order === undefined) continue;
    const delivery = await trusted(`${dir}/${folder}/${PREVIOUS_DELIVERY}`);
    if (delivery !== undefined)
      return {
        delivery,
        order,
        file: `${folder}/${PREVIOUS_DELIVERY}`,
        place: `${folder}/previous`,
        receipt: `${folder}/${PREVIOUS}`,
      };
  }
  if (lost !== undefined) throw notTrusted("delivery", lost);
  return undefined;
}

const isUntrusted = (error: unknown) =>
  error instanceof RadserveError && error.code === "result_untrusted";

export interface OutboxOptions {
  /** Of the queue; made where it is missing. */
  folder: string;
  /** Real paths that results may lie in. */
  outputRoots: readonly string[];
  destinations: Readonly<Record<string, DestinationSettings>>;
  webhooks: Readonly<Record<string, WebhookSettings>>;
  minimumFreeBytes: number;
  log: Logger;
  /** A result has something for destinations, or for webhooks. */
  found: () => void;
  /** Webhooks are to be told something. */
  news: () => void;
}

export class Outbox {
  /** Entries that nobody has looked at. */
  readonly #entries = new Map<string, OutboxEntry>();
  readonly #adopting = new Map<string, Promise<Pending | undefined>>();
  /** What a look has begun. */
  readonly #looking = new Map<string, Promise<unknown>>();
  readonly #pending = new Map<string, Pending>();
  /** Entries that could not be looked at, which the log says once. */
  readonly #told = new Set<string>();
  /** Entries of results that others have replaced, which the log has said. */
  readonly #replaced = new Set<string>();
  /** Entries of results that are not trusted. They wait until somebody adopts or removes these. */
  readonly #untrusted = new Set<string>();
  /** Entries whose files cannot be read: nobody knows which results they are of. */
  readonly #unreadable = new Set<string>();
  /** When it was looked whether another node has retried what was set aside. */
  #setAsideLook = monotonic();
  #closed = false;

  constructor(private readonly options: OutboxOptions) {}

  get pending(): Iterable<Pending> {
    return this.#pending.values();
  }

  /** How many results are not delivered because they are not trusted. */
  get untrusted(): number {
    return this.#untrusted.size;
  }

  /** How many files of the queue cannot be read. */
  get unreadable(): number {
    return this.#unreadable.size;
  }

  close(): void {
    this.#closed = true;
    this.answerAll();
  }

  /** Nobody waits any longer. */
  answerAll(): void {
    for (const { waiters } of this.#pending.values())
      for (const wake of Array.from(waiters)) wake();
  }

  /** @throws RadserveError delivery_unavailable */
  async keep(entry: OutboxEntry): Promise<void> {
    const { folder, outputRoots, minimumFreeBytes } = this.options;
    const kept = await keepEntry(folder, entry, outputRoots, minimumFreeBytes);
    this.#entries.set(entry.delivery.id, kept);
  }

  /** Looks at an entry; undefined where there is nothing to deliver (any more). */
  async adopt(id: string): Promise<Pending | undefined> {
    const known = this.#pending.get(id);
    // Entries are written by the thread that serves HTTP
    const entry = this.#entries.get(id) ?? (known === undefined ? await this.#read(id) : undefined);
    if (entry === undefined) return known;
    const adopting =
      this.#adopting.get(id) ?? this.#adopt(entry).finally(() => this.#adopting.delete(id));
    this.#adopting.set(id, adopting);
    return adopting;
  }

  /**
   * Looks through the queue: at entries that are new, and for what another node has done or
   * retried.
   */
  async look(): Promise<void> {
    const { folder } = this.options;
    const before = new Set(this.#pending.keys());
    const ids = (await readdir(folder).catch(ifMissing([] as string[]))).flatMap(
      (name) => NAME_OF_ENTRY.exec(name)?.[1] ?? [],
    );
    const known = (id: string) => this.#entries.has(id) || this.#pending.has(id);
    const there = new Set(ids);
    for (const id of this.#unreadable) if (!there.has(id)) this.#unreadable.delete(id);
    for (const id of ids.filter((one) => !known(one))) {
      const entry = await this.#read(id);
      if (entry !== undefined && !known(id)) this.#entries.set(id, entry);
    }
    const isBegun = (id: string) => this.#looking.has(id);
    const waiting = [...this.#entries.keys()];
    const fresh = waiting.filter((id) => !isBegun(id));
    for (const group of [...groupsOf(fresh, AT_ONCE), waiting.filter(isBegun)]) {
      if (this.#closed) break;
      await Promise.all(group.map((id) => this.#soon(id, () => this.adopt(id))));
    }
    const looksAtSetAside = monotonic() - this.#setAsideLook >= durations.setAsideLook;
    if (looksAtSetAside) this.#setAsideLook = monotonic();
    for (const pending of this.#pending.values()) {
      if (pending.busy.size > 0) continue;
      const isGone = before.has(pending.id) && !there.has(pending.id);
      const isDue = pending.waiters.size > 0 || (looksAtSetAside && !isOpen(pending.delivery));
      if (isGone || isDue) await this.#soon(pending.id, () => this.#lookAt(pending, isGone));
    }
  }

  /**
   * Does a part of a look. Where a NAME is held, or a share hangs, that goes on beside what comes
   * next; not with more than some, each of which may keep a thread that others need.
   */
  async #soon(id: string, work: () => Promise<unknown>): Promise<void> {
    const begun = this.#looking.get(id);
    if (begun === undefined && this.#looking.size >= AT_ONCE) return;
    const looking =
      begun ??
      work()
        .catch(() => undefined)
        .finally(() => this.#looking.delete(id));
    this.#looking.set(id, looking);
    await within(looking, durations.deliveryLook);
  }

  /**
   * Another node may have gone on with a result, or retried what was set aside of it.
   * @param isGone its entry is: where the result is not delivered, it gets another
   */
  async #lookAt(pending: Pending, isGone: boolean): Promise<void> {
    const { folder, name } = pending;
    const rests = !isOpen(pending.delivery);
    try {
      const isLeft = await this.refresh(pending);
      if (rests && isOpen(pending.delivery)) this.options.found();
      if (isLeft && isGone) {
        const entry = { folder, name, reused: false, delivery: pending.delivery };
        // The queue may be away itself
        await this.keep(entry).catch(() => undefined);
      }
    } catch (error) {
      if (rests) return;
      this.options.log.warn(
        { fault: faultForLog(error) },
        "a result that is to be delivered cannot be looked at",
      );
    }
  }

  async #read(id: string): Promise<OutboxEntry | undefined> {
    try {
      const entry = entrySchema.parse(
        storedJson(await textOfRegular(`${this.options.folder}/${id}.json`)),
      );
      this.#unreadable.delete(id);
      return entry;
    } catch (error) {
      if (errno(error) === "ENOENT") return undefined;
      this.#unreadable.add(id);
      if (!this.#told.has(id))
        this.options.log.error({ entry: id }, "an entry of the queue of deliveries cannot be read");
      this.#told.add(id);
      return undefined;
    }
  }

  async #adopt(entry: OutboxEntry): Promise<Pending | undefined> {
    const { id } = entry.delivery;
    let found: (Located & { study: string }) | undefined;
    try {
      found = await this.#atResult(entry, (dir, held) => this.#lookedAt(dir, entry, held));
      this.#untrusted.delete(id);
    } catch (error) {
      if (isUntrusted(error)) this.#untrusted.add(id);
      if (!this.#told.has(id) && !this.#closed)
        this.options.log.warn(
          { request_id: entry.delivery.request_id, fault: faultForLog(error) },
          isUntrusted(error)
            ? "a result is not delivered: it is not trusted (radserve adopt)"
            : "a result that is to be delivered cannot be looked at; it is tried again",
        );
      this.#told.add(id);
      throw error;
    }
    if (found === undefined) await this.#dropGone(entry.delivery);
    this.#entries.delete(id);
    if (found === undefined) return undefined;
    const { folder, name } = entry;
    // It may have replaced them
    for (const other of this.#pending.values())
      if (other.folder === folder && other.name === name)
        await this.refresh(other).catch(() => false);
    return this.#enter(entry, found);
  }

  #enter(
    { folder, name, apart = false }: OutboxEntry,
    { delivery, place, order, study }: Located & { study: string },
  ): Pending {
    const { id } = delivery;
    this.#entries.delete(id);
    const pending = this.#pending.get(id) ?? {
      id,
      folder,
      name,
      apart,
      delivery,
      study,
      place,
      order,
      work: Promise.resolve(),
      busy: new Set<string>(),
      notBefore: new Map<string, number>(),
      waiters: new Set<() => void>(),
    };
    Object.assign(pending, { delivery, place, order });
    if (!isFinished(delivery)) this.#pending.set(id, pending);
    if (isOpen(delivery)) this.options.found();
    return pending;
  }

  /** While NAME is held: the delivery of an entry, with the objects that each destination takes. */
  async #lookedAt(
    dir: string,
    entry: OutboxEntry,
    held: HeldName,
  ): Promise<(Located & { study: string }) | undefined> {
    const { name } = entry;
    // Who has asked again makes a new file in the place of one that is not trusted
    let found = await locate(dir, name, entry.delivery.id).catch((error: unknown) => {
      if (entry.reused && isUntrusted(error)) return undefined;
      throw error;
    });
    const isAdded = found === undefined && entry.reused;
    if (isAdded) {
      const current = await readDelivery(`${dir}/${deliveryName(name)}`, name);
      const delivery = current ?? entry.delivery;
      for (const destination of Object.keys(entry.delivery.destinations))
        delivery.destinations[destination] ??= null;
      found = besideReceipt(name, delivery);
    }
    if (found === undefined) return undefined;
    const receipt = await readReceipt(`${dir}/${found.receipt}`, name);
    if (receipt.kind === "none") return undefined;
    if (receipt.kind === "foreign")
      throw notTrusted("receipt", { trusted: false, why: "no_receipt" });
    if (!receipt.trust.trusted) throw notTrusted("receipt", receipt.trust);
    const { objects_sha256: wanted } = entry;
    if (isAdded && wanted !== undefined && wanted !== hashOfObjects(receipt.receipt)) {
      this.#tellReplaced(entry);
      return undefined;
    }
    if (!isOfReceipt(found.delivery, receipt.receipt)) throw notTrusted("delivery", receipt.trust);
    const expand = () => this.#expand(found.delivery, receipt.receipt);
    if (this.#edited(found.delivery, expand)) {
      const text = await deliveryText(found.delivery, name);
      await held.requireHeld();
      await replaceFile(dir, found.file, text, { side: "output" });
    }
    await this.#settleEntry(entry, found.delivery);
    return { ...found, study: receipt.receipt.source.study_instance_uid ?? "" };
  }

  /**
   * Drops an entry of which nothing is left to do, and one that has asked for more of another
   * delivery, whose own entry may be gone. While NAME is held: no other node ends that meanwhile.
   */
  async #settleEntry({ folder, name, delivery: { id } }: OutboxEntry, delivery: Delivery) {
    const isOther = delivery.id !== id;
    if (isOther && !isFinished(delivery))
      await this.keep({ folder, name, reused: false, delivery });
    if (isOther || isFinished(delivery)) await this.#drop(id);
  }

  /**
   * Lists the objects for each destination of which that is not known, and sets aside what waits
   * for one that the settings do not name any more. @returns whether something is new
   */
  #expand(delivery: Delivery, receipt: Receipt): boolean {
    const at = new Date().toISOString();
    let isNew = this.#dropUnnamed(delivery);
    for (const [name, objects] of Object.entries(delivery.destinations)) {
      const settings = this.options.destinations[name];
      if (objects === null) {
        isNew = true;
        delivery.destinations[name] = objectsOf(receipt)
          .filter((object) => settings === undefined || isTaken(object, settings))
          .map((object) => ({ ...object, at, tries: 0, state: "waiting" }));
      }
      if (settings !== undefined) continue;
      const left = objectsFor({ delivery }, name);
      for (const object of left) Object.assign(object, { at, state: "refused", reason: NO_NAME });
      if (left.length === 0) continue;
      isNew = true;
      this.#tellNoName(name);
    }
    return isNew;
  }

  /** Edits a text, and notes what webhooks are told of that, and whether more is to be done. */
  #edited<T>(delivery: Delivery, edit: () => T): T {
    const settled = settledIn(delivery);
    const result = edit();
    noteEvents(delivery, settled, this.options.webhooks);
    delivery.open = isOpen(delivery);
    return result;
  }

  /** A webhook that the settings do not name (any more) is told nothing. */
  #dropUnnamed(delivery: Delivery): boolean {
    const { webhooks, log } = this.options;
    const isLost = (one: DeliveryEvent) => isToTell(one) && !Object.hasOwn(webhooks, one.webhook);
    const lost = (delivery.events ?? []).filter(isLost);
    if (lost.length === 0) return false;
    delivery.events = delivery.events?.filter((one) => !isLost(one));
    log.warn(
      { request_id: delivery.request_id, webhooks: [...new Set(lost.map((one) => one.webhook))] },
      "messages are dropped: the settings do not name their webhook (any more)",
    );
    return true;
  }

  /** What was asked for of a result is not done with the one that lies in its place now. */
  #tellReplaced({ delivery: { id, request_id } }: OutboxEntry): void {
    this.#replaced.add(id);
    this.options.log.warn(
      { request_id },
      "a result was replaced before it could be delivered: nothing of it is sent for this request",
    );
  }

  #tellNoName(destination: string): void {
    if (this.#told.has(`to ${destination}`)) return;
    this.#told.add(`to ${destination}`);
    this.options.log.warn(
      { destination },
      "results wait for a destination that the settings do not name (any more): they are set aside; radserve deliver list shows them",
    );
  }

  /**
   * Does something while NAME is held, after what a dead process left is published or removed;
   * undefined where the folder is gone.
   */
  async #atResult<T>(
    { folder, name, apart = false }: Pick<OutboxEntry, "folder" | "name" | "apart">,
    work: (dir: string, held: HeldName) => Promise<T>,
  ): Promise<T | undefined> {
    const check = () => {
      if (this.#closed) throw errors.shutting_down("The server stops.");
    };
    let found: T | undefined;
    try {
      found = await withInput(
        folder,
        this.options.outputRoots,
        ({ fdPath }) => withName(fdPath, name, { check }, (held) => work(fdPath, held)),
        "output",
      );
    } catch (error) {
      if (!(error instanceof RadserveError) || error.code !== "file_not_found") throw error;
    }
    if (found === undefined) {
      // The share of a folder that is away has nothing of it now
      const root = innermostRoot(folder, this.options.outputRoots) ?? folder;
      const isAway = (await isUnmountedNow(root)) || !(await holdsSomething(root));
      if (isAway || (apart && !(await isOnOtherDisk(folder, root))))
        throw errors.file_not_found("The share of the results is not mounted.");
    }
    return found;
  }

  /**
   * Changes what the file beside a receipt says, while NAME is held. A result that is gone is not
   * to be delivered any more.
   * @param edit of the newest text
   */
  change(pending: Pending, edit: (delivery: Delivery) => void): Promise<void> {
    const work = pending.work.then(async () => {
      const found = await this.#atResult(pending, async (dir, held) => {
        const located = await locate(dir, pending.name, pending.id);
        if (located === undefined) return undefined;
        const { delivery, file, place } = located;
        const before = JSON.stringify(delivery);
        this.#edited(delivery, () => edit(delivery));
        if (JSON.stringify(delivery) !== before) {
          const { dir: folder, base } = path.parse(`${dir}/${file}`);
          const text = await deliveryText(delivery, pending.name);
          await held.requireHeld();
          await replaceFile(folder, base, text, { side: "output" });
        }
        if (!isFinished(delivery)) return located;
        await held.requireHeld();
        // Nobody needs a replaced result any more that has arrived
        if (place !== "")
          await rm(path.dirname(`${dir}/${place}`), { recursive: true, force: true });
        // While NAME is held: whoever asks for more of it finds it finished, and makes an entry
        await this.#drop(pending.id);
        return located;
      });
      if (found !== undefined) {
        const { delivery, place, order } = found;
        Object.assign(pending, { delivery, place, order });
      }
      if (found === undefined) await this.#dropGone(pending.delivery);
      for (const wake of Array.from(pending.waiters)) wake();
      if (pending.delivery.events?.some(({ state }) => state === "due") === true)
        this.options.news();
    });
    pending.work = work.catch(() => undefined);
    return work;
  }

  /**
   * Reads again what another node, or a newer result, may have changed.
   * @returns false where nothing of it is to be delivered, or it cannot be told while somebody has
   * NAME
   */
  async refresh(pending: Pending): Promise<boolean> {
    const { folder, name, id } = pending;
    const found = await withInput(
      folder,
      this.options.outputRoots,
      ({ fdPath }) => locate(fdPath, name, id),
      "output",
    ).catch((error: unknown) => {
      if (isUntrusted(error)) this.#untrusted.add(id);
      throw error;
    });
    this.#untrusted.delete(id);
    if (found !== undefined) {
      const { delivery, place, order } = found;
      Object.assign(pending, { delivery, place, order });
      if (!isFinished(delivery)) return true;
    }
    // Not waited for: whoever computes a newer result has NAME
    void this.change(pending, () => undefined).catch(() => undefined);
    return false;
  }

  /**
   * Whether a result that this one has replaced is still to be sent to a destination, on whatever
   * node.
   */
  async waitsForOlder(
    { folder, name, order, delivery }: Pending,
    destination: string,
  ): Promise<boolean> {
    if (delivery.replaces?.open !== true) return false;
    const older = async ({ fdPath }: { fdPath: string }) => {
      for (const entry of await readdir(fdPath)) {
        if ((undeliveredNumber(entry, name) ?? Infinity) >= order) continue;
        const found = await readDelivery(`${fdPath}/${entry}/${PREVIOUS_DELIVERY}`, name);
        const objects = found?.destinations[destination];
        if (found === undefined || (objects !== null && objects?.some(isUnsent) !== true)) continue;
        // What is not trusted may never go: it must not hold up what was computed in its place
        const receipt = await readReceipt(`${fdPath}/${entry}/${PREVIOUS}`, name);
        if (receipt.kind !== "receipt" || !receipt.trust.trusted) continue;
        // Its entry may be lost
        if (!this.#pending.has(found.id) && !this.#entries.has(found.id))
          await this.keep({ folder, name, reused: false, delivery: found });
        return true;
      }
      return false;
    };
    return withInput(folder, this.options.outputRoots, older, "output");
  }

  /** The result is gone, or was never written. What another node has ended has no entry now. */
  async #dropGone(delivery: Delivery): Promise<void> {
    const { id, request_id } = delivery;
    const isTold = this.#replaced.delete(id) || isFinished(delivery);
    if (!(await this.#drop(id)) || isTold) return;
    this.options.log.warn({ request_id }, "a result is not there (any more): it is not delivered");
  }

  /** @returns whether it was there */
  async #drop(id: string): Promise<boolean> {
    const file = `${this.options.folder}/${id}.json`;
    const wasThere = await unlink(file).then(() => true, ifMissing(false));
    this.#entries.delete(id);
    this.#pending.delete(id);
    this.#untrusted.delete(id);
    this.#told.delete(id);
    return wasThere;
  }

  /**
   * What is open for a turn. A newer result of a NAME is sent after the one that it has replaced;
   * it does not wait for that one's proof.
   */
  #openFor(turn: Turn): Pending[] {
    const first = new Map<string, Pending>();
    for (const one of this.#pending.values()) {
      if (itemsOfTurn(one, turn).length === 0) continue;
      const key = turn.stage === "send" ? `${one.folder}/${one.name}` : one.id;
      const other = first.get(key);
      if (other === undefined || this.#goesBefore(one, other)) first.set(key, one);
    }
    return [...first.values()].filter(({ busy }) => !busy.has(turnName(turn)));
  }

  /** Older results go first, but for those that may never go, because they are not trusted. */
  #goesBefore(one: Pending, other: Pending): boolean {
    const [untrusted, otherUntrusted] = [one, other].map(({ id }) => this.#untrusted.has(id));
    return untrusted === otherUntrusted ? one.order < other.order : otherUntrusted === true;
  }

  /**
   * Results that can have a turn now, of the highest priority that there is, the oldest first.
   */
  due(turn: Turn): Pending[] {
    const now = monotonic();
    const ready = this.#openFor(turn)
      .filter((one) => dueAt(one, turn, now) <= now)
      .sort(inOrder);
    return ready.filter(({ delivery }) => delivery.priority === ready[0]?.delivery.priority);
  }

  /**
   * When the next result can have a turn (milliseconds of `monotonic`); without end where none
   * waits.
   */
  nextDue(turn: Turn): number {
    const now = monotonic();
    const [first] = rangeOf(this.#openFor(turn).map((one) => dueAt(one, turn, now)));
    return first;
  }

  /** The result that a request for commitment is of, which may be set aside meanwhile. */
  ofTransaction(transaction: string, destination: string): Pending | undefined {
    return [...this.#pending.values()].find(({ delivery }) =>
      delivery.destinations[destination]?.some((one) => one.transactions?.includes(transaction)),
    );
  }

  /** Reads again what other nodes have written of all results for a destination. */
  async refreshAll(destination: string): Promise<void> {
    const { log } = this.options;
    await this.look().catch((error: unknown) =>
      log.warn({ fault: faultForLog(error) }, "the queue of deliveries cannot be looked through"),
    );
    // What waits here may have been sent by another node
    const some = [...this.#pending.values()].filter(({ delivery }) =>
      delivery.destinations[destination]?.some(mayBeReported),
    );
    for (const group of groupsOf(some, AT_ONCE))
      await Promise.all(group.map((one) => this.refresh(one).catch(() => false)));
  }
}

/**
 * When a result can have a turn: the first of its objects or messages, and not before the result
 * itself.
 */
function dueAt(pending: Pending, turn: Turn, now: number): number {
  const pauses = itemsOfTurn(pending, turn).map((one) => pauseLeft(one));
  return Math.max(now + Math.min(...pauses), pending.notBefore.get(turnName(turn)) ?? 0);
}
