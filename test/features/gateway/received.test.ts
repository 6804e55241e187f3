/**
 * From an object that comes over the port for DICOM to the receipt: real server, PostgreSQL and
 * files.
 */
import { once } from "node:events";
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer, type AddressInfo } from "node:net";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import pg from "pg";
import t, { type Test } from "tap";
import type { Receipt } from "../../../src/results/receipt/receipt.js";
import { linesOf, onSmallDisk } from "../../support/audit.js";
import { withDurations } from "../../support/durations.js";
import {
  associate,
  doorsPlace,
  filesBelow,
  jobsOnce,
  object,
  QUIET,
  QUIET_MS,
  send,
  startDoors,
  STUDY,
} from "../../support/doors.js";
import { issueToken, root } from "../../support/server.js";
import { until } from "../../support/until.js";

const receiptsIn = (folder: string) => filesBelow(folder).filter((name) => name.endsWith(".json"));

/**
 * A server that three slices have come to, one soon after the other: where the machine stood still
 * between two, the series was quiet before it was whole, and another server gets another.
 */
async function withSeries(t: Test) {
  for (let tries = 1; ; tries++) {
    const { place, spool, results } = doorsPlace(t);
    const doors = await startDoors(t, place);
    const slices = [1, 2, 3].map((z) => object(z));
    const longest = await send(doors.port(), slices);
    if (longest < QUIET_MS || tries === 5) return { doors, place, spool, results };
    await doors.server.stop();
  }
}

await t.test(
  "a series that has been quiet is a job, the same again is none, and late slices are one more",
  async (t) => {
    const { doors, place, spool, results } = await withSeries(t);
    const [first] = await jobsOnce(doors, 1);
    t.match((await doors.ended(first!.job_id)).counts, { succeeded: 1, failed: 0, skipped: 0 });
    const before = receiptsIn(results);
    t.same(before, [`ct1/${STUDY}/1.2.3.4.json`], "a series is one item");
    const frames = () => {
      const { source } = JSON.parse(
        readFileSync(path.join(results, before[0]!), "utf8"),
      ) as Receipt;
      return source.slices?.length;
    };
    t.equal(frames(), 3);
    await send(
      doors.port(),
      [3, 2, 1].map((z) => object(z)),
    );
    await send(doors.port(), [object(4)]);
    const [second, ...others] = await jobsOnce(doors, 2);
    t.match((await doors.ended(second!.job_id)).counts, { succeeded: 1 });
    t.same(
      others.map(({ job_id }) => job_id),
      [first!.job_id],
      "the three that came again made none",
    );
    t.equal(receiptsIn(results).length, 1);
    t.equal(frames(), 4, "the series has grown");
    t.equal(filesBelow(path.join(spool, "series")).length, 4);
    const metrics = await (await fetch(`${doors.server.url}/metrics`)).text();
    t.match(metrics, /radserve_door_objects_total\{door="dicom"\} 7/);
    t.match(metrics, /radserve_received_waiting\{for="rule"\} 0/);
    const told = linesOf(place).filter(({ kind }) => kind === "received" || kind === "submitted");
    t.match(
      told.map(({ kind, outcome, subject, count }) => `${kind} ${outcome} ${subject} ${count}`),
      [
        "received asked ct1 undefined",
        "received done ct1 3",
        "submitted asked ct1 3",
        "submitted done ct1 3",
        "received asked ct1 undefined",
        "received done ct1 3",
        "received asked ct1 undefined",
        "received done ct1 1",
        "submitted asked ct1 4",
        "submitted done ct1 4",
      ],
    );
    t.match(told[3], { job_id: first!.job_id, study: /^[0-9a-f]{32}$/ });
    // As a process that is killed between the job and its mark leaves it
    const mark = path.join(spool, "marks/ct1", STUDY, "1.2.3.4.json");
    rmSync(mark);
    const killed = doors.server.servingPid();
    process.kill(killed, "SIGKILL");
    await until("the mark is there again", () => existsSync(mark));
    t.match(JSON.parse(readFileSync(mark, "utf8")), { job_id: second!.job_id, count: 4 });
    t.equal((await jobsOnce(doors, 2)).length, 2, "the job of before");
    t.notMatch(JSON.stringify(doors.server.log), /Nobody|1\.2\.3\.4/, "no word of the patient");
  },
);

