/** Which nodes an image is left to that some do not find, and when it fails. */
import { randomUUID } from "node:crypto";
import { mkdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { transaction } from "../../src/jobs/database.js";
import { insertJob } from "../../src/jobs/jobs.js";
import {
  lease,
  settle,
  type Ending,
  type LeasedItem,
  type Settled,
} from "../../src/jobs/leases.js";
import { lookAgain, mayBeElsewhere, MISSING_HERE } from "../../src/jobs/missing-images.js";
import { enter, leave, type Instance } from "../../src/jobs/nodes.js";
import type { JobDetails } from "../../src/jobs/schema.js";
import { bulkPlace, hold, startBulk, startWorker, writeSlices } from "../support/bulk.js";
import { withDurations } from "../support/durations.js";
import { ADDON, needs } from "../support/needs.js";
import { sharedDatabase } from "../support/postgres.js";
import { newInstance, newItems, newJob } from "../support/tables.js";

const IMAGES = 24;

const { pool } = await sharedDatabase(t);
const id = randomUUID();
await transaction(pool, (client) => insertJob(client, newJob({ id, items: newItems([0, 1]) }), 1));

async function entered(name: string): Promise<Instance> {
  const instance = newInstance({ name });
  await enter(pool, instance, true);
  return instance;
}

/** The node looks for images in vain. @returns how they end */
async function missed(instance: Instance, items: readonly LeasedItem[]): Promise<string[]> {
  const error = { error: "input_not_found", message: "Nothing is there." } as const;
  const elsewhere = await mayBeElsewhere(pool, instance, items);
  const endings = items.map((item): Ending =>
    elsewhere.has(item)
      ? { state: "queued", afterSeconds: 0, counts: false, why: MISSING_HERE }
      : { state: "failed", error },
  );
  const settled = items.map((item, i): Settled => ({ item, ending: endings[i]! }));
  await settle(pool, instance, settled, new Set());
  return endings.map(({ state }) => state);
}

const taken = (instance: Instance, most = 2): Promise<LeasedItem[]> =>
  lease(pool, instance, most, false);

t.test("an image that a node does not find", async (t) => {
  const [a, b] = [await entered("a"), await entered("b")];
  const [first, second] = await taken(a);
  t.strictSame(await missed(a, [first!, second!]), ["queued", "queued"]);
  t.strictSame(await taken(a), [], "the node does not take it again");
  t.strictSame(await lookAgain(pool, a, [id]), [id], "while another one may find it");

  const [image, other] = await taken(b);
  t.strictSame(await lookAgain(pool, a, [id]), [id], "while another one looks");
  t.strictSame(await missed(b, [image!]), ["failed"], "it fails where none is left");

  // The other image of b waits again, as when a node stops
  const ending: Ending = { state: "queued", afterSeconds: 0, counts: false };
  await settle(pool, b, [{ item: other!, ending }], new Set());
  await leave(pool, b);
  t.strictSame(await taken(a), [], "it is still left to the node that went");
  t.strictSame(await lookAgain(pool, a, [id]), []);
  const [last, ...more] = await taken(a);
  t.strictSame(more, []);
  t.strictSame(await missed(a, [last!]), ["failed"], "and fails where that was the last");
  t.strictSame(await lookAgain(pool, a, [id]), []);
});

t.test("images of a list that one node does not find", { skip: needs(ADDON) }, async (t) => {
  const place = bulkPlace(t, withDurations({ itemsAhead: 0, nodeBeat: 300 }));
  const bulk = await startBulk(t, place);
  // The root of the other node is no empty folder, and has not that of the images
  const other = path.join(place.directory, "other-root");
  mkdirSync(other);
  writeFileSync(path.join(other, "something"), "");
  const without = { ...place, input: other };
  await startWorker(t, without, {
    RADSERVE_PATH_MAP: JSON.stringify([{ from: place.input, to: other }]),
    RADSERVE_NODE_NAME: "without",
  });
  // More than the first node takes at once, and its threads stay busy with them
  const input = path.join(place.input, "many");
  const names = writeSlices(input, IMAGES);
  const output = path.join(place.output, "listed");
  const release = await hold(t, output, names);
  const listed = await bulk.submit({
    items: [...names, "nowhere.dcm"].map((name) => ({
      input_image_path: path.join(input, name),
      output_folder_path: output,
    })),
    outputs: ["json"],
  });
  const missing = ({ waiting }: JobDetails) =>
    waiting.find(({ reason }) => reason === MISSING_HERE);
  const left = await bulk.until(listed, (job) => missing(job) !== undefined);
  t.match(left, { state: "running", counts: { failed: 0 } });
  t.match(missing(left), { node: "without", message: /left to the other nodes/ });
  await release();
  t.match(await bulk.ended(listed), {
    state: "completed",
    counts: { succeeded: IMAGES, failed: 1 },
    failures: [{ code: "input_not_found", images: 1 }],
  });
});
