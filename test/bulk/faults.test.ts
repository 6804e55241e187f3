/** Faults that pass: the job waits, says why, and goes on by itself. */
import { execFileSync, spawnSync } from "node:child_process";
import {
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmdirSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import os from "node:os";
import path from "node:path";
import t, { type Test } from "tap";
import { ADDON, needs } from "../support/needs.js";
import { bulkPlace, nameOf, resultsIn, startBulk, unmarked, writeMany, writeSlice } from "../support/bulk.js";
import { type Place } from "../support/server.js";

const skip = needs(ADDON);

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

t.test("output folders that others take the place of", { skip }, async (t) => {
  const place = bulkPlace(t);
  const bulk = await startBulk(t, place);
  const input = path.join(place.input, "many");
  const away = path.join(place.directory, "away");
  const count = 80;
  writeMany(input, count);

  const replaced = async (t: Test, id: string, output: string) => {
    await bulk.until(id, ({ counts }) => counts.succeeded >= 3);
    renameSync(output, away);
    mkdirSync(output);
    const waiting = await bulk.until(id, ({ state, counts }) => state !== "running" && counts.running === 0);
    t.match(waiting, {
      paused_reason: {
        code: "output_replaced",
        message: `The output folder ${output} is not`,
        since: String,
      },
      waiting: [{ reason: "output_replaced", since: String, box: os.hostname(), images: null }],
      boxes: [{ name: os.hostname(), alive: true, works: true, ready: true, running: 0 }],
      counts: { failed: 0 },
    });
    t.equal(waiting.boxes.length, 1);
    t.strictSame(readdirSync(output), [], "nothing is written into the other");
  };

  await t.test("it comes back", async (t) => {
    const output = path.join(place.output, "folder");
    const id = await bulk.submit({ input_folder_path: input, output_folder_path: output, outputs: ["json"] });
    await replaced(t, id, output);
    rmSync(output, { recursive: true });
    renameSync(away, output);
    t.match(await bulk.ended(id), { state: "completed", counts: { succeeded: count, failed: 0 } });
    await unmarked(output);
    t.equal(readdirSync(output).length, count, "a receipt of each, and no mark");
  });

  await t.test("the other one is to be used", async (t) => {
    const output = path.join(place.output, "list");
    const id = await bulk.submit({
      items: Array.from({ length: count }, (_, i) => ({
        input_image_path: path.join(input, nameOf(i)),
        output_folder_path: output,
      })),
      outputs: ["json"],
    });
    await replaced(t, id, output);
    writeFileSync(path.join(output, `.radserve-job-${id}`), "");
    t.match(await bulk.ended(id), { state: "completed", counts: { succeeded: count } });
    const lacking = count - resultsIn(output).length;
    t.ok(lacking > 0, "images said succeeded, and their receipts went away");
    const first = await bulk.send("POST", `/bulk_inference/${id}/reconcile?limit=${count}&retry=true`);
    t.match(first, { status: 200, body: { checked: count, requeued: lacking } });
    t.match(await bulk.ended(id), { state: "completed", counts: { succeeded: count } });
    t.equal(resultsIn(output).length, count);
  });
});

t.test("image after image that fails for one reason", { skip }, async (t) => {
  const place = bulkPlace(t, { RADSERVE_PAUSE_AFTER_FAILURES: "5" });
  const bulk = await startBulk(t, place);
  const input = path.join(place.input, "bad");
  mkdirSync(input);
  const bad = (i: number) => {
    const file = path.join(input, `${i}.dcm`);
    writeSlice(file);
    writeFileSync(file, readFileSync(file).subarray(0, -20));
    return { input_image_path: file, output_folder_path: path.join(place.output, "bad") };
  };
  const id = await bulk.submit({ items: Array.from({ length: 300 }, (_, i) => bad(i)) });
  const waiting = await bulk.until(id, ({ state, counts }) => state === "paused" && counts.running === 0);
  t.match(waiting, {
    paused_reason: {
      code: "repeated_failures",
      message: /^\d+ images in a row failed with truncated_image, .*resume/,
      since: String,
    },
    waiting: [{ reason: "repeated_failures", box: os.hostname() }],
  });
  t.ok(waiting.counts.failed >= 5 && waiting.counts.queued > 0);
  t.match(await bulk.send("POST", `/bulk_inference/${id}/pause`), {
    body: { paused_reason: { code: "repeated_failures" } },
  });
  t.match(await bulk.send("POST", `/bulk_inference/${id}/resume`), {
    status: 200,
    body: { state: "running" },
  });
  t.match(await bulk.ended(id), { state: "completed", counts: { failed: 300 } }, "not for that reason again");
});

const probe = mkdtempSync(path.join(os.tmpdir(), "radserve-mount-"));
const mounts = spawnSync("mount", ["-t", "tmpfs", "-o", "size=4m", "tmpfs", probe]).status === 0;
if (mounts) execFileSync("umount", [probe]);
rmdirSync(probe);
const skipMount = skip || (mounts ? false : "this user may not mount");

/** Folders whose output root is a file system of its own. */
function placeOnTmpfs(t: Test, size: string): Place {
  const folders = bulkPlace(t, { RADSERVE_MINIMUM_FREE_DISK: "0" });
  execFileSync("mount", ["-t", "tmpfs", "-o", `size=${size}`, "tmpfs", folders.output]);
  const remove = () => {
    spawnSync("umount", ["-l", folders.output]);
    folders.remove();
  };
  return { ...folders, remove };
}

t.test("a full disk", { skip: skipMount }, async (t) => {
  const place = placeOnTmpfs(t, "4m");
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
  await unmarked(path.join(place.output, "many"));
  t.equal(readdirSync(path.join(place.output, "many")).length, 40, "receipts and nothing else");
});

t.test("an output folder that may not be written to", { skip: skipMount }, async (t) => {
  const place = placeOnTmpfs(t, "64m");
  const bulk = await startBulk(t, place);
  const count = 40;
  const input = path.join(place.input, "many");
  const output = path.join(place.output, "many");
  writeMany(input, count);
  const id = await bulk.submit({
    input_folder_path: input,
    output_folder_path: output,
    outputs: ["json"],
  });
  // While work goes on, the file system is open for writing and cannot be remounted.
  await bulk.send("POST", `/bulk_inference/${id}/pause`);
  await bulk.until(id, ({ counts }) => counts.running === 0);
  execFileSync("mount", ["-o", "remount,ro", place.output]);
  await bulk.send("POST", `/bulk_inference/${id}/resume`);
  const waiting = await bulk.until(id, ({ paused_reason }) => paused_reason?.code === "output_not_writable");
  t.match(waiting, { state: "paused", counts: { failed: 0 } });
  await bulk.until(id, ({ counts }) => counts.running === 0);
  execFileSync("mount", ["-o", "remount,rw", place.output]);
  await bulk.send("POST", `/bulk_inference/${id}/resume`);
  t.match(await bulk.ended(id), { state: "completed", counts: { succeeded: count, failed: 0 } });
});

t.test("an output root that is a mount point, without its share", { skip: skipMount }, async (t) => {
  const place = placeOnTmpfs(t, "64m");
  const bulk = await startBulk(t, place);
  const input = path.join(place.input, "many");
  const kept = path.join(place.directory, "kept");
  const count = 80;
  writeMany(input, count);
  mkdirSync(kept);

  /**
   * The share goes away in the middle of the job, and comes back on another device.
   * @param reason why the job waits meanwhile
   */
  const outage = async (t: Test, id: string, reason: object) => {
    await bulk.until(id, ({ counts }) => counts.succeeded >= 3);
    execFileSync("mount", ["--bind", place.output, kept]);
    execFileSync("umount", ["-l", place.output]);
    const paused = () => bulk.until(id, ({ state, counts }) => state !== "running" && counts.running === 0);
    t.match(await paused(), { paused_reason: reason });
    t.match(await bulk.send("POST", `/bulk_inference/${id}/resume`), { status: 200 });
    t.match(await paused(), { state: "paused", counts: { failed: 0 } });
    t.strictSame(resultsIn(place.output), [], "nothing is written below the bare mount point");
    execFileSync("mount", ["-t", "tmpfs", "-o", "size=64m", "tmpfs", place.output]);
    execFileSync("cp", ["-a", `${kept}/.`, place.output]);
    execFileSync("umount", [kept]);
    await bulk.send("POST", `/bulk_inference/${id}/resume`);
    t.match(await bulk.ended(id), { state: "completed", counts: { succeeded: count, failed: 0 } });
  };

  await t.test("a list, into the root and into a folder that was not there", async (t) => {
    const id = await bulk.submit({
      items: Array.from({ length: count }, (_, i) => ({
        input_image_path: path.join(input, nameOf(i)),
        output_folder_path: i % 2 === 0 ? place.output : path.join(place.output, "new", "folder"),
      })),
      outputs: ["json"],
    });
    // The one folder is the bare mount point, the other is gone: whichever is met last says why
    await outage(t, id, { code: /^(output_replaced|share_unavailable)$/ });
    await unmarked(path.join(place.output, "new", "folder"));
    t.equal(readdirSync(path.join(place.output, "new", "folder")).length, count / 2);
  });

  await t.test("a folder, into the root", async (t) => {
    const output = place.output;
    const id = await bulk.submit({ input_folder_path: input, output_folder_path: output, outputs: ["seg"] });
    await outage(t, id, { code: "output_replaced", message: /share is probably not/ });
  });

  await unmarked(place.output);
  t.strictSame(
    readdirSync(place.output).filter((name) => name.startsWith(".")),
    [],
  );
});
