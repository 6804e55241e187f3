/**
 * What `radserve audit verify` and `export` say of days that were renamed or removed, of heads, and
 * of clocks that jump.
 */
import { renameSync, rmSync, unlinkSync, utimesSync, writeFileSync } from "node:fs";
import path from "node:path";
import t, { type Test } from "tap";
import { Audit } from "../../src/audit/audit.js";
import { createLog } from "../../src/base/log.js";
import type { Verified } from "../../src/audit/verify.js";
import { examined } from "../../src/commands/audit.js";
import { loadConfig } from "../../src/config.js";
import { filesOf, linesOf, pathsOf } from "../support/audit.js";
import { ADDON, needs } from "../support/needs.js";
import { makePlace, radserve, type Place } from "../support/server.js";

const skip = needs(ADDON);
const clock = makePlace();
process.env["TEST_CLOCK"] = path.join(clock.directory, "clock");
const setBy = (milliseconds: number) =>
  writeFileSync(process.env["TEST_CLOCK"]!, String(milliseconds));
setBy(0);
await import("../support/shifted-clock.js");
const DAY = 86_400_000;
/** An empty list: [] would match any. */
const NONE = { length: 0 };

/**
 * Writes a line on each day, as so many servers that run one after the other; days count from
 * today.
 */
async function written(place: Place, ...days: number[]): Promise<void> {
  const { folder } = pathsOf(place);
  for (const day of days) {
    setBy(day * DAY);
    const audit = await Audit.open(path.dirname(folder), { kind: "start" }, createLog("silent"));
    await audit.record({ kind: "page", subject: `day ${day}`, outcome: "done" });
    await audit.close();
  }
  setBy(0);
}

/** A place with a line of each of these days. */
async function placeWith(t: Test, ...days: number[]): Promise<Place> {
  const place = makePlace();
  t.teardown(() => place.remove());
  await written(place, ...days);
  return place;
}

const dayOf = (file: string) => path.basename(file, ".jsonl");
const exported = (place: Place, ...options: string[]) =>
  radserve(place, "audit", "export", ...options);

/** What both commands say of the files. */
async function found(
  place: Place,
  options: Parameters<typeof examined>[1] = {},
): Promise<Verified> {
  const config = loadConfig({ environment: place.environment, directory: place.directory });
  return examined(config, options);
}

t.test("days", { skip }, async (t) => {
  await t.test("as they were written", async (t) => {
    const place = await placeWith(t, -3, -2, -1);
    t.match(await found(place), { faults: NONE, notes: NONE });
  });
  await t.test("the last one gets another name", async (t) => {
    const place = await placeWith(t, -3, -2);
    const last = filesOf(place)[1]!;
    const other = dayOf(new Date(Date.now() - DAY).toISOString().slice(0, 10));
    renameSync(last, path.join(path.dirname(last), `${other}.jsonl`));
    const message = new RegExp(`Expected the file of ${other}; found that of ${dayOf(last)}`);
    t.match(await found(place), { faults: [{ message }] });
    t.match(await radserve(place, "audit", "verify"), { status: 1, stdout: message });
    t.match(await exported(place), { status: 1, stderr: message });
  });
  await t.test("one gets a name that is no day's", async (t) => {
    const place = await placeWith(t, -3, -2);
    const first = filesOf(place)[0]!;
    renameSync(first, `${first}.old`);
    t.match(await found(place), {
      faults: [{ message: /Lines 1 to \d+ are missing/ }],
      notes: [{ file: path.basename(`${first}.old`), message: /no day/ }],
    });
  });
  await t.test("the first that was asked for is gone", async (t) => {
    const place = await placeWith(t, -3, -2, -1);
    const [, second, third] = filesOf(place);
    t.match(await found(place, { from: dayOf(second!) }), { faults: NONE });
    unlinkSync(second!);
    const message = new RegExp(`The file of ${dayOf(second!)} is missing`);
    t.match(await found(place, { from: dayOf(second!) }), { faults: [{ message }] });
    t.match(await found(place, { from: dayOf(third!) }), { faults: NONE }, "it was not asked for");
  });
});

t.test("heads", { skip }, async (t) => {
  await t.test("the last day is gone, and the head with it", async (t) => {
    const place = await placeWith(t, -3, -2);
    unlinkSync(filesOf(place)[1]!);
    unlinkSync(pathsOf(place).head);
    t.match((await found(place)).faults, [
      { file: pathsOf(place).head, message: /The head that was said last is gone/ },
    ]);
    await written(place, 0);
    t.match((await found(place)).faults, [{ message: /was gone when this process began/ }]);
    t.equal(linesOf(place).filter(({ reason }) => reason === "head_gone").length, 1);
  });
  await t.test("everything is gone but the keys", async (t) => {
    const place = await placeWith(t, -3);
    const { folder, head, chainKey } = pathsOf(place);
    rmSync(folder, { recursive: true });
    unlinkSync(head);
    const then = Date.now() / 1000 - 3600;
    utimesSync(chainKey, then, then);
    await written(place, 0);
    t.match((await found(place)).faults, [{ message: /was gone when this process began/ }]);
  });
  await t.test("of a folder elsewhere no head is known", async (t) => {
    const place = await placeWith(t, -3);
    const { folder } = pathsOf(place);
    const { head, notes } = await found(place, { folder });
    t.match(notes, [{ message: /No head was given/ }]);
    t.match(await found(place, { folder, head: [head!] }), { faults: NONE, notes: NONE });
  });
});

t.test("a clock that was 80 years ahead and came back", { skip }, async (t) => {
  const place = await placeWith(t, -2);
  await written(place, 80 * 365, -1);
  const ahead = filesOf(place)[1]!;
  const { faults, notes } = await found(place);
  t.strictSame(faults, []);
  t.match(
    notes.map(({ message }) => message),
    [/a time that has not come/, /clock was set back/],
  );
  const day = (offset: number) => new Date(Date.now() + offset * DAY).toISOString().slice(0, 10);
  const subjects = ({ stdout }: { stdout: string }) =>
    [...stdout.matchAll(/"day (-?\d+)"/g)].map(([, d]) => Number(d));
  const one = await exported(place, "--from", day(-1), "--to", day(-1));
  t.strictSame(subjects(one), [-1], "the lines of a day, whatever file they lie in");
  t.match(one, { status: 0, stderr: /clock was set back/ });
  t.strictSame(subjects(await exported(place, "--from", dayOf(ahead))), [80 * 365]);
});
