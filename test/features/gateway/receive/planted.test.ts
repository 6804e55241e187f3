/**
 * What somebody else put into the spool: it leads nowhere else, removes nothing elsewhere, and
 * keeps nothing else from its job.
 */
import { execFileSync } from "node:child_process";
import {
  chmodSync,
  existsSync,
  mkdirSync,
  readdirSync,
  rmSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import path from "node:path";
import t, { type Test } from "tap";
import { createLog } from "../../../../src/base/log.js";
import { Arrivals } from "../../../../src/features/gateway/receive/arrivals.js";
import { rule } from "../../../../src/features/gateway/rule-settings.js";
import { RuleBook } from "../../../../src/features/gateway/receive/rules.js";
import { Spool, type KeptObject } from "../../../../src/features/gateway/receive/spool.js";
import { RunningClock } from "../../../../src/files/running-clock.js";
import { arrivingOf, receptionIn } from "../../../support/arriving.js";
import { CT_SLICE, dicomFile, imageAttributes } from "../../../support/dicom.js";
import { until } from "../../../support/until.js";

const LIMITS = { mostBytes: 50_000_000, minimumFreeBytes: 0, peerShare: 1 };
const SERIES = "1.2.826.0.1.3680043.8.498.3";

/** A spool, a folder beside it, and what becomes of series: each is a job, which has ended. */
function placeIn(t: Test, quiet = 0) {
  const top = t.testdir({ spool: {}, elsewhere: {} });
  const [folder, elsewhere] = [path.join(top, "spool"), path.join(top, "elsewhere")];
  const spool = new Spool(folder, LIMITS);
  const jobs: string[] = [];
  const given = { name: "all", output_folder: "/out" };
  const all = { ...rule.parse(given), quiet };
  const arrivals = new Arrivals({
    folder,
    spool,
    reception: receptionIn(folder, spool),
    rules: new RuleBook([all]),
    keep: 1_000_000,
    clock: new RunningClock(path.join(top, "clock")),
    log: createLog("silent"),
    submit: ({ request }) => {
      jobs.push(path.relative(folder, String(request["input_folder_path"])));
      return Promise.resolve(`job${jobs.length}`);
    },
    jobState: () => Promise.resolve("ended"),
    removing: () => Promise.resolve(),
  });
  t.teardown(() => arrivals.close());
  const at = (...names: string[]) => path.join(folder, ...names);
  // What could not be marked is tried again later
  const isAtRest = () => arrivals.figures.waiting === arrivals.figures.faults.length;
  return { at, elsewhere, spool, arrivals, jobs, isAtRest };
}

const studyOf = ({ folder }: KeptObject) => path.basename(path.dirname(folder));

await t.test("no link in the spool has anything removed that lies elsewhere", async (t) => {
  const { at, elsewhere, spool, arrivals } = placeIn(t, 1_000);
  const kept = await spool.keep("ct1", arrivingOf(1, 200));
  const result = (...names: string[]) => path.join(elsewhere, ...names);
  mkdirSync(result("1.2.3", "1.2.4"), { recursive: true });
  const files = ["a.json", "b.dcm", "1.2.3/1.2.4.json", "1.2.3/1.2.4/c.json", "1.2.3.json"];
  for (const name of files) writeFileSync(result(name), "{}");
  const link = (to: string, ...names: string[]) => {
    mkdirSync(path.dirname(at(...names)), { recursive: true });
    symlinkSync(to, at(...names));
  };
  // A removal that began, and what goes with it
  link(elsewhere, "removing/all/ct1/1.2.3/1.2.9");
  mkdirSync(at("removing/all/ct2/1.2.3/1.2.4"), { recursive: true });
  for (const name of ["marks", "again", "patients", "conflicts"]) link(elsewhere, name, "ct2");
  link(elsewhere, "removing/all/ct3");
  await spool.conflicts.look();
  await arrivals.look();
  for (const name of files) t.ok(existsSync(result(name)), name);
  t.ok(existsSync(kept.folder));
});

await t.test("a value that is too long to be matched is named", async (t) => {
  const when = [{ tag: "ImageComments", matches: "b$", if_absent: "refuse" }];
  const book = new RuleBook([rule.parse({ name: "all", output_folder: "/out", when })]);
  const whyNot = async (ImageComments: string) => {
    const attributes = imageAttributes({ ...CT_SLICE, ImageComments });
    const file = path.join(t.testdir(), "x.dcm");
    writeFileSync(file, dicomFile({ attributes, pixels: Buffer.alloc(32) }));
    return (await book.read(file)).why[0];
  };
  t.equal(await whyNot(`${"a".repeat(10_000)}b`), undefined);
  t.match(await whyNot(`${"a".repeat(11_000)}b`), /at most 10240 characters.* found 11001/);
});

await t.test("a link to a folder of images is no series", async (t) => {
  const { at, elsewhere, spool, arrivals, jobs, isAtRest } = placeIn(t);
  const kept = await spool.keep("ct1", arrivingOf(1, 200));
  writeFileSync(path.join(elsewhere, "1.2.9.dcm"), "of somebody else");
  symlinkSync(elsewhere, at("series/ct1", studyOf(kept), "1.2.99"));
  symlinkSync(elsewhere, at("series/ct1/1.2.98"));
  await arrivals.look();
  await until("the series has its job", () => jobs.length > 0 && isAtRest());
  await arrivals.look();
  t.same(jobs, [path.relative(at(), kept.folder)]);
});

/** Things that are no file which Radserve wrote. */
const PLANTED: Record<string, (at: string) => void> = {
  "a folder": (at) => mkdirSync(path.join(at, "x"), { recursive: true }),
  "a named pipe": (at) => execFileSync("mkfifo", [at]),
  "a dangling link": (at) => symlinkSync("/nowhere/at/all", at),
  "a link to a device": (at) => symlinkSync("/dev/zero", at),
  "a file that nobody may read": (at) => {
    writeFileSync(at, "{}");
    chmodSync(at, 0);
  },
  "a file of 20 MiB": (at) => {
    writeFileSync(at, "{");
    truncateSync(at, 20 * 1024 * 1024);
  },
  "brackets without end": (at) => writeFileSync(at, "[".repeat(100_000)),
  "a field twice": (at) => writeFileSync(at, '{"id":"a","id":"b","issuer":"","objects":"x"}'),
  "other types": (at) => writeFileSync(at, '{"id":1,"objects":[],"PatientID":-1,"at":"x"}'),
};

for (const [what, plant] of Object.entries(PLANTED))
  await t.test(`${what} in the place of what Radserve wrote stops nothing`, async (t) => {
    const { at, spool, arrivals, jobs, isAtRest } = placeIn(t);
    const kept = await spool.keep("ct1", arrivingOf(1, 200));
    const study = studyOf(kept);
    const place = (...names: string[]) => {
      mkdirSync(path.dirname(at(...names)), { recursive: true });
      rmSync(at(...names), { recursive: true, force: true });
      plant(at(...names));
    };
    // Before all others in each folder
    place("series/ct1", study, SERIES, "0.dcm");
    place("series/ct1", study, "0");
    place("series/ct1/0");
    place("series/0");
    place("patients/ct1", `${study}.json`);
    place("marks/ct1", study, `${SERIES}.json`);
    place("again/ct1", study, SERIES);
    place("conflicts/ct1", `${study}.json`);
    place("removing/0");
    const next = new Spool(at(), LIMITS);
    await next.shares.look();
    await next.conflicts.look();
    t.match(await next.keep("ct1", arrivingOf(2, 200)), { fresh: true, study });
    const other = arrivingOf(3, 200, { attributes: { PatientID: "another" } });
    t.match(await next.keep("ct1", other), { fresh: true, study: /=/ });
    await arrivals.look();
    await arrivals.look();
    await until("both series have their jobs", () => new Set(jobs).size === 2 && isAtRest());
    t.ok(readdirSync(kept.folder).includes("1.2.826.0.1.3680043.8.498.1.2.dcm"));
  });
