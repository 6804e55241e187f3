/**
 * A job whose series goes window by window: GET says how far it is, and a cancel does not wait for
 * its end.
 */
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import t, { type Test } from "tap";
import { sha256 } from "../../src/files/durable-files.js";
import type { JobDetails } from "../../src/jobs/schema.js";
import { bulkOf, bulkPlace } from "../support/bulk.js";
import { ADDON, needs } from "../support/needs.js";
import { slice } from "../support/series.js";
import { startServer } from "../support/server.js";
import { graphOf, manifestOf } from "../support/test-models.js";
import { until } from "../support/until.js";

const [SLICES, SIDE] = [24, 160];

/** A model that looks through windows of 4 x 4 x 4. */
function placeWithWindows(t: Test, overlap: number) {
  const place = bulkPlace(t);
  const folder = join(place.environment["RADSERVE_MODELS_DIR"]!, "windows");
  mkdirSync(folder);
  const graph = graphOf("volume-fractional");
  writeFileSync(join(folder, "model.onnx"), graph);
  const manifest = manifestOf("volume-fractional");
  const weights = { kind: "constant" } as const;
  writeFileSync(
    join(folder, "model.json"),
    JSON.stringify({
      ...manifest,
      name: "windows",
      stage: "draft",
      results: { outputs: ["json"] },
      accepts: { ...manifest.accepts, modality: ["CT"] },
      files: [{ path: "model.onnx", sha256: sha256(graph) }],
      tiling: { window: [4, 4, 4], overlap, steps: "stride", weights, padding: 0 },
    }),
  );
  return place;
}

function writeSeries(series: string, side: number, uid: string): void {
  mkdirSync(series);
  for (let z = 0; z < SLICES; z++) {
    const attributes = {
      Rows: side,
      Columns: side,
      SeriesInstanceUID: uid,
      SOPInstanceUID: `${uid}.${z + 1}`,
    };
    const frames = [
      Buffer.from(Uint8Array.from({ length: 2 * side * side }, (_, i) => (i * 7 + z * 31) % 100)),
    ];
    writeFileSync(join(series, `${z}.dcm`), slice({ z, attributes, frames }));
  }
}

t.test("windows of a series that runs", { skip: needs(ADDON) }, async (t) => {
  const place = placeWithWindows(t, 0.75);
  const series = join(place.input, "series");
  writeSeries(series, SIDE, "1.2.3.4");
  const server = await startServer(place);
  t.teardown(() => server.stop());
  const bulk = bulkOf(server);
  const id = await bulk.submit({
    input_folder_path: series,
    output_folder_path: place.output,
    models: ["windows"],
  });
  const { progress } = await bulk.until(
    id,
    ({ progress: [first] }) => (first?.windows_done ?? 0) > 0,
  );
  t.match(progress, [{ index: 0, windows: (SLICES - 3) * (SIDE - 3) ** 2 }]);
  const [{ windows_done } = { windows_done: 0 }] = progress;
  const later = await bulk.until(
    id,
    ({ progress: [first] }) => (first?.windows_done ?? 0) > windows_done,
  );
  t.ok(later.progress[0]!.windows_done < later.progress[0]!.windows);
  t.equal((await bulk.send("DELETE", `/bulk_inference/${id}`)).status, 200);
  const ended = await bulk.ended(id);
  t.match(ended, { state: "cancelled", counts: { succeeded: 0 } });
  t.strictSame(ended.progress, []);
});

t.test("a kill in the middle of a long series", { skip: needs(ADDON) }, async (t) => {
  const place = placeWithWindows(t, 0.5);
  const long = join(place.input, "long");
  mkdirSync(long);
  for (const i of [1, 2]) writeSeries(join(long, `series-${i}`), 64, `1.2.3.${i}`);
  const server = await startServer(place);
  t.teardown(() => server.stop());
  const bulk = bulkOf(server);
  const request = { input_folder_path: long, models: ["windows"] };
  const calm = join(place.output, "calm");
  let jobs = 0;
  // A job may be over before its progress is seen: then another is killed
  const { id, killed } = await until("a job is seen in the middle of a series", async () => {
    const killed = join(place.output, `killed-${(jobs += 1)}`);
    const id = await bulk.submit({ ...request, output_folder_path: killed });
    const isBegun = ({ progress: [first] }: JobDetails) => (first?.windows_done ?? 0) > 0;
    const seen = await bulk.until(id, (job) => isBegun(job) || job.finished_at !== null);
    return isBegun(seen) && { id, killed };
  });
  const serving = server.servingPid();
  process.kill(serving, "SIGKILL");
  const { state, counts } = await bulk.ended(id);
  t.not(server.servingPid(), serving, "another process went on");
  t.match(
    { state, counts },
    { state: "completed", counts: { succeeded: 2, failed: 0, queued: 0, running: 0 } },
  );
  await bulk.ended(await bulk.submit({ ...request, output_folder_path: calm }));
  const results = (folder: string) =>
    readdirSync(folder)
      .filter((name) => !name.startsWith(".radserve"))
      .sort();
  t.strictSame(
    results(killed),
    results(calm),
    "each result is there once, and nothing beside them",
  );
  for (const i of [1, 2]) {
    const said = [killed, calm].map((folder) => {
      const text = readFileSync(join(folder, `series-${i}.json`), "utf8");
      const { source, models } = JSON.parse(text) as {
        source: object;
        models: { raw_sha256: string }[];
      };
      return { source, raw: models.map(({ raw_sha256 }) => raw_sha256) };
    });
    t.strictSame(said[0], said[1], "the whole series was looked at, from its beginning");
  }
});
