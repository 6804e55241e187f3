/** What one node cannot do it leaves to the others: the job goes on there. */
import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import t, { type Test } from "tap";
import { OTHER_VERSIONS } from "../../src/jobs/pins.js";
import {
  bulkPlace,
  hold,
  nameOf,
  startBulk,
  startWorker,
  writeSlices,
  type Bulk,
} from "../support/bulk.js";
import { withDurations } from "../support/durations.js";
import { HOUR_MS } from "../support/held.js";
import { copyModel } from "../support/manifests.js";
import { ADDON, needs } from "../support/needs.js";
import { sharedDatabase } from "../support/postgres.js";
import { startServer, type Place, type TestServer } from "../support/server.js";
import { until } from "../support/until.js";

const skip = needs(ADDON);
/** More than a node takes at once. */
const IMAGES = 24;
const LEFT = "a bulk job is left to other nodes";

/** A node that is well, and a job of which all results are held until `release`. */
async function working(t: Test) {
  const { url } = await sharedDatabase(t);
  const place = bulkPlace(t, {
    ...withDurations({ jobPause: 300, itemsAhead: 0, nodeBeat: 300 }),
    DATABASE_URL: url,
  });
  const bulk = await startBulk(t, place);
  const input = path.join(place.input, "many");
  const output = path.join(place.output, "many");
  const names = writeSlices(input, IMAGES);
  const release = await hold(t, output, names);
  const id = await bulk.submit({
    input_folder_path: input,
    output_folder_path: output,
    models: ["ct-tissue"],
    outputs: ["json"],
  });
  await bulk.until(id, ({ counts, total }) => total === IMAGES && counts.running > 0);
  return { bulk, place, id, release, url };
}

/** The other node says what keeps it, and the job goes on to its end on the first one. */
async function othersGoOn(
  t: Test,
  { bulk, id, release }: { bulk: Bulk; id: string; release: () => Promise<void> },
  other: TestServer,
  reason: string,
): Promise<void> {
  // What it cannot run it is never given
  if (reason !== OTHER_VERSIONS)
    await until("the other node leaves the job alone", () =>
      other.log.some(({ msg, reason: why }) => msg === LEFT && why === reason),
    );
  const seen = await bulk.until(id, ({ waiting }) =>
    waiting.some((one) => one.reason === reason && one.images === null),
  );
  t.match(seen, { state: "running", paused_reason: null });
  await until("its conditions say so", () =>
    other.log.some(({ condition }) => condition === "job_left_alone"),
  );
  await release();
  t.match(await bulk.ended(id), { state: "completed", counts: { succeeded: IMAGES, failed: 0 } });
}

/** A place whose output folder is another than that of the first node. */
function unmounted(place: Place): Place {
  const output = path.join(place.directory, "not-the-share");
  mkdirSync(path.join(output, "many"), { recursive: true });
  writeFileSync(path.join(output, "many", "other.txt"), "");
  return { ...place, output };
}

t.test("a node whose share is another folder", { skip }, async (t) => {
  const first = await working(t);
  const elsewhere = unmounted(first.place);
  const other = await startWorker(t, elsewhere, {
    RADSERVE_PATH_MAP: JSON.stringify([{ from: first.place.output, to: elsewhere.output }]),
  });
  await othersGoOn(t, first, other, "output_replaced");
});

t.test("a node without the model", { skip }, async (t) => {
  const first = await working(t);
  const { environment, input, output } = first.place;
  const place = bulkPlace(t, {
    ...withDurations({ jobPause: 300, itemsAhead: 0, nodeBeat: 300 }),
    DATABASE_URL: first.url,
    RADSERVE_ROLE: "worker",
    RADSERVE_INPUT_ROOTS: input,
    RADSERVE_OUTPUT_ROOTS: output,
    RADSERVE_KEYS_DIR: path.join(environment["RADSERVE_STATE_DIR"]!, "keys"),
  });
  const models = place.environment["RADSERVE_MODELS_DIR"]!;
  rmSync(path.join(models, "ct-tissue"), { recursive: true });
  copyModel(models, "ct-tissue", "another");
  const other = await startServer(place);
  t.teardown(() => other.stop());
  await othersGoOn(t, first, other, OTHER_VERSIONS);
});

t.test("a folder that one node cannot see is scanned and read by another", { skip }, async (t) => {
  const { url } = await sharedDatabase(t);
  const place = bulkPlace(t, {
    // However long nodes take to start, the jobs do not wait for them
    ...withDurations({
      jobPause: 300,
      jobPauseMost: 600,
      itemsAhead: 0,
      nodeBeat: 300,
      jobLonely: HOUR_MS,
    }),
    DATABASE_URL: url,
    RADSERVE_ROLE: "api",
  });
  const api = await startBulk(t, place);
  const other = path.join(place.directory, "other-root");
  mkdirSync(other);
  writeFileSync(path.join(other, "something"), "");
  await startWorker(t, { ...place, input: other });
  const input = path.join(place.input, "many");
  writeSlices(input, IMAGES);
  const output = (name: string) => path.join(place.output, name);
  const scan = (name: string) =>
    api.submit({
      input_folder_path: input,
      output_folder_path: output(name),
      outputs: ["json"],
    });
  const scanned = await scan("scanned");
  const listed = await api.submit({
    items: Array.from({ length: IMAGES }, (_, i) => ({
      input_image_path: path.join(input, nameOf(i)),
      output_folder_path: output("listed"),
    })),
    outputs: ["json"],
  });
  const paused = (id: string) => api.until(id, ({ state }) => state === "paused");
  t.match(await paused(scanned), { total: null, paused_reason: { code: "share_unavailable" } });
  t.match(await paused(listed), {
    paused_reason: { code: "path_not_allowed", message: /RADSERVE_INPUT_ROOTS/ },
    counts: { failed: 0 },
  });
  await startWorker(t, place);
  const done = { state: "completed", counts: { succeeded: IMAGES, failed: 0 } };
  for (const id of [scanned, listed]) t.match(await api.ended(id), done);
  for (const id of await Promise.all(["2", "3"].map(scan))) {
    const pauses: unknown[] = [];
    const ended = await api.until(id, ({ paused_reason, finished_at }) => {
      if (paused_reason !== null) pauses.push(paused_reason);
      return finished_at !== null;
    });
    t.match(ended, done);
    t.strictSame(pauses, [], "the job did not pause");
  }
});

t.test(
  "where every node meets it, the job pauses, and goes on with the first that is well",
  { skip },
  async (t) => {
    const { url } = await sharedDatabase(t);
    const place = bulkPlace(t, {
      ...withDurations({ jobPause: 300, itemsAhead: 0, nodeBeat: 300, jobLonely: HOUR_MS }),
      DATABASE_URL: url,
      RADSERVE_ROLE: "api",
    });
    const api = await startBulk(t, place);
    const input = path.join(place.input, "many");
    writeSlices(input, IMAGES);
    const elsewhere = unmounted(place);
    await startWorker(t, elsewhere, {
      RADSERVE_PATH_MAP: JSON.stringify([{ from: place.output, to: elsewhere.output }]),
    });
    const id = await api.submit({
      input_folder_path: input,
      output_folder_path: path.join(place.output, "many"),
      outputs: ["json"],
    });
    t.match(await api.until(id, ({ state }) => state === "paused"), {
      paused_reason: { code: "output_replaced" },
    });
    await startWorker(t, place);
    t.match(await api.ended(id), { state: "completed", counts: { succeeded: IMAGES } });
  },
);
