/**
 * The chain and its writer in one process: two writers, torn ends, a cut tail, refusals and a disk
 * that refuses.
 */
import {
  appendFileSync,
  closeSync,
  constants,
  existsSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  symlinkSync,
  truncateSync,
} from "node:fs";
import os from "node:os";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import t, { type Test } from "tap";
import { Audit } from "../../src/audit/audit.js";
import { AuditChain } from "../../src/audit/chain.js";
import { hashOf, openFolder } from "../../src/audit/folders.js";
import { verifyAudit } from "../../src/audit/verify.js";
import { durations, setDurations } from "../../src/base/durations.js";
import { createLog } from "../../src/base/log.js";
import { lockDescriptor } from "../../src/files/descriptor-lock.js";
import { ADDON, needs } from "../support/needs.js";
import { LONGEST_WAIT_MS, until } from "../support/until.js";

const skip = needs(ADDON);
const log = createLog("silent");
// Writers in one process wait for each other as long as a disk takes
setDurations({ auditLock: LONGEST_WAIT_MS });
const time = () => new Date().toISOString();
const page = (subject: string) => ({ kind: "page" as const, subject, time: time() });

async function placeOf(t: Test) {
  const stateDir = mkdtempSync(path.join(os.tmpdir(), "radserve-chain-"));
  t.teardown(() => rmSync(stateDir, { recursive: true, force: true }));
  return { ...(await openFolder(stateDir)), stateDir };
}
/** What a descriptor of this process leads to; undefined if it is closed by now. */
function targetOf(fd: string): string | undefined {
  try {
    return readlinkSync(`/proc/self/fd/${fd}`);
  } catch {
    return undefined;
  }
}

type Place = Awaited<ReturnType<typeof placeOf>>;

const chainOf = (place: Place) => new AuditChain(place, "box");
const verified = (place: Place) => verifyAudit(place.folder, place.keys.chain);
const today = (place: Place) => path.join(place.folder, readdirSync(place.folder).sort().at(-1)!);
const lines = (place: Place) =>
  readFileSync(today(place), "utf8")
    .trimEnd()
    .split("\n")
    .map((line) => JSON.parse(line) as Record<string, unknown>);

