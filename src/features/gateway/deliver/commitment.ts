/**
 * Storage Commitment (PS3.4 annex J): a peer is asked to take responsibility for objects, and
 * reports that when it likes, over the same association, or over one that it opens.
 */
import { randomUUID } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import { dataSetBytes } from "../../../results/dicom/elements.js";
import { derivedUid } from "../../../results/dicom/uid.js";
import type { EventReport } from "../dimse/acceptor.js";
import { STATUS } from "../dimse/command.js";
import type { AssociationOptions, CallingAssociation } from "../dimse/requestor.js";
import {
  COMMITMENT,
  COMMITMENT_INSTANCE,
  readReport,
  type CallBack,
  type ReportAttributes,
} from "./call-back.js";
import type { CommitmentReport, Commitments, ObjectToSend, Proved } from "./destination.js";
import { PLAIN } from "./recode.js";
import { statusText } from "./store-status.js";

/** Action Type ID of a request for commitment (PS3.4 section J.3.2). */
const REQUEST_COMMITMENT = 1;
/**
 * Associations that are held for a report. With one more, the oldest is given up where the peer can
 * call back; where it cannot, the request waits until one has ended.
 */
const MOST_HELD = 16;

/** Of N-ACTION (PS3.7 annex C): the peer has no such service. */
const NO_SUCH_SERVICE = [0x0118, STATUS.sopClassNotSupported, 0x0123, 0x0211];
/** Failure Reasons of a report (PS3.3 section C.14.1.1). */
const NO_SUCH_OBJECT = 0x0112;
/** Another try gives the same: it has another class, or one that the peer does not take. */
const LASTING = [0x0119, STATUS.sopClassNotSupported];

export interface CommitmentPeer {
  /** Where the peer opens an association; undefined where the settings name no port. */
  callBack: () => Promise<CallBack | undefined>;
  options: (signal: AbortSignal) => AssociationOptions;
  call: (options: AssociationOptions) => Promise<CallingAssociation>;
  /** Milliseconds for which an association is held for the report. */
  holdMs: () => number;
  /** It has no other way to report. */
  isOnlyWay: boolean;
}

export const newTransaction = (seed: string): string =>
  derivedUid("transaction", [seed, randomUUID()]);

export class Commitment implements Commitments {
  readonly #listeners = new Set<(report: CommitmentReport) => boolean | Promise<boolean>>();
  /** By transaction. */
  readonly #held = new Map<string, CallingAssociation>();
  /** Requests that are made, or whose association is held. */
  #places = 0;
  /** Called when one of them has its place no more: whoever waits for one. */
  readonly #waiting = new Set<() => void>();

  constructor(private readonly peer: CommitmentPeer) {}

  listen(take: (report: CommitmentReport) => boolean | Promise<boolean>): () => void {
    this.#listeners.add(take);
    // For reports of what a process before has asked for. Of a port that is taken, `ask` says it
    void this.#listening().catch(() => undefined);
    return () => this.#listeners.delete(take);
  }

