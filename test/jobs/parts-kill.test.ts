/** A process that dies while the third part of a model runs: as with any model, nothing is half. */
import { mkdirSync, readFileSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { receiptSchema } from "../../src/results/receipt/receipt.js";
import { modelListSchema } from "../../src/server/model-list.js";
import { bulkPlace, resultsIn, startBulk, unmarked, writeSlice } from "../support/bulk.js";
import { ADDON, needs } from "../support/needs.js";
import { endlessOver, writePartsModel } from "../support/parts-model.js";
import { until } from "../support/until.js";

/** A series whose values are all below or above the last part's limit. */
function writeSeries(folder: string, intercept: string, uid: string): void {
  mkdirSync(folder, { recursive: true });
  for (let z = 0; z < 6; z++)
    writeSlice(path.join(folder, `${z}.dcm`), z, {
      RescaleIntercept: intercept,
      SeriesInstanceUID: uid,
      SOPInstanceUID: `${uid}.${z}`,
    });
}

const sumOf = (classes: Record<string, number>) =>
  Object.values(classes).reduce((sum, one) => sum + one, 0);

t.test("killed in part three", { skip: needs(ADDON) }, async (t) => {
  const place = bulkPlace(t);
  const models = place.environment["RADSERVE_MODELS_DIR"]!;
  writePartsModel(models, "held", (m) => (m.release = "active"), endlessOver(500));
  const input = path.join(place.input, "series");
  writeSeries(path.join(input, "poison"), "5000", "1.2.3.50");
  writeSeries(path.join(input, "sound"), "160", "1.2.3.60");
  const bulk = await startBulk(t, place);
  const output = path.join(place.output, "results");
  const id = await bulk.submit({
    input_folder_path: input,
    output_folder_path: output,
    models: ["held"],
    outputs: ["json"],
  });
  const poison = async () =>
    (await bulk.items(id)).find(({ input_image_path }) => input_image_path.includes("poison"));
  /** How many runs of each part are under way in the process that serves now. */
  const running = async () => {
    const { status, body } = await bulk.send("GET", "/models");
    if (status !== 200) return [];
    const held = modelListSchema.parse(body).models.find(({ name }) => name === "held");
    return (held?.parts ?? []).map(
      ({ work }) => sumOf(work.started) - work.completed - work.failed,
    );
  };
  /** The status of a request for another model; 0 where its connection went with the process. */
  const single = async (time: number): Promise<number> => {
    const request = {
      input_image_path: path.join(input, "sound", "0.dcm"),
      output_folder_path: path.join(place.output, `single-${time}`),
      models: ["ct-tissue"],
      outputs: ["json"],
    };
    try {
      const answer = await bulk.server.post("/single_inference", request);
      await answer.arrayBuffer();
      return answer.status;
    } catch {
      return 0;
    }
  };
  const signals = ["SIGKILL", "SIGSEGV", "SIGSEGV"] as const;
  for (const [time, signal] of signals.entries()) {
    await until("the third part runs", async () => {
      // A process that ended takes connections with it
      const item = await poison().catch(() => undefined);
      if (item?.state !== "running" || item.attempts !== time + 1) return false;
      // The other series of the job may run its own parts meanwhile
      return (await running().catch(() => [])).join(" ") === "0 0 1";
    });
    t.equal(await single(time), 200, "another request goes on beside it");
    process.kill(bulk.server.servingPid(), signal);
    await until("requests are answered again", async () => (await single(time)) === 200);
  }

  const job = await bulk.ended(id);
  t.match(job, { state: "completed", total: 2, counts: { succeeded: 1, failed: 1 } });
  t.match(await poison(), { state: "failed", attempts: 3, error: { error: "engine_crash" } });
  await unmarked(output);
  // What the dead process had taken is cleared away beside the end of the job
  await until("only the other's result lies there", () => resultsIn(output).length === 1);
  t.strictSame(resultsIn(output), ["sound.json"], "nothing of it lies there");
  const receipt = receiptSchema.parse(
    JSON.parse(readFileSync(path.join(output, "sound.json"), "utf8")),
  );
  t.strictSame(
    receipt.models[0]?.parts?.map(({ ran }) => ran),
    [true, true, true],
  );
});
