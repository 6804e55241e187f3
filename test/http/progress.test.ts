/** A job whose series goes window by window: GET says how far it is, and a cancel does not wait for its end. */
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import t from "tap";
import { sha256 } from "../../src/files/durable-files.js";
import { bulkOf, bulkPlace } from "../support/bulk.js";
import { ADDON, needs } from "../support/needs.js";
import { slice } from "../support/series.js";
import { startServer } from "../support/server.js";
import { graphOf, manifestOf } from "../support/test-models.js";

const [SLICES, SIDE] = [24, 160];

t.test("windows of a series that runs", { skip: needs(ADDON) }, async (t) => {
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
      ...{ name: "windows", stage: "draft", results: { outputs: ["json"] } },
      accepts: { ...manifest.accepts, modality: ["CT"] },
      files: [{ path: "model.onnx", sha256: sha256(graph) }],
      tiling: { window: [4, 4, 4], overlap: 0.75, steps: "stride", weights, padding: 0 },
    }),
  );
  const series = join(place.input, "series");
  mkdirSync(series);
  for (let z = 0; z < SLICES; z++) {
    const attributes = { Rows: SIDE, Columns: SIDE };
    const frames = [Buffer.alloc(2 * SIDE * SIDE, z)];
    writeFileSync(join(series, `${z}.dcm`), slice({ z, attributes, frames }));
  }
  const server = await startServer(place);
  t.teardown(() => server.stop());
  const bulk = bulkOf(server);
  const id = await bulk.submit({
    ...{ input_folder_path: series, output_folder_path: place.output, models: ["windows"] },
  });
  const { progress } = await bulk.until(id, ({ progress: [first] }) => (first?.windows_done ?? 0) > 0);
  t.match(progress, [{ index: 0, windows: (SLICES - 3) * (SIDE - 3) ** 2 }]);
  const [{ windows_done } = { windows_done: 0 }] = progress;
  const later = await bulk.until(id, ({ progress: [first] }) => (first?.windows_done ?? 0) > windows_done);
  t.ok(later.progress[0]!.windows_done < later.progress[0]!.windows);
  t.equal((await bulk.send("DELETE", `/bulk_inference/${id}`)).status, 200);
  const ended = await bulk.ended(id);
  t.match(ended, { state: "cancelled", progress: [], counts: { succeeded: 0 } });
});
