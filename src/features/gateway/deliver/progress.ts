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

export const isUnderway = ({ state }: Pick<Delivered, "state">): boolean =>
  state === "waiting" || state === "sent";
export const isSetAside = ({ state }: Pick<Delivered, "state">): boolean =>
  state === "refused" || state === "unproven";

/** A report of its commitment counts, if it was asked for. */
export const mayBeReported = (object: Pick<Delivered, "state">): boolean =>
  isUnderway(object) || object.state === "unproven";

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

/** What is tried again after a pause. */
type Paused = Pick<Delivered, "attempts" | "attempted_at" | "asked" | "pause">;

/** The kind of its pause. Before there were kinds, an open request for commitment had its own. */
const pauseOf = ({ pause, asked }: Paused): Delivered["pause"] =>
  pause ?? (asked === true ? "commitment" : undefined);

/** In milliseconds since 1970, as what stands beside a receipt, over restarts and nodes. */
export const timeOfDay = (): number => Date.now();

/**
 * Milliseconds until an object is tried again. A clock that was set makes the pause shorter, never
 * longer.
 */
export function pauseLeft(object: Paused): number {
  const { attempts = 0, attempted_at: since } = object;
  if (attempts === 0 || since === undefined) return 0;
  const retry = pauseOf(object) === "commitment" ? commitmentPause() : gatewayRetry();
  const pause = backOff(attempts, retry);
  return Math.min(pause, Math.max(0, Date.parse(since) + pause - timeOfDay()));
}

export const isDue = (object: Paused): boolean => pauseLeft(object) === 0;

/** What becomes of an object by an answer. */
export type DeliveryChange = Pick<Delivered, "state"> &
  Partial<Pick<Delivered, "how" | "reason" | "warning" | "coerced" | "changed_by" | "pause">> & {
    /** One of its few tries has failed. */
    failed?: boolean;
    /** It was taken, and is not there: it is sent again. */
    resend?: boolean;
    /** The destination has said that it has, or has no, resources for it; undefined: neither. */
    full?: boolean;
    /**
     * A pause comes, which is longer each time: it was tried in vain; or a connection was lost with
     * it, so that others have a turn before it; or what was asked before was answered in vain,
     * which makes no pause longer.
     */
    vain?: "tried" | "lost" | "answered";
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
  // It has had no turn of its own
  if (sent.untried === true) return { state: "waiting", reason };
  if (sent.answered === true)
    return { state: "waiting", reason, vain: "tried", failed: true, full: sent.full === true };
  if (sent.full === true) {
    const { full_since: since } = object;
    if (since !== undefined && timeOfDay() - Date.parse(since) >= durations.outOfResources)
      return { state: "refused", reason };
    // Since the last try it had resources for others
    const failed = object.attempted_at !== undefined && storedAt >= Date.parse(object.attempted_at);
    const answered_at = new Date(endedAt).toISOString();
    return { state: "waiting", reason, vain: "tried", failed, full: true, answered_at };
  }
  if (sent.lost === true) return { state: "waiting", reason, vain: "lost" };
  // What is wrong here is of this object alone
  if (sent.local === true) return { state: "waiting", reason, vain: "tried" };
  // A destination that is away has a pause of its own
  return { state: "waiting", reason, ...(storedSome ? { vain: "tried" } : {}) };
}

function sentAgain({ resent = 0 }: Delivered, reason: string, policy: ProofPolicy): DeliveryChange {
  if (resent >= policy.sendAgain) return { state: "unproven", reason };
  return { state: "waiting", reason, resend: true };
}

const isLate = ({ at }: Delivered, { withinMs }: ProofPolicy) =>
  timeOfDay() - Date.parse(at) >= withinMs;

/**
 * What is set aside because no report of a commitment has come; undefined before it is late.
 * @param since when there has been somebody here to take it, in milliseconds since 1970: what was
 * asked before is asked once more, because its report may have found nobody
 */
