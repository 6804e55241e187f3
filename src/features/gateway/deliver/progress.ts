/**
 * What becomes of an object by what its destination answers, and when it is tried again. All of it
 * stands in the file beside the receipt, so that a restart forgets nothing.
 */
import { backOff, type BackOff } from "../../../base/back-off.js";
import { durations } from "../../../base/durations.js";
import type { Delivered, DeliveryState } from "../../../results/receipt/delivery.js";
import { gatewayRetry } from "../retry.js";
import type { Proved, Sent } from "./destination.js";

/** Sending and proving have turns of their own: nothing waits behind a proof. */
export type Stage = "send" | "prove";

export const isOfStage = ({ state }: Delivered, stage: Stage): boolean =>
  state === (stage === "send" ? "waiting" : "sent");

/** What the settings of a destination say of proofs. */
export interface ProofPolicy {
  /** Milliseconds in which the peer has to show an object, or to report its commitment. */
  withinMs: number;
  /** How often an object is sent again. */
  sendAgain: number;
}

/** Times that a destination may fail with an object. */
const MOST_TRIES = 5;
/** Requests for commitment to one object that are remembered. */
const MOST_TRANSACTIONS = 16;

const commitmentPause = (): BackOff => ({
  first: durations.commitmentAgain,
  most: durations.commitmentAgainMost,
});

/** In milliseconds since 1970, as what stands beside a receipt, over restarts and nodes. */
export const timeOfDay = (): number => Date.now();

/**
 * Milliseconds until an object is tried again. A clock that was set makes the pause shorter, never
 * longer.
 */
export function pauseLeft({ attempts = 0, attempted_at: since, asked }: Delivered): number {
  if (attempts === 0 || since === undefined) return 0;
  const pause = backOff(attempts, asked === true ? commitmentPause() : gatewayRetry());
  return Math.min(pause, Math.max(0, Date.parse(since) + pause - timeOfDay()));
}

export const isDue = (object: Delivered): boolean => pauseLeft(object) === 0;

/** What becomes of an object by an answer. */
export type DeliveryChange = Pick<Delivered, "state"> &
  Partial<Pick<Delivered, "how" | "reason" | "warning" | "coerced" | "changed_by">> & {
    /** One of its few tries has failed. */
    failed?: boolean;
    /** It was tried in vain, or what was asked before was answered in vain: a pause comes. */
    vain?: "tried" | "answered";
    /** When the answer came, which may be written down later; ISO 8601. */
    answered_at?: string;
    /** The request for commitment that was made. */
    transaction?: string;
  };

/** What else is known when a destination has answered. */
export interface SendingTurn {
  /** What it takes is proven next. */
  proves: boolean;
  /** It has stored other objects in this turn. */
  storedSome: boolean;
  /** When it stored something before, in milliseconds since 1970; 0 for never. */
  storedAt: number;
  /** When the turn has ended. */
  endedAt: number;
}

export function afterSending(
  object: Delivered,
  sent: Sent,
  { proves, storedSome, storedAt, endedAt }: SendingTurn,
): DeliveryChange {
  if (sent.state === "stored")
    return {
      state: proves ? "sent" : "accepted",
      ...(sent.warning === undefined ? {} : { warning: sent.warning }),
    };
  const { reason } = sent;
  if (sent.state === "refused") return { state: "refused", reason };
  if (sent.answered === true) return { state: "waiting", reason, vain: "tried", failed: true };
  if (sent.full === true) {
    if (timeOfDay() - Date.parse(object.at) >= durations.outOfResources)
      return { state: "refused", reason };
    // Since the last try it had resources for others
    const failed = object.attempted_at !== undefined && storedAt >= Date.parse(object.attempted_at);
    const answered_at = new Date(endedAt).toISOString();
    return { state: "waiting", reason, vain: "tried", failed, answered_at };
  }
  // A destination that is away has a pause of its own
  return { state: "waiting", reason, ...(storedSome ? { vain: "tried" } : {}) };
}

function sentAgain({ tries }: Delivered, reason: string, policy: ProofPolicy): DeliveryChange {
  const state = tries >= policy.sendAgain ? "unproven" : "waiting";
  return { state, reason, failed: true };
}

const isLate = ({ at }: Delivered, { withinMs }: ProofPolicy) =>
  timeOfDay() - Date.parse(at) >= withinMs;

/** What is set aside because no report of a commitment has come; undefined before it is late. */
export function afterSilence(object: Delivered, policy: ProofPolicy): DeliveryChange | undefined {
  if (object.asked !== true || !isLate(object, policy)) return undefined;
  return { state: "unproven", reason: "The peer has not reported its commitment." };
}

/** @param vain that the object was looked at now, or that a report has come */
export function afterProof(
  object: Delivered,
  proved: Proved,
  policy: ProofPolicy,
  vain: "tried" | "answered" = "tried",
): DeliveryChange {
  if (proved.state === "proven") {
    const { how, coerced, changed_by } = proved;
    return {
      state: "proven",
      how,
      ...(coerced === undefined ? {} : { coerced }),
      ...(changed_by === undefined ? {} : { changed_by }),
    };
  }
  const reason = `${proved.state}: ${proved.reason}`;
  switch (proved.state) {
    case "missing":
      return isLate(object, policy)
        ? sentAgain(object, reason, policy)
        : { state: "sent", reason, vain };
    case "differs":
      return sentAgain(object, reason, policy);
    case "changed": {
      const { changed_by } = proved;
      return { state: "unproven", reason, ...(changed_by === undefined ? {} : { changed_by }) };
    }
    case "refused":
      return { state: "unproven", reason: proved.reason };
    case "failed": {
      const state = object.tries + 1 >= MOST_TRIES ? "unproven" : "sent";
      return { state, reason: proved.reason, failed: true, vain };
    }
    case "not_provable":
      return { state: "accepted", reason: proved.reason };
    case "away":
      // Others have their turns before it has another one
      return { state: "sent", reason: proved.reason, vain };
  }
}

/** Writes an answer down. */
export function apply(object: Delivered, change: DeliveryChange): void {
  const now = new Date().toISOString();
  const { failed, vain, transaction, answered_at = now, ...said } = change;
  const before = object.state;
  const tries = object.tries + (failed === true ? 1 : 0);
  const isSpent = failed === true && before === "waiting" && tries >= MOST_TRIES;
  const state: DeliveryState = isSpent ? "refused" : said.state;
  delete object.how;
  delete object.reason;
  delete object.changed_by;
  delete object.asked;
  Object.assign(object, said, { state, tries, at: state === before ? object.at : now });
  if (state !== before) {
    delete object.attempts;
    delete object.attempted_at;
  }
  if (vain !== undefined && state === before) {
    object.attempts = Math.max(1, (object.attempts ?? 0) + (vain === "tried" ? 1 : 0));
    object.attempted_at = answered_at;
  } else if (failed === true && state === "waiting")
    Object.assign(object, { attempts: tries, attempted_at: now });
  if (transaction !== undefined) {
    const all = [...(object.transactions ?? []), transaction];
    Object.assign(object, { transactions: all.slice(-MOST_TRANSACTIONS), asked: true });
  }
  if (state !== "sent" && state !== "waiting") delete object.transactions;
}

/** As it was before anything was tried. */
export function asNew(object: Delivered): Delivered {
  const fresh: Delivered = { ...object, state: "waiting", tries: 0, at: new Date().toISOString() };
  delete fresh.reason;
  delete fresh.how;
  delete fresh.changed_by;
  delete fresh.attempts;
  delete fresh.attempted_at;
  delete fresh.transactions;
  delete fresh.asked;
  return fresh;
}
