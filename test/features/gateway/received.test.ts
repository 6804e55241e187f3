/**
 * From an object that comes over the port for DICOM to the receipt: real server, PostgreSQL and
 * files.
 */
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import t, { type Test } from "tap";
import type { Receipt } from "../../../src/results/receipt/receipt.js";
import { linesOf } from "../../support/audit.js";
import {
  associate,
  gatewayPlace,
  filesBelow,
  jobsOnce,
  object,
  QUIET,
  send,
  startGateway,
  STUDY,
} from "../../support/gateway.js";
import { withDurations } from "../../support/durations.js";
import { issueToken } from "../../support/server.js";
import { until } from "../../support/until.js";

const receiptsIn = (folder: string) => filesBelow(folder).filter((name) => name.endsWith(".json"));

/**
 * A server that three slices have come to over one association, which keeps their series from being
 * complete where the machine stands still between two.
 */
async function withSeries(t: Test) {
  const { place, spool, results } = gatewayPlace(t, {
    rules: [{ name: "all", quiet: QUIET, pause: "1h", output_folder: "OUT" }],
  });
  const gateway = await startGateway(t, place);
  await send(
    gateway.port(),
    [1, 2, 3].map((z) => object(z)),
  );
  return { gateway, place, spool, results };
}

await t.test(
  "a series that has been quiet is a job, the same again is none, and late slices are one more",
  async (t) => {
    const { gateway, place, spool, results } = await withSeries(t);
    const [first] = await jobsOnce(gateway, 1);
    t.match((await gateway.ended(first!.job_id)).counts, { succeeded: 1, failed: 0, skipped: 0 });
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
      gateway.port(),
      [3, 2, 1].map((z) => object(z)),
    );
    await send(gateway.port(), [object(4)]);
    const [second, ...others] = await jobsOnce(gateway, 2);
    t.match((await gateway.ended(second!.job_id)).counts, { succeeded: 1 });
    t.same(
      others.map(({ job_id }) => job_id),
      [first!.job_id],
      "the three that came again made none",
    );
    t.equal(receiptsIn(results).length, 1);
    t.equal(frames(), 4, "the series has grown");
    t.equal(filesBelow(path.join(spool, "series")).length, 4);
    const metrics = await (await fetch(`${gateway.server.url}/metrics`)).text();
    t.match(metrics, /radserve_gateway_objects_total\{listener="dicom"\} 7/);
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
    const killed = gateway.server.servingPid();
    process.kill(killed, "SIGKILL");
    await until("the mark is there again", () => existsSync(mark));
    const marked = { jobs: [{ job_id: second!.job_id }], count: 4 };
    t.match(JSON.parse(readFileSync(mark, "utf8")), marked);
    t.equal((await jobsOnce(gateway, 2)).length, 2, "the job of before");
    t.notMatch(JSON.stringify(gateway.server.log), /Nobody|1\.2\.3\.4/, "no word of the patient");
  },
);

await t.test(
  "a slice that somebody has replaced is in the next result of its series",
  async (t) => {
    const { gateway, results } = await withSeries(t);
    const [first] = await jobsOnce(gateway, 1);
    await gateway.ended(first!.job_id);
    const receipt = () => {
      const [name = ""] = receiptsIn(results);
      return JSON.parse(readFileSync(path.join(results, name), "utf8")) as Receipt;
    };
    const before = receipt();
    const corrected = object(2, {}, 200);
    const caller = await associate(gateway.port());
    t.match(await caller.store(corrected), { status: 0x0111 });
    await gateway.send("POST", `/gateway/received/${STUDY}/replace`);
    t.match(await caller.store(corrected), { status: 0 });
    await caller.release();
    const [second] = await jobsOnce(gateway, 2);
    t.match((await gateway.ended(second!.job_id)).counts, { succeeded: 1, failed: 0 });
    t.equal(receiptsIn(results).length, 1, "in the place of the one before");
    t.strictSame(receipt().source.replaced, [corrected.sopInstanceUid]);
    t.not(receipt().source.pixel_sha256, before.source.pixel_sha256);
    t.strictSame(receipt().warnings, before.warnings);
  },
);

