/**
 * What bulk work costs when it is over: nothing. The private database and its thread rest until
 * they are asked.
 */
import path from "node:path";
import t, { type Test } from "tap";
import { databaseFolders } from "../../../src/features/local-postgres/folders.js";
import { postmasterOf } from "../../../src/features/local-postgres/process.js";
import { hold, nameOf, startBulk, writeMany, writeSlice, type Bulk } from "../../support/bulk.js";
import { privatePlace } from "../../support/private-postgres.js";
import { withDurations } from "../../support/durations.js";
import { ADDON, needs } from "../../support/needs.js";
import { until } from "../../support/until.js";

/** Enough to be open when the other server's database rests. */
const MANY = 20;
/**
 * In place of half a minute; the bulk thread says what is open often enough within it. However long
 * a database takes to start, who asks for a job waits for it.
 */
const SHORT = withDurations({ bulkRest: 2_000, bulkFigures: 200, bulkOpening: 120_000 });

/** @returns the job's number */
const submit = ({ place, submit: post }: Bulk, name: string): Promise<string> =>
  post({
    input_folder_path: path.join(place.input, name),
    output_folder_path: path.join(place.output, name),
  });

async function start(t: Test): Promise<Bulk & { postmaster: () => number | undefined }> {
  const bulk = await startBulk(t, privatePlace(t, SHORT));
  const { data } = databaseFolders(bulk.place.environment["RADSERVE_STATE_DIR"]!);
  return { ...bulk, postmaster: () => postmasterOf(data) };
}

t.test("a private database rests while no job is open", { skip: needs(ADDON) }, async (t) => {
  const [waiting, idle] = [await start(t), await start(t)];
  writeMany(path.join(waiting.place.input, "many"), MANY);
  const names = Array.from({ length: MANY }, (_, i) => nameOf(i));
  const release = await hold(t, path.join(waiting.place.output, "many"), names);
  const paused = await submit(waiting, "many");
  await waiting.send("POST", `/bulk_inference/${paused}/pause`);
  await release();
  await waiting.until(paused, ({ state, counts }) => state === "paused" && counts.running === 0);

  for (const name of ["one", "two"]) writeSlice(path.join(idle.place.input, name, `${name}.dcm`));
  // Held, because after the end of the job the database rests soon
  const releaseOne = await hold(t, path.join(idle.place.output, "one"), ["one.dcm"]);
  const first = await submit(idle, "one");
  t.not(idle.postmaster(), undefined);
  await releaseOne();
  await idle.ended(first);
  await until("the database rests", () => idle.postmaster() === undefined);

  t.not(
    waiting.postmaster(),
    undefined,
    "with a job that is paused it does not, though it was asked before",
  );
  t.match((await waiting.send("POST", `/bulk_inference/${paused}/resume`)).status, 200);
  t.match(await waiting.ended(paused), { counts: { succeeded: MANY } });

  // The server hears of the end of its database a moment later
  const resting = await until("the overview has no node", async () => {
    const { body } = await idle.send("GET", "/overview");
    return (body["nodes"] as unknown[]).length === 0 && body;
  });
  t.match(resting, { jobs: { open: true, queued: 0, running: 0 } });
  t.equal(idle.postmaster(), undefined, "and to ask for it wakes nothing");
  const calls = Array.from({ length: 20 }, () => idle.send("GET", `/bulk_inference/${first}`));
  for (const { status, body } of await Promise.all(calls))
    t.match(
      { status, body },
      { status: 200, body: { state: "completed", counts: { succeeded: 1 } } },
    );
  t.match(await idle.ended(await submit(idle, "two")), { counts: { succeeded: 1 } });
  await until("both items are counted in the metrics", async () => {
    const metrics = await (await fetch(`${idle.server.url}/metrics`)).text();
    return metrics.includes('radserve_bulk_items_total{state="succeeded"} 2\n');
  });
  const { history } = (await idle.send("GET", "/overview")).body as {
    history: { images: number }[];
  };
  t.equal(
    history.reduce((sum, { images }) => sum + images, 0),
    2,
    "the history has the images of both jobs",
  );
  t.notOk(
    idle.server.log.some(({ level }) => ["warn", "error", "fatal"].includes(String(level))),
    "nothing of it is a fault",
  );
});