await t.test(
  "rules: who sent it, what it is, and series or studies; what none takes is kept and told once",
  async (t) => {
    const output = (place: { output: string }, name: string) => path.join(place.output, name);
    const { place, spool, file } = doorsPlace(t);
    const doors = JSON.parse(readFileSync(file, "utf8")) as Record<string, unknown>;
    const when = (tag: string, value: string) => [{ tag, in: [value], if_absent: "refuse" }];
    writeFileSync(
      file,
      JSON.stringify({
        ...doors,
        peers: { ct1: { ae_title: "CT ONE" }, far: { ae_title: "FAR" } },
        rules: [
          { name: "far", from: ["far"], output_folder: output(place, "far") },
          // Nothing of these two is quiet before the test is over; a timer of Node.js holds less
          // than 25 days
          {
            name: "head",
            when: when("BodyPartExamined", "HEAD"),
            group: "study",
            quiet: "60d",
            outputs: ["json"],
            output_folder: output(place, "head"),
          },
          {
            name: "chest",
            when: when("BodyPartExamined", "CHEST"),
            quiet: QUIET,
            models: ["ct-tissue"],
            output_folder: output(place, "chest"),
          },
        ],
      }),
    );
    const started = await startDoors(t, place);
    const of = (z: number, series: string, part: string, study = STUDY) =>
      object(z, {
        SeriesInstanceUID: series,
        StudyInstanceUID: study,
        BodyPartExamined: part,
        SOPInstanceUID: `${series}.${z}`,
      });
    await send(started.port(), [
      of(1, "1.2.3.5", "HEAD"),
      of(2, "1.2.3.5", "HEAD"),
      of(1, "1.2.3.6", "HEAD"),
      of(1, "1.2.3.7", "CHEST"),
      of(1, "1.2.3.8", "FOOT"),
      of(2, "1.2.3.8", "FOOT"),
    ]);
    const [chest, ...early] = await jobsOnce(started, 1);
    t.same(early, []);
    t.match(chest!.request, {
      models: ["ct-tissue"],
      output_folder_path: path.join(output(place, "chest"), "ct1", STUDY),
    });
    t.match((await started.ended(chest!.job_id)).counts, { succeeded: 1 });
    const complete = (study: string, token = started.server.token) =>
      started.send("POST", `/doors/received/${study}/complete`, undefined, token);
    t.match(await complete(STUDY, await issueToken(place)), {
      status: 403,
      body: { error: "path_not_allowed" },
    });
    const answer = await complete(STUDY);
    t.match(answer, { status: 200 });
    const received = answer.body["received"] as {
      rule: string;
      series: string[];
      job_id: string;
      objects: number;
    }[];
    t.match(
      received.sort((a, b) => (a.series[0]! < b.series[0]! ? -1 : 1)),
      [
        { peer: "ct1", rule: "head", series: ["1.2.3.5", "1.2.3.6"], objects: 3 },
        { rule: "chest", series: ["1.2.3.7"], objects: 1, job_id: chest!.job_id },
        { rule: null, series: ["1.2.3.8"], objects: 2, job_id: null },
      ],
    );
    const head = await started.ended(received[0]!.job_id);
    t.match(head, { counts: { succeeded: 2 }, request: { outputs: ["json"] } });
    t.same(readdirSync(path.join(spool, "studies/head/ct1", STUDY)).length, 3);
    // A series that comes later makes a job of all, and the same series by another way round make
    // none
    const series = ["1.2.3.40", "1.2.3.5", "1.2.3.6"];
    await send(started.port(), [of(1, "1.2.3.40", "HEAD")]);
    const grown = async () =>
      ((await complete(STUDY)).body["received"] as typeof received).find(
        ({ rule }) => rule === "head",
      );
    const all = await grown();
    t.match(all, { series, objects: 4 });
    t.match((await started.ended(all!.job_id)).counts, { succeeded: 3 });
    rmSync(path.join(spool, "marks/ct1", STUDY), { recursive: true });
    for (const one of series.toReversed()) await send(started.port(), [of(1, one, "HEAD")]);
    t.equal((await grown())?.job_id, all!.job_id);
    for (const study of ["1.2.4", "..", "1.2.3%2F1.2.3.5"])
      t.match(await complete(study), { status: 404 }, study);
    const told = started.server.log.filter(({ msg }) => msg.startsWith("no rule takes"));
    t.match(told, [{ peer: "ct1" }]);
    t.match(
      await (await fetch(`${started.server.url}/metrics`)).text(),
      /radserve_received_waiting\{for="rule"\} 1/,
    );
  },
);

