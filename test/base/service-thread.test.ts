/** Threads that answer calls: how they start, answer, fail and end. */
import { EventEmitter, once } from "node:events";
import t, { type Test } from "tap";
import { RadserveError } from "../../src/base/errors.js";
import { DistantFault } from "../../src/base/fault.js";
import { MemoryPlaces } from "../../src/base/process-memory.js";
import { DirectLine, moved, ThreadEnded } from "../../src/base/remote.js";
import { ServiceThread, type ServiceThreadOptions } from "../../src/base/service-thread.js";
import type { AnsweringThread, Asker } from "../support/answering-thread.js";
import { until } from "../support/until.js";

const file = new URL("../support/answering-thread.js", import.meta.url);

const ENDED = new ThreadEnded(true);
const DIED = new ThreadEnded(false);

function threadOf(t: Test, options: Partial<ServiceThreadOptions<Asker>> = {}) {
  const thread = new ServiceThread<AnsweringThread, Asker>({ file, ...options });
  t.teardown(() => thread.close());
  return thread;
}

t.test("it starts with the first call, and what it answers comes back", async (t) => {
  const thread = threadOf(t);
  t.equal(thread.isRunning, false);
  const id = thread.call.id();
  t.equal(thread.isRunning, true);
  t.equal(thread.pending, 1);
  t.equal(await id, await thread.call.id(), "one thread answers all");
  t.equal(thread.pending, 0);
  t.equal(thread.isLoaded, true);
  t.same(await thread.call.bytes(), new Uint8Array(1 << 16).fill(7));
});

t.test("errors cross with their code, the system's code, and a fault for the log", async (t) => {
  const thread = threadOf(t);
  await t.rejects(thread.call.refuse(), {
    code: "corrupt_image",
    details: { line: 3 },
    cause: undefined,
  });
  await t.rejects(thread.call.full(), { code: "disk_full", cause: { code: "ENOSPC" } });
  const fault = await thread.call.fault().catch((error: unknown) => error as Error);
  t.match(fault, { code: "internal" });
  t.type((fault as Error).cause, DistantFault);
  t.match((fault as Error).cause, { fault: { type: "TypeError", message: "planted" } });
  await t.rejects(thread.call.function(), { code: "internal" }, "an answer that cannot cross");
  t.ok(await thread.call.id(), "it answers on");
});

t.test("the thread calls its owner", async (t) => {
  const heard: string[] = [];
  const thread = threadOf(t, {
    owner: {
      hear(word) {
        heard.push(word);
        return "an answer";
      },
    },
  });
  t.equal(await thread.call.callBack(), "an answer");
  t.strictSame(heard, ["a note", "a call"]);
});

t.test("a thread that dies rejects its calls, and the next call starts another", async (t) => {
  const events = new EventEmitter();
  const failed: Error[] = [];
  const places = new MemoryPlaces(1, 2 ** 20);
  const thread = threadOf(t, {
    places,
    failed: (error) => failed.push(error),
    died: () => events.emit("died"),
  });
  for (const how of ["exit", "throw"] as const) {
    const died = once(events, "died");
    const first = await thread.call.id();
    const waiting = [thread.call.nothing(), thread.call[how]()];
    for (const call of waiting) await t.rejects(call, DIED);
    await died;
    t.equal(thread.isRunning, false);
    t.not(await thread.call.id(), first);
  }
  t.match(failed, [{ name: "RangeError" }]);
});

t.test("a thread that is ended rejects its calls, and tells it from a death", async (t) => {
  const thread = threadOf(t, { died: () => t.fail("nobody ended it") });
  const first = await thread.call.id();
  const waiting = thread.call.nothing();
  const ended = thread.end();
  await t.rejects(waiting, ENDED);
  t.not(await thread.call.id(), first, "while the old one ends, a fresh one answers");
  await ended;
  const loading = threadOf(t);
  const call = loading.call.id();
  await Promise.all([t.rejects(call, ENDED), loading.end()]);
});

t.test("without a call it ends after a while, and does not keep the process", async (t) => {
  const exits = new EventEmitter();
  const thread = threadOf(t, { idleMs: 1, exited: () => exits.emit("exit") });
  const exited = once(exits, "exit");
  // Nothing else does
  const keeper = setInterval(() => undefined, 1_000);
  t.teardown(() => clearInterval(keeper));
  thread.start();
  await exited;
  t.equal(thread.isRunning, false);
  // While it ends again it keeps the process
  const exitedAgain = once(exits, "exit");
  t.ok(await thread.call.id());
  await exitedAgain;
  const stays = threadOf(t, { stays: true });
  t.ok(await stays.call.id());
  const ports = process.getActiveResourcesInfo().filter((name) => name === "MessagePort");
  t.equal(ports.length, 0);
});

