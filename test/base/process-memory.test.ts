import t from "tap";
import { setDurations } from "../../src/base/durations.js";
import { MemoryPlaces, ProcessMemory } from "../../src/base/process-memory.js";
import { until } from "../support/until.js";

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