await t.test(
  "a series that comes after the job of its study makes one of all its objects",
  async (t) => {
    const { place, results, file } = doorsPlace(t);
    const settings = JSON.parse(readFileSync(file, "utf8")) as Record<string, unknown>;
    const rules = [{ name: "all", group: "study", quiet: QUIET, output_folder: results }];
    writeFileSync(file, JSON.stringify({ ...settings, rules }));
    const doors = await startDoors(t, place);
    await send(doors.port(), [object(1)]);
    const [first] = await jobsOnce(doors, 1);
    await doors.ended(first!.job_id);
    await send(doors.port(), [
      object(2, { SeriesInstanceUID: "1.2.3.9", SOPInstanceUID: "1.2.3.9.2" }),
    ]);
    const [second] = await jobsOnce(doors, 2);
    t.match((await doors.ended(second!.job_id)).counts, { succeeded: 2 });
    const counts = linesOf(place).flatMap(({ kind, outcome, count }) =>
      kind === "submitted" && outcome === "done" ? [count] : [],
    );
    t.same(counts, [1, 2]);
  },
);

await t.test(
  "what was kept as long as set goes with its job's end, and its results stay",
  async (t) => {
    const { place, spool, results } = doorsPlace(t, { keep: "2s" });
    const doors = await startDoors(t, place);
    await send(doors.port(), [object(1)]);
    const [job] = await jobsOnce(doors, 1);
    await doors.ended(job!.job_id);
    await until("a removed object is in the audit", () =>
      linesOf(place).some(({ kind, count }) => kind === "removed" && count === 1),
    );
    await until("the spool is empty", () => filesBelow(spool).length === 0);
    t.equal(receiptsIn(results).length, 1);
    // Its UID is free again
    await send(doors.port(), [object(1, { PatientID: "Nobody else" })]);
    t.equal((await jobsOnce(doors, 2)).length, 2);
  },
);

await t.test("nothing that came minutes ago goes when the clock is set ahead", async (t) => {
  const { place, spool } = doorsPlace(t, { keep: "1h" });
  const shift = path.join(place.directory, "shift");
  writeFileSync(shift, "0");
  place.environment["TEST_CLOCK"] = shift;
  const clock = path.join(root, "dist/test/support/shifted-clock.js");
  place.environment["NODE_OPTIONS"] =
    `${place.environment["NODE_OPTIONS"] ?? ""} --import ${clock}`;
  const doors = await startDoors(t, { ...place, remove: () => undefined });
  await send(doors.port(), [object(1), object(2)]);
  const [job] = await jobsOnce(doors, 1);
  await doors.ended(job!.job_id);
  const mark = path.join(spool, "marks/ct1", STUDY, "1.2.3.4.json");
  await until("the job is seen to have ended", () =>
    readFileSync(mark, "utf8").includes('"ended":true'),
  );
  await doors.server.stop();
  writeFileSync(shift, String(30 * 86_400_000));
  const ahead = await startDoors(t, place);
  // A further series goes through a look of its own, which comes behind the first
  await send(ahead.port(), [
    object(1, { SeriesInstanceUID: "1.2.3.9", SOPInstanceUID: "1.2.3.9.1" }),
  ]);
  const [next] = await jobsOnce(ahead, 2);
  await ahead.ended(next!.job_id);
  const other = path.join(spool, "marks/ct1", STUDY, "1.2.3.9.json");
  await until("the second job is seen to have ended", () =>
    readFileSync(other, "utf8").includes('"ended":true'),
  );
  t.equal(filesBelow(path.join(spool, "series")).length, 3);
  t.same(
    linesOf(place).filter(({ kind }) => kind === "removed"),
    [],
  );
});

