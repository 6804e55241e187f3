/** What becomes of an object by the answers of its destination, and when it is tried again. */
import t from "tap";
import { durations, setDurations } from "../../../../src/base/durations.js";
import type { Proved, Sent } from "../../../../src/features/gateway/deliver/destination.js";
import {
  afterProof,
  afterRefusal,
  afterSending,
  afterSilence,
  apply,
  pauseLeft,
} from "../../../../src/features/gateway/deliver/progress.js";
import { deliveredSchema, type Delivered } from "../../../../src/results/receipt/delivery.js";

const HOUR = 3_600_000;
const POLICY = { withinMs: HOUR, sendAgain: 2 };
const ago = (ms: number) => new Date(Date.now() - ms).toISOString();

/** As its file says it, of whatever version. */
const object = (more: Partial<Delivered> = {}): Delivered =>
  deliveredSchema.parse({
    path: "image.sr.dcm",
    model: "m",
    sop_class_uid: "1.2",
    sop_instance_uid: "1.3",
    series_instance_uid: "1.4",
    sha256: "0".repeat(64),
    state: "waiting",
    at: ago(0),
    tries: 0,
    ...more,
  });

function sending(one: Delivered, sent: Sent, storedSome = false): Delivered {
  const turn = { proves: true, storedSome, storedAt: 0, endedAt: Date.now() };
  apply(one, afterSending(one, sent, turn));
  return one;
}

function proving(one: Delivered, proved: Proved, vain?: "answered"): Delivered {
  apply(one, afterProof(one, proved, POLICY, vain));
  return one;
}

const ask = (one: Delivered) =>
  apply(one, { state: "sent", vain: "tried", pause: "commitment", transaction: "1.9" });
const away = { state: "away", reason: "Nobody listens." } as const;
const full = { state: "away", reason: "0xA700", full: true } as const;
const proven = { state: "proven", how: "commitment", at: ago(0) } as const;

t.test("three days without resources are counted from the first such answer", (t) => {
  const one = object({ at: ago(2 * durations.outOfResources) });
  t.match(
    sending(one, full),
    { state: "waiting", full_since: /Z$/ },
    "it waited for other reasons",
  );
  one.full_since = ago(durations.outOfResources);
  sending(one, { ...away, answered: true });
  t.equal(one.full_since, undefined, "another answer");
  t.match(sending(one, full), { state: "waiting" });
  one.full_since = ago(durations.outOfResources);
  sending(one, away);
  t.match(sending(one, full), { state: "refused" }, "who is away has answered nothing");
  t.end();
});

t.test("what was not sent has failed in nothing", (t) => {
  const one = object();
  for (let i = 0; i < 10; i++) sending(one, { ...away, untried: true }, true);
  t.match(one, { state: "waiting", tries: 0 });
  t.equal(pauseLeft(one), 0, "it is due at once");
  t.end();
});

t.test("what connections are lost with lets others have a turn first", (t) => {
  setDurations({ gatewayRetry: HOUR, gatewayRetryMost: 10 * HOUR });
  const one = sending(object(), { ...away, lost: true });
  t.match(one, { state: "waiting", tries: 0 });
  t.ok(pauseLeft(one) > durations.gatewayRetry, "longer than the pause of its destination");
  t.end();
});

t.test("sends, commitments and repetitions are counted for themselves", (t) => {
  const one = object();
  for (let i = 0; i < 3; i++) sending(one, { ...away, answered: true });
  t.equal(one.tries, 3);
  t.match(sending(one, { state: "stored" }), { state: "sent", tries: 0 });
  for (let i = 0; i < 3; i++) proving(one, { state: "failed", reason: "0x0110" });
  t.match(one, { state: "sent", tries: 3 });
  t.match(proving(one, { state: "differs", reason: "pixels" }), { state: "waiting", resent: 1 });
  t.equal(one.tries, 0);
  // Of version 0.6, where one number was for all
  const before = object({ state: "sent", tries: 4, at: ago(2 * HOUR) });
  for (const expected of [
    { state: "waiting", resent: 1 },
    { state: "waiting", resent: 2 },
    { state: "unproven" },
  ]) {
    Object.assign(before, { state: "sent", at: ago(2 * HOUR) });
    t.match(proving(before, { state: "missing", reason: "404" }), expected);
  }
  t.end();
});

t.test("what a destination fails to show, while it is there, is set aside in the end", (t) => {
  const failed = { ...away, answered: true } as const;
  const one = object({ state: "sent" });
  for (let i = 0; i < 10; i++) proving(one, failed);
  t.match(one, { state: "sent", tries: 10 }, "it has its time");
  one.at = ago(2 * HOUR);
  t.match(proving(one, failed), { state: "unproven", reason: away.reason });
  // A single fault after hours without a server
  const late = object({ state: "sent", at: ago(2 * HOUR) });
  t.match(proving(late, failed), { state: "sent", tries: 1 });
  for (let i = 0; i < 10; i++) proving(late, away);
  t.match(late, { state: "sent", tries: 1 }, "who is away has failed with nothing");
  t.end();
});

t.test("a request that is older than the process is made once more", (t) => {
  const one = object({ state: "sent", at: ago(2 * HOUR) });
  ask(one);
  const { transactions } = one;
  t.equal(afterSilence(one, POLICY, Date.now() + 1000), undefined);
  const late = afterSilence(one, POLICY, Date.now() - HOUR);
  t.match(late, { state: "unproven" });
  apply(one, late!);
  t.same(one.transactions, transactions, "a report that comes later counts");
  t.match(proving(one, proven), { state: "proven", how: "commitment" });
  t.equal(one.transactions, undefined);
  t.end();
});

t.test("who is asked for a commitment and is away for its whole time is given up", (t) => {
  const asking = (one: Delivered, since = Date.now() - HOUR) => {
    apply(one, afterRefusal(one, away, POLICY, since));
    return one.state;
  };
  const one = object({ state: "sent", at: ago(2 * HOUR) });
  t.equal(asking(one), "sent", "nobody was here before");
  t.equal(asking(one, Date.now() + 1000), "sent", "another process has asked");
  t.equal(asking(one), "unproven");
  const early = object({ state: "sent", at: ago(HOUR / 2), attempted_at: ago(0) });
  t.equal(asking(early), "sent", "its time is not over");
  t.end();
});

t.test("pauses of one kind do not make those of the other longer", (t) => {
  setDurations({ commitmentAgain: HOUR, commitmentAgainMost: 10 * HOUR });
  const one = object({ state: "sent" });
  for (let i = 0; i < 5; i++) proving(one, away);
  t.equal(one.attempts, 5);
  ask(one);
  t.match(one, { attempts: 1, asked: true });
  const near = (expected: number) => Math.abs(pauseLeft(one) - expected) < 60_000;
  t.ok(near(HOUR), "that of a first request");
  ask(one);
  t.ok(near(2 * HOUR));
  proving(one, { state: "failed", reason: "0x0213" }, "answered");
  t.match(one, { tries: 1, attempts: 2 });
  t.ok(near(2 * HOUR), "after its report, too");
  proving(one, away);
  t.match(one, { attempts: 1 });
  t.ok(pauseLeft(one) <= durations.gatewayRetry);
  // As it was written before there was a kind
  const asked = object({ state: "sent", asked: true, attempts: 1, attempted_at: ago(0) });
  t.ok(pauseLeft(asked) > HOUR / 2);
  t.end();
});
