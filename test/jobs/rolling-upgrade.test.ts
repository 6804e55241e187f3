/** An older release and this one beside each other: no job has results of both by itself. */
import path from "node:path";
import t from "tap";
import { VERSION } from "../../src/base/version.js";
import {
  bulkOf,
  bulkPlace,
  hold,
  placeBeside,
  startBulk,
  writeSlices,
  type Bulk,
} from "../support/bulk.js";
import { withDurations } from "../support/durations.js";
import { ADDON, needs } from "../support/needs.js";
import { olderProgram } from "../support/older-program.js";
import { sharedDatabase } from "../support/postgres.js";
import { countedReceipts } from "../support/receipts.js";
import { startServer } from "../support/server.js";

const IMAGES = 30;
const DONE = 3;
/** Before it ends, the older node has signs of life in time, however busy the machine is. */
const SHORT = {
  nodeBeat: 300,
  nodeLease: 8_000,
  bulkFigures: 200,
  jobPause: 300,
  itemsAhead: 0,
  jobPinAnew: 500,
};

const releasesIn = (folder: string) =>
  countedReceipts(folder, ({ radserve_version: version }) => version);

t.test("a release is rolled out node by node", { skip: needs(ADDON) }, async (t) => {
  const { url } = await sharedDatabase(t);
  const short = withDurations(SHORT);
  const place = bulkPlace(t, { ...short, DATABASE_URL: url, RADSERVE_NODE_NAME: "older" });
  const before = bulkOf(await startServer({ ...place, main: olderProgram(place) }));
  const input = path.join(place.input, "many");
  const names = writeSlices(input, IMAGES);
  const out = (name: string) => path.join(place.output, name);
  const submit = (to: Bulk, name: string) =>
    to.submit({
      input_folder_path: input,
      output_folder_path: out(name),
      outputs: ["json"],
      models: ["ct-tissue"],
    });
  const releases = [
    await hold(t, out("begun"), names.slice(DONE)),
    await hold(t, out("fresh"), names),
  ];
  const begun = await submit(before, "begun");
  const fresh = await submit(before, "fresh");
  await before.until(begun, ({ counts }) => counts.succeeded === DONE);
  const newer = placeBeside(t, place, { ...short, RADSERVE_NODE_NAME: "newer" });
  const after = await startBulk(t, newer);

  const seen = await after.until(begun, ({ waiting }) =>
    waiting.some(({ reason }) => reason === "other_versions"),
  );
  t.match(seen, { state: "running", pinned: { release: "0.0.1" } });
  t.match(
    seen.waiting.filter(({ node }) => node === "newer"),
    [
      {
        message: `The node lacks what the job was submitted with: Radserve 0.0.1: it has ${VERSION}.`,
      },
    ],
  );
  t.match(await after.ended(await submit(after, "new")), { counts: { succeeded: IMAGES } });
  t.strictSame(
    releasesIn(out("new")),
    { [VERSION]: IMAGES },
    "each has the jobs of its own release",
  );

  // The last node of the older release ends in the midst of them
  const serving = before.server.servingPid();
  before.server.process.kill("SIGKILL");
  process.kill(serving, "SIGKILL");
  for (const release of releases) await release();
  t.match(await after.ended(fresh), {
    counts: { succeeded: IMAGES },
    pinned: { release: VERSION },
    pinned_anew: [{ node: "newer", before: { release: "0.0.1" } }],
    warnings: [{ code: "pinned_anew" }],
  });
  t.strictSame(releasesIn(out("fresh")), { [VERSION]: IMAGES }, "nothing was made of it before");
  t.match(await after.until(begun, ({ state }) => state === "paused"), {
    paused_reason: { code: "no_node_can_run" },
    counts: { succeeded: DONE, failed: 0 },
  });
  t.strictSame(releasesIn(out("begun")), { "0.0.1": DONE }, "nobody mixes it");
  t.match(await after.send("POST", `/bulk_inference/${begun}/resume`), { status: 200 });
  t.match(await after.ended(begun), {
    counts: { succeeded: IMAGES, failed: 0 },
    warnings: [{ code: "several_versions" }],
  });
  t.strictSame(releasesIn(out("begun")), { "0.0.1": DONE, [VERSION]: IMAGES - DONE });
});