export function afterSilence(
  object: Delivered,
  policy: ProofPolicy,
  since: number,
): DeliveryChange | undefined {
  if (object.asked !== true || !isLate(object, policy)) return undefined;
  if (Date.parse(object.attempted_at ?? object.at) < since) return undefined;
  return { state: "unproven", reason: "The peer has not reported its commitment." };
}

/**
 * What becomes of an object whose request for commitment was not taken.
 * @param since as in `afterSilence`: whoever was not here for a time asks twice
 */
export function afterRefusal(
  object: Delivered,
  answer: Proved,
  policy: ProofPolicy,
  since: number,
): DeliveryChange {
  const change = afterProof(object, answer, policy);
  const hasAsked = Date.parse(object.attempted_at ?? "") >= since;
  const isOver = answer.state === "away" && answer.local !== true && isLate(object, policy);
  return isOver && hasAsked && change.state === "sent" ? { ...change, state: "unproven" } : change;
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
        : { state: "sent", reason, vain, ...(vain === "answered" ? { pause: "commitment" } : {}) };
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
      return { state, reason: proved.reason, failed: true, vain, pause: "commitment" };
    }
    case "not_provable":
      return { state: "accepted", reason: proved.reason };
    case "away":
      if (proved.answered === true) {
        const isSpent = object.tries + 1 >= MOST_TRIES && isLate(object, policy);
        return { state: isSpent ? "unproven" : "sent", reason: proved.reason, failed: true, vain };
      }
      // Others have their turns before it has another one
      return { state: "sent", reason: proved.reason, vain };
  }
}

/**
 * Writes an answer down. What an object remembers beside its state, and what ends that:
 *
 *     tries         failures of the destination with it: "failed"; 0 in a new stage
 *     resent        how often it went back to "waiting": "resend"; never less
 *     attempts      pauses of one kind, one after the other: "vain"; none in a new state
 *     full_since    the first 0xA7xx: "full"; gone with any other answer
 *     asked         a request for commitment is open: "transaction"; gone with any other answer
 *     transactions  such requests: "transaction"; gone when it is decided for good
 */
export function apply(object: Delivered, change: DeliveryChange): void {
  const now = new Date().toISOString();
  const { failed, resend, full, vain, transaction, answered_at = now, ...said } = change;
  const { state: before, attempts = 0 } = object;
  const goesOn = pauseOf(object) === said.pause ? attempts : 0;
  const tries = object.tries + (failed === true ? 1 : 0);
  const isSpent = failed === true && before === "waiting" && tries >= MOST_TRIES;
  const state: DeliveryState = isSpent ? "refused" : said.state;
  const isNewStage = state !== before && (state === "waiting" || state === "sent");
  delete object.how;
  delete object.reason;
  delete object.changed_by;
  delete object.asked;
  delete object.pause;
  Object.assign(object, said, {
    state,
    tries: isNewStage ? 0 : tries,
    at: state === before ? object.at : now,
  });
  if (full === true) object.full_since ??= answered_at;
  else if (full === false || state !== before) delete object.full_since;
  if (state !== before) {
    delete object.attempts;
    delete object.attempted_at;
    delete object.pause;
  } else if (vain !== undefined) {
    // One step more than the destination's own pause, where others are to be tried first
    const least = vain === "lost" ? 2 : 1;
    object.attempts = Math.max(least, goesOn + (vain === "answered" ? 0 : 1));
    object.attempted_at = answered_at;
  }
  if (resend === true) {
    object.resent = (object.resent ?? 0) + 1;
    Object.assign(object, { attempts: object.resent, attempted_at: now });
  }
  if (transaction !== undefined) {
    const all = [...(object.transactions ?? []), transaction];
    Object.assign(object, { transactions: all.slice(-MOST_TRANSACTIONS), asked: true });
  }
  // A report of success that comes late counts, also of what is sent again meanwhile or set aside
  if (!mayBeReported(object)) delete object.transactions;
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
  delete fresh.resent;
  delete fresh.pause;
  delete fresh.full_since;
  return fresh;
}