t.test("a chain", { skip }, async (t) => {
  await t.test("two writers by turns and at once make one chain", async (t) => {
    const place = await placeOf(t);
    const [server, command] = [chainOf(place), chainOf(place)];
    for (let i = 0; i < 3; i++) {
      await server.append([page(`server ${i}`)]);
      await command.append([page(`command ${i}`)]);
    }
    await Promise.all(
      Array.from({ length: 20 }, (_, i) =>
        (i % 2 === 0 ? server : command).append([page(`at once ${i}`)]),
      ),
    );
    const found = await verified(place);
    t.strictSame(found.faults, []);
    t.equal(found.lines, 1 + 6 + 20);
    server.close();
    command.close();
  });

  await t.test("lines that waited over midnight stand in the file of their day", async (t) => {
    const place = await placeOf(t);
    const chain = chainOf(place);
    const now = Date.now();
    const day = (days: number) => new Date(now - days * 86_400_000).toISOString();
    await chain.append([{ ...page("first"), time: day(3) }]);
    const waited = [3, 2, 2, 3, 1].map((days, i) => ({ ...page(`waited ${i}`), time: day(days) }));
    await chain.append(waited);
    chain.close();
    const days = readdirSync(place.folder).map((name) =>
      readFileSync(path.join(place.folder, name), "utf8").match(/first|waited \d/g),
    );
    t.strictSame(days, [["first", "waited 0"], ["waited 1", "waited 2", "waited 3"], ["waited 4"]]);
    t.strictSame((await verified(place)).faults, [], "one chain, and no file goes back");
  });

  await t.test("its file is synced at each write, and is no link", async (t) => {
    const place = await placeOf(t);
    const chain = chainOf(place);
    await chain.append([page("a")]);
    const fd = readdirSync("/proc/self/fd").find((name) => targetOf(name) === today(place));
    const [, flags] = /flags:\s+(\d+)/.exec(readFileSync(`/proc/self/fdinfo/${fd}`, "utf8")) ?? [];
    t.ok((Number.parseInt(flags!, 8) & constants.O_DSYNC) !== 0, "O_DSYNC");
    const file = today(place);
    rmSync(file);
    symlinkSync(path.join(place.stateDir, "elsewhere"), file);
    await t.rejects(chain.append([page("b")]), { code: "ELOOP" });
    t.throws(() => chainOf(place), { code: "ELOOP" });
    t.notOk(existsSync(path.join(place.stateDir, "elsewhere")));
    chain.close();
  });

  await t.test("what is torn is closed by a line that says its bytes", async (t) => {
    const place = await placeOf(t);
    const before = chainOf(place);
    await before.append([page("a")]);
    before.close();
    appendFileSync(today(place), '{"half":');
    const after = chainOf(place);
    await after.append([page("b")]);
    after.close();
    const found = await verified(place);
    t.strictSame(found.faults, []);
    t.match(found.notes, [{ message: /8 bytes are not a line/ }]);
    t.match(readFileSync(today(place), "utf8"), /"bytes":8,.*"kind":"torn"/);
  });

  await t.test("a line of which only the line feed is missing is a line", async (t) => {
    const place = await placeOf(t);
    const cut = (bytes: number) =>
      truncateSync(today(place), readFileSync(today(place)).length - bytes);
    for (const name of ["one", "two"]) await chainOf(place).append([page(name)]);
    cut(1);
    await chainOf(place).append([page("three")]);
    t.strictSame((await verified(place)).faults, []);
    t.equal(lines(place).length, 4, "with the day's");
    // The line that tells of a torn one
    appendFileSync(today(place), '{"half');
    const before = readFileSync(today(place)).length;
    await chainOf(place).append([page("four")]);
    const told = readFileSync(today(place)).indexOf(10, before + 1);
    truncateSync(today(place), told);
    await chainOf(place).append([page("five")]);
    const found = await verified(place);
    t.strictSame(found.faults, []);
    t.match(found.notes, [{ message: /^6 bytes are not a line/ }]);
  });
  await t.test("an end that is gone is noticed by the head that was said", async (t) => {
    const place = await placeOf(t);
    const chain = chainOf(place);
    await chain.append([page("a")]);
    const size = readFileSync(today(place)).length;
    await chain.append([page("b")]);
    // As a process that is killed meanwhile leaves it
    appendFileSync(`${place.head}.part`, "1");
    await chain.sayHead();
    t.notMatch(readdirSync(place.stateDir).join(), /part/);
    chain.close();
    t.equal(chainOf(place).wasCut, false);
    truncateSync(today(place), size);
    t.equal(chainOf(place).wasCut, true);
  });
});

