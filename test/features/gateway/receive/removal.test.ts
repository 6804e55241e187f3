/** A removal whose process is killed: what was to go goes, and nothing that has come since. */
import { execFileSync } from "node:child_process";
import { appendFileSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import t, { type Test } from "tap";
import { Removal, REMOVING } from "../../../../src/features/gateway/receive/removal.js";
import { Spool } from "../../../../src/features/gateway/receive/spool.js";
import { stagingName } from "../../../../src/files/helper-names.js";
import { receptionIn } from "../../../support/arriving.js";
import { mounts } from "../../../support/audit.js";
import { filesBelow } from "../../../support/gateway.js";

const PLACE = { peer: "ct1", study: "1.2.3", series: "1.2.4" };
const SERIES = "series/ct1/1.2.3/1.2.4";
const LEAVING = path.join(REMOVING, "=", "ct1/1.2.3/1.2.4");

/**
 * A series of two objects, and what removes them while a third one comes.
 * @param late the bytes of that
 */
function placeIn(t: Test, { folder = t.testdir(), late = "3.dcm" } = {}) {
  const spool = new Spool(folder, { mostBytes: 1e6, minimumFreeBytes: 0, peerShare: 1 });
  const put = (name: string, text = name) => {
    mkdirSync(path.join(folder, SERIES), { recursive: true });
    writeFileSync(path.join(folder, SERIES, name), text);
  };
  const removal = (isKilled: () => boolean = () => false) =>
    new Removal({
      folder,
      spool: {
        patients: spool.patients,
        within(names, work) {
          // What comes late is to lie here again
          if (isKilled() && names[0] === "series") throw new Error("killed");
          return spool.within(names, work);
        },
      },
      reception: receptionIn(folder, spool),
      removing() {
        put("3.dcm", late);
        return Promise.resolve();
      },
    });
  for (const name of ["1.dcm", "2.dcm"]) put(name);
  return { put, removal, files: () => filesBelow(folder) };
}
const names = ["1.dcm", "2.dcm"];

await t.test("what comes meanwhile stays", async (t) => {
  const { removal, files } = placeIn(t);
  await removal().series(PLACE, names);
  t.same(files(), [`${SERIES}/3.dcm`]);
});

await t.test("also where the process is killed, and another one ends it", async (t) => {
  const { put, removal, files } = placeIn(t);
  await t.rejects(removal(() => true).series(PLACE, names), { message: "killed" });
  t.ok(files().includes(`${LEAVING}/3.dcm`), "it lies with what goes");
  put("4.dcm");
  await removal().end("=", PLACE);
  t.same(files(), [`${SERIES}/3.dcm`, `${SERIES}/4.dcm`]);
  await removal().end("=", PLACE);
  t.same(files(), [`${SERIES}/3.dcm`, `${SERIES}/4.dcm`], "once more is as good");
});

await t.test("an object that came again since keeps its place", async (t) => {
  const { put, removal, files } = placeIn(t);
  await t.rejects(removal(() => true).series(PLACE, names));
  put("3.dcm", "newer");
  await removal().end("=", PLACE);
  t.same(files(), [`${SERIES}/3.dcm`]);
});

await t.test("what another node has ended is not ended again", async (t) => {
  const { removal, files } = placeIn(t);
  const folder = t.testdirName;
  const mark = "marks/ct1/1.2.3/1.2.4.json";
  mkdirSync(path.join(folder, path.dirname(mark)), { recursive: true });
  writeFileSync(path.join(folder, mark), "{}");
  const before = files();
  await removal().end("=", PLACE);
  t.same(files(), before, "the mark is of the series that came since");
});

await t.test("on a full disk nothing goes that no list could keep", async (t) => {
  const folder = mkdtempSync(path.join(os.tmpdir(), "radserve-test-"));
  t.teardown(() => rmSync(folder, { recursive: true }));
  if (!mounts(folder, "512k")) {
    t.pass("skipped: mounting a tmpfs needs root");
    return;
  }
  t.teardown(() => execFileSync("umount", ["-l", folder]));
  const { put, removal, files } = placeIn(t, { folder, late: "" });
  // Of a process that was killed before it moved the series
  put(stagingName("removing"), JSON.stringify(["1.dcm"]));
  try {
    for (;;) appendFileSync(path.join(folder, "filler"), Buffer.alloc(4096));
  } catch {
    // Full
  }
  await t.rejects(removal().series(PLACE, names), { code: "disk_full" });
  const left = ["1.dcm", "2.dcm", "3.dcm"].map((name) => `${SERIES}/${name}`);
  t.same(files(), ["filler", ...left]);
  await removal().series(PLACE, [...names, "3.dcm"]);
  t.same(files(), ["filler"]);
});
