/**
 * A spool whose disk fails, at each step of an object: it is named, nothing is acknowledged that is
 * not whole on the disk, and the same object is accepted when the disk is back.
 */
import { rmSync, writeFileSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import t from "tap";
import { withDurations } from "../../support/durations.js";
import { failingDisk } from "../../support/failing-disk.js";
import {
  associate,
  filesBelow,
  gatewayPlace,
  jobsOnce,
  object,
  QUIET,
  startGateway,
} from "../../support/gateway.js";
import { HOUR_MS } from "../../support/held.js";
import { ADDON, needs } from "../../support/needs.js";
import { failAtEachStep } from "../../support/spool-steps.js";

t.test("the disk of the spool, over one association", { skip: needs(ADDON) }, async (t) => {
  const { place, spool } = gatewayPlace(t, {
    rules: [{ name: "all", quiet: "1h", output_folder: "OUT" }],
  });
  const disk = failingDisk(place, spool);
  const gateway = await startGateway(t, place);
  const caller = await associate(gateway.port());
  const study = await failAtEachStep(
    t,
    { spool, peer: "ct1", disk },
    {
      async refused({ what, code, one }) {
        t.match(await caller.store(one), { status: 0xa700, comment: code }, what);
      },
      async kept({ what, one }) {
        t.match(await caller.store(one), { status: 0 }, `${what}: accepted when the disk is back`);
        const notes = filesBelow(path.join(spool, "reception"));
        const isNoted = notes.some((name) => name.includes("+coming+"));
        t.ok(isNoted, `${what}: an association that breaks off is known after a kill`);
      },
    },
  );
  await caller.release();
  t.match(await gateway.send("POST", `/gateway/received/${study}/complete`), { status: 200 });
  const [job] = await jobsOnce(gateway, 1);
  t.match((await gateway.ended(job!.job_id)).counts, { succeeded: 1, failed: 0 });
  t.notMatch(JSON.stringify(gateway.server.log), /internal/);
});

t.test(
  "a disk that fails while the spool is first looked at",
  { skip: needs(ADDON) },
  async (t) => {
    // What is open keeps its series from being complete before the process is killed
    const rule = { name: "all", quiet: QUIET, resend: QUIET, pause: "1h", output_folder: "OUT" };
    const { place, spool } = gatewayPlace(
      t,
      { rules: [rule] },
      withDurations({ gatewayRetry: 200, gatewayRetryMost: 500, spoolLook: HOUR_MS }),
    );
    const { fault } = failingDisk(place, spool);
    const gateway = await startGateway(t, place);
    const caller = await associate(gateway.port());
    t.match(await caller.store(object(0)), { status: 0 });
    writeFileSync(fault, `${os.constants.errno.EIO} rename *+broken+*`);
    const serving = await gateway.server.logged(({ msg }) => msg === "the port for DICOM is open");
    process.kill(Number(serving["pid"]), "SIGKILL");
    await gateway.server.logged(({ msg }) => msg === "how series came before could not be read");
    rmSync(fault);
    const [job] = await jobsOnce(gateway, 1);
    t.match((await gateway.ended(job!.job_id)).counts, { succeeded: 1, failed: 0 });
  },
);
