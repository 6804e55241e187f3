/** The mark of a root, and the folders that must not get one. */
import { readdirSync, statSync } from "node:fs";
import t from "tap";
import { leaveRootMark, rootMark } from "../../src/files/root-mark.js";

t.test("of several nodes that give a root its mark at once, one does", async (t) => {
  const root = t.testdir();
  const { dev } = statSync(root);
  t.equal(await rootMark(root), null);
  await Promise.all(Array.from({ length: 8 }, () => leaveRootMark(root, dev)));
  t.match(await rootMark(root), /^[0-9a-f-]{36}$/);
  t.strictSame(readdirSync(root), [".radserve-root"]);
  const mark = await rootMark(root);
  await leaveRootMark(root, dev);
  t.equal(await rootMark(root), mark, "it stays");
});

t.test("the mount point of a share that has gone since it was seen gets none", async (t) => {
  const root = t.testdir();
  await t.rejects(leaveRootMark(root, statSync("/proc").dev), /it is on another/);
  t.strictSame(readdirSync(root), []);
});
