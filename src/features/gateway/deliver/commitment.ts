/**
 * Storage Commitment (PS3.4 annex J): a peer is asked to take responsibility for objects, and
 * reports that when it likes, over the same association, or over one that it opens.
 */
import { randomUUID } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import { dataSetBytes } from "../../../results/dicom/elements.js";
import { derivedUid } from "../../../results/dicom/uid.js";
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
/** Associations that are held for a report; with one more, the oldest is given up. */
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
}

export const newTransaction = (seed: string): string =>
  derivedUid("transaction", [seed, randomUUID()]);

export class Commitment implements Commitments {
  readonly #listeners = new Set<(report: CommitmentReport) => boolean>();
  /** By transaction. */
  readonly #held = new Map<string, CallingAssociation>();

  constructor(private readonly peer: CommitmentPeer) {}

  listen(take: (report: CommitmentReport) => boolean): () => void {
    this.#listeners.add(take);
    // Reports of what a process before has asked for; a port that is taken is told by whoever asks
    void this.#listening().catch(() => undefined);
    return () => this.#listeners.delete(take);
  }

  async #listening(): Promise<void> {
    const callBack = await this.peer.callBack();
    callBack?.takeReports((attributes) => {
      const isKnown = this.#take(attributes);
      // It need not be held for it any longer
      this.#held.get(attributes.string("TransactionUID") ?? "")?.abort();
      return isKnown;
    });
  }

  #take(attributes: ReportAttributes): boolean {
    const report = reportIn(attributes);
    return [...this.#listeners].map((take) => take(report)).includes(true);
  }

  async ask(
    transaction: string,
    objects: readonly ObjectToSend[],
    signal: AbortSignal,
  ): ReturnType<Commitments["ask"]> {
    await this.#listening();
    const contexts = [{ abstractSyntax: COMMITMENT, transferSyntaxes: PLAIN }];
    const options = { ...this.peer.options(signal), contexts };
    const caller = await this.peer.call(options);
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
    // Read at each use
    options.idleTimeout = this.peer.holdMs();
    this.#hold(transaction, caller, options.idleTimeout);
    return "asked";
  }

  /** The report may come over this association; when it ends without one, it may still come. */
  #hold(transaction: string, caller: CallingAssociation, ms: number): void {
    const [oldest] = this.#held.values();
    if (this.#held.size >= MOST_HELD) oldest?.abort();
    this.#held.set(transaction, caller);
    const end = setTimeout(() => caller.abort(), ms);
    const heard = async () => {
      const reported = new Set<string | undefined>();
      while (!reported.has(transaction))
        await caller.event(async (report) => {
          const attributes = await readReport(report);
          reported.add(attributes.string("TransactionUID"));
          this.#take(attributes);
        });
      await caller.release();
    };
    void heard()
      .catch(() => caller.abort())
      .finally(() => {
        clearTimeout(end);
        this.#held.delete(transaction);
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
