/**
 * A folder with several series as a job: each is an item with results of its own, and is found
 * again by a retry.
 */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import t from "tap";
import { bulkOf, bulkPlace, resultsIn, unmarked, writeSlice } from "../support/bulk.js";
import { ADDON, needs } from "../support/needs.js";
import { startServer } from "../support/server.js";
import { writeVolumeModel } from "../support/volume-model.js";

t.test("a study folder", { skip: needs(ADDON) }, async (t) => {
  const place = bulkPlace(t);
  writeVolumeModel(place.environment["RADSERVE_MODELS_DIR"]!, "bright");
  const study = join(place.input, "study");
  const second = { SeriesInstanceUID: "1.9" };
  for (const z of [0, 1, 2]) writeSlice(join(study, `a${z}.dcm`), z);
  for (const z of [0, 2]) writeSlice(join(study, `b${z}.dcm`), z, second);
  for (const z of [0, 2, 3]) writeSlice(join(study, `c${z}.dcm`), z, { SeriesInstanceUID: "1.10" });
  const server = await startServer(place);
  t.teardown(() => server.stop());
  const bulk = bulkOf(server);
  const request = {
    input_folder_path: place.input,
    output_folder_path: place.output,
    models: ["bright"],
    outputs: ["json"],
  };
  const id = await bulk.submit(request);
  await bulk.ended(id);
  const items = await bulk.items(id);
  const series = items.filter(({ series_instance_uid: uid }) => uid !== undefined);
  t.match(
    series
      .map((item) => [
        item.series_instance_uid,
        item.state,
        item.input_image_path,
        item.receipt_path,
      ])
      .sort(),
    [
      ["1.10", "skipped", study, undefined],
      ["1.2.3.4", "succeeded", study, join(place.output, "study.1.2.3.4.json")],
      ["1.9", "succeeded", study, join(place.output, "study.1.9.json")],
    ].sort(),
  );
  for (const uid of ["1.2.3.4", "1.9"]) {
    const receipt = JSON.parse(readFileSync(join(place.output, `study.${uid}.json`), "utf8")) as {
      source: { series_instance_uid: string };
    };
    t.equal(receipt.source.series_instance_uid, uid);
  }
  await unmarked(place.output);
  t.strictSame(
    resultsIn(place.output).filter((name) => name.startsWith("study.")),
    ["study.1.2.3.4.json", "study.1.9.json"],
  );
  t.strictSame(await bulk.differences(id), [], "results belong to their items");
  const again = await bulk.submit(request);
  await bulk.ended(again);
  const reused = (await bulk.items(again)).filter(({ reused }) => reused === true);
  t.strictSame(reused.map(({ series_instance_uid: uid }) => uid).sort(), ["1.2.3.4", "1.9"]);
});
