/** What is old by two clocks: the time of day, and how long the program has run. */
import path from "node:path";
import t, { type Test } from "tap";
import { RunningClock } from "../../src/files/running-clock.js";

const HOUR = 3_600_000;
const DAY = 24 * HOUR;
const BEGIN = Date.UTC(2027, 0, 1);

/** A program whose clocks are moved by hand. */
function program(t: Test) {
  const now = { wall: BEGIN, steady: 1_000 };
  const file = path.join(t.testdir(), "clock.json");
  const start = () => new RunningClock(file, { wall: () => now.wall, steady: () => now.steady });
  return {
    now,
    start,
    run: (clock: RunningClock, ms: number) => {
      for (let left = ms; left > 0; left -= HOUR) {
        const some = Math.min(left, HOUR);
        now.wall += some;
        now.steady += some;
        clock.tick();
      }
    },
  };
}

await t.test("what both clocks call old is old", (t) => {
  const { now, start, run } = program(t);
  const clock = start();
  const then = now.wall;
  run(clock, 2 * HOUR);
  t.ok(clock.isOlder(then, HOUR));
  t.notOk(clock.isOlder(then, 3 * HOUR));
  t.notOk(clock.isOlder(now.wall - HOUR / 2, HOUR));
  t.end();
});

await t.test("a clock that is set ahead makes nothing old, nor does one that is set back", (t) => {
  for (const jump of [30 * DAY, 80 * 365 * DAY, -30 * DAY]) {
    const { now, start, run } = program(t);
    const clock = start();
    run(clock, 5 * HOUR);
    const before = now.wall - 60_000;
    now.wall += jump;
    clock.tick();
    t.notOk(clock.isOlder(before, HOUR), "while it runs");
    t.notOk(start().isOlder(before, HOUR), "after a start, too");
    const since = now.wall;
    run(clock, 2 * HOUR);
    t.ok(clock.isOlder(since, HOUR), "what came after it goes in its time");
    if (jump > 0) t.ok(clock.isOlder(before, HOUR));
  }
  t.end();
});

await t.test("time in which the program stood does not count, and what it ran does", (t) => {
  const { now, start, run } = program(t);
  const first = start();
  const then = now.wall;
  run(first, 2 * HOUR);
  now.wall += 30 * DAY;
  now.steady = 5;
  const second = start();
  t.notOk(second.isOlder(then, 3 * HOUR));
  run(second, 2 * HOUR);
  t.ok(second.isOlder(then, 3 * HOUR), "two hours and two");
  t.notOk(second.isOlder(then, 5 * HOUR));
  t.notOk(start().isOlder(BEGIN - DAY, 5 * HOUR), "what is older than the file is not known to be");
  t.end();
});

await t.test("a file that is missing or damaged begins anew", async (t) => {
  const { start, now, run } = program(t);
  const { writeFileSync } = await import("node:fs");
  const clock = start();
  run(clock, 2 * HOUR);
  const file = path.join(t.testdirName, "clock.json");
  for (const text of ["", "{", "[1]", "null"]) {
    writeFileSync(file, text);
    t.notOk(start().isOlder(now.wall - 2 * HOUR, HOUR), text);
  }
  t.end();
});
