/**
 * The same by STOW-RS: a request says of each object whether it is kept, and none of that is untrue
 * on a disk that fails, nor lost afterwards.
 */
import { readFileSync, rmSync, writeFileSync } from "node:fs";
import { constants } from "node:os";
import path from "node:path";
import t, { type Test } from "tap";
import { failingDisk } from "../../support/failing-disk.js";
import { filesBelow, gatewayPlace, jobsOnce, object, startGateway } from "../../support/gateway.js";
import { ADDON, needs } from "../../support/needs.js";
import { issueToken, type Place } from "../../support/server.js";
import { failAtEachStep } from "../../support/spool-steps.js";
import { bodyOf, failures, STOW_TYPE, stored, type StowAnswer } from "../../support/stow.js";
import { until } from "../../support/until.js";

const PEER = "stow-viewer";
const STATUS = { share_unavailable: 503, disk_full: 507 };
const OUT_OF_RESOURCES = "a700";

type Gateway = Awaited<ReturnType<typeof startGateway>>;

/** A place whose rule waits for an hour, so that nothing but what comes writes into the spool. */
const quietPlace = (t: Test) =>
  gatewayPlace(t, {
    dicom: undefined,
    rules: [{ name: "all", quiet: "1h", output_folder: "OUT" }],
  });

async function postTo({ server }: Gateway, place: Place) {
  const token = await issueToken(place, "--subject", "viewer");
  return async (...objects: { file: Buffer }[]) => {
    const answer = await fetch(`${server.url}/dicomweb/studies`, {
      method: "POST",
      headers: { Authorization: token, "Content-Type": STOW_TYPE },
      body: bodyOf(objects.map(({ file }) => file)),
    });
    return { status: answer.status, body: (await answer.json()) as StowAnswer };
  };
}

t.test("the disk of the spool, by STOW-RS", { skip: needs(ADDON) }, async (t) => {
  const { place, spool } = quietPlace(t);
  const disk = failingDisk(place, spool);
  const gateway = await startGateway(t, place, false);
  const post = await postTo(gateway, place);
  const study = await failAtEachStep(
    t,
    { spool, peer: PEER, disk },
    {
      async refused({ what, code, one }) {
        t.match(await post(one), { status: STATUS[code], body: { error: code } }, what);
      },
      async kept({ what, one }) {
        const { status, body } = await post(one);
        t.equal(status, 200, `${what}: accepted when the disk is back`);
        t.same([stored(body), failures(body)], [[one.sopInstanceUid], []], what);
        const notes = filesBelow(path.join(spool, "reception"));
        t.notOk(
          notes.some((name) => /\+(?:coming|broken)\+/.test(name)),
          `${what}: it came whole`,
        );
      },
    },
  );
  t.match(await gateway.send("POST", `/gateway/received/${study}/complete`), { status: 200 });
  const [job] = await jobsOnce(gateway, 1);
  t.match((await gateway.ended(job!.job_id)).counts, { succeeded: 1, failed: 0 });
  t.notMatch(JSON.stringify(gateway.server.log), /internal/);
});

t.test(
  "of a request on a disk that fails for some objects, each is named",
  { skip: needs(ADDON) },
  async (t) => {
    const { place, spool } = quietPlace(t);
    const { fault, synced } = failingDisk(place, spool);
    const gateway = await startGateway(t, place, false);
    const post = await postTo(gateway, place);
    const all = [1, 2, 3].map((z) => object(z));
    const [one, two, three] = all.map(({ sopInstanceUid }) => sopInstanceUid);
    writeFileSync(synced, "");
    writeFileSync(fault, `${constants.errno.EIO} link */${two}.dcm`);
    const some = await post(...all);
    t.equal(some.status, 202);
    t.same(stored(some.body), [one, three]);
    t.same(failures(some.body), [[two, OUT_OF_RESOURCES]]);
    const lying = () => filesBelow(path.join(spool, "series")).map((file) => path.basename(file));
    t.same(lying(), [`${one}.dcm`, `${three}.dcm`]);
    const folder = path.join(spool, "series", PEER, "1.2.3", "1.2.3.4");
    t.ok(readFileSync(synced, "utf8").split("\n").includes(folder), "what is kept is on the disk");
    rmSync(fault);
    t.match(await post(all[1]!), { status: 200 });
    t.same(lying(), [`${one}.dcm`, `${two}.dcm`, `${three}.dcm`]);
  },
);

t.test(
  "notes that a disk does not let go hold up no series, and make none of it broken",
  { skip: needs(ADDON) },
  async (t) => {
    const { place, spool } = gatewayPlace(t, { dicom: undefined });
    const { fault } = failingDisk(place, spool);
    const gateway = await startGateway(t, place, false);
    const post = await postTo(gateway, place);
    writeFileSync(fault, `${constants.errno.EROFS} unlink *+coming+*`);
    t.match(await post(object(1), object(2)), { status: 200 });
    await gateway.server.logged(({ msg }) => msg === "how a request ended could not be noted");
    rmSync(fault);
    const [job] = await jobsOnce(gateway, 1);
    t.match((await gateway.ended(job!.job_id)).counts, { succeeded: 1, failed: 0 });
    const [item] = await gateway.items(job!.job_id);
    const receipt = readFileSync(item!.receipt_path!, "utf8");
    t.notMatch(receipt, /reception_interrupted/);
    await until(
      "the notes have gone",
      () => filesBelow(path.join(spool, "reception")).length === 0,
    );
  },
);
