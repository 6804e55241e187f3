/** What one peer may hold of the spool: nobody takes all, and whoever has too much is named. */
import { rmSync, statfsSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { setDurations } from "../../../../src/base/durations.js";
import { Spool } from "../../../../src/features/gateway/receive/spool.js";
import { arrivingOf } from "../../../support/arriving.js";

/** Bytes of an object; a share is some of them, so that what others write nearby is nothing. */
const OBJECT = 1_000_000;
const LIMITS = { mostBytes: 50_000_000, minimumFreeBytes: 0 };

/** A share of so many objects. */
function partOf(folder: string, objects: number): number {
  const { bavail, bsize } = statfsSync(folder);
  return (objects * OBJECT) / (bavail * bsize);
}

const full = { code: "spool_share_full", details: { peer: "ct1" } };

t.before(() => setDurations({ shareCount: 0 }));

t.test("one peer has its share and no more, and another always has room", async (t) => {
  const folder = t.testdir();
  const limits = { ...LIMITS, peerShare: partOf(folder, 3.5) };
  const spool = new Spool(folder, limits);
  const send = (peer: string, n: number, of = spool) => of.keep(peer, arrivingOf(n, OBJECT));
  for (const n of [1, 2]) t.match(await send("ct1", n), { fresh: true });
  t.match(await send("ct1", 2), { fresh: false }, "the same again takes no room");
  t.match(await send("ct1", 3), { fresh: true });
  await t.rejects(send("ct1", 4), full);
  await t.rejects(send("ct1", 5), full);
  t.match(await send("mr1", 1), { fresh: true });
  t.match(spool.shares.troubles(), [
    {
      condition: "received_share_full",
      where: "peer ct1",
      message: /^ct1 has used up its share of the spool: .* in 3 files\. Refused: 2 objects\.$/,
    },
  ]);

  const next = new Spool(folder, limits);
  await next.shares.look();
  await t.rejects(send("ct1", 4, next), full, "over a restart");

  await spool.shares.forgetRefused();
  t.equal(spool.shares.troubles().length, 1, "as long as it holds so much");
  rmSync(path.join(folder, "series/ct1"), { recursive: true });
  await spool.shares.forgetRefused();
  t.same(spool.shares.troubles(), []);
  t.match(await send("ct1", 4), { fresh: true });
});

t.test("what is refused, or comes beside others, is counted once", async (t) => {
  const folder = t.testdir();
  const spool = new Spool(folder, { ...LIMITS, peerShare: partOf(folder, 3.5) });
  const all = await Promise.allSettled(
    [1, 2, 3, 4, 5, 6].map((n) => spool.keep("ct1", arrivingOf(n, OBJECT))),
  );
  const kept = all.filter(({ status }) => status === "fulfilled").length;
  t.ok(kept <= 3, `${kept} of 6 at one moment`);
  for (const n of [1, 2, 3]) await spool.keep("ct1", arrivingOf(n, OBJECT)).catch(() => undefined);
  await t.rejects(spool.keep("ct1", arrivingOf(7, OBJECT)), full);
  for (let n = 10; n < 20; n++)
    await t.rejects(spool.keep("ct1", arrivingOf(n, OBJECT, { cut: true })));
  rmSync(path.join(folder, "series/ct1"), { recursive: true });
  for (const n of [1, 2, 3])
    t.match(await spool.keep("ct1", arrivingOf(n, OBJECT)), { fresh: true });
});

t.test("small objects count as the disk has them", async (t) => {
  const folder = t.testdir();
  const { bavail, bsize } = statfsSync(folder);
  const spool = new Spool(folder, { ...LIMITS, peerShare: (10.5 * 4096) / (bavail * bsize) });
  // By its bytes or by its files, whichever the disk has less of now
  let refused: unknown;
  for (let n = 0; n < 100 && refused === undefined; n++)
    await spool.keep("ct1", arrivingOf(n, 200)).catch((error: unknown) => (refused = error));
  t.match(refused, full);
});

t.test("where the disk has no room for anybody, that is told", async (t) => {
  const folder = t.testdir();
  const spool = new Spool(folder, { ...LIMITS, minimumFreeBytes: 2 ** 52, peerShare: 0.75 });
  await t.rejects(spool.keep("ct1", arrivingOf(1, 200)), { code: "disk_full" });
  t.same(spool.shares.troubles(), []);
});
