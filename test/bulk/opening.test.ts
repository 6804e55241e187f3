/**
 * Pages while the private database is being made: its `initdb` waits until the test lets it go on.
 */
import { chmodSync, cpSync, mkdtempSync, renameSync, rmSync, writeFileSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import t, { type Test } from "tap";
import { privatePlace, JOB_PAGES, startBulk, writeSlice } from "../support/bulk.js";
import { ADDON, needs } from "../support/needs.js";
import { BIN_FOLDERS } from "../support/postgres.js";

const JOB = "00000000-0000-4000-8000-000000000000";

/** PostgreSQL's programs, of which `initdb` waits until `open` was called. */
function gated(t: Test): { bin: string; open: () => void } {
  const top = mkdtempSync(path.join(os.tmpdir(), "radserve-gated-"));
  t.teardown(() => rmSync(top, { recursive: true, force: true }));
  // The account that the database runs as has to reach it
  chmodSync(top, 0o755);
  const native = path.join(top, "native");
  cpSync(path.dirname(BIN_FOLDERS.npm), native, { recursive: true, verbatimSymlinks: true });
  const bin = path.join(native, "bin");
  const gate = path.join(top, "open");
  renameSync(path.join(bin, "initdb"), path.join(bin, "initdb.real"));
  const script = `#!/bin/sh\nuntil [ -e '${gate}' ]; do sleep 0.05; done\nexec "$0.real" "$@"\n`;
  writeFileSync(path.join(bin, "initdb"), script, { mode: 0o755 });
  return { bin, open: () => writeFileSync(gate, "") };
}

t.test(
  "no page waits until the database is made, and a submission does",
  { skip: needs(ADDON) },
  async (t) => {
    const { bin, open } = gated(t);
    const place = privatePlace(t, { RADSERVE_POSTGRES_BIN: bin });
    const { send, ended } = await startBulk(t, place);
    t.teardown(open);
    writeSlice(path.join(place.input, "folder", "1.dcm"));
    const submitted = send("POST", "/bulk_inference", {
      input_folder_path: path.join(place.input, "folder"),
      output_folder_path: path.join(place.output, "results"),
    });
    const pages = [
      ["GET", "/bulk_inference"],
      ...JOB_PAGES.map(([method, page]) => [method, `/bulk_inference/${JOB}${page}`]),
    ];
    await Promise.all(
      pages.map(async ([method = "", page = ""]) => {
        const { status, headers, body } = await send(method, page);
        t.match(
          { status, body },
          {
            status: 503,
            body: { error: "bulk_unavailable", message: /is being made or started\. Try again/ },
          },
          `${method} ${page}`,
        );
        t.equal(headers.get("Retry-After"), "5");
      }),
    );
    open();
    const { status, body } = await submitted;
    t.equal(status, 202);
    t.match(await ended(String(body["job_id"])), { counts: { succeeded: 1 } });
  },
);
