/**
 * One node that takes requests and one that works, with nothing in common but the database and the
 * folders; and scans of folders whose share is away: they wait, and hold up nobody.
 */
import { mkdirSync, readFileSync, renameSync, rmdirSync } from "node:fs";
import path from "node:path";
import t, { type Test } from "tap";
import { withDurations } from "../support/durations.js";
import { ADDON, needs } from "../support/needs.js";
import { jobListSchema } from "../../src/jobs/schema.js";
import {
  bulkPlace,
  nameOf,
  resultsIn,
  startBulk,
  startWorker,
  writeSlices,
  writeSlice,
  type Bulk,
} from "../support/bulk.js";
import { sharedDatabase } from "../support/postgres.js";
import type { TestServer } from "../support/server.js";

const IMAGES = 20;

async function endedBy(server: TestServer): Promise<string[]> {
  const text = await (await fetch(`${server.url}/metrics`)).text();
  return text.split("\n").filter((line) => line.startsWith("radserve_bulk_items_total"));
}

t.test("roles api and worker", { skip: needs(ADDON) }, async (t) => {
  const { pool, url } = await sharedDatabase(t);
  const place = bulkPlace(t, {
    ...withDurations({ jobLonely: 600_000 }),
    DATABASE_URL: url,
    RADSERVE_ROLE: "api",
  });
  const api = await startBulk(t, place);
  const input = path.join(place.input, "many");
  const out = (name: string) => path.join(place.output, name);
  writeSlices(input, IMAGES);
  const list = Array.from({ length: IMAGES }, (_, i) => ({
    input_image_path: path.join(input, nameOf(i)),
    output_folder_path: out("list"),
  }));
  const ids: string[] = [];

  await t.test(
    "api alone takes jobs, answers every page about them, and runs nothing",
    async (t) => {
      ids.push(await api.submit({ items: list, outputs: ["json"] }));
      ids.push(
        await api.submit({
          input_folder_path: input,
          output_folder_path: out("folder"),
          outputs: ["json"],
        }),
      );
      const [first, second] = ids as [string, string];
      const single = await api.send("POST", "/single_inference", {
        input_image_path: path.join(input, nameOf(0)),
        output_folder_path: out("single"),
      });
      t.match(single, { status: 200, body: { status: "completed" } });
      // It says so itself, once it has waited for a worker long enough
      await pool.query("update radserve.job set created_at = now() - interval '1 h'");
      const lonely = await api.until(first, ({ state }) => state === "paused");
      t.match(lonely, {
        paused_reason: { code: "no_worker", message: /role worker or both/ },
        total: IMAGES,
        counts: { queued: IMAGES, running: 0, succeeded: 0 },
      });
      t.match(
        await api.until(second, ({ state }) => state === "paused"),
        { total: null, paused_reason: { code: "no_worker" } },
        "nor is it scanned",
      );
      for (const [state, listed] of [
        ["paused", [second, first]],
        ["running", []],
        ["scanning", []],
      ] as const) {
        const { body } = await api.send("GET", `/bulk_inference?state=${state}`);
        t.strictSame(
          jobListSchema.parse(body).jobs.map(({ job_id }) => job_id),
          listed,
          `the list of ${state} jobs says the same`,
        );
      }
      t.ok(
        (await api.items(first)).every(
          ({ state, attempts }) => state === "queued" && attempts === 0,
        ),
      );
      t.match(await api.send("GET", "/bulk_inference"), {
        body: { jobs: [{ job_id: second }, { job_id: first }] },
      });
      const third = await api.submit({ items: list.slice(0, 1) });
      for (const [method, page, state] of [
        ["POST", "/pause", "paused"],
        ["POST", "/resume", "running"],
        ["POST", "/retry", "running"],
        ["DELETE", "", "cancelled"],
        ["POST", "/purge", "cancelled"],
      ] as const)
        t.match(
          await api.send(method, `/bulk_inference/${third}${page}`),
          { status: 200, body: { state } },
          `${method} ${page}`,
        );
      t.strictSame(resultsIn(out("list")), []);
      t.strictSame(await endedBy(api.server), []);
    },
  );

  const away = await foldersAway(api);
  const worker = await startWorker(t, place);

  await t.test("a worker finishes them, and answers only the pages about itself", async (t) => {
    const headers = { Authorization: worker.token };
    for (const page of ["/health/live", "/models", "/metrics", "/openapi.json"])
      t.equal((await fetch(worker.url + page, { headers })).status, 200, page);
    const refused = { error: "not_found", message: /role is worker.*role is api or both/ };
    for (const [method, page] of [
      ["POST", "/single_inference"],
      ["POST", "/bulk_inference"],
      ["GET", "/bulk_inference"],
      ["GET", `/bulk_inference/${ids[0]}`],
      ["DELETE", `/bulk_inference/${ids[0]}`],
    ] as const) {
      const answer = await fetch(worker.url + page, { method, headers });
      t.equal(answer.status, 404, `${method} ${page}`);
      t.match(await answer.json(), refused);
    }
    for (const id of ids)
      t.match(await api.ended(id), {
        state: "completed",
        total: IMAGES,
        counts: { succeeded: IMAGES },
      });
    t.equal((await fetch(`${worker.url}/health/ready`)).status, 200);
    for (const name of ["list", "folder"]) t.equal(resultsIn(out(name)).length, IMAGES, name);
    t.strictSame(await endedBy(api.server), [], "none of it ran where it was taken");
  });

  await t.test("the trace of a request goes with its job", async (t) => {
    const traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    const answer = await fetch(`${api.server.url}/bulk_inference`, {
      method: "POST",
      headers: { Authorization: api.server.token, "Content-Type": "application/json", traceparent },
      body: JSON.stringify({
        input_folder_path: input,
        output_folder_path: out("traced"),
        outputs: ["json"],
      }),
    });
    const { job_id } = (await answer.json()) as { job_id: string };
    await api.ended(job_id);
    const receipt = readFileSync(path.join(out("traced"), `${nameOf(0)}.json`), "utf8");
    t.match(JSON.parse(receipt), { timings: { traceparent } });
    for (const msg of ["a bulk job began", "a bulk job ended"])
      t.match(
        await worker.logged((line) => line.msg === msg && line["job"] === job_id),
        { traceparent },
        msg,
      );
  });

  await t.test("folders that are away when their turn comes", (t) => away.waitFor(t, worker));
});

