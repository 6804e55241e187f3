/** Waiting with an end, in a process that stands still meanwhile. */
import { readFile, stat } from "node:fs/promises";
import t from "tap";
import { within } from "../../src/base/waiting.js";

/** As a machine does that is busy with others, or is moved to another one. */
const standStill = (milliseconds: number) =>
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, milliseconds);

t.test("what came while the process stood still is not late", async (t) => {
  const work = stat("/").then(() => readFile("/proc/self/stat"));
  const seen = within(work, 2_000);
  standStill(2_500);
  t.equal(await seen, true);
});

t.test("what never comes is late, and what fails is told", async (t) => {
  const began = performance.now();
  t.equal(await within(new Promise(() => undefined), 400), false);
  t.ok(performance.now() - began > 350, "not before its time");
  await t.rejects(within(Promise.reject(new Error("on purpose")), 1_000), /on purpose/);
});
