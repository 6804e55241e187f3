/** The bulk thread that crashes: the thread that serves HTTP goes on, and so does every job. */
import { mkdirSync, readdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { bulkPlace, startBulk, writeMany, writeSlice } from "../support/bulk.js";
import { until } from "../support/postgres.js";
import { root, withoutAddon } from "../support/server.js";

const CRASHES = 3;
const IMAGES = 120;

t.test("the bulk thread crashes again and again", { skip: withoutAddon }, async (t) => {
  const place = bulkPlace(t);
  const crashes = path.join(place.directory, "crashes");
  mkdirSync(crashes);
  place.environment["NODE_OPTIONS"] = `--import=${path.join(root, "dist/test/support/thread-crasher.js")}`;
  place.environment["TEST_CRASH_FOLDER"] = crashes;
  const bulk = await startBulk(t, place);
  const { server } = bulk;
  const serving = server.servingPid();
  const input = path.join(place.input, "many");
  const output = path.join(place.output, "many");
  writeMany(input, IMAGES);
  writeSlice(path.join(place.input, "single.dcm"));
  const ended = () => server.log.filter(({ msg }) => msg.startsWith("the bulk thread ended")).length;
  const id = await bulk.submit({ input_folder_path: input, output_folder_path: output, outputs: ["json"] });

  for (let crash = 1; crash <= CRASHES; crash++) {
    const { counts } = await bulk.until(id, ({ counts }) => counts.running > 0);
    await bulk.until(id, (now) => now.counts.succeeded >= counts.succeeded + 3);
    writeFileSync(path.join(crashes, String(crash)), "");
    await server.logged(() => ended() === crash);
    t.match(
      await bulk.send("POST", "/single_inference", {
        input_image_path: path.join(place.input, "single.dcm"),
        output_folder_path: path.join(place.output, `single-${crash}`),
      }),
      { status: 200, body: { status: "completed", reused: false } },
      "a single request while the thread is down",
    );
    t.equal((await fetch(`${server.url}/health/ready`)).status, 200);
  }
  t.match(
    server.log.filter(({ msg }) => msg === "the bulk thread failed"),
    Array.from({ length: CRASHES }, () => ({ level: "error", fault: {} })),
  );

  // Nobody asks for the thread meanwhile: it starts by itself
  await until(() => readdirSync(output).filter((name) => name.endsWith(".json")).length === IMAGES);
  const job = await bulk.ended(id);
  t.match(job, { state: "completed", total: IMAGES, counts: { succeeded: IMAGES, failed: 0 } });
  const items = await bulk.items(id);
  t.equal(new Set(items.map(({ index }) => index)).size, IMAGES);
  t.ok(
    items.some(({ attempts }) => attempts > 1),
    "what ran then ran again",
  );
  t.equal(readdirSync(output).length, IMAGES, "one receipt each, and nothing else");
  t.equal(server.servingPid(), serving, "the same process all the while");
  t.equal(ended(), CRASHES);
});
