/**
 * Two nodes whose model has one version and one graph, and other thresholds: in the manifest, or in
 * site.json. What is present then differs, so no job has results of both.
 */
import { readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import t from "tap";
import {
  bulkOf,
  bulkPlace,
  hold,
  placeBeside,
  startBulk,
  writeSlices,
  type Bulk,
} from "../support/bulk.js";
import type { Manifest } from "../../src/manifest/manifest.js";
import { withDurations } from "../support/durations.js";
import { ADDON, needs } from "../support/needs.js";
import { sharedDatabase } from "../support/postgres.js";
import { countedReceipts } from "../support/receipts.js";
import { startServer, type Place } from "../support/server.js";
import { writeTestModel, type TestModel } from "../support/test-models.js";

/** More than both nodes take at once. */
const IMAGES = 24;
const SHORT = { nodeBeat: 300, bulkFigures: 200, itemsAhead: 0 };
const OTHER = 0.95;

/** A draft for CT, which needs no canary. @returns its folder */
function modelIn(
  { environment }: Place,
  name: TestModel,
  change: (text: string) => string = (text) => text,
): string {
  const folder = writeTestModel(environment["RADSERVE_MODELS_DIR"]!, name);
  const file = path.join(folder, "model.json");
  const manifest = JSON.parse(readFileSync(file, "utf8")) as Manifest;
  manifest.accepts.modality = ["CT"];
  manifest.results = { outputs: ["json"] };
  writeFileSync(file, change(JSON.stringify({ ...manifest, stage: "draft" })));
  return folder;
}

/** The version of the manifest stays. */
const withOtherManifest = (place: Place) =>
  modelIn(place, "classifier", (text) =>
    text.replaceAll('"threshold":0.5', `"threshold":${OTHER}`),
  );

function withSite(place: Place): void {
  const file = path.join(modelIn(place, "detector"), "site.json");
  writeFileSync(file, JSON.stringify({ thresholds: { nodule: OTHER } }));
}

/** How many receipts have each threshold of the first label that the model is asked for. */
const thresholdsIn = (folder: string, label: string) =>
  countedReceipts(folder, ({ models }) =>
    String(
      models.flatMap(({ findings }) => findings).find((one) => one.label === label)?.threshold,
    ),
  );

t.test("nodes with other thresholds", { skip: needs(ADDON) }, async (t) => {
  const { url } = await sharedDatabase(t);
  const first = bulkPlace(t, {
    ...withDurations(SHORT),
    DATABASE_URL: url,
    RADSERVE_NODE_NAME: "node-a",
  });
  for (const name of ["classifier", "detector"] as const) modelIn(first, name);
  const second = placeBeside(t, first, { ...withDurations(SHORT), RADSERVE_NODE_NAME: "node-b" });
  withOtherManifest(second);
  withSite(second);
  const a = await startBulk(t, first);
  const b = bulkOf(await startServer(second));
  const input = path.join(first.input, "many");
  const names = writeSlices(input, IMAGES);
  for (const [model, label, lacks] of [
    ["classifier", "Effusion", /the model test-classifier (\S+) \(\w{8}\): it has \1 \(\w{8}\)\.$/],
    [
      "detector",
      "nodule",
      /the model test-detector \S+ \(\w{8}\): it has \S+ \(\w{8}, thresholds \w{8}\)\.$/,
    ],
  ] as const)
    await t.test(model, async (t) => {
      const out = (of: string) => path.join(first.output, model, of);
      const submit = (to: Bulk, of: string) =>
        to.submit({
          input_folder_path: input,
          output_folder_path: out(of),
          outputs: ["json"],
          models: [`test-${model}`],
        });
      const releases = [await hold(t, out("a"), names), await hold(t, out("b"), names)];
      const jobs = [await submit(a, "a"), await submit(b, "b")] as const;
      const waiting = await a.until(jobs[0], (job) =>
        job.waiting.some(({ reason }) => reason === "other_versions"),
      );
      t.match(
        waiting.waiting.find(({ reason }) => reason === "other_versions"),
        { node: "node-b", message: lacks },
      );
      for (const id of jobs)
        await a.until(id, ({ counts, total }) => total === IMAGES && counts.running > 0);
      for (const release of releases) await release();
      for (const [i, of] of ["a", "b"].entries()) {
        t.match(await a.ended(jobs[i]!), {
          state: "completed",
          counts: { succeeded: IMAGES, failed: 0 },
          warnings: { length: 0 },
        });
        t.strictSame(thresholdsIn(out(of), label), {
          [of === "a" ? "0.5" : String(OTHER)]: IMAGES,
        });
      }
    });
  await b.server.stop();
});
