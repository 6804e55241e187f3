/**
 * A root whose share is unmounted while the server runs: its bare mount point takes nothing, and
 * what lies below it is not read for the share's.
 */
import { execFileSync, spawnSync } from "node:child_process";
import { mkdirSync, readdirSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { bulkPlace, hold, startBulk, writeSlice } from "../support/bulk.js";
import { withDurations } from "../support/durations.js";
import { ADDON, needs } from "../support/needs.js";
import { until } from "../support/until.js";

t.test("a share that is unmounted", { skip: needs(ADDON) }, async (t) => {
  const place = bulkPlace(t);
  const mount = () =>
    spawnSync("mount", ["-t", "tmpfs", "-o", "size=600m", "tmpfs", place.output]).status === 0;
  if (!mount()) {
    t.comment("this user may not mount");
    return;
  }
  const remove = place.remove.bind(place);
  place.remove = () => {
    spawnSync("umount", ["-l", place.output]);
    remove();
  };
  const bulk = await startBulk(t, place);
  const image = path.join(place.input, "series/image.dcm");
  writeSlice(image);
  const single = (folder: string) =>
    bulk.send("POST", "/single_inference", {
      input_image_path: image,
      output_folder_path: path.join(place.output, folder),
    });
  t.match(await single("a"), { status: 200 });
  execFileSync("umount", ["-l", place.output]);
  const refused = {
    status: 503,
    body: { error: "share_unavailable", details: { side: "output", reason: "not_mounted" } },
  };
  for (const folder of ["", "a"]) t.match(await single(folder), refused);
  t.match(
    await bulk.send("POST", "/bulk_inference", {
      input_folder_path: path.dirname(image),
      output_folder_path: path.join(place.output, "job"),
    }),
    refused,
  );
  t.strictSame(readdirSync(place.output), [], "nothing below the mount point");
  t.ok(mount());
  await until("the server has looked again", async () => (await single("a")).status === 200);
});

t.test("a share of images that is unmounted", { skip: needs(ADDON) }, async (t) => {
  const place = bulkPlace(t, withDurations({ jobPause: 300, jobPauseMost: 600, itemsAhead: 0 }));
  const share = path.join(place.directory, "share");
  mkdirSync(share);
  const mounts = (...words: string[]) => spawnSync("mount", words).status === 0;
  if (!mounts("-t", "tmpfs", "-o", "size=100m", "tmpfs", share)) {
    t.comment("this user may not mount");
    return;
  }
  const remove = place.remove.bind(place);
  place.remove = () => {
    for (const one of [place.input, share]) spawnSync("umount", ["-l", one]);
    remove();
  };
  // What lies below the mount point is another image than that of the share
  const image = path.join(place.input, "series/image.dcm");
  writeSlice(image);
  t.ok(mounts("--bind", share, place.input));
  writeSlice(image, 2);
  const bulk = await startBulk(t, place);
  const single = (input: string) =>
    bulk.send("POST", "/single_inference", {
      input_image_path: input,
      output_folder_path: path.join(place.output, "single"),
    });
  t.match(await single(image), { status: 200 });
  // More than the server begins at once: those that have begun have their images open
  const names = Array.from({ length: 12 }, (_, i) => `${i}.dcm`);
  const folder = path.join(place.output, "job");
  for (const name of names) writeSlice(path.join(place.input, "series", name), 3);
  const held = await hold(t, folder, names);
  const id = await bulk.submit({
    items: names.map((name) => ({
      input_image_path: path.join(place.input, "series", name),
      output_folder_path: folder,
    })),
  });
  await bulk.send("POST", `/bulk_inference/${id}/pause`);
  execFileSync("umount", ["-l", place.input]);
  await held();
  const refused = {
    status: 503,
    body: { error: "share_unavailable", details: { side: "input", reason: "not_mounted" } },
  };
  t.match(await single(image), refused, "not the file below the mount point");
  t.match(await single(path.join(place.input, "series/none.dcm")), refused);
  await bulk.send("POST", `/bulk_inference/${id}/resume`);
  const away = await bulk.until(
    id,
    ({ paused_reason, finished_at }) => paused_reason !== null || finished_at !== null,
  );
  t.match(away, { state: "paused", paused_reason: { code: "share_unavailable" } });
  t.ok(mounts("--bind", share, place.input));
  const counts = { succeeded: names.length, failed: 0 };
  t.match(await bulk.ended(id), { state: "completed", counts });
});
