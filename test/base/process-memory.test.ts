import t from "tap";
import { setDurations } from "../../src/base/durations.js";
import { ClaimsOfTask, MemoryPlaces, ProcessMemory } from "../../src/base/process-memory.js";
import { inTime, until } from "../support/until.js";

const MIB = 2 ** 20;

t.test("what a thread has is counted once for all its work, until it is dropped", async (t) => {
  setDurations({ threadMoment: 1 });
  const places = new MemoryPlaces(1, 16 * MIB);
  let drops = 0;
  const memory = new ProcessMemory(places.take(), () => (drops += 1));
  const claim = { kind: "images", bytes: MIB, patient: true, check: () => undefined } as const;
  await memory.within({ ...claim, ofThread: 4 * MIB }, async () => {
    await memory.within({ ...claim, ofThread: 2 * MIB }, async () => {
      t.equal(places.bytes, 6 * MIB);
      await Promise.resolve();
    });
    await memory.within({ ...claim, ofThread: 5 * MIB }, async () => {
      t.equal(places.bytes, 7 * MIB, "the largest counts");
      await Promise.resolve();
    });
    t.equal(places.bytes, 6 * MIB);
  });
  t.equal(places.bytes, 5 * MIB, "it is still there");
  await memory.within({ ...claim, bytes: 15 * MIB, ofThread: 5 * MIB }, async () => {
    t.equal(places.bytes, 20 * MIB, "nothing else is there: the work begins, however large");
    await Promise.resolve();
  });
  await until("the thread has given its memory back", () => places.bytes === 0);
  t.equal(drops, 1);
});

const claims = { bytes: 4 * MIB, patient: true, check: () => undefined };
const nothing = () => Promise.resolve();

t.test("what tasks keep keeps no work waiting, beside the bound for others", async (t) => {
  setDurations({ memoryRoom: 1 });
  const places = new MemoryPlaces(2, 16 * MIB);
  const [one, other] = [new ProcessMemory(places.take()), new ProcessMemory(places.take())];
  for (const kind of ["files", "unpacked", "images"] as const) {
    const kept = [one, other].map((memory) => memory.keep(kind, 16 * MIB));
    t.equal(places.bytes, 32 * MIB);
    t.equal(one.keepIfRoom(kind, MIB, 1), undefined, "nothing more is kept");
    await one.within({ ...claims, kind }, async () => {
      const refused = { code: "overloaded" };
      await t.rejects(other.within({ ...claims, kind }, nothing), refused, "one at a time");
    });
    await other.within({ ...claims, kind }, nothing);
    for (const giveBack of kept) giveBack();
  }
  t.equal(places.bytes, 0);
});

t.test("where one claim of a task is refused, the others wait no more", async (t) => {
  setDurations({ memoryRoom: 1 });
  const places = new MemoryPlaces(2, 16 * MIB);
  const [one, other] = [new ProcessMemory(places.take()), new ProcessMemory(places.take())];
  const giveBack = other.hold("unpacked", 4 * MIB);
  const ofTask = new ClaimsOfTask();
  const file = { ...claims, kind: "files", ofTask } as const;
  await one.within(file, async () => {
    const waiting = one.within(file, nothing);
    await Promise.all([
      // It would wait for the file that is at work
      t.rejects(inTime("the other is refused", waiting), { code: "overloaded" }),
      t.rejects(one.within({ ...file, kind: "unpacked" }, nothing), { code: "overloaded" }),
    ]);
  });
  giveBack();
  t.equal(places.bytes, 0);
});

t.test("bulk work waits as long as other work waits for room", async (t) => {
  setDurations({ memoryRoom: 60_000 });
  const places = new MemoryPlaces(3, 16 * MIB);
  const [running, bulk, single] = [0, 1, 2].map(() => new ProcessMemory(places.take())) as [
    ProcessMemory,
    ProcessMemory,
    ProcessMemory,
  ];
  const begun: string[] = [];
  const images = { ...claims, kind: "images" } as const;
  const first = running.hold("images", 6 * MIB);
  const second = running.hold("images", 6 * MIB);
  const waiting = single.within({ ...images, bytes: 10 * MIB }, () => {
    begun.push("single");
    return Promise.resolve();
  });
  // It has room now, and the other not
  let looks = 0;
  const yielding = bulk.within({ ...images, yields: true, check: () => (looks += 1) }, () => {
    begun.push("bulk");
    return Promise.resolve();
  });
  await until("the bulk work has looked for room", () => looks > 2);
  t.strictSame(begun, []);
  first();
  await Promise.all([waiting, yielding]);
  t.strictSame(begun, ["single", "bulk"]);
  second();
  t.equal(places.bytes, 0);
});
