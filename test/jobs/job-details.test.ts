/** What a job waits for on nodes that stand still, and models that a job cannot have. */
import { mkdirSync, writeFileSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import t from "tap";
import {
  bulkPlace,
  hold,
  nameOf,
  startBulk,
  startWorker,
  writeSlice,
  writeSlices,
} from "../support/bulk.js";
import { withDurations } from "../support/durations.js";
import { HOUR_MS } from "../support/held.js";
import { ADDON, needs } from "../support/needs.js";
import { sharedDatabase } from "../support/postgres.js";
import { radserve } from "../support/server.js";
import { until } from "../support/until.js";

const IMAGES = 24;

const { pool, url } = await sharedDatabase(t);
const place = bulkPlace(t, {
  // No node is silent, or loses its lease, before the test says how long ago its last sign was, and
  // however long that takes the job does not wait for any worker
  ...withDurations({
    nodeBeat: 500,
    nodeSilent: HOUR_MS,
    nodeLease: 2 * HOUR_MS,
    jobLonely: HOUR_MS,
    itemName: 1_000,
  }),
  DATABASE_URL: url,
  RADSERVE_ROLE: "api",
});
const broken = path.join(place.environment["RADSERVE_MODELS_DIR"]!, "broken");
mkdirSync(broken);
writeFileSync(path.join(broken, "model.json"), "{");
const skip = needs(ADDON);
const api = skip === false ? await startBulk(t, place) : undefined!;

t.test("a node that stands still is named", { skip }, async (t) => {
  const worker = await startWorker(t, place);
  const input = path.join(place.input, "many");
  writeSlices(input, IMAGES);
  const held = Array.from({ length: IMAGES - 4 }, (_, i) => nameOf(4 + i));
  const release = await hold(t, path.join(place.output, "many"), held);
  const id = await api.submit({
    input_folder_path: input,
    output_folder_path: path.join(place.output, "many"),
    outputs: ["json"],
  });
  const running = await api.until(id, ({ counts }) => counts.running > 0 && counts.succeeded > 0);
  const name = os.hostname();
  t.match(
    running.nodes
      .map(({ alive, works, ready }) => ({ alive, works, ready }))
      .sort((a, b) => +a.works - +b.works),
    [
      { alive: true, works: false },
      { alive: true, works: true, ready: true },
    ],
  );
  const pid = worker.servingPid();
  process.kill(pid, "SIGSTOP");
  t.teardown(() => {
    try {
      process.kill(pid, "SIGCONT");
    } catch {
      // It has ended
    }
  });
  await release();
  const silentFor = (time: string) =>
    pool.query("update radserve.instance set beat_at = now() - $1::interval where works", [time]);
  type Details = Awaited<ReturnType<typeof api.job>>;
  const afterSilence = (time: string, fits: (job: Details) => boolean) =>
    until(`the silence of ${time} is told`, async () => {
      // A sign of life that was on its way when the node stopped may come after this
      await silentFor(time);
      const job = await api.job(id);
      return fits(job) && job;
    });
  const waitsFor = ({ waiting }: Details, why: string) =>
    waiting.some(({ reason }) => reason === why);
  const silent = await afterSilence(
    "90 min",
    (job) => waitsFor(job, "silent_node") && job.nodes.some(({ alive, works }) => works && !alive),
  );
  t.match(silent.waiting, [{ reason: "silent_node", node: name, since: String, images: Number }]);
  t.match(
    silent.nodes.filter(({ works }) => works),
    [{ alive: false, name }],
  );
  Object.assign(place.environment, {
    RADSERVE_URL: api.server.url,
    RADSERVE_TOKEN: api.server.token,
  });
  const suspects = await afterSilence("3 h", (job) => waitsFor(job, "suspect"));
  t.match(
    suspects.waiting.filter(({ reason }) => reason === "suspect"),
    [{ node: name, since: String, images: Number }],
  );
  const { stdout } = await radserve(place, "jobs", "show", id);
  t.match(stdout, /images: suspect since .* on /);
  t.match(stdout, /nodes .*: alive, does not run jobs, 0 running/);
  process.kill(pid, "SIGCONT");
  const ended = await api.ended(id);
  t.match(ended, { state: "completed", counts: { succeeded: IMAGES } });
  t.strictSame(ended.waiting, []);
});

t.test("a model whose manifest cannot be read", { skip }, async () => {
  const { send } = api;
  const file = path.join(place.input, "image.dcm");
  writeSlice(file);
  const paths = { input_image_path: file, output_folder_path: place.output };
  const single = await send("POST", "/single_inference", { ...paths, models: ["broken"] });
  const bulk = await send("POST", "/bulk_inference", { items: [paths], models: ["broken"] });
  t.match(single, { status: 503, body: { error: "model_unavailable" } });
  t.match(bulk, {
    status: 503,
    body: { error: "model_unavailable", message: single.body.message },
  });
  t.match(await send("POST", "/bulk_inference", { items: [paths], models: ["brokn"] }), {
    status: 404,
  });
});