t.test("one that stays comes back, unless it cannot load", async (t) => {
  const thread = threadOf(t, { stays: true });
  t.equal(thread.isRunning, true);
  await thread.end();
  t.equal(thread.isRunning, true);
  await t.rejects(thread.call.exit(), DIED);
  t.equal(thread.isRunning, true);
  await thread.close();
  t.equal(thread.isRunning, false);
  const failed: Error[] = [];
  const broken = threadOf(t, {
    workerData: { fails: true },
    stays: true,
    failed: (error) => failed.push(error),
  });
  await t.rejects(broken.call.id(), DIED);
  t.equal(broken.isRunning, false);
  await t.rejects(broken.call.id(), DIED, "each call tries again");
  t.equal(failed.length, 2);
});

t.test("one that the system refuses is as one that dies, and takes no place", async (t) => {
  let isRefused = true;
  const failed: Error[] = [];
  let deaths = 0;
  const options = {
    places: new MemoryPlaces(2, 2 ** 20),
    // A worker with data that cannot be copied is refused at once, as one above a limit of threads
    workerData: {
      get word() {
        return isRefused ? () => undefined : "";
      },
    },
    failed: (error: Error) => failed.push(error),
    died: () => (deaths += 1),
  };
  const thread = threadOf(t, options);
  thread.start();
  t.equal(thread.isRunning, false);
  t.equal(thread.isRefused, true);
  // More often than there are places
  for (let i = 0; i < 100; i += 1) await t.rejects(thread.call.id(), DIED);
  t.equal(deaths, 101);
  t.match(failed, [{ name: "DataCloneError" }], "it is told once");
  const stays = threadOf(t, { ...options, stays: true });
  t.equal(stays.isRunning, false);
  isRefused = false;
  t.ok(await thread.call.id());
  t.equal(thread.isRefused, false);
  await until("the one that stays has come", () => stays.isRunning);
  t.ok(await stays.call.id());
  isRefused = true;
  await stays.end();
  t.equal(stays.isRunning, false, "it ends although no other comes");
  isRefused = false;
  await until("it comes again", () => stays.isRunning);
  t.equal(failed.length, 3);
});

t.test("what is moved is lost here, and what is thrown for a note ends the thread", async (t) => {
  const failed: Error[] = [];
  const thread = threadOf(t, { failed: (error) => failed.push(error) });
  const bytes = new Uint8Array(5);
  t.equal(await thread.call.lengthOf(bytes), 5);
  t.equal(bytes.length, 5, "a copy went over");
  t.equal(await thread.call.lengthOf(moved(bytes, [bytes.buffer])), 5);
  t.equal(bytes.length, 0);
  const waiting = thread.call.nothing();
  thread.note.throwForNote();
  await t.rejects(waiting, DIED);
  t.match(failed, [{ name: "RangeError", message: /nobody waits/ }]);
});

t.test("two threads talk on a line of their own, which is laid again when one ends", async (t) => {
  const thread = threadOf(t);
  let laid = 0;
  const line = new DirectLine<AnsweringThread>(() => {
    laid += 1;
    return thread.call.line();
  });
  const first = await line.call.id();
  t.equal(await line.call.id(), first);
  t.equal(laid, 1, "the second call needs nobody in between");
  await t.rejects(line.call.refuse(), { code: "corrupt_image", details: { line: 3 } });
  const waiting = line.call.nothing();
  await Promise.all([t.rejects(waiting, DIED), thread.end()]);
  await until("the next call is answered", async () => {
    const id = await line.call.id().catch(() => first);
    return id !== first;
  });
  t.equal(laid, 2);
});

t.test("a line that cannot be laid is laid with the next call", async (t) => {
  const thread = threadOf(t);
  const refusal = new RadserveError("shutting_down", "On purpose.");
  const ways = [() => Promise.reject(refusal), () => thread.call.line()];
  const line = new DirectLine<AnsweringThread>(() => ways.shift()!());
  await t.rejects(line.call.id(), refusal);
  t.ok(await line.call.id());
});
