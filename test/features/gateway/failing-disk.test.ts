/**
 * A spool whose disk fails, at each step of an object: it is named, nothing is acknowledged that is
 * not whole on the disk, and the same object is accepted when the disk is back.
 */
import { readFileSync, rmSync, writeFileSync } from "node:fs";
import { constants } from "node:os";
import path from "node:path";
import t from "tap";
import { failingDisk } from "../../support/failing-disk.js";
import { associate, gatewayPlace, jobsOnce, object, startGateway } from "../../support/gateway.js";
import { ADDON, needs } from "../../support/needs.js";

/** The steps of the first object of all: a call, and the paths that it fails on. */
const STEPS = [
  ["mkdir", "*/spool/patients"],
  ["fsync", "*/spool"],
  ["mkdir", "*/patients/ct1"],
  ["fsync", "*/spool/patients"],
  ["open", "*/patients/ct1*"],
  ["write", "*/patients/ct1/*"],
  ["fsync", "*/patients/ct1/*"],
  ["link", "*/patients/ct1/*"],
  ["fsync", "*/patients/ct1"],
  ["mkdir", "*/spool/series"],
  ["mkdir", "*/series/ct1"],
  ["fsync", "*/spool/series"],
  ["mkdir", "*/series/ct1/STUDY"],
  ["fsync", "*/series/ct1"],
  ["mkdir", "*/STUDY/SERIES"],
  ["fsync", "*/series/ct1/STUDY"],
  ["open", "*/STUDY/SERIES*"],
  ["write", "*/STUDY/SERIES/*"],
  ["fsync", "*/STUDY/SERIES/*"],
  ["link", "*/STUDY/SERIES/*"],
  ["fsync", "*/STUDY/SERIES"],
] as const;
const FAULTS = {
  EIO: "share_unavailable",
  EROFS: "share_unavailable",
  ENOSPC: "disk_full",
} as const;

t.test("the disk of the spool", { skip: needs(ADDON) }, async (t) => {
  const { place, spool, results, file } = gatewayPlace(t);
  const rules = [{ name: "all", quiet: "1h", output_folder: results }];
  writeFileSync(file, JSON.stringify({ ...JSON.parse(readFileSync(file, "utf8")), rules }));
  const { fault, synced } = failingDisk(place, spool);
  const gateway = await startGateway(t, place);
  const caller = await associate(gateway.port());
  let study = "";
  for (const [at, [call, paths]] of STEPS.entries())
    for (const [name, comment] of Object.entries(FAULTS)) {
      const number = constants.errno[name as keyof typeof FAULTS];
      study = `1.2.5.${at}.${number}`;
      const series = `1.2.6.${at}.${number}`;
      const one = object(at, { StudyInstanceUID: study, SeriesInstanceUID: series });
      const what = `${name} from ${call} of ${paths}`;
      for (const folder of ["series", "patients"])
        rmSync(path.join(spool, folder), { recursive: true, force: true });
      writeFileSync(synced, "");
      const pattern = paths.replace("STUDY", study).replace("SERIES", series);
      writeFileSync(fault, `${number} ${call} ${pattern}`);
      t.match(await caller.store(one), { status: 0xa700, comment }, what);
      rmSync(fault);
      t.match(await caller.store(one), { status: 0 }, `${what}: accepted when the disk is back`);
      const have = new Set(readFileSync(synced, "utf8").split("\n"));
      for (const folder of ["", "series", "series/ct1", `series/ct1/${study}`])
        t.ok(have.has(path.join(spool, folder)), `${what}: ${folder} is on the disk`);
      const kept = path.join(spool, "series/ct1", study, series, `${one.sopInstanceUid}.dcm`);
      t.ok(readFileSync(kept).equals(one.file), what);
    }
  await caller.release();
  t.match(await gateway.send("POST", `/gateway/received/${study}/complete`), { status: 200 });
  const [job] = await jobsOnce(gateway, 1);
  t.match((await gateway.ended(job!.job_id)).counts, { succeeded: 1, failed: 0 });
  t.notMatch(JSON.stringify(gateway.server.log), /internal/);
});
