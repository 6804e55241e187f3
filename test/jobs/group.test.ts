/** Bulk jobs and single requests whose series are one item each. */
import { mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import t, { type Test } from "tap";
import { scanFolder } from "../../src/jobs/scan.js";
import type { Manifest } from "../../src/manifest/manifest.js";
import type { ModelEntry } from "../../src/models/entry.js";
import { receiptSchema } from "../../src/results/receipt/receipt.js";
import { bulkPlace, startBulk, writeSlice } from "../support/bulk.js";
import { copyModel, shipped } from "../support/manifests.js";
import { ADDON, needs } from "../support/needs.js";
import { PNG } from "../support/server.js";

type Accepts = Partial<Manifest["accepts"]>;

function entry(name: string, accepts: Accepts): ModelEntry {
  const base = shipped(accepts.dimensions === "series" ? "examples/brain-tissue-3d" : "ct-tissue");
  const rules = {
    formats: ["dicom" as const],
    modality: ["CT"],
    dimensions: "2d" as const,
    ...accepts,
  };
  return {
    name,
    version: "1",
    sha256: "0".repeat(64),
    manifest: { ...base, accepts: rules },
    site: { thresholds: {} },
    thresholds: [],
    state: "ready",
  };
}

async function scan(folder: string, models: ModelEntry[], grouped = true) {
  const found: Record<string, string> = {};
  for await (const one of scanFolder({ folder, roots: [folder], models, grouped }))
    found[one.path] = "reason" in one ? one.reason.code : one.is;
  return found;
}

function folders(t: Test) {
  const folder = t.testdir({});
  return (...parts: string[]) => path.join(folder, ...parts);
}

t.test("what a scan finds", async (t) => {
  const at = folders(t);
  const single = entry("s", {});
  for (const z of [0, 1, 5]) writeSlice(at("uneven", `${z}.dcm`), z);
  writeFileSync(at("uneven", "x.png"), PNG);
  for (const z of [0, 1, 2]) writeSlice(at("two", `${z}.dcm`), z);
  for (const z of [3, 4]) writeSlice(at("two", `${z}.dcm`), z, { SeriesInstanceUID: "1.2.3.5" });
  writeSlice(at("two", "alone.dcm"), 9, { SeriesInstanceUID: "1.2.3.6" });
  writeSlice(at("mixed", "0.dcm"), 0);
  writeSlice(at("mixed", "1.dcm"), 1, { Rows: 3 });
  t.strictSame(await scan(at(), [single]), {
    uneven: "input",
    "uneven/x.png": "input",
    "two//1.2.3.4": "input",
    "two//1.2.3.5": "input",
    "two/alone.dcm": "input",
    mixed: "series_invalid",
    "mixed/0.dcm": "input",
    "mixed/1.dcm": "input",
  });
  t.equal((await scan(at(), [single], false))["uneven"], undefined, "not unless asked");

  await t.test("an image that a model takes without its series is an item, too", async (t) => {
    const [left, right] = [at("views", "0.dcm"), at("views", "1.dcm")];
    writeSlice(left, 0, { BodyPartExamined: "HEAD" });
    writeSlice(right, 1, { BodyPartExamined: "CHEST" });
    const head = entry("h", { body_part: ["HEAD"] });
    t.strictSame(
      await scan(at("views"), [head]),
      { "0.dcm": "input", "1.dcm": "input" },
      "as without groups",
    );
    t.strictSame(await scan(at("views"), [head, single]), { "": "input", "0.dcm": "input" });
    const other = entry("o", { body_part: ["HAND"] });
    t.strictSame(
      await scan(at("views"), [other]),
      { "": "input" },
      "what no model takes is told once",
    );
  });
});

t.test("a series that is not whole is one item, which fails", async (t) => {
  const at = folders(t);
  const [single, volume] = [entry("s", {}), entry("v", { dimensions: "series" })];
  const cut = (file: string) => writeFileSync(file, readFileSync(file).subarray(0, -7));
  for (const name of ["empty", "cut", "gap"])
    for (const z of [0, 1, 2, 3]) writeSlice(at(name, `${z}.dcm`), z);
  writeFileSync(at("empty", "4.dcm"), "");
  cut(at("cut", "3.dcm"));
  writeFileSync(at("gap", "2.dcm"), "");
  for (const z of [0, 1, 2, 3])
    writeSlice(at("cut", `b${z}.dcm`), z, { SeriesInstanceUID: "1.9", SOPInstanceUID: `1.9.${z}` });
  const found = {
    "empty/4.dcm": "empty_file",
    empty: "input",
    "cut//1.2.3.4": "input",
    "cut//1.9": "input",
    "gap/2.dcm": "empty_file",
    gap: "input",
  };
  t.strictSame(await scan(at(), [single]), found, "in groups");
  t.strictSame(await scan(at(), [volume], false), found, "for a model of series");
});

t.test(
  "a folder is not scanned without the model that was asked for",
  { skip: needs(ADDON) },
  async (t) => {
    const place = bulkPlace(t, { RADSERVE_ROLE: "api" });
    const taking = await startBulk(t, { ...place, remove: () => undefined });
    const input = path.join(place.input, "study");
    for (const z of [0, 1, 2]) writeSlice(path.join(input, "ct", `${z}.dcm`), z);
    const folders = { input_folder_path: input, output_folder_path: place.output };
    const id = await taking.submit({ ...folders, group: "series", models: ["ct-tissue"] });
    await taking.server.stop();
    const [model, away] = ["models/ct-tissue", "away"].map((name) =>
      path.join(place.directory, name),
    );
    renameSync(model!, away!);
    place.environment["RADSERVE_ROLE"] = "both";
    const bulk = await startBulk(t, place);
    await bulk.until(id, (job) => job.paused_reason?.code === "no_node_can_run");
    renameSync(away!, model!);
    bulk.server.process.kill("SIGHUP");
    t.match(await bulk.ended(id), { total: 1, counts: { succeeded: 1 } });
  },
);

t.test("jobs and single requests", { skip: needs(ADDON) }, async (t) => {
  const place = bulkPlace(t);
  const models = place.environment["RADSERVE_MODELS_DIR"]!;
  rmSync(path.join(models, "ct-tissue"), { recursive: true });
  copyModel(models, "ct-tissue", "tissue", ({ accepts }) =>
    Object.assign(accepts, { dimensions: "2d" }),
  );
  const bulk = await startBulk(t, place);
  const input = path.join(place.input, "study");
  mkdirSync(input);
  for (const z of [0, 1, 2]) writeSlice(path.join(input, "ct", `${z}.dcm`), z);
  const output = path.join(place.output, "job");
  const id = await bulk.submit({
    input_folder_path: input,
    output_folder_path: output,
    group: "series",
  });
  const job = await bulk.ended(id);
  t.match(job, { total: 1, counts: { succeeded: 1 }, request: { group: "series" } });
  const receipt = receiptSchema.parse(
    JSON.parse(readFileSync(path.join(output, "ct.json"), "utf8")),
  );
  t.match(receipt.source, { frames: 3, group: "series" });

  const bad = path.join(place.input, "bad");
  for (const z of [0, 1, 2]) writeSlice(path.join(bad, "ct", `${z}.dcm`), z);
  writeFileSync(path.join(bad, "ct", "3.dcm"), Buffer.alloc(1000));
  const broken = await bulk.submit({
    input_folder_path: bad,
    output_folder_path: path.join(place.output, "bad"),
    group: "series",
  });
  t.match(await bulk.ended(broken), { total: 2, counts: { failed: 1, skipped: 1 } });
  const { body } = await bulk.send("GET", `/bulk_inference/${broken}/items?state=failed`);
  t.match(body, {
    items: [{ error: { error: "series_invalid", details: { reason: "unreadable_slices" } } }],
  });

  t.match(await bulk.ended(broken), { warnings: { length: 0 } });
  const notes = path.join(place.input, "notes");
  mkdirSync(notes);
  writeFileSync(path.join(notes, "README"), "no image");
  const folders = { input_folder_path: notes, output_folder_path: path.join(place.output, "none") };
  t.match(await bulk.ended(await bulk.submit(folders)), {
    counts: { skipped: 1 },
    warnings: [{ code: "nothing_analysed" }],
  });

  const listed = await bulk.submit({
    items: [
      {
        input_image_path: path.join(input, "ct"),
        output_folder_path: path.join(place.output, "list"),
      },
    ],
    group: "series",
  });
  t.match(await bulk.ended(listed), { counts: { succeeded: 1 } });

  const file = {
    input_image_path: path.join(input, "ct", "0.dcm"),
    output_folder_path: path.join(place.output, "x"),
  };
  const refused = { status: 400, body: { error: "bad_request", details: { field: "group" } } };
  t.match(await bulk.send("POST", "/bulk_inference", { items: [file], group: "series" }), {
    ...refused,
    body: { error: "bad_request", message: /^items\[0\]: group: expected .* a folder/ },
  });
  t.match(await bulk.send("POST", "/single_inference", { ...file, group: "series" }), refused);
  const single = {
    input_image_path: path.join(input, "ct"),
    output_folder_path: path.join(place.output, "one"),
  };
  t.match(await bulk.send("POST", "/single_inference", single), { status: 422 });
  t.match(await bulk.send("POST", "/single_inference", { ...single, group: "series" }), {
    status: 200,
    body: { models: [{ name: "tissue", status: "succeeded" }] },
  });
});
