/**
 * An output root whose share is unmounted while the server runs: its bare mount point takes
 * nothing.
 */
import { execFileSync, spawnSync } from "node:child_process";
import { readdirSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { bulkPlace, startBulk, writeSlice } from "../support/bulk.js";
import { ADDON, needs } from "../support/needs.js";

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
    status: 403,
    body: { error: "path_not_allowed", details: { side: "output", reason: "not_mounted" } },
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
  t.match(await single("a"), { status: 200 });
});
