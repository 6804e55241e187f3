/**
 * A database that is older than the nodes know it: a backup was put back while they worked. What it
 * lacks is told, and what had ended since is taken as it lies there.
 */
import { existsSync, readdirSync } from "node:fs";
import path from "node:path";
import type { Pool } from "pg";
import t from "tap";
import { isMarkName } from "../../src/files/folder-mark.js";
import {
  bulkPlace,
  hold,
  nameOf,
  startBulk,
  startWorker,
  unmarked,
  writeSlices,
} from "../support/bulk.js";
import { withDurations } from "../support/durations.js";
import { ADDON, needs } from "../support/needs.js";
import { sharedDatabase } from "../support/postgres.js";
import { until } from "../support/until.js";

const IMAGES = 12;
/** Images that are done when the backup is made. */
const BEFORE = 4;
/** In an order in which each finds what it names. */
const TABLES = ["origin", "instance", "job", "item"];

async function backUp(pool: Pool): Promise<void> {
  await pool.query(
    [
      "create schema backup",
      ...TABLES.map((name) => `create table backup.${name} as table radserve.${name}`),
    ].join(";"),
  );
}

/**
 * All at once, so that no node sees it half done. Beside nodes at work, of which one may be ended
 * by the locks of this, or this by its locks (40P01).
 */
async function putBack(pool: Pool): Promise<void> {
  const tables = TABLES.map((name) => `radserve.${name}`).join(", ");
  // Statements that are sent together are one transaction
  const statements = [
    `truncate ${tables}, radserve.hindrance`,
    ...TABLES.map(
      (name) => `insert into radserve.${name} overriding system value select * from backup.${name}`,
    ),
  ].join(";");
  await until("the backup is put back", () =>
    pool.query(statements).then(
      () => true,
      (error: unknown) => {
        if ((error as { code?: string }).code !== "40P01") throw error;
        return false;
      },
    ),
  );
}

async function lostAsTold(url: string): Promise<string | undefined> {
  // Whoever is not asked about its conditions answers without them
  const conditions = await until("the server tells its conditions", async () => {
    const answer = (await (await fetch(`${url}/health/ready`)).json()) as {
      conditions?: { condition: string; message: string }[];
      details?: { conditions?: { condition: string; message: string }[] };
    };
    return answer.conditions ?? answer.details?.conditions;
  });
  return conditions.find(({ condition }) => condition === "jobs_lost")?.message;
}

t.test("a standby that lacks what was promised a moment ago", { skip: needs(ADDON) }, async (t) => {
  const { pool, url } = await sharedDatabase(t);
  const place = bulkPlace(t, {
    ...withDurations({ nodeBeat: 300, bulkFigures: 300 }),
    DATABASE_URL: url,
  });
  const bulk = await startBulk(t, place);
  const input = path.join(place.input, "few");
  writeSlices(input, 1);
  const submit = (name: string) =>
    bulk.submit({
      input_folder_path: input,
      output_folder_path: path.join(place.output, name),
      outputs: ["json"],
    });
  const purged = await submit("purged");
  await bulk.ended(purged);
  t.match(await bulk.send("POST", `/bulk_inference/${purged}/purge`), { status: 200 });
  const release = await hold(t, path.join(place.output, "lost"), [nameOf(0)]);
  const lost = await submit("lost");
  await pool.query("delete from radserve.job where id = $1", [lost]);
  const message = await until("it is told", () => lostAsTold(bulk.server.url));
  t.match(message, lost);
  t.notMatch(message, purged, "what somebody purged is not lost");
  await release();
});

t.test("a backup that is put back while two nodes work", { skip: needs(ADDON) }, async (t) => {
  const { pool, url } = await sharedDatabase(t);
  const place = bulkPlace(t, {
    ...withDurations({
      jobPause: 300,
      jobPauseMost: 600,
      itemsAhead: 0,
      nodeBeat: 300,
      bulkFigures: 300,
    }),
    DATABASE_URL: url,
    RADSERVE_ROLE: "api",
  });
  const bulk = await startBulk(t, place);
  const worker = await startWorker(t, place);
  const input = path.join(place.input, "many");
  writeSlices(input, IMAGES);
  const submit = (name: string) =>
    bulk.submit({
      input_folder_path: input,
      output_folder_path: path.join(place.output, name),
      outputs: ["json"],
    });
  const late = Array.from({ length: IMAGES - BEFORE }, (_, i) => nameOf(BEFORE + i));
  const folder = path.join(place.output, "first");
  const release = await hold(t, folder, late);
  const first = await submit("first");
  await bulk.until(first, ({ counts, total }) => total === IMAGES && counts.succeeded === BEFORE);
  await backUp(pool);
  await release();
  t.match(await bulk.ended(first), { counts: { succeeded: IMAGES } });
  await unmarked(folder);

  const held = await hold(t, path.join(place.output, "second"), [nameOf(0)]);
  const second = await submit("second");
  await bulk.until(second, ({ counts }) => counts.succeeded === IMAGES - 1);
  await putBack(pool);

  const again = await bulk.ended(first);
  t.match(again, { state: "completed", counts: { succeeded: IMAGES, failed: 0 } });
  const reused = (await bulk.items(first)).filter((item) => item.reused === true);
  t.equal(reused.length, IMAGES - BEFORE, "what lay there was not computed again");
  t.ok(
    await worker.told(({ msg }) => msg.startsWith("an output folder had no mark")),
    "nobody made the mark by hand",
  );
  await unmarked(folder);

  const told = () => lostAsTold(bulk.server.url);
  await until("it is a condition", async () => (await told())?.includes(second) === true);
  t.notMatch(await told(), first);
  await until("the log names the job", () =>
    [bulk.server, worker].some(({ log }) =>
      log.some(({ lost_jobs }) => Array.isArray(lost_jobs) && lost_jobs.includes(second)),
    ),
  );
  const answer = { status: 404, body: { error: "job_not_found", message: /It was lost: since/ } };
  t.match(await bulk.send("GET", `/bulk_inference/${second}`), answer);
  t.ok(readdirSync(path.join(place.output, "second")).some(isMarkName), "its mark lies there");
  t.match(await bulk.send("POST", `/bulk_inference/${second}/purge`), answer, "somebody knows it");
  await until("it is told no more", async () => (await told()) === undefined);
  t.notMatch((await bulk.send("GET", `/bulk_inference/${second}`)).body.message, /lost/);
  await held();
  const sent = await submit("second");
  t.match(await bulk.ended(sent), { state: "completed", counts: { succeeded: IMAGES } });
  t.ok(existsSync(path.join(place.output, "second", `${nameOf(0)}.json`)));
});
