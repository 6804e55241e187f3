import { execFileSync, spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, realpathSync, rmSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import t from "tap";
import { isMarked, markShare, mountPoints, SHARE_MARK } from "../../src/files/share-mark.js";

const base = realpathSync(mkdtempSync(path.join(os.tmpdir(), "radserve-share-")));
t.teardown(() => rmSync(base, { recursive: true, force: true }));

t.test("mount points, whatever they are called", async (t) => {
  t.ok((await mountPoints()).has("/proc"));
  const odd = path.join(base, "Ä results\t\\1 #");
  mkdirSync(odd);
  t.notOk((await mountPoints()).has(odd));
  if (spawnSync("mount", ["--bind", base, odd]).status !== 0) {
    t.comment("this user may not mount");
    return;
  }
  t.teardown(() => void execFileSync("umount", [odd]));
  t.ok((await mountPoints()).has(odd), "also on the same device");
});

t.test("a mark is made once", async (t) => {
  t.notOk(await isMarked(base));
  await markShare(base);
  t.ok(await isMarked(base));
  const text = readFileSync(path.join(base, SHARE_MARK), "utf8");
  await markShare(base);
  t.equal(readFileSync(path.join(base, SHARE_MARK), "utf8"), text);
  t.notOk(await isMarked(path.join(base, "none")));
});
