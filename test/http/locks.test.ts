/** What lies where a lock or a staging folder should be, and is neither. */
import { execFileSync } from "node:child_process";
import { existsSync, lstatSync, mkdirSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { bulkPlace, writeSlice } from "../support/bulk.js";
import { ADDON, needs } from "../support/needs.js";
import { startServer } from "../support/server.js";
import { LONGEST_WAIT_MS } from "../support/until.js";

t.test(
  "pipes, links and folders in the place of a lock are said",
  { skip: needs(ADDON) },
  async (t) => {
    const place = bulkPlace(t);
    const server = await startServer(place);
    t.teardown(() => server.stop());
    const input = path.join(place.input, "1.dcm");
    writeSlice(input);
    const target = path.join(place.directory, "elsewhere");
    const kinds: [string, (at: string) => void][] = [
      ["a named pipe", (at) => execFileSync("mkfifo", [at])],
      ["a symbolic link", (at) => symlinkSync(target, at)],
      ["a symbolic link", (at) => symlinkSync("/proc/self/mem", at)],
      ["a folder", (at) => mkdirSync(at)],
    ];
    for (const helper of [".1.dcm.lock", ".1.dcm.radserve"])
      for (const [kind, make] of kinds) {
        if (helper.endsWith(".radserve") && kind === "a folder") continue;
        const at = path.join(place.output, helper);
        make(at);
        const response = await server.post("/single_inference", {
          input_image_path: input,
          output_folder_path: place.output,
          timeout_ms: LONGEST_WAIT_MS,
        });
        const pattern = helper.replace("1.dcm", "NAME");
        t.equal(response.status, 409, `${helper}: ${kind}`);
        t.match(await response.json(), {
          error: "output_name_taken",
          message: new RegExp(`${pattern}.*found ${kind} there\\. Remove it`),
          details: { entry: pattern, found: kind },
        });
        t.ok(lstatSync(at), "it stays");
        rmSync(at, { recursive: true });
      }
    t.notOk(existsSync(target), "no link was followed");
    writeFileSync(path.join(place.output, "note"), "");
    const last = await server.post("/single_inference", {
      input_image_path: input,
      output_folder_path: place.output,
    });
    t.equal(last.status, 200, "once it is removed the work goes on");
  },
);
