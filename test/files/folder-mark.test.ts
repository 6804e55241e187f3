import { mkdirSync, mkdtempSync, readdirSync, realpathSync, rmSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import t from "tap";
import {
  isMarked,
  isMarkName,
  leaveMark,
  markName,
  removeMark,
} from "../../src/files/folder-mark.js";

const base = realpathSync(mkdtempSync(path.join(os.tmpdir(), "radserve-mark-")));
t.teardown(() => rmSync(base, { recursive: true, force: true }));

t.test("a mark is of one job, in one folder", async (t) => {
  const [mine, other] = [
    "70e4314d-7630-4332-af7d-60490550f5fe",
    "00000000-7630-4332-af7d-60490550f5fe",
  ].map(markName);
  t.notOk(await isMarked(base, mine!));
  await leaveMark(base, mine!);
  await leaveMark(base, mine!);
  t.ok(await isMarked(base, mine!));
  t.notOk(await isMarked(base, other!), "another job's");
  t.notOk(await isMarked(path.join(base, "none"), mine!));
  mkdirSync(path.join(base, "below"));
  t.notOk(await isMarked(path.join(base, "below"), mine!));
  t.ok(readdirSync(base).filter(isMarkName).length === 1 && !isMarkName(".radserve-config"));
  await removeMark(base, mine!);
  await removeMark(base, mine!);
  t.strictSame(readdirSync(base), ["below"]);
  await t.rejects(leaveMark(path.join(base, "none"), mine!), { code: "bad_request" });
});
