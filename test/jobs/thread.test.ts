/** The bulk thread that crashes: the thread that serves HTTP goes on, and so does every job. */
import { mkdirSync, readdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { ADDON, needs } from "../support/needs.js";
import {
  bulkPlace,
  hold,
  nameOf,
  startBulk,
  unmarked,
  writeSlice,
  writeSlices,
} from "../support/bulk.js";
import { root } from "../support/server.js";
import { until } from "../support/until.js";

const CRASHES = 3;
/**
 * Images between two crashes, the first of which are held at the second: more than there are
 * threads.
 */
const BETWEEN = 10;
const HELD = 4;
const IMAGES = 40;

// The bulk thread crashes whenever a file appears in a folder
const place = bulkPlace(t);
const crashes = path.join(place.directory, "crashes");
mkdirSync(crashes);
place.environment["NODE_OPTIONS"] =
  `--import=${path.join(root, "dist/test/support/thread-crasher.js")}`;
place.environment["TEST_CRASH_FOLDER"] = crashes;
const skip = needs(ADDON);
const bulk = skip === false ? await startBulk(t, place) : undefined!;
const ended = () =>
  bulk.server.log.filter(({ msg }) => msg.startsWith("the bulk thread ended")).length;

t.test("the bulk thread crashes again and again", { skip }, async (t) => {
  const { server } = bulk;
  const serving = server.servingPid();
  const input = path.join(place.input, "many");
  const output = path.join(place.output, "many");
  writeSlices(input, IMAGES);
  writeSlice(path.join(place.input, "single.dcm"));
  // It comes to these one after the other, and crashes each time
  const groups = await Promise.all(
    Array.from({ length: CRASHES }, (_, crash) =>
      hold(
        t,
        output,
        Array.from({ length: HELD }, (_, i) => nameOf((crash + 1) * BETWEEN + i)),
      ),
    ),
  );
  const id = await bulk.submit({
    input_folder_path: input,
    output_folder_path: output,
    outputs: ["json"],
  });

  for (let crash = 1; crash <= CRASHES; crash++) {
    await bulk.until(id, ({ counts }) => counts.running > 0 && counts.succeeded >= crash * BETWEEN);
    writeFileSync(path.join(crashes, String(crash)), "");
    await server.logged(() => ended() === crash);
    await groups[crash - 1]!();
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
    await server.told(({ msg }) => msg === "the bulk thread failed", CRASHES),
    Array.from({ length: CRASHES }, () => ({ level: "error", fault: {} })),
  );

  // Nobody asks for the thread meanwhile: it starts by itself
  await until(
    "all results lie there",
    () => readdirSync(output).filter((name) => name.endsWith(".json")).length === IMAGES,
  );
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

t.test("an image that a crashed thread asked for is no image of the next", { skip }, async (t) => {
  const { server } = bulk;
  const output = path.join(place.output, "held");
  mkdirSync(output);
  // The same place in the list of both threads: the last of four, and after the first job's rest
  // the last of three
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
  const first = await hold(t, output, ["first.dcm"]);
  const second = await hold(t, output, ["second.dcm"]);

  const one = await bulk.submit(earlier!);
  await bulk.until(one, ({ counts }) => counts.succeeded === 3 && counts.running === 1);
  const before = ended();
  writeFileSync(path.join(crashes, "again"), "");
  await server.logged(() => ended() > before);
  const isAgain = (items: readonly { attempts: number }[]) =>
    items.some(({ attempts }) => attempts === 2);
  // Until the next thread is there, the answer is 503
  await until("an image is at its second attempt", () =>
    bulk.items(one).then(isAgain, () => false),
  );
  const two = await bulk.submit(next!);
  await bulk.until(two, ({ counts }) => counts.succeeded === 2 && counts.running === 1);

  await first();
  t.match(await bulk.ended(one), { state: "completed", counts: { succeeded: 4 } });
  // Both runs of the first image have ended, and what ended after them is written down
  await until("one inference runs", async () =>
    /^radserve_inferences_running 1$/m.test(await (await fetch(`${server.url}/metrics`)).text()),
  );
  await bulk.ended(await bulk.submit(later!));
  t.match(
    await bulk.job(two),
    { finished_at: null, counts: { succeeded: 2, running: 1 } },
    "the other image still waits for its name",
  );
  await second();
  t.match(await bulk.ended(two), { state: "completed", counts: { succeeded: 3 } });
  t.ok(readdirSync(output).includes("second.dcm.json"));
});
