/** How long what was received is kept, and what becomes of its job when something of it is lost. */
import { existsSync, readFileSync, rmSync } from "node:fs";
import path from "node:path";
import pg from "pg";
import t from "tap";
import { SPOOL_MARK } from "../../../src/files/folder-mark.js";
import { linesOf } from "../../support/audit.js";
import {
  gatewayPlace,
  filesBelow,
  jobsOnce,
  object,
  send,
  startGateway,
  STUDY,
} from "../../support/gateway.js";
import { holdHours } from "../../support/held.js";
import { shiftClock } from "../../support/server.js";
import { until } from "../../support/until.js";

/** The mark of a series says that its job has ended; a fast job may have ended before it. */
const saysEnded = (mark: string) =>
  existsSync(mark) && readFileSync(mark, "utf8").includes('"ended":true');

const receiptsIn = (folder: string) => filesBelow(folder).filter((name) => name.endsWith(".json"));

await t.test(
  "what was kept as long as set goes with its job's end, and its results stay",
  async (t) => {
    const { place, spool, results } = gatewayPlace(t, { keep: "2s" });
    const gateway = await startGateway(t, place);
    await send(gateway.port(), [object(1)]);
    const [job] = await jobsOnce(gateway, 1);
    await gateway.ended(job!.job_id);
    await until("a removed object is in the audit", () =>
      linesOf(place).some(({ kind, count }) => kind === "removed" && count === 1),
    );
    await until("the spool is empty", () => filesBelow(spool).join("") === SPOOL_MARK);
    t.equal(receiptsIn(results).length, 1);
    // Its UID is free again
    await send(gateway.port(), [object(1, { PatientID: "Nobody else" })]);
    t.equal((await jobsOnce(gateway, 2)).length, 2);
  },
);

await t.test("nothing that came minutes ago goes when the clock is set ahead", async (t) => {
  const { place, spool } = gatewayPlace(t, { keep: "1h" });
  const setAhead = shiftClock(place);
  const gateway = await startGateway(t, { ...place, remove: () => undefined });
  await send(gateway.port(), [object(1), object(2)]);
  const [job] = await jobsOnce(gateway, 1);
  await gateway.ended(job!.job_id);
  const mark = path.join(spool, "marks/ct1", STUDY, "1.2.3.4.json");
  await until("the job is seen to have ended", () => saysEnded(mark));
  await gateway.server.stop();
  setAhead(30 * 86_400_000);
  const ahead = await startGateway(t, place);
  // A further series goes through a look of its own, which comes behind the first
  await send(ahead.port(), [
    object(1, { SeriesInstanceUID: "1.2.3.9", SOPInstanceUID: "1.2.3.9.1" }),
  ]);
  const [next] = await jobsOnce(ahead, 2);
  await ahead.ended(next!.job_id);
  const other = path.join(spool, "marks/ct1", STUDY, "1.2.3.9.json");
  await until("the second job is seen to have ended", () => saysEnded(other));
  t.equal(filesBelow(path.join(spool, "series")).length, 3);
  t.same(
    linesOf(place).filter(({ kind }) => kind === "removed"),
    [],
  );
});

await t.test(
  "a series that a person removes while it waits is dropped, and said once",
  async (t) => {
    const { place, spool } = gatewayPlace(t, {
      rules: [{ name: "all", quiet: "1h", output_folder: "OUT" }],
    });
    const endHours = holdHours(place);
    const gateway = await startGateway(t, place);
    await send(gateway.port(), [object(1)]);
    rmSync(path.join(spool, "series/ct1", STUDY), { recursive: true });
    endHours();
    const isTold = ({ msg }: { msg: string }) => msg.includes("not in the spool any more");
    await gateway.server.logged(isTold);
    const metrics = async () => (await fetch(`${gateway.server.url}/metrics`)).text();
    await until("nothing waits any more", async () =>
      /radserve_received_waiting\{for="quiet"\} 0/.test(await metrics()),
    );
    const { body } = await gateway.send("GET", "/health/ready");
    t.same(body["conditions"] ?? [], []);
    // It may come again, and is a job then
    await send(gateway.port(), [object(1)]);
    t.match(await gateway.send("POST", `/gateway/received/${STUDY}/complete`), { status: 200 });
    const [job] = await jobsOnce(gateway, 1);
    t.match((await gateway.ended(job!.job_id)).counts, { succeeded: 1 });
    t.equal(gateway.server.log.filter(isTold).length, 1);
    t.notMatch(JSON.stringify(gateway.server.log), /could not become a job/);
  },
);

await t.test(
  "a job that is lost with the database is made again, and one that was seen to end is not",
  async (t) => {
    const { place, spool } = gatewayPlace(t, {}, { RADSERVE_ROLE: "api" });
    const gateway = await startGateway(t, { ...place, remove: () => undefined });
    await send(gateway.port(), [object(1)]);
    const [lost] = await jobsOnce(gateway, 1);
    const database = new pg.Client(place.environment["DATABASE_URL"]);
    await database.connect();
    await database.query("delete from radserve.job");
    await database.end();
    const [again] = await jobsOnce(gateway, 1);
    t.not(again!.job_id, lost!.job_id);
    await gateway.server.stop();
    place.environment["RADSERVE_ROLE"] = "both";
    const working = await startGateway(t, place);
    t.match((await working.ended(again!.job_id)).counts, { succeeded: 1 });
    const mark = path.join(spool, "marks/ct1", STUDY, "1.2.3.4.json");
    await until("the mark says that the job has ended", () => saysEnded(mark));
    t.match(await working.send("POST", `/bulk_inference/${again!.job_id}/purge`), { status: 200 });
    await send(working.port(), [object(1)]);
    t.match(await working.send("POST", `/gateway/received/${STUDY}/complete`), {
      body: { received: [{ job_id: again!.job_id }] },
    });
    t.equal((await jobsOnce(working, 0)).length, 0);
  },
);
