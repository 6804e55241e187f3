/** What is received while something is in the way: the audit, the port, another patient. */
import { once } from "node:events";
import { readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import t from "tap";
import { linesOf, onSmallDisk } from "../../support/audit.js";
import { withDurations } from "../../support/durations.js";
import { HOUR_MS } from "../../support/held.js";
import {
  associate,
  gatewayPlace,
  filesBelow,
  jobsOnce,
  object,
  send,
  startGateway,
  STUDY,
} from "../../support/gateway.js";
import { freePort, issueToken } from "../../support/server.js";
import { bodyOf, STOW_TYPE } from "../../support/stow.js";
import { until } from "../../support/until.js";

await t.test("what comes again and again does not wait for ever", async (t) => {
  const { place } = gatewayPlace(t, {}, withDurations({ receivedMost: 1_000, gatewayFigures: 50 }));
  const file = place.environment["RADSERVE_GATEWAY"]!;
  const settings = JSON.parse(readFileSync(file, "utf8")) as { rules: object[] };
  const rules = settings.rules.map((rule) => ({ ...rule, quiet: "1s" }));
  writeFileSync(file, JSON.stringify({ ...settings, rules }));
  const gateway = await startGateway(t, place);
  const state = { isDone: false };
  const drip = (async () => {
    while (!state.isDone) {
      await send(gateway.port(), [object(1)]);
      await delay(100);
    }
  })();
  const [job] = await jobsOnce(gateway, 1);
  state.isDone = true;
  await drip;
  t.match((await gateway.ended(job!.job_id)).counts, { succeeded: 1 });
});

await t.test(
  "what comes while the audit cannot be written is not kept, and comes later",
  async (t) => {
    const { place, spool } = gatewayPlace(t);
    const disk = onSmallDisk(place);
    if (disk === undefined) {
      t.pass("skipped: mounting a tmpfs needs root");
      return;
    }
    const gateway = await startGateway(t, place);
    disk.fill();
    const caller = await associate(gateway.port());
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
  "a port that another program has is a condition, and opens when it is free",
  async (t) => {
    // One that no other program is given when it is free
    const port = await freePort();
    const other = createServer().listen(port, "127.0.0.1");
    await once(other, "listening");
    const { place } = gatewayPlace(t, { dicom: { port } });
    const gateway = await startGateway(t, place, false);
    const conditions = async () => {
      const { body } = await gateway.send("GET", "/health/ready");
      const all = (body["conditions"] ?? []) as { condition: string; message: string }[];
      return all.filter(({ condition }) => condition === "dicom_port_closed");
    };
    await until("the closed port is a condition", async () => (await conditions()).length > 0);
    t.match(await conditions(), [{ message: "The port for DICOM is closed: EADDRINUSE." }]);
    other.close();
    await gateway.server.logged(({ msg }) => msg === "the port for DICOM is open");
    await until("the condition has gone", async () => (await conditions()).length === 0);
    await send(port, [object(1)]);
  },
);

await t.test(
  "a second patient in a study is kept apart, has its job, and is told until it is settled",
  async (t) => {
    const { place, spool } = gatewayPlace(t);
    const gateway = await startGateway(t, place);
    const series = (n: number, PatientID: string) =>
      object(n, { SeriesInstanceUID: `1.2.3.4.${n}`, PatientID });
    await send(gateway.port(), [series(1, "A")]);
    const [job] = await jobsOnce(gateway, 1);
    t.match((await gateway.ended(job!.job_id)).counts, { succeeded: 1 });
    const caller = await associate(gateway.port());
    t.match(await caller.store(series(2, "B")), { status: 0 });
    const both = await jobsOnce(gateway, 2);
    t.match((await gateway.ended(both[0]!.job_id)).counts, { succeeded: 1 });
    const conflicts = async () => {
      const { body } = await gateway.send("GET", "/health/ready");
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
      // The server may write into them meanwhile
      rmSync(path.join(spool, folder, "ct1", STUDY), {
        recursive: true,
        force: true,
        maxRetries: 10,
      });
    await until("the condition has ended", async () => (await conflicts()).length === 0);
    t.match(await caller.store(series(3, "B")), { status: 0 });
    await caller.release();
    await jobsOnce(gateway, 3);
  },
);

await t.test(
  "of two patients with the same UIDs, the one is removed and replaced that is named",
  async (t) => {
    const { place, spool } = gatewayPlace(t);
    const gateway = await startGateway(t, place);
    const of = (PatientID: string, StudyID = "1") => object(1, { PatientID, StudyID });
    await send(gateway.port(), [of("A"), of("B")]);
    const page = async (method: "GET" | "POST", rest = "") =>
      (await gateway.send(method, `/gateway/received${rest}`)).body;
    const listed = (await page("GET")) as { received: { study: string; apart: boolean }[] };
    const apart = listed.received.find((one) => one.apart)!.study;
    t.match(apart, /^1\.2\.3=[0-9a-f]{16}$/);
    t.match(listed.received.find((one) => !one.apart)?.study, STUDY);
    t.match((await page("GET", `/${STUDY}`))["received"], { length: 2 }, "both are shown");
    t.match((await page("GET", `/${apart}`))["received"], { length: 1 });
    const chosen = "?series=1.2.3.4";
    t.match(await page("POST", `/${STUDY}/replace${chosen}`), { replaceable: { length: 1 } });
    const caller = await associate(gateway.port());
    t.match(await caller.store(of("A", "2")), { status: 0 });
    t.match(await caller.store(of("B", "2")), { status: 0x0111 });
    await caller.release();
    t.match(await page("POST", `/${apart}/remove${chosen}`), { removed: [{ study: apart }] });
    t.match(filesBelow(path.join(spool, "series")), [/^ct1\/1\.2\.3\/1\.2\.3\.4\//]);
    await send(gateway.port(), [of("B")]);
    t.match(await page("POST", `/${STUDY}/remove${chosen}`), { removed: [{ study: STUDY }] });
    t.match(filesBelow(path.join(spool, "series")), [/^ct1\/1\.2\.3=/], "B keeps its image");
  },
);

interface Told {
  conditions?: { condition: string }[];
  warnings?: { message: string }[];
}

await t.test("a sender that is refused again and again is told until it is let in", async (t) => {
  const peers = { ct1: { ae_title: "CT ONE", networks: ["127.0.0.0/8"] } };
  const far = { ae_title: "FAR", networks: ["10.0.0.0/8"] };
  const { place, file } = gatewayPlace(
    t,
    { peers: { ...peers, far } },
    withDurations({ gatewayFigures: 20, refusalsApart: 0 }),
  );
  const gateway = await startGateway(t, place);
  const told = async () => {
    const { body } = await gateway.send("GET", "/health/ready");
    // Its models may still be loaded
    const { conditions = [], warnings = [] } = (body["details"] ?? body) as Told;
    t.notOk(
      conditions.some(({ condition }) => condition === "sender_refused"),
      "nothing is wrong here",
    );
    return warnings.map(({ message }) => message);
  };
  const refusedTimes = async (times: number, callingAe: string, more = {}) => {
    for (let i = 0; i < times; i++)
      await t.rejects(associate(gateway.port(), { callingAe, ...more }), { message: /AE title/ });
  };
  // Each name once, and more of them than are remembered of an address
  for (let i = 0; i < 30; i++) await refusedTimes(1, `SCAN ${i}`);
  await refusedTimes(2, "TWICE");
  await refusedTimes(3, "FAR");
  await refusedTimes(3, "DOE^JANE");
  await refusedTimes(3, "CT ONE", { calledAe: "OTHER" });
  const expected =
    "Refused again and again: far (with its AE title, from outside its networks); 1 sender (for a calling AE title that no peer has); ct1 (for a called AE title that is not in dicom.ae_title).";
  await until("all are told, in one", async () => (await told()).join() === expected);
  const named = await gateway.server.told(
    ({ msg }) => msg === "a sender is refused again and again",
    3,
  );
  t.same(
    named.map(({ calling, address }) => [calling, address]),
    [
      ["FAR", "127.0.0.1"],
      ["DOE^JANE", "127.0.0.1"],
      ["CT ONE", "127.0.0.1"],
    ],
    "the log names it",
  );
  await send(gateway.port(), [object(1)]);
  await until("ct1 is let in", async () => !/ct1/.test((await told()).join()));
  const broken = await associate(gateway.port());
  for (let i = 0; i < 3; i++) {
    const caller = await associate(gateway.port());
    t.not((await caller.store({ ...object(2), dataSet: [Buffer.from("no data set")] })).status, 0);
    await caller.release();
  }
  await until("nothing of ct1 is kept", async () => /ct1 \(each obj/.test((await told()).join()));
  t.equal((await broken.store(object(2))).status, 0);
  await until("it is kept again", async () => !/ct1/.test((await told()).join()));
  await broken.release();
  const settings = JSON.parse(readFileSync(file, "utf8")) as object;
  writeFileSync(
    file,
    JSON.stringify({ ...settings, peers: { ...peers, far: { ...far, networks: ["127.0.0.1"] } } }),
  );
  gateway.server.process.kill("SIGHUP");
  await until("other settings hold", async () => (await told()).length === 0);
  await (await associate(gateway.port(), { callingAe: "FAR" })).release();
});

await t.test("a token that STOW-RS refuses again and again is told until it reaches", async (t) => {
  const durations = withDurations({ gatewayFigures: 20, refusalsApart: 0 });
  const { place } = gatewayPlace(t, { dicom: undefined }, durations);
  const gateway = await startGateway(t, place, false);
  const warned = async () => {
    const { body } = await gateway.send("GET", "/health/ready");
    const { warnings = [] } = (body["details"] ?? body) as Told;
    return warnings;
  };
  const post = async (...claims: string[]) => {
    const { status } = await fetch(`${gateway.server.url}/dicomweb/studies`, {
      method: "POST",
      headers: {
        Authorization: await issueToken(place, "--subject", "viewer", ...claims),
        "Content-Type": STOW_TYPE,
      },
      body: bodyOf([object(1).file]),
    });
    return status;
  };
  const elsewhere = ["--input-root", path.join(place.input, "elsewhere")];
  for (let i = 0; i < 3; i++) t.equal(await post(...elsewhere), 403);
  const told = await until("it is told", async () => {
    const warnings = await warned();
    return warnings.length > 0 && warnings;
  });
  t.match(told, [
    {
      condition: "sender_refused",
      where: "STOW-RS",
      message:
        "Refused again and again: stow-viewer (with a token that does not reach the spool, or the results of a rule).",
    },
  ]);
  const { body } = await gateway.send("GET", "/gateway/senders");
  t.match(body["senders"], [
    { peer: "ct1" },
    { peer: "stow-viewer", refused: { path_not_allowed: 3 } },
  ]);
  const metrics = await (await fetch(`${gateway.server.url}/metrics`)).text();
  t.match(metrics, /^radserve_gateway_refused_total\{reason="path_not_allowed"\} 3$/m);
  t.equal(await post(), 200);
  await until("it is let in", async () => (await warned()).length === 0);
});

await t.test("refusals at one moment are one", async (t) => {
  const lengths = { gatewayFigures: 20, refusalsApart: HOUR_MS };
  const { place } = gatewayPlace(t, {}, withDurations(lengths));
  const gateway = await startGateway(t, place);
  for (let i = 0; i < 20; i++)
    await t.rejects(associate(gateway.port(), { callingAe: "OTHER" }), { message: /AE title/ });
  await until("they are counted", async () => {
    const { body } = await gateway.send("GET", "/gateway/senders");
    return (body["callers"] as { count: number }[])[0]?.count === 20;
  });
  const { body } = await gateway.send("GET", "/health/ready");
  t.same(((body["details"] ?? body) as Told).warnings, []);
});