await t.test(
  "rules: who sent it, what it is, and series or studies; what none takes is kept and told once",
  async (t) => {
    const output = (place: { output: string }, name: string) => path.join(place.output, name);
    const { place, spool, file } = gatewayPlace(t);
    const gateway = JSON.parse(readFileSync(file, "utf8")) as Record<string, unknown>;
    const when = (tag: string, value: string) => [{ tag, in: [value], if_absent: "refuse" }];
    writeFileSync(
      file,
      JSON.stringify({
        ...gateway,
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
            labels: ["fat", "bone"],
            output_folder: output(place, "chest"),
          },
        ],
      }),
    );
    const started = await startGateway(t, place);
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
    t.strictSame(chest!.request.labels, ["fat", "bone"]);
    t.match((await started.ended(chest!.job_id)).counts, { succeeded: 1 });
    const complete = (study: string, token = started.server.token) =>
      started.send("POST", `/gateway/received/${study}/complete`, undefined, token);
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
    const images = readdirSync(path.join(spool, "studies/head/ct1", STUDY));
    t.same(images.filter((name) => name.endsWith(".dcm")).length, 3);
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
    const marks = path.join(spool, "marks/ct1", STUDY);
    await until("nothing is written into the marks any more", async () => {
      // An association that was over only meanwhile keeps its series waiting: it is asked again
      await grown();
      return [...series, "1.2.3.7"].every((one) =>
        readFileSync(path.join(marks, `${one}.json`), "utf8").includes('"ended":true'),
      );
    });
    rmSync(marks, { recursive: true });
    for (const one of series.toReversed()) await send(started.port(), [of(1, one, "HEAD")]);
    t.equal((await grown())?.job_id, all!.job_id);
    for (const study of ["1.2.4", "..", "1.2.3%2F1.2.3.5"])
      t.match(await complete(study), { status: 404 }, study);
    await until("one series waits for a rule", async () =>
      /radserve_received_waiting\{for="rule"\} 1/.test(
        await (await fetch(`${started.server.url}/metrics`)).text(),
      ),
    );
    // What nothing becomes of is seen, may be corrected, and goes as somebody asks
    const page = (method: "GET" | "POST", rest: string, token = started.server.token) =>
      started.send(method, `/gateway/received${rest}`, undefined, token);
    const unused = { series_instance_uid: "1.2.3.8", state: "unused", why: "no_rule" };
    t.match(await page("GET", "?state=unused"), {
      status: 200,
      body: { received: [{ ...unused, peer: "ct1", objects: 2, lost: 0, broken: 0 }] },
    });
    t.match(await page("GET", "", await issueToken(place)), { status: 403 });
    const shown = (await page("GET", `/${STUDY}`)).body["received"] as {
      series_instance_uid: string;
      rules: { rule: string; takes: boolean; why: string[] }[];
    }[];
    t.match(shown.find((one) => one.series_instance_uid === "1.2.3.8")?.rules, [
      { rule: "far", takes: false, why: ["It is for far; found ct1."] },
      { rule: "head", why: ["Expected BodyPartExamined HEAD, found FOOT."] },
      { rule: "chest", takes: false },
    ]);
    const corrected = object(1, {
      SeriesInstanceUID: "1.2.3.8",
      SOPInstanceUID: "1.2.3.8.1",
      BodyPartExamined: "CHEST",
    });
    const caller = await associate(started.port());
    t.match(await caller.store(corrected), { status: 0x0111 });
    const chosen = "?series=1.2.3.8";
    t.match(await page("POST", `/${STUDY}/replace${chosen}`), {
      body: { replaceable: [{ series_instance_uid: "1.2.3.8", objects: 2 }] },
    });
    t.match(await caller.store(corrected), { status: 0 });
    await caller.release();
    const [again] = await jobsOnce(started, 4);
    t.match(again!.request, { models: ["ct-tissue"] });
    await started.ended(again!.job_id);
    t.match(await page("POST", `/${STUDY}/remove${chosen}`), {
      body: { removed: [{ series_instance_uid: "1.2.3.8", objects: 2 }] },
    });
    t.match(await page("POST", `/${STUDY}/remove${chosen}`), { status: 404 });
    t.notOk(existsSync(path.join(spool, "series/ct1", STUDY, "1.2.3.8")));
    const removed = linesOf(place).filter(({ kind }) => kind === "removed");
    t.match(removed, [{ count: 2, subject: "ct1" }]);
    const told = await started.server.told(({ msg }) => msg.startsWith("no rule takes"));
    t.match(told, [{ peer: "ct1" }]);
  },
);

