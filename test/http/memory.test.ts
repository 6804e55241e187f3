/**
 * The memory that images in work may take together: what has no room waits, is refused, and comes
 * back.
 */
import { existsSync, writeFileSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { bulkOf, bulkPlace, writeSlice } from "../support/bulk.js";
import { CT_SLICE } from "../support/dicom.js";
import { withDurations } from "../support/durations.js";
import { heldImage, holdDecoding, holdHours, HOUR_MS } from "../support/held.js";
import { ADDON, needs } from "../support/needs.js";
import { startServer } from "../support/server.js";
import { until } from "../support/until.js";

t.test("memory of images", { skip: needs(ADDON) }, async (t) => {
  const short = withDurations({ memoryRoom: 500, lastMoment: 300 });
  const place = bulkPlace(t, { ...short, RADSERVE_THREADS: "2", RADSERVE_MEMORY: "1MiB" });
  const decoding = holdDecoding(t, place);
  const endHours = holdHours(place);
  const at = (name: string) => path.join(place.input, name);
  writeFileSync(at("slow.dcm"), await heldImage(CT_SLICE));
  writeSlice(at("small.dcm"));
  writeSlice(path.join(place.input, "many", "one.dcm"));
  const server = await startServer(place);
  t.teardown(() => server.stop());
  const ask = (name: string, folder: string, more: object = {}) =>
    server.post("/single_inference", {
      input_image_path: at(name),
      output_folder_path: path.join(place.output, folder),
      outputs: ["json"],
      ...more,
    });
  const held = async () => {
    const text = await (await fetch(`${server.url}/metrics`)).text();
    return Number(/\nradserve_image_memory_bytes (\d+)/.exec(text)?.[1]);
  };

  t.equal((await ask("small.dcm", "before")).status, 200);
  t.equal(await held(), 0, "what an image took is given back");

  // It needs more than there is, and may begin because it is alone.
  const slow = ask("slow.dcm", "slow", { timeout_ms: HOUR_MS });
  await decoding.atWork();
  t.ok((await held()) > 2 ** 20);
  const refused = await ask("small.dcm", "refused");
  t.equal(refused.status, 503);
  t.match(await refused.json(), { error: "overloaded", details: { most_bytes: 2 ** 20 } });
  t.ok(Number(refused.headers.get("Retry-After")) > 0);
  t.notOk(existsSync(path.join(place.output, "refused", "small.dcm.json")));
  t.equal((await ask("small.dcm", "stat", { priority: "stat" })).status, 200, "stat does not wait");

  const bulk = bulkOf(server);
  const job = await bulk.submit({
    input_folder_path: path.join(place.input, "many"),
    output_folder_path: path.join(place.output, "many"),
    outputs: ["json"],
  });
  await bulk.until(job, ({ counts }) => counts.running === 1);
  endHours();
  t.equal((await slow).status, 504, "its thread is ended");
  await until("the memory is free again", async () => (await held()) <= 2 ** 20);
  // The job's image has the memory first, and may have it for longer than a request waits
  await until(
    "what the ended thread held is given back",
    async () => (await ask("small.dcm", "after")).status === 200,
  );
  t.match(
    await bulk.ended(job),
    { counts: { succeeded: 1, failed: 0 } },
    "an item waits and does not fail",
  );
});
