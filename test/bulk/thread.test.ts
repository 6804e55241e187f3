/** The bulk thread that crashes: the thread that serves HTTP goes on, and so does every job. */
import { mkdirSync, readdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import t, { type Test } from "tap";
import { NameLock } from "../../src/files/name-lock.js";
import { ADDON, needs } from "../support/needs.js";
import { bulkPlace, startBulk, unmarked, writeMany, writeSlice, type Bulk } from "../support/bulk.js";
import { until } from "../support/postgres.js";
import { root } from "../support/server.js";

const CRASHES = 3;
const IMAGES = 120;

/** Takes the names of results, so that their images wait. */
function take(folder: string, name: string): Promise<NameLock> {
  return NameLock.take(folder, name, { deadline: Date.now() + 200 });
}

/** A server whose bulk thread crashes whenever a file appears in the folder `crashes`. */
async function startCrashing(t: Test): Promise<{ bulk: Bulk; crashes: string }> {
  const place = bulkPlace(t);
  const crashes = path.join(place.directory, "crashes");
  mkdirSync(crashes);
  place.environment["NODE_OPTIONS"] = `--import=${path.join(root, "dist/test/support/thread-crasher.js")}`;
  place.environment["TEST_CRASH_FOLDER"] = crashes;
  return { bulk: await startBulk(t, place), crashes };
}

t.test("the bulk thread crashes again and again", { skip: needs(ADDON) }, async (t) => {
  const { bulk, crashes } = await startCrashing(t);
  const { server, place } = bulk;
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
  await unmarked(output);
  t.equal(readdirSync(output).length, IMAGES, "one receipt each, and nothing else");
  t.equal(server.servingPid(), serving, "the same process all the while");
  t.equal(ended(), CRASHES);
});

t.test(
  "an image that a crashed thread asked for is no image of the next",
  { skip: needs(ADDON) },
  async (t) => {
    const { bulk, crashes } = await startCrashing(t);
    const { place, server } = bulk;
    const output = path.join(place.output, "held");
    mkdirSync(output);
    // The same place in the list of both threads: the last of four, and after the first job's rest the last of three
    const [earlier, next, later] = [
      ["0.dcm", "1.dcm", "2.dcm", "first.dcm"],
      ["3.dcm", "4.dcm", "second.dcm"],
      ["5.dcm"],
    ].map((names) => ({
      items: names.map((name) => {
        const input = path.join(place.input, name);
        writeSlice(input);
        return { input_image_path: input, output_folder_path: output };
      }),
      outputs: ["json"],
    }));
    const [first, second] = [await take(output, "first.dcm"), await take(output, "second.dcm")];
    t.teardown(() => Promise.all([first.release(), second.release()]));

    const one = await bulk.submit(earlier!);
    await bulk.until(one, ({ counts }) => counts.succeeded === 3 && counts.running === 1);
    writeFileSync(path.join(crashes, "1"), "");
    await server.logged(() => server.log.some(({ msg }) => msg.startsWith("the bulk thread ended")));
    await until(async () => (await bulk.items(one)).some(({ attempts }) => attempts === 2));
    const two = await bulk.submit(next!);
    await bulk.until(two, ({ counts }) => counts.succeeded === 2 && counts.running === 1);

    await first.release();
    t.match(await bulk.ended(one), { state: "completed", counts: { succeeded: 4 } });
    // Both runs of the first image have ended, and what ended after them is written down
    await until(async () =>
      /^radserve_inferences_running 1$/m.test(await (await fetch(`${server.url}/metrics`)).text()),
    );
    await bulk.ended(await bulk.submit(later!));
    t.match(
      await bulk.job(two),
      { finished_at: null, counts: { succeeded: 2, running: 1 } },
      "the other image still waits for its name",
    );
    await second.release();
    t.match(await bulk.ended(two), { state: "completed", counts: { succeeded: 3 } });
    t.ok(readdirSync(output).includes("second.dcm.json"));
  },
);
