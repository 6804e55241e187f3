/** A removal whose process is killed: what was to go goes, and nothing that has come since. */
import { mkdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import t, { type Test } from "tap";
import { Removal, REMOVING } from "../../../../src/features/gateway/receive/removal.js";
import { Spool } from "../../../../src/features/gateway/receive/spool.js";
import { receptionIn } from "../../../support/arriving.js";
import { filesBelow } from "../../../support/gateway.js";

const PLACE = { peer: "ct1", study: "1.2.3", series: "1.2.4" };
const SERIES = "series/ct1/1.2.3/1.2.4";
const LEAVING = path.join(REMOVING, "=", "ct1/1.2.3/1.2.4");

/** A series of two objects, and what removes them while a third one comes. */
function placeIn(t: Test) {
  const folder = t.testdir();
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
        put("3.dcm");
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