await t.test(
  "a series that a person removes while it waits is dropped, and said once",
  async (t) => {
    const { place, spool } = doorsPlace(t);
    const doors = await startDoors(t, place);
    await send(doors.port(), [object(1)]);
    rmSync(path.join(spool, "series/ct1", STUDY), { recursive: true });
    const isTold = ({ msg }: { msg: string }) => msg.includes("not in the spool any more");
    await doors.server.logged(isTold);
    const metrics = async () => (await fetch(`${doors.server.url}/metrics`)).text();
    await until("nothing waits any more", async () =>
      /radserve_received_waiting\{for="quiet"\} 0/.test(await metrics()),
    );
    const { body } = await doors.send("GET", "/health/ready");
    t.same(body["conditions"] ?? [], []);
    // It may come again, and is a job then
    await send(doors.port(), [object(1)]);
    const [job] = await jobsOnce(doors, 1);
    t.match((await doors.ended(job!.job_id)).counts, { succeeded: 1 });
    t.equal(doors.server.log.filter(isTold).length, 1);
    t.notMatch(JSON.stringify(doors.server.log), /could not become a job/);
  },
);

await t.test("what comes again and again does not wait for ever", async (t) => {
  const { place } = doorsPlace(t, {}, withDurations({ receivedMost: 1_000, doorFigures: 50 }));
  const file = place.environment["RADSERVE_DOORS"]!;
  const settings = JSON.parse(readFileSync(file, "utf8")) as { rules: object[] };
  const rules = settings.rules.map((rule) => ({ ...rule, quiet: "1s" }));
  writeFileSync(file, JSON.stringify({ ...settings, rules }));
  const doors = await startDoors(t, place);
  const state = { isDone: false };
  const drip = (async () => {
    while (!state.isDone) {
      await send(doors.port(), [object(1)]);
      await delay(100);
    }
  })();
  const [job] = await jobsOnce(doors, 1);
  state.isDone = true;
  await drip;
  t.match((await doors.ended(job!.job_id)).counts, { succeeded: 1 });
});

await t.test("an image that takes the place of a damaged one makes a job of its own", async (t) => {
  const { place, spool } = doorsPlace(t);
  const { file, sopInstanceUid } = object(1);
  // As version 0.6 kept it
  const series = path.join(spool, "series/ct1", STUDY, "1.2.3.4");
  mkdirSync(series, { recursive: true });
  writeFileSync(path.join(series, `${sopInstanceUid}.dcm`), file.subarray(0, -10));
  const doors = await startDoors(t, place);
  const [first] = await jobsOnce(doors, 1);
  t.match((await doors.ended(first!.job_id)).counts, { failed: 1 });
  await send(doors.port(), [object(1)]);
  const [second] = await jobsOnce(doors, 2);
  t.match((await doors.ended(second!.job_id)).counts, { succeeded: 1 });
});

await t.test(
  "what comes while the audit cannot be written is not kept, and comes later",
  async (t) => {
    const { place, spool } = doorsPlace(t);
    const disk = onSmallDisk(place);
    if (disk === undefined) {
      t.pass("skipped: mounting a tmpfs needs root");
      return;
    }
    const doors = await startDoors(t, place);
    disk.fill();
    const caller = await associate(doors.port());
    // What is left of the last page takes a few lines more
    const sent = (z: number) => caller.store(object(z, { SeriesInstanceUID: `1.2.3.4.${z}` }));
    let z = 1;
    let answer = await sent(z);
    while (answer.status === 0 && z < 200) answer = await sent((z += 1));
    t.match(answer, { status: 0x0110, comment: "audit_failed" });
    t.equal(filesBelow(path.join(spool, "series")).length, z - 1, "nothing of it lies there");
    disk.free();
    await until("the audit can be written again", async () => (await sent(z)).status === 0);
    await caller.release();
    const lines = (word: string) =>
      linesOf(place).filter(({ kind, outcome }) => kind === "received" && outcome === word).length;
    await until("each series has its line", () => lines("done") === z);
    t.ok(lines("asked") >= z);
  },
);