/** More than a node scans at once. */
const AWAY = ["1", "2", "3"];

/** Jobs over folders of a share that goes away before a node scans them, and over others. */
async function foldersAway(api: Bulk) {
  const { place } = api;
  const at = (...parts: string[]) => path.join(place.input, ...parts);
  const submit = (...folder: string[]) =>
    api.submit({
      input_folder_path: at(...folder),
      output_folder_path: path.join(place.output, ...folder),
      outputs: ["json"],
    });
  for (const name of AWAY) writeSlice(at("share", name, "image.dcm"));
  writeSlice(at("here", "image.dcm"));
  mkdirSync(at("empty"));
  const waiting = await Promise.all(AWAY.map((name) => submit("share", name)));
  const here = await submit("here");
  const empty = await submit("empty");
  renameSync(at("share"), at("away"));
  // As a mount point looks whose share is not mounted
  for (const name of AWAY.slice(0, 2)) mkdirSync(at("share", name), { recursive: true });

  const waitFor = async (t: Test, worker: TestServer) => {
    t.match(await api.ended(here), { state: "completed", total: 1, counts: { succeeded: 1 } });
    t.match(await api.ended(empty), {
      state: "completed",
      total: 0,
      warnings: [{ code: "nothing_analysed", message: /found no file/ }],
    });
    for (const id of waiting)
      t.match(
        await api.until(id, ({ paused_reason }) => paused_reason?.code === "share_unavailable"),
        { state: "paused", total: null, paused_reason: { message: /input folder/ } },
      );
    const said = async () =>
      (await worker.told(({ msg }) => msg === "a folder cannot be scanned now", AWAY.length))
        .length;
    t.equal(await said(), AWAY.length, "said once of each");
    const [cut] = waiting;
    await api.send("DELETE", `/bulk_inference/${cut}`);
    t.match(await api.ended(cut!), { state: "cancelled", total: 0 });
    for (const name of AWAY.slice(0, 2)) rmdirSync(at("share", name));
    rmdirSync(at("share"));
    renameSync(at("away"), at("share"));
    const retried = await api.send("POST", `/bulk_inference/${cut}/retry`);
    t.match(retried, { status: 200, body: { total: null } }, "its scan goes on");
    for (const id of waiting)
      t.match(await api.ended(id), { state: "completed", total: 1, counts: { succeeded: 1 } });
    t.equal(await said(), AWAY.length);
  };
  return { waitFor };
}
