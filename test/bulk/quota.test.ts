/** A quota that is used up: libuv has no name for the fault. */
import { execFileSync } from "node:child_process";
import { constants } from "node:os";
import { rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { bulkPlace, hold, nameOf, resultsIn, startBulk, writeSlices } from "../support/bulk.js";
import { withDurations } from "../support/durations.js";
import { ADDON, needs } from "../support/needs.js";
import { root } from "../support/server.js";

const IMAGES = 12;
const BEFORE = 4;

t.test("a quota on the disk of results", { skip: needs(ADDON) }, async (t) => {
  const place = bulkPlace(t, withDurations({ jobPause: 500, itemRetry: 500 }));
  const [fault, shim] = ["fault", "failing-disk.so"].map((name) => path.join(place.directory, name)) as [
    string,
    string,
  ];
  execFileSync("cc", [
    "-shared",
    "-fPIC",
    "-o",
    shim,
    path.join(root, "test/support/failing-disk.c"),
    "-ldl",
  ]);
  Object.assign(place.environment, { LD_PRELOAD: shim, TEST_DISK: place.output, TEST_FAULT: fault });
  const bulk = await startBulk(t, place);
  const many = path.join(place.input, "many");
  writeSlices(many, IMAGES);
  const begin = () => writeFileSync(fault, String(constants.errno.EDQUOT));
  const end = () => rmSync(fault);

  await t.test("it is used up, for single requests and a new job", async (t) => {
    begin();
    for (const folder of ["", "new/below"])
      t.match(
        await bulk.send("POST", "/single_inference", {
          input_image_path: path.join(many, nameOf(0)),
          output_folder_path: path.join(place.output, folder),
        }),
        { status: 507, body: { error: "disk_full", message: /quota/, details: { errno: "EDQUOT" } } },
        folder,
      );
    t.match(
      await bulk.send("POST", "/bulk_inference", {
        input_folder_path: many,
        output_folder_path: path.join(place.output, "job"),
      }),
      { status: 507, body: { error: "disk_full" } },
    );
    t.strictSame(resultsIn(place.output), []);
    end();
  });

  await t.test("and in the middle of a job", async (t) => {
    const output = path.join(place.output, "job");
    const held = Array.from({ length: IMAGES - BEFORE }, (_, i) => nameOf(BEFORE + i));
    const release = await hold(t, output, held);
    const id = await bulk.submit({ input_folder_path: many, output_folder_path: output });
    await bulk.until(id, ({ counts }) => counts.succeeded === BEFORE);
    begin();
    await release();
    const waiting = await bulk.until(id, ({ paused_reason }) => paused_reason !== null);
    t.match(waiting, { state: "paused", paused_reason: { code: "disk_full" }, counts: { failed: 0 } });
    end();
    t.match(await bulk.ended(id), { state: "completed", counts: { succeeded: IMAGES, failed: 0 } });
  });
});
