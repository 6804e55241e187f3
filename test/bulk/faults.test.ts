/** Faults that pass: the job waits, says why, and goes on by itself. */
import { execFileSync, spawnSync } from "node:child_process";
import { mkdirSync, readdirSync, renameSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { bulkPlace, startBulk, writeMany, writeSlice } from "../support/bulk.js";
import { withoutAddon } from "../support/server.js";

const skip = withoutAddon;

t.test("shares that go away and come back", { skip }, async (t) => {
  const place = bulkPlace(t);
  const bulk = await startBulk(t, place);
  const input = path.join(place.input, "share");
  const output = path.join(place.output, "share");
  const away = path.join(place.directory, "away");

  await t.test("the input", async (t) => {
    writeMany(input, 80);
    const id = await bulk.submit({ input_folder_path: input, output_folder_path: output, outputs: ["json"] });
    await bulk.until(id, ({ counts }) => counts.succeeded >= 3);
    renameSync(input, away);
    // As a mount point looks whose share is not mounted.
    mkdirSync(input);
    const waiting = await bulk.until(id, ({ state }) => state === "paused");
    t.match(waiting, {
      paused_reason: { code: "share_unavailable", message: /input folder/ },
      estimated_end: null,
    });
    t.ok(waiting.counts.queued > 0);
    t.match(await bulk.send("GET", "/bulk_inference?state=paused"), { body: { jobs: [{ job_id: id }] } });
    rmSync(input, { recursive: true });
    renameSync(away, input);
    t.match(await bulk.ended(id), { state: "completed" });
    t.strictSame(await bulk.items(id, "&state=failed"), []);
    t.ok(
      (await bulk.items(id)).every(({ attempts }) => attempts === 1),
      "waiting is no attempt",
    );
  });

  await t.test("the output, which is not made again where it was mounted", async (t) => {
    const id = await bulk.submit({
      input_folder_path: input,
      output_folder_path: path.join(output, "again"),
      outputs: ["json"],
    });
    await bulk.until(id, ({ counts }) => counts.running > 0);
    renameSync(output, away);
    await bulk.until(id, ({ paused_reason }) => paused_reason?.code === "share_unavailable");
    t.notOk(readdirSync(place.output).includes("share"));
    renameSync(away, output);
    t.match(await bulk.send("POST", `/bulk_inference/${id}/resume`), { status: 200 });
    t.match(await bulk.ended(id), { counts: { succeeded: 80 } });
    t.strictSame(await bulk.items(id, "&state=failed"), []);
  });

  await t.test("a single file that is gone is that item's failure", async (t) => {
    writeSlice(path.join(place.input, "few", "1.dcm"), 1);
    writeSlice(path.join(place.input, "few", "2.dcm"), 2);
    const held = await bulk.submit({ input_folder_path: input, output_folder_path: path.join(output, "b") });
    const id = await bulk.submit({
      items: ["1.dcm", "2.dcm"].map((name) => ({
        input_image_path: path.join(place.input, "few", name),
        output_folder_path: path.join(place.output, "few"),
      })),
    });
    rmSync(path.join(place.input, "few", "2.dcm"));
    const job = await bulk.ended(id);
    t.equal(job.state, "completed");
    t.equal(job.counts.succeeded + job.counts.failed, 2);
    for (const { error } of await bulk.items(id, "&state=failed")) t.equal(error?.error, "input_not_found");
    await bulk.send("DELETE", `/bulk_inference/${held}`);
  });
});

const folder = "/tmp/radserve-small-disk";
mkdirSync(folder, { recursive: true });
const mounts = spawnSync("mount", ["-t", "tmpfs", "-o", "size=4m", "tmpfs", folder]).status === 0;
if (mounts) execFileSync("umount", [folder]);

t.test("a full disk", { skip: skip || (mounts ? false : "this user may not mount") }, async (t) => {
  const folders = bulkPlace(t, { RADSERVE_MINIMUM_FREE_DISK: "0" });
  const place = {
    ...folders,
    remove: () => {
      execFileSync("umount", ["-l", folders.output]);
      folders.remove();
    },
  };
  execFileSync("mount", ["-t", "tmpfs", "-o", "size=4m", "tmpfs", place.output]);
  const bulk = await startBulk(t, place);
  writeMany(path.join(place.input, "many"), 40);
  const ballast = path.join(place.output, "ballast");
  mkdirSync(path.join(place.output, "many"));
  t.throws(() => writeFileSync(ballast, Buffer.alloc(8_000_000)), { code: "ENOSPC" });
  const id = await bulk.submit({
    input_folder_path: path.join(place.input, "many"),
    output_folder_path: path.join(place.output, "many"),
    outputs: ["json"],
  });
  const waiting = await bulk.until(id, ({ paused_reason }) => paused_reason?.code === "disk_full");
  t.match(waiting, { state: "paused", counts: { failed: 0 } });
  rmSync(ballast);
  t.match(await bulk.ended(id), { state: "completed", counts: { succeeded: 40, failed: 0 } });
  const left = readdirSync(path.join(place.output, "many"));
  t.equal(left.length, 40, "receipts and nothing else");
});