await t.test(
  "a job that is lost with the database is made again, and one that was seen to end is not",
  async (t) => {
    const { place, spool } = doorsPlace(t, {}, { RADSERVE_ROLE: "api" });
    const doors = await startDoors(t, { ...place, remove: () => undefined });
    await send(doors.port(), [object(1)]);
    const [lost] = await jobsOnce(doors, 1);
    const database = new pg.Client(place.environment["DATABASE_URL"]);
    await database.connect();
    await database.query("delete from radserve.job");
    await database.end();
    const [again] = await jobsOnce(doors, 1);
    t.not(again!.job_id, lost!.job_id);
    await doors.server.stop();
    place.environment["RADSERVE_ROLE"] = "both";
    const working = await startDoors(t, place);
    t.match((await working.ended(again!.job_id)).counts, { succeeded: 1 });
    const mark = path.join(spool, "marks/ct1", STUDY, "1.2.3.4.json");
    await until("the mark says that the job has ended", () =>
      readFileSync(mark, "utf8").includes('"ended":true'),
    );
    t.match(await working.send("POST", `/bulk_inference/${again!.job_id}/purge`), { status: 200 });
    await send(working.port(), [object(1)]);
    t.match(await working.send("POST", `/doors/received/${STUDY}/complete`), {
      body: { received: [{ job_id: again!.job_id }] },
    });
    t.equal((await jobsOnce(working, 0)).length, 0);
  },
);

await t.test(
  "a port that another program has is a condition, and opens when it is free",
  async (t) => {
    const other = createServer().listen(0, "127.0.0.1");
    await once(other, "listening");
    const { port } = other.address() as AddressInfo;
    const { place } = doorsPlace(t, { dicom: { port } });
    const doors = await startDoors(t, place, false);
    const conditions = async () => {
      const { body } = await doors.send("GET", "/health/ready");
      const all = (body["conditions"] ?? []) as { condition: string; message: string }[];
      return all.filter(({ condition }) => condition === "door_closed");
    };
    await until("the closed port is a condition", async () => (await conditions()).length > 0);
    t.match(await conditions(), [{ message: "The port for DICOM is closed: EADDRINUSE." }]);
    other.close();
    await doors.server.logged(({ msg }) => msg === "the port for DICOM is open");
    await until("the condition has gone", async () => (await conditions()).length === 0);
    await send(port, [object(1)]);
  },
);

await t.test(
  "a second patient in a study is kept apart, has its job, and is told until it is settled",
  async (t) => {
    const { place, spool } = doorsPlace(t);
    const doors = await startDoors(t, place);
    const series = (n: number, PatientID: string) =>
      object(n, { SeriesInstanceUID: `1.2.3.4.${n}`, PatientID });
    await send(doors.port(), [series(1, "A")]);
    const [job] = await jobsOnce(doors, 1);
    t.match((await doors.ended(job!.job_id)).counts, { succeeded: 1 });
    const caller = await associate(doors.port());
    t.match(await caller.store(series(2, "B")), { status: 0 });
    const both = await jobsOnce(doors, 2);
    t.match((await doors.ended(both[0]!.job_id)).counts, { succeeded: 1 });
    const conflicts = async () => {
      const { body } = await doors.send("GET", "/health/ready");
      const { conditions = [] } = body as { conditions?: { condition: string }[] };
      return conditions.filter(({ condition }) => condition === "received_conflict");
    };
    const told = await until("the condition is told", async () => {
      const found = await conflicts();
      return found.length > 0 && found;
    });
    t.match(told, [{ where: /^ct1: study [0-9a-f]{16}$/, message: /1 object, .*PatientIDs/ }]);
    t.notMatch(JSON.stringify(told), STUDY);
    for (const folder of ["series", "marks", "again"])
      rmSync(path.join(spool, folder, "ct1", STUDY), { recursive: true, force: true });
    await until("the condition has ended", async () => (await conflicts()).length === 0);
    t.match(await caller.store(series(3, "B")), { status: 0 });
    await caller.release();
    await jobsOnce(doors, 3);
  },
);
