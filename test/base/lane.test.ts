/** Who waits for threads that read: one subject that asks on and on holds up nobody else. */
import t, { type Test } from "tap";
import { Lane } from "../../src/base/lane.js";
import { MemoryPlaces } from "../../src/base/process-memory.js";
import type { AnsweringThread } from "../support/answering-thread.js";
import { HOUR_MS, holdHoursHere } from "../support/held.js";
import { silent } from "../support/postgres.js";

const here = () => false;
const endHour = await holdHoursHere(t);

function laneOf(t: Test): Lane<AnsweringThread> {
  const lane = new Lane<AnsweringThread>({
    file: new URL("../support/answering-thread.js", import.meta.url),
    workerData: {},
    places: new MemoryPlaces(2, 2 ** 30),
    longestMs: HOUR_MS,
    log: silent,
  });
  t.teardown(() => lane.close());
  return lane;
}

t.test("a subject whose questions take for ever holds up nobody else", async (t) => {
  const lane = laneOf(t);
  const flood = Array.from({ length: 40 }, () => lane.ask((call) => call.nothing(), "alice", here));
  const refused = await Promise.race(flood.map((one) => one.catch((error: unknown) => error)));
  t.match(refused, { code: "overloaded", message: /at most 32 questions of one subject/ });
  const ids = [];
  for (let i = 0; i < 12; i++) ids.push(await lane.ask((call) => call.id(), "bob", here));
  t.equal(new Set(ids).size, 1, "each picture of the other is answered, by one thread");
  await lane.close();
  const ended = await Promise.allSettled(flood);
  t.ok(
    ended.every(({ status }) => status === "rejected"),
    "nothing waits for ever",
  );
});

t.test("a subject alone has one thing in work, and its questions in order", async (t) => {
  const lane = laneOf(t);
  const ids = await Promise.all(
    Array.from({ length: 8 }, () => lane.ask((call) => call.id(), "alice", here)),
  );
  t.equal(new Set(ids).size, 1, "one thread");
  await t.rejects(
    lane.ask((call) => call.refuse(), "alice", here),
    { code: "corrupt_image" },
  );
  await t.rejects(
    lane.ask(
      (call) => call.id(),
      "alice",
      () => true,
    ),
    { code: "cancelled" },
  );
  t.ok(
    await lane.ask((call) => call.id(), "alice", here),
    "a place is free again after each fault",
  );
});

t.test("what takes too long is ended, and the next goes on", async (t) => {
  const lane = laneOf(t);
  const late = lane.ask((call) => call.nothing(), "alice", here);
  const next = lane.ask((call) => call.id(), "alice", here);
  endHour();
  await t.rejects(late, { code: "deadline_exceeded" });
  t.ok(await next);
});