t.test("the audit", { skip }, async (t) => {
  await t.test(
    "refuses what cannot be written, and says how much it was when it can again",
    async (t) => {
      const place = await placeOf(t);
      const audit = await Audit.open(place.stateDir, { kind: "start" }, log);
      const file = today(place);
      rmSync(place.folder, { recursive: true });
      await t.rejects(audit.record({ kind: "page", outcome: "lost" }), { code: "audit_failed" });
      t.equal(audit.isFailing, true);
      mkdirSync(place.folder);
      await audit.record({ kind: "page", outcome: "kept" });
      t.equal(audit.isFailing, false);
      t.match(
        lines(place).filter(({ kind }) => kind !== "day"),
        [{ kind: "trouble", count: 1 }, { outcome: "kept" }],
      );
      t.equal(today(place), file);
      await audit.close();
      const { seq, mac } = lines(place).at(-1)!;
      t.equal(
        readFileSync(place.head, "utf8"),
        `${String(seq)}:${String(mac)}\n`,
        "its head is kept beside it",
      );
    },
  );

  await t.test("is whole again by itself after a line that took too long", async (t) => {
    const place = await placeOf(t);
    const audit = await Audit.open(place.stateDir, { kind: "start" }, log);
    const { auditLine, auditRetry } = durations;
    const short = 20;
    setDurations({ auditLine: short, auditRetry: short });
    const lock = openSync(place.lock, constants.O_RDWR);
    t.ok(lockDescriptor(lock));
    await t.rejects(audit.record({ kind: "page", subject: "late" }), { code: "audit_failed" });
    t.ok(audit.isFailing);
    // The next try comes while the line is still on its way: this timer is as long, and began later
    await delay(short);
    setDurations({ auditLine, auditRetry });
    closeSync(lock);
    await until("the audit is whole", () => !audit.isFailing);
    await audit.close();
    t.match(lines(place).slice(-2), [{ subject: "late" }, { kind: "trouble", count: 1 }]);
    t.strictSame((await verified(place)).faults, []);
  });

  await t.test("tells of what took too long while the end of an outage was written", async (t) => {
    const place = await placeOf(t);
    const audit = await Audit.open(place.stateDir, { kind: "start" }, log);
    const { auditLine, auditRetry } = durations;
    // Nothing but what is recorded here is written
    setDurations({ auditRetry: LONGEST_WAIT_MS });
    rmSync(place.folder, { recursive: true });
    await t.rejects(audit.record({ kind: "page", subject: "lost" }), { code: "audit_failed" });
    mkdirSync(place.folder);
    const lock = openSync(place.lock, constants.O_RDWR);
    t.ok(lockDescriptor(lock));
    setDurations({ auditLine: 20 });
    await Promise.all(
      ["late", "later"].map((subject) =>
        t.rejects(audit.record({ kind: "page", subject }), { code: "audit_failed" }),
      ),
    );
    setDurations({ auditLine, auditRetry });
    closeSync(lock);
    await until("the audit is whole", () => !audit.isFailing);
    await audit.close();
    t.match(lines(place).slice(-4), [
      { kind: "trouble", count: 1 },
      { subject: "late" },
      { subject: "later" },
      { kind: "trouble", count: 2 },
    ]);
  });

  await t.test("counts once what took too long and then could not be written", async (t) => {
    const place = await placeOf(t);
    const audit = await Audit.open(place.stateDir, { kind: "start" }, log);
    const { auditLine, auditLock, auditRetry } = durations;
    const short = 20;
    setDurations({ auditLine: short, auditLock: 2 * short, auditRetry: short });
    const lock = openSync(place.lock, constants.O_RDWR);
    t.ok(lockDescriptor(lock));
    await t.rejects(audit.record({ kind: "page", subject: "late" }), { code: "audit_failed" });
    // Its writing has ended by then, and others have been tried
    await delay(8 * short);
    setDurations({ auditLine, auditLock, auditRetry });
    closeSync(lock);
    await until("the audit is whole", () => !audit.isFailing);
    await audit.record({ kind: "page", subject: "kept" });
    await audit.close();
    t.match(lines(place).slice(-2), [{ kind: "trouble", count: 1 }, { subject: "kept" }]);
  });

  await t.test(
    "counts refused tokens: each of an address once, the rest of a flood by reason",
    async (t) => {
      const place = await placeOf(t);
      const audit = await Audit.open(place.stateDir, { kind: "start" }, log);
      const refused = (address: string) =>
        audit.refusals.add({
          address,
          reason: "expired",
          endpoint: "GET /models",
          request_id: "r",
          subject: "s",
        });
      for (let i = 0; i < 3; i++) refused("10.0.0.1");
      for (let i = 0; i < 300; i++) refused(`10.0.1.${i}`);
      await audit.close();
      const said = lines(place).filter(({ kind }) => kind === "refused");
      t.equal(
        said.length,
        100 + 1 + 1 + 1,
        "a hundred addresses, one line for the others, and two counts",
      );
      t.equal(said.filter(({ address }) => address === "10.0.0.1").map(({ count }) => count)[1], 2);
      t.match(said.at(-1), { count: 300 - 99 - 1 });
      t.notOk("address" in said.at(-1)!);
    },
  );

  await t.test("the same name has another hash as something else", async (t) => {
    const { keys } = await placeOf(t);
    t.not(hashOf(keys.names, "patient", "A"), hashOf(keys.names, "path", "A"));
    t.equal(hashOf(keys.names, "patient", "A"), hashOf(keys.names, "patient", "A"));
  });
});
