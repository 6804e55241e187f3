/** What a cancelled job says of images whose results were being committed just then. */
import { readdirSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { bulkPlace, hold, nameOf, startBulk, writeSlices } from "../support/bulk.js";
import { withDurations } from "../support/durations.js";
import { ADDON, needs } from "../support/needs.js";

const IMAGES = 48;
const ROUNDS = 3;

t.test("each result that is there is one that the job tells", { skip: needs(ADDON) }, async (t) => {
  // Threads whose tasks do not stop are ended at once
  const place = bulkPlace(t, withDurations({ lastMoment: 1 }));
  const bulk = await startBulk(t, place);
  const input = path.join(place.input, "many");
  writeSlices(input, IMAGES);
  for (let round = 0; round < ROUNDS; round++) {
    const output = path.join(place.output, String(round));
    // However late the job is cancelled, it has not ended by itself
    const release = await hold(t, output, [nameOf(IMAGES - 1)]);
    const id = await bulk.submit({ input_folder_path: input, output_folder_path: output });
    await bulk.until(id, ({ counts }) => counts.succeeded >= 3);
    t.match(await bulk.send("DELETE", `/bulk_inference/${id}`), { status: 200 });
    const { counts, total } = await bulk.ended(id);
    const receipts = readdirSync(output).filter((name) => /^[^.].*\.json$/.test(name));
    t.equal(receipts.length, counts.succeeded);
    t.equal(counts.succeeded + counts.cancelled, total);
    t.ok(counts.cancelled > 0);
    await release();
  }
});
