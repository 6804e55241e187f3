/**
 * Pages while the private database is being made: its `initdb` waits until the test lets it go on.
 */
import path from "node:path";
import t from "tap";
import { JOB_PAGES, startBulk, writeSlice } from "../support/bulk.js";
import { privatePlace } from "../support/private-postgres.js";
import { gatedInitdb } from "../support/gated-initdb.js";
import { ADDON, needs } from "../support/needs.js";

const JOB = "00000000-0000-4000-8000-000000000000";

t.test(
  "no page waits until the database is made, and a submission does",
  { skip: needs(ADDON) },
  async (t) => {
    const { bin, open } = gatedInitdb(t, "before");
    const place = privatePlace(t, { RADSERVE_POSTGRES_BIN: bin });
    const { once, send, ended } = await startBulk(t, place);
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
        const { status, headers, body } = await once(method, page);
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