  async #listening(): Promise<void> {
    const callBack = await this.peer.callBack();
    callBack?.takeReports(async (attributes) => {
      const isKnown = await this.#take(attributes);
      // It need not be held for it any longer
      this.#held.get(attributes.string("TransactionUID") ?? "")?.abort();
      return isKnown;
    });
  }

  async #take(attributes: ReportAttributes): Promise<boolean> {
    const report = reportIn(attributes);
    const taken = [...this.#listeners].map((take) => Promise.resolve(take(report)));
    return (await Promise.all(taken)).includes(true);
  }

  /** Resolves when an association may be opened, and held. @throws what aborts the signal */
  async #place(signal: AbortSignal): Promise<void> {
    while (this.peer.isOnlyWay && this.#places >= MOST_HELD) {
      signal.throwIfAborted();
      await new Promise<void>((resolve) => {
        const go = () => {
          signal.removeEventListener("abort", go);
          this.#waiting.delete(go);
          resolve();
        };
        signal.addEventListener("abort", go);
        this.#waiting.add(go);
      });
    }
    this.#places += 1;
  }

  #leave(): void {
    this.#places -= 1;
    for (const go of Array.from(this.#waiting)) go();
  }

  async ask(
    transaction: string,
    objects: readonly ObjectToSend[],
    signal: AbortSignal,
  ): ReturnType<Commitments["ask"]> {
    await this.#listening();
    await this.#place(signal);
    let isHeld = false;
    try {
      const answer = await this.#asked(transaction, objects, signal);
      isHeld = answer === "asked";
      return answer;
    } finally {
      if (!isHeld) this.#leave();
    }
  }

  async #asked(
    transaction: string,
    objects: readonly ObjectToSend[],
    signal: AbortSignal,
  ): ReturnType<Commitments["ask"]> {
    const contexts = [{ abstractSyntax: COMMITMENT, transferSyntaxes: PLAIN }];
    const options = { ...this.peer.options(signal), contexts };
    const caller = await this.peer.call(options);
    const reported = new Set<string | undefined>();
    const take = async (report: EventReport) => {
      const attributes = await readReport(report);
      reported.add(attributes.string("TransactionUID"));
      await this.#take(attributes);
    };
    try {
      const context = caller.contextOf(COMMITMENT);
      if (context === undefined) {
        caller.abort();
        return { state: "not_provable", reason: "The peer does not take Storage Commitment." };
      }
      const dataSet = {
        TransactionUID: transaction,
        ReferencedSOPSequence: objects.map((one) => ({
          ReferencedSOPClassUID: one.sop_class_uid,
          ReferencedSOPInstanceUID: one.sop_instance_uid,
        })),
      };
      const { status, comment } = await caller.action(
        context,
        COMMITMENT_INSTANCE,
        REQUEST_COMMITMENT,
        Buffer.concat(dataSetBytes(dataSet, context.transferSyntax)),
        take,
      );
      if (status !== STATUS.success) {
        caller.abort();
        const reason = `Asking for commitment was answered with ${statusText(status, comment)}.`;
        return { state: NO_SUCH_SERVICE.includes(status) ? "not_provable" : "failed", reason };
      }
    } catch (error) {
      caller.abort();
      throw error;
    }
    // The association reads it before each wait
    options.idleTimeout = this.peer.holdMs();
    const hear = async () => {
      while (!reported.has(transaction)) await caller.event(take);
    };
    this.#hold(transaction, caller, options.idleTimeout, hear);
    return "asked";
  }

  /**
   * The report may come over this association, which `hear` waits for; when it ends without one, it
   * may still come.
   */
  #hold(
    transaction: string,
    caller: CallingAssociation,
    ms: number,
    hear: () => Promise<void>,
  ): void {
    const [oldest] = this.#held;
    if (this.#held.size >= MOST_HELD && oldest !== undefined) {
      this.#held.delete(oldest[0]);
      oldest[1].abort();
    }
    this.#held.set(transaction, caller);
    const end = setTimeout(() => caller.abort(), ms);
    void hear()
      .then(() => caller.release())
      .catch(() => caller.abort())
      .finally(() => {
        clearTimeout(end);
        this.#held.delete(transaction);
        this.#leave();
      });
  }

  /** Asks for one object and waits for the report. */
  async prove(object: ObjectToSend, signal: AbortSignal, waitMs: number): Promise<Proved> {
    const transaction = newTransaction(object.sop_instance_uid);
    let tell: (proved: Proved) => void = () => undefined;
    const reported = new Promise<Proved>((resolve) => (tell = resolve));
    const stop = this.listen((report) => {
      if (report.transaction !== transaction) return false;
      tell(report.outcomes.get(object.sop_instance_uid) ?? NOT_NAMED);
      return true;
    });
    try {
      const asked = await this.ask(transaction, [object], signal);
      if (asked !== "asked") return asked;
      const silent = delay(waitMs, undefined, { signal, ref: false });
      const reason = "The peer has not reported its commitment.";
      return await Promise.race([reported, silent.then((): Proved => ({ state: "away", reason }))]);
    } finally {
      stop();
    }
  }

  close(): void {
    for (const caller of this.#held.values()) caller.abort();
  }
}

/** What is said of an object that a report should name. */
export const NOT_NAMED: Proved = {
  state: "failed",
  reason: "The peer's report does not name the object.",
};

/** What a report says of the objects that it names. */
function reportIn(attributes: ReportAttributes): CommitmentReport {
  const outcomes = new Map<string, Proved>();
  const named = (keyword: string) => attributes.sequence(keyword) ?? [];
  const at = new Date().toISOString();
  for (const item of named("ReferencedSOPSequence"))
    outcomes.set(item.string("ReferencedSOPInstanceUID") ?? "", {
      state: "proven",
      how: "commitment",
      at,
    });
  // Last: what is in both is not committed to
  for (const item of named("FailedSOPSequence"))
    outcomes.set(
      item.string("ReferencedSOPInstanceUID") ?? "",
      failure(item.number("FailureReason") ?? STATUS.processingFailure),
    );
  return { transaction: attributes.string("TransactionUID") ?? "", outcomes };
}

function failure(status: number): Proved {
  const reason = `The peer does not commit to it: ${statusText(status)}.`;
  if (status === NO_SUCH_OBJECT) return { state: "missing", reason };
  return { state: LASTING.includes(status) ? "refused" : "failed", reason };
}
