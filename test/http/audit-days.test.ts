/**
 * The audit of a server that runs while the day changes. Its clock is shifted; nothing is waited
 * for.
 */
import { once } from "node:events";
import { appendFileSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { headText, readLine, type AuditEntry } from "../../src/audit/entry.js";
import { filesOf, verified } from "../support/audit.js";
import { ADDON, needs } from "../support/needs.js";
import { makePlace, radserve, root, startServer, type Place } from "../support/server.js";
import { until } from "../support/until.js";

const SHIFTED = path.join(root, "dist/test/support/shifted-clock.js");

/** A place with a clock of its own, and what sets it. */
function clocked(place: Place, name: string): { place: Place; set: (time: string) => void } {
  const file = path.join(place.directory, name);
  const environment = {
    ...place.environment,
    NODE_OPTIONS: `--import=${SHIFTED}`,
    TEST_CLOCK: file,
  };
  return {
    place: { ...place, environment },
    set(time) {
      // Whole at once: a server that looks meanwhile would find the time of today
      writeFileSync(`${file}.next`, String(Date.parse(time) - Date.now()));
      renameSync(`${file}.next`, file);
    },
  };
}

/** The whole lines of a day's file, with their MACs. */
function linesOf(place: Place, day: string): (AuditEntry & { mac: string })[] {
  const file = filesOf(place).find((found) => path.basename(found) === `${day}.jsonl`);
  if (file === undefined) return [];
  return readFileSync(file, "utf8")
    .split("\n")
    .flatMap((text) => {
      const line = readLine(text);
      return line === undefined ? [] : [{ ...line.entry, mac: line.mac }];
    });
}

t.test("the day changes while the server runs", { skip: needs(ADDON) }, async (t) => {
  const { place, set } = clocked(makePlace(), "clock");
  set("2026-03-01T23:59:00Z");
  const server = await startServer(place);
  t.teardown(() => server.stop());
  const ask = async (id: string) => {
    const headers = { Authorization: server.token, "X-Request-Id": id };
    t.equal((await fetch(`${server.url}/models`, { headers })).status, 200, id);
  };
  const idsOf = (day: string) => linesOf(place, day).flatMap((line) => line.request_id ?? []);
  const days = () => filesOf(place).map((file) => path.basename(file, ".jsonl"));
  const isWhole = async (what: string, ...options: string[]) =>
    t.match(
      await verified(place, ...options),
      { status: 0, ok: true, faults: { length: 0 } },
      what,
    );

  // Nobody waits for this line, which comes after the first loading
  await until("the models are written down", () =>
    linesOf(place, "2026-03-01").some(({ kind }) => kind === "models"),
  );
  await ask("before-midnight");
  set("2026-03-02T00:00:01Z");
  await ask("after-midnight");
  t.strictSame(days(), ["2026-03-01", "2026-03-02"]);
  const last = linesOf(place, "2026-03-01").at(-1)!;
  const [first, second] = linesOf(place, "2026-03-02");
  t.match(last, { request_id: "before-midnight", time: /^2026-03-01T23:59/ });
  t.match(first, { kind: "day", seq: last.seq + 1, previous: { seq: last.seq, mac: last.mac } });
  t.match(second, { request_id: "after-midnight", seq: last.seq + 2, time: /^2026-03-02T00:00/ });
  await isWhole("over both files", "--head", headText(last), "--head", headText(second!));
  await isWhole("the second file by itself", "--from", "2026-03-02");

  const ids = Array.from({ length: 100 }, (_, n) => `busy-${n}`);
  const asked = ids.slice(0, 50).map(ask);
  set("2026-03-03T00:00:01Z");
  await Promise.all([...asked, ...ids.slice(50).map(ask)]);
  const told = [...idsOf("2026-03-02"), ...idsOf("2026-03-03")].filter((id) =>
    id.startsWith("busy-"),
  );
  t.strictSame(told.sort(), [...ids].sort(), "each of many at midnight has its one line");
  await isWhole("many at midnight");

  appendFileSync(filesOf(place).at(-1)!, '{"host":"box","ki');
  set("2026-03-05T00:00:01Z");
  await ask("after-a-torn-line");
  t.match(linesOf(place, "2026-03-03").at(-1), { kind: "torn" }, "it is told of where it stands");
  t.strictSame(idsOf("2026-03-05"), ["after-a-torn-line"]);
  t.match(
    await verified(place),
    { ok: true, notes: [{ message: /are not a line/ }] },
    "a day without a file",
  );

  set("2026-03-04T12:00:00Z");
  await ask("the-clock-was-set-back");
  t.strictSame(
    idsOf("2026-03-05"),
    ["after-a-torn-line", "the-clock-was-set-back"],
    "files never go back",
  );
  await isWhole("a clock that was set back");

  const ahead = clocked(place, "clock-ahead");
  ahead.set("2026-03-06T00:00:01Z");
  t.match(await radserve(ahead.place, "key", "new"), { status: 0 });
  await ask("behind-a-command");
  t.strictSame(days().at(-1), "2026-03-06");
  t.strictSame(
    idsOf("2026-03-06"),
    ["behind-a-command"],
    "the chain goes on where the command left it",
  );
  await isWhole("a command whose clock was ahead");

  server.process.kill("SIGTERM");
  await once(server.process, "exit");
  set("2026-03-07T00:00:01Z");
  const again = await startServer(place);
  t.teardown(() => again.stop());
  t.match(linesOf(place, "2026-03-07"), [{ kind: "day" }, { kind: "start" }]);
  await isWhole("another process on another day");
});
