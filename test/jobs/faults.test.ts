/** Faults that pass: the job waits, says why, and goes on by itself. */
import { execFileSync, spawnSync } from "node:child_process";
import {
  existsSync,
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
import { TASKS_PER_THREAD } from "../../src/inference/thread-pool.js";
import { ROOT_MARK } from "../../src/files/root-mark.js";
import { LIST_FOLDER } from "../../src/files/helper-names.js";
import { CT_SLICE } from "../support/dicom.js";
import { withDurations } from "../support/durations.js";
import { heldImage, holdDecoding } from "../support/held.js";
import { ADDON, needs } from "../support/needs.js";
import {
  bulkPlace,
  cancelledJob,
  hold,
  nameOf,
  resultsIn,
  startBulk,
  unmarked,
  writeSlice,
  writeSlices,
} from "../support/bulk.js";
import { until } from "../support/until.js";

const skip = needs(ADDON);

/** Images of a job: more than a node takes at once. */
const IMAGES = 24;
/** The results that a job comes to first. */
const BEFORE = 4;
/** Images that the two threads of a server work on at once. */
const AT_ONCE = 2 * TASKS_PER_THREAD;
const HELD = Array.from({ length: IMAGES - BEFORE }, (_, i) => nameOf(BEFORE + i));

const probe = mkdtempSync(path.join(os.tmpdir(), "radserve-mount-"));
const mounts = spawnSync("mount", ["-t", "tmpfs", "-o", "size=4m", "tmpfs", probe]).status === 0;
if (mounts) execFileSync("umount", [probe]);
rmdirSync(probe);
const skipMount = skip || (mounts ? false : "this user may not mount");

// One server for all: each fault ends, and the next job finds nothing of it
const place = bulkPlace(t, {
  // However fast images were before, a node takes no more of a job than its threads work on.
  // A node that stands still for some seconds is told as one that lives
  ...withDurations({ jobPause: 500, itemRetry: 500, itemsAhead: 0, nodeSilent: 11_000 }),
  RADSERVE_MINIMUM_FREE_DISK: "0",
  RADSERVE_PAUSE_AFTER_FAILURES: "5",
});
/** Output roots that are file systems of their own, by their sizes. */
const [small, shut, bare] = ["4m", "64m", "48m"].map((size) => {
  const root = path.join(place.directory, `root-${size}`);
  mkdirSync(root);
  if (mounts) execFileSync("mount", ["-t", "tmpfs", "-o", `size=${size}`, "tmpfs", root]);
  return root;
}) as [string, string, string];
place.environment["RADSERVE_OUTPUT_ROOTS"] = [place.output, small, shut, bare].join(":");
const remove = place.remove.bind(place);
place.remove = () => {
  for (const root of [small, shut, bare]) spawnSync("umount", ["-l", root]);
  remove();
};
const held = holdDecoding(t, place);
const bulk = skip === false ? await startBulk(t, place) : undefined!;
const many = path.join(place.input, "many");
writeSlices(many, IMAGES);

t.test("shares that go away and come back", { skip }, async (t) => {
  const input = path.join(place.input, "share");
  const output = path.join(place.output, "share");
  const away = path.join(place.directory, "away");

  await t.test("the input", async (t) => {
    writeSlices(input, IMAGES);
    const release = await hold(t, output, HELD);
    const id = await bulk.submit({
      input_folder_path: input,
      output_folder_path: output,
      outputs: ["json"],
    });
    // The end of its scan would end a pause
    await bulk.until(id, ({ counts, total }) => total === IMAGES && counts.succeeded === BEFORE);
    renameSync(input, away);
    // As a mount point looks whose share is not mounted.
    mkdirSync(input);
    await release();
    // What other threads had begun has ended: an image that was open before would end the pause
    const waiting = await bulk.until(
      id,
      ({ state, counts }) => state === "paused" && counts.running === 0,
    );
    t.ok(waiting.counts.queued > 0);
    t.match(waiting, {
      paused_reason: { code: "share_unavailable", message: /input folder/ },
      estimated_end: null,
    });
    t.match(await bulk.send("GET", "/bulk_inference?state=paused"), {
      body: { jobs: [{ job_id: id }] },
    });
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
    const release = await hold(t, path.join(output, "again"), HELD);
    const id = await bulk.submit({
      input_folder_path: input,
      output_folder_path: path.join(output, "again"),
      outputs: ["json"],
    });
    await bulk.until(id, ({ counts }) => counts.running > 0);
    renameSync(output, away);
    await release();
    await bulk.until(id, ({ paused_reason }) => paused_reason?.code === "share_unavailable");
    t.notOk(readdirSync(place.output).includes("share"));
    renameSync(away, output);
    t.match(await bulk.send("POST", `/bulk_inference/${id}/resume`), { status: 200 });
    t.match(await bulk.ended(id), { counts: { succeeded: IMAGES } });
    t.strictSame(await bulk.items(id, "&state=failed"), []);
  });

  await t.test("a single file that is gone is that item's failure", async (t) => {
    writeSlice(path.join(place.input, "few", "1.dcm"), 1);
    writeSlice(path.join(place.input, "few", "2.dcm"), 2);
    const release = await hold(t, path.join(output, "b"), [nameOf(0), ...HELD]);
    const held = await bulk.submit({
      input_folder_path: input,
      output_folder_path: path.join(output, "b"),
      outputs: ["json"],
    });
    // From then on the threads have held names alone, and nothing of another job is begun
    await bulk.until(
      held,
      ({ counts }) => counts.succeeded === BEFORE - 1 && counts.running >= AT_ONCE,
    );
    const id = await bulk.submit({
      items: ["1.dcm", "2.dcm"].map((name) => ({
        input_image_path: path.join(place.input, "few", name),
        output_folder_path: path.join(place.output, "few"),
      })),
      outputs: ["json"],
    });
    rmSync(path.join(place.input, "few", "2.dcm"));
    await release();
    t.match(await bulk.ended(id), { state: "completed", counts: { succeeded: 1, failed: 1 } });
    t.match(await bulk.items(id, "&state=failed"), [
      { index: 1, error: { error: "input_not_found" } },
    ]);
    await bulk.send("DELETE", `/bulk_inference/${held}`);
  });
});

t.test("output folders that others take the place of", { skip }, async (t) => {
  const away = path.join(place.directory, "away");

  const replaced = async (t: Test, id: string, output: string, release: () => Promise<void>) => {
    await bulk.until(id, ({ counts, total }) => total === IMAGES && counts.succeeded === BEFORE);
    renameSync(output, away);
    mkdirSync(output);
    await release();
    // Images and nodes are counted one after the other, and a try may begin between
    const waiting = await bulk.until(
      id,
      ({ state, counts, nodes }) =>
        state === "paused" && counts.running === 0 && nodes.every(({ running }) => running === 0),
    );
    t.match(waiting, {
      paused_reason: {
        code: "output_replaced",
        message: `The output folder ${output} is not`,
        since: String,
      },
      waiting: [{ reason: "output_replaced", since: String, node: os.hostname(), images: null }],
      nodes: [{ name: os.hostname(), alive: true, works: true, ready: true, running: 0 }],
      counts: { failed: 0 },
    });
    t.equal(waiting.nodes.length, 1);
    t.strictSame(readdirSync(output), [], "nothing is written into the other");
  };

  await t.test("it comes back", async (t) => {
    const output = path.join(place.output, "folder");
    const release = await hold(t, output, HELD);
    const id = await bulk.submit({
      input_folder_path: many,
      output_folder_path: output,
      outputs: ["json"],
    });
    await replaced(t, id, output, release);
    rmSync(output, { recursive: true });
    renameSync(away, output);
    t.match(await bulk.ended(id), { state: "completed", counts: { succeeded: IMAGES, failed: 0 } });
    await unmarked(output);
    t.equal(readdirSync(output).length, IMAGES, "a receipt of each, and no mark");
  });

  await t.test("the other one is to be used", async (t) => {
    const output = path.join(place.output, "list");
    const release = await hold(t, output, HELD);
    const id = await bulk.submit({
      items: Array.from({ length: IMAGES }, (_, i) => ({
        input_image_path: path.join(many, nameOf(i)),
        output_folder_path: output,
      })),
      outputs: ["json"],
    });
    await replaced(t, id, output, release);
    writeFileSync(path.join(output, `.radserve-job-${id}`), "");
    t.match(await bulk.ended(id), { state: "completed", counts: { succeeded: IMAGES } });
    const lacking = IMAGES - resultsIn(output).length;
    t.ok(lacking > 0, "images said succeeded, and their receipts went away");
    const first = await bulk.send(
      "POST",
      `/bulk_inference/${id}/reconcile?limit=${IMAGES}&retry=true`,
    );
    t.match(first, { status: 200, body: { checked: IMAGES, requeued: lacking } });
    t.match(await bulk.ended(id), { state: "completed", counts: { succeeded: IMAGES } });
    t.equal(resultsIn(output).length, IMAGES);
  });
});

t.test("image after image that fails for one reason", { skip }, async (t) => {
  const input = path.join(place.input, "bad");
  const images = 100;
  mkdirSync(input);
  const bad = (i: number) => {
    const file = path.join(input, `${i}.dcm`);
    writeSlice(file);
    writeFileSync(file, readFileSync(file).subarray(0, -20));
    return { input_image_path: file, output_folder_path: path.join(place.output, "bad") };
  };
  const id = await bulk.submit({ items: Array.from({ length: images }, (_, i) => bad(i)) });
  const waiting = await bulk.until(
    id,
    ({ state, counts }) => state === "paused" && counts.running === 0,
  );
  t.match(waiting, {
    paused_reason: {
      code: "repeated_failures",
      message: /^\d+ images in a row failed with truncated_image, .*resume/,
      since: String,
    },
    waiting: [{ reason: "repeated_failures", node: os.hostname() }],
  });
  t.ok(waiting.counts.failed >= 5 && waiting.counts.queued > 0);
  t.match(await bulk.send("POST", `/bulk_inference/${id}/pause`), {
    body: { paused_reason: { code: "repeated_failures" } },
  });
  t.match(await bulk.send("POST", `/bulk_inference/${id}/retry`), {
    status: 200,
    body: { state: "paused", counts: { failed: 0 } },
  });
  t.match(await bulk.send("POST", `/bulk_inference/${id}/resume`), {
    status: 200,
    body: { state: "running" },
  });
  t.match(
    await bulk.ended(id),
    { state: "completed", counts: { failed: images } },
    "not for that reason again",
  );
  const line = (msg: string) => bulk.server.logged((one) => one["job"] === id && one.msg === msg);
  t.match(await line("a bulk job began"), { level: "info", subject: String });
  const end = await line("a bulk job ended");
  t.match(end, { counts: { failed: images }, failed: { truncated_image: images } });
  t.strictSame(end["skipped"], {});
});

t.test("a full disk", { skip: skipMount }, async (t) => {
  const output = path.join(small, "many");
  const ballast = path.join(small, "ballast");
  mkdirSync(output);
  t.throws(() => writeFileSync(ballast, Buffer.alloc(8_000_000)), { code: "ENOSPC" });
  const id = await bulk.submit({
    input_folder_path: many,
    output_folder_path: output,
    outputs: ["json"],
  });
  const waiting = await bulk.until(id, ({ paused_reason }) => paused_reason?.code === "disk_full");
  t.match(waiting, { state: "paused", counts: { failed: 0 } });
  rmSync(ballast);
  t.match(await bulk.ended(id), { state: "completed", counts: { succeeded: IMAGES, failed: 0 } });
  await unmarked(output);
  t.equal(readdirSync(output).length, IMAGES, "receipts and nothing else");
});

t.test("an output folder that may not be written to", { skip: skipMount }, async (t) => {
  const output = path.join(shut, "many");
  const release = await hold(t, output, HELD);
  const id = await bulk.submit({
    input_folder_path: many,
    output_folder_path: output,
    outputs: ["json"],
  });
  // While work goes on, the file system is open for writing and cannot be remounted.
  t.match(await bulk.send("POST", `/bulk_inference/${id}/pause`), { status: 200 });
  await release();
  await bulk.until(id, ({ counts }) => counts.running === 0);
  // A look at the roots makes a file in each, too
  await until(
    "nothing is open for writing there",
    () => spawnSync("mount", ["-o", "remount,ro", shut]).status === 0,
  );
  await bulk.send("POST", `/bulk_inference/${id}/resume`);
  const waiting = await bulk.until(
    id,
    ({ paused_reason }) => paused_reason?.code === "output_not_writable",
  );
  t.match(waiting, { state: "paused", counts: { failed: 0 } });
  await bulk.until(id, ({ counts }) => counts.running === 0);
  execFileSync("mount", ["-o", "remount,rw", shut]);
  await bulk.send("POST", `/bulk_inference/${id}/resume`);
  t.match(await bulk.ended(id), { state: "completed", counts: { succeeded: IMAGES, failed: 0 } });
});

t.test(
  "an output root that is a mount point, without its share",
  { skip: skipMount },
  async (t) => {
    const kept = path.join(place.directory, "kept");
    mkdirSync(kept);

    /**
     * The share goes away in the middle of the job, and comes back on another device.
     * @param reason why the job waits meanwhile
     */
    const outage = async (t: Test, id: string, reason: object, release: () => Promise<void>) => {
      await bulk.until(id, ({ counts, total }) => total === IMAGES && counts.succeeded >= BEFORE);
      execFileSync("mount", ["--bind", bare, kept]);
      execFileSync("umount", ["-l", bare]);
      await release();
      const paused = () =>
        bulk.until(id, ({ state, counts }) => state === "paused" && counts.running === 0);
      t.match(await paused(), { paused_reason: reason });
      t.match(await bulk.send("POST", `/bulk_inference/${id}/resume`), { status: 200 });
      t.match(await paused(), { state: "paused", counts: { failed: 0 } });
      t.strictSame(resultsIn(bare), [], "nothing is written below the bare mount point");
      t.notOk(existsSync(path.join(bare, LIST_FOLDER)), "nor is it listed there");
      execFileSync("mount", ["-t", "tmpfs", "-o", "size=48m", "tmpfs", bare]);
      execFileSync("cp", ["-a", `${kept}/.`, bare]);
      execFileSync("umount", [kept]);
      await bulk.send("POST", `/bulk_inference/${id}/resume`);
      t.match(await bulk.ended(id), {
        state: "completed",
        counts: { succeeded: IMAGES, failed: 0 },
      });
    };

    await t.test("a list, into the root and into a folder that was not there", async (t) => {
      const release = await hold(t, bare, HELD);
      const id = await bulk.submit({
        items: Array.from({ length: IMAGES }, (_, i) => ({
          input_image_path: path.join(many, nameOf(i)),
          output_folder_path: i % 2 === 0 ? bare : path.join(bare, "new", "folder"),
        })),
        outputs: ["json"],
      });
      // The one folder is the bare mount point, the other is gone: whichever is met last says why
      await outage(t, id, { code: /^(output_replaced|share_unavailable)$/ }, release);
      await unmarked(path.join(bare, "new", "folder"));
      t.equal(readdirSync(path.join(bare, "new", "folder")).length, IMAGES / 2);
    });

    await t.test("a folder, into the root", async (t) => {
      const release = await hold(t, bare, HELD);
      const id = await bulk.submit({
        input_folder_path: many,
        output_folder_path: bare,
        outputs: ["seg"],
      });
      // The look at the roots, or the mark of the job that is missing there
      const why = /share is probably not|share of the output folder is not mounted/;
      await outage(t, id, { message: why }, release);
    });

    await unmarked(bare);
    t.strictSame(
      readdirSync(bare).filter((name) => name.startsWith(".") && name !== LIST_FOLDER),
      [ROOT_MARK],
    );
  },
);

t.test(
  "an image that did not stop when its job was cancelled leaves nothing",
  { skip },
  async (t) => {
    const [input, output] = [path.join(place.input, "slow.dcm"), path.join(place.output, "slow")];
    writeFileSync(input, await heldImage(CT_SLICE));
    const id = await bulk.submit({
      items: [{ input_image_path: input, output_folder_path: output }],
    });
    await held.atWork();
    t.match(await bulk.send("DELETE", `/bulk_inference/${id}`), { status: 200 });
    t.match(await bulk.ended(id), { counts: { cancelled: 1 } });
    await until("the lock of the image has gone", () => readdirSync(output).length === 0);
  },
);

t.test("a job that is cancelled, where reports are off, has none", { skip }, async (t) => {
  const folder = path.join(place.output, "cancelled");
  const { job } = await cancelledJob(t, bulk, path.join(place.input, "cancelled"), folder);
  t.match(job, { state: "cancelled", report: null });
  t.strictSame(
    readdirSync(folder).filter((name) => name.startsWith("radserve-report-")),
    [],
  );
});