await t.test(
  "a series that comes after the job of its study makes one of all its objects",
  async (t) => {
    const { place, results, file } = gatewayPlace(t);
    const settings = JSON.parse(readFileSync(file, "utf8")) as Record<string, unknown>;
    const rules = [{ name: "all", group: "study", quiet: QUIET, output_folder: results }];
    writeFileSync(file, JSON.stringify({ ...settings, rules }));
    const gateway = await startGateway(t, place);
    await send(gateway.port(), [object(1)]);
    const [first] = await jobsOnce(gateway, 1);
    await gateway.ended(first!.job_id);
    await send(gateway.port(), [
      object(2, { SeriesInstanceUID: "1.2.3.9", SOPInstanceUID: "1.2.3.9.2" }),
    ]);
    const [second] = await jobsOnce(gateway, 2);
    t.match((await gateway.ended(second!.job_id)).counts, { succeeded: 2 });
    const counts = linesOf(place).flatMap(({ kind, outcome, count }) =>
      kind === "submitted" && outcome === "done" ? [count] : [],
    );
    t.same(counts, [1, 2]);
  },
);

await t.test("the only series of a rule's study has a name of its own", async (t) => {
  const of = (description: string) => ({
    name: description,
    group: "study",
    quiet: QUIET,
    pause: "1h",
    when: [{ tag: "SeriesDescription", in: [description], if_absent: "refuse" }],
    output_folder: "OUT",
  });
  const { place, results } = gatewayPlace(t, { rules: [of("ct"), of("pet")] });
  const gateway = await startGateway(t, place);
  const series = (uid: string, description: string) =>
    [1, 2].map((z) =>
      object(z, {
        SeriesInstanceUID: uid,
        SeriesDescription: description,
        SOPInstanceUID: `${uid}.${z}`,
      }),
    );
  await send(gateway.port(), [...series("1.2.3.5", "ct"), ...series("1.2.3.6", "pet")]);
  for (const { job_id } of await jobsOnce(gateway, 2))
    t.match((await gateway.ended(job_id)).counts, { succeeded: 1, failed: 0 });
  const named = ["1.2.3.5", "1.2.3.6"].map((uid) => `ct1/${STUDY}/${STUDY}.${uid}.json`);
  t.strictSame(receiptsIn(results), named);
  // Of another series that comes once this one has left the spool
  t.match(await gateway.send("POST", `/gateway/received/${STUDY}/remove`), { status: 200 });
  await send(gateway.port(), series("1.2.3.7", "ct"));
  const [third] = await jobsOnce(gateway, 3);
  t.match((await gateway.ended(third!.job_id)).counts, { succeeded: 1, failed: 0 });
  t.strictSame(receiptsIn(results), [...named, `ct1/${STUDY}/${STUDY}.1.2.3.7.json`]);
});

await t.test("an image that takes the place of a damaged one makes a job of its own", async (t) => {
  const { place, spool } = gatewayPlace(t);
  const { file, sopInstanceUid } = object(1);
  // As version 0.6 kept it
  const series = path.join(spool, "series/ct1", STUDY, "1.2.3.4");
  mkdirSync(series, { recursive: true });
  writeFileSync(path.join(series, `${sopInstanceUid}.dcm`), file.subarray(0, -10));
  const gateway = await startGateway(t, place);
  const [first] = await jobsOnce(gateway, 1);
  t.match((await gateway.ended(first!.job_id)).counts, { failed: 1 });
  await send(gateway.port(), [object(1)]);
  const [second] = await jobsOnce(gateway, 2);
  t.match((await gateway.ended(second!.job_id)).counts, { succeeded: 1 });
});

await t.test("an association is not ended while a rule waits for more over it", async (t) => {
  const lengths = { associationIdle: 200, gatewayFigures: 50 };
  const rules = [{ name: "all", quiet: QUIET, pause: "1h", output_folder: "OUT" }];
  const { place } = gatewayPlace(t, { rules }, withDurations(lengths));
  const gateway = await startGateway(t, place);
  const caller = await associate(gateway.port());
  t.match(await caller.store(object(1)), { status: 0 });
  await delay(5 * lengths.associationIdle);
  t.match(await caller.store(object(2)), { status: 0 }, "it is open");
  await caller.release();
  const [job] = await jobsOnce(gateway, 1);
  t.match((await gateway.ended(job!.job_id)).counts, { succeeded: 1 });
});
