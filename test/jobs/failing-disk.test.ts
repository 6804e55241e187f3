/**
 * Disks on which nothing can be made, though they look as ever: a quota that is used up, for which
 * libuv has no name, and a file system that a fault of its disk has made read-only.
 */
import { constants } from "node:os";
import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { bulkPlace, hold, nameOf, resultsIn, startBulk, writeSlices } from "../support/bulk.js";
import { withDurations } from "../support/durations.js";
import { failingDisk } from "../support/failing-disk.js";
import { HOUR_MS } from "../support/held.js";
import { ADDON, needs } from "../support/needs.js";
import { makePlace, radserve } from "../support/server.js";
import { until } from "../support/until.js";

const IMAGES = 12;
const BEFORE = 4;

t.test("the disk of results", { skip: needs(ADDON) }, async (t) => {
  // A look at the roots that met a fault would answer requests until the next one: the server looks
  // at them when it starts, and then requests alone meet what fails
  const place = bulkPlace(
    t,
    withDurations({ jobPause: 500, itemRetry: 500, conditionsLook: HOUR_MS }),
  );
  const { fault } = failingDisk(place, place.output);
  const bulk = await startBulk(t, place);
  await until(
    "the roots were looked at",
    async () => (await bulk.send("GET", "/health/ready")).status === 200,
  );
  const many = path.join(place.input, "many");
  writeSlices(many, IMAGES);
  const begin = (name: "EDQUOT" | "EROFS" | "EFBIG" | "EIO", sign = 1) =>
    writeFileSync(fault, String(sign * constants.errno[name]));
  const end = () => rmSync(fault);

  await t.test("a quota that is used up, for single requests and a new job", async (t) => {
    begin("EDQUOT");
    for (const folder of ["", "new/below"])
      t.match(
        await bulk.send("POST", "/single_inference", {
          input_image_path: path.join(many, nameOf(0)),
          output_folder_path: path.join(place.output, folder),
        }),
        {
          status: 507,
          body: { error: "disk_full", message: /quota/, details: { errno: "EDQUOT" } },
        },
        folder,
      );
    t.match(
      await bulk.send("POST", "/bulk_inference", {
        input_folder_path: many,
        output_folder_path: path.join(place.output, "job"),
      }),
      { status: 507, body: { error: "disk_full" } },
    );
    begin("EFBIG");
    t.match(
      await bulk.send("POST", "/single_inference", {
        input_image_path: path.join(many, nameOf(0)),
        output_folder_path: place.output,
      }),
      {
        status: 507,
        body: { error: "disk_full", message: /longer than/, details: { errno: "EFBIG" } },
      },
      "files longer than may be",
    );
    t.strictSame(resultsIn(place.output), []);
    end();
  });

  await t.test("a disk that fails, for single requests and a new job", async (t) => {
    const before = resultsIn(place.output);
    const refused = { status: 503, body: { error: "share_unavailable" } };
    for (const sign of [1, -1]) {
      begin("EIO", sign);
      t.match(
        await bulk.send("POST", "/single_inference", {
          input_image_path: path.join(many, nameOf(0)),
          output_folder_path: place.output,
        }),
        refused,
        sign < 0 ? "while it writes" : "when a file is made",
      );
      t.match(
        await bulk.send("POST", "/bulk_inference", {
          input_folder_path: many,
          output_folder_path: path.join(place.output, `job${sign}`),
        }),
        refused,
      );
    }
    // The folder of a job whose mark could not be synced stays, without a result
    const files = resultsIn(place.output).filter((name) => !/^job|^\.radserve-results/.test(name));
    t.strictSame(files, before);
    end();
  });

  for (const [name, code, sign] of [
    ["EDQUOT", "disk_full", 1],
    ["EROFS", "output_not_writable", 1],
    ["EIO", "share_unavailable", 1],
    ["EIO", "share_unavailable", -1],
  ] as const)
    await t.test(`${name} in the middle of a job${sign < 0 ? ", from fsync" : ""}`, async (t) => {
      const output = path.join(place.output, `${name}${sign}`);
      const held = Array.from({ length: IMAGES - BEFORE }, (_, i) => nameOf(BEFORE + i));
      const release = await hold(t, output, held);
      const id = await bulk.submit({ input_folder_path: many, output_folder_path: output });
      await bulk.until(id, ({ counts }) => counts.succeeded === BEFORE);
      begin(name, sign);
      await release();
      const waiting = await bulk.until(id, ({ paused_reason }) => paused_reason !== null);
      t.match(waiting, { state: "paused", paused_reason: { code }, counts: { failed: 0 } });
      // Nobody sees a disk that fails in fsync alone but by writing to it
      if (sign > 0)
        t.match(await radserve(place, "doctor"), {
          stdout: new RegExp(`problem {2}(?:output root|disk): .*${name}`),
        });
      // Each time that the job tries again it is not paused for a moment
      if (code === "share_unavailable")
        await until("the condition is told", async () =>
          JSON.stringify(await bulk.send("GET", "/health/ready")).includes("share_unavailable"),
        );
      end();
      t.match(await bulk.ended(id), {
        state: "completed",
        counts: { succeeded: IMAGES, failed: 0 },
      });
    });
});

t.test("a state directory that has become read-only", { skip: needs(ADDON) }, async (t) => {
  const place = makePlace();
  t.teardown(() => place.remove());
  failingDisk(place, place.environment["RADSERVE_STATE_DIR"]!);
  t.match(await radserve(place, "init"), { status: 0 });
  writeFileSync(path.join(place.directory, "fault"), String(constants.errno.EROFS));
  t.match(await radserve(place, "serve"), {
    status: 2,
    stderr: /^RADSERVE_STATE_DIR: .*\(EROFS\)/,
  });
  t.match(await radserve(place, "doctor"), { stdout: /problem {2}state directory: .*EROFS/ });
  writeFileSync(path.join(place.directory, "fault"), String(constants.errno.ENOSPC));
  const full = await radserve(place, "serve");
  t.equal(full.status, 1, "a full disk may have room later");
  t.match(
    full.stderr,
    /^RADSERVE_STATE_DIR: expected room for the lock .*\(ENOSPC\)\. Make room there/,
  );
});

t.test("a keys folder that systemd makes read-only", { skip: needs(ADDON) }, async (t) => {
  const place = makePlace();
  t.teardown(() => place.remove());
  const keys = path.join(place.directory, "keys");
  place.environment["RADSERVE_KEYS_DIR"] = keys;
  mkdirSync(keys);
  failingDisk(place, keys);
  writeFileSync(path.join(place.directory, "fault"), String(constants.errno.EROFS));
  for (const command of [["serve"], ["key", "new"]])
    t.match(
      await radserve(place, ...command),
      { status: 2, stderr: /EROFS.*A systemd unit has to name it in ReadWritePaths=/ },
      command.join(" "),
    );
});
