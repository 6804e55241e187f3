/**
 * Jobs while the clock is set back by years: nothing goes round without an end, and nothing waits
 * for the old time.
 */
import { writeFileSync } from "node:fs";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import t from "tap";
import { bulkPlace, writeSlice } from "../support/bulk.js";
import { ADDON, needs } from "../support/needs.js";
import { root, startServer } from "../support/server.js";

t.test("jobs go on after the clock was set back by 20 years", { skip: needs(ADDON) }, async (t) => {
  const place = bulkPlace(t);
  const clock = path.join(place.directory, "clock");
  writeFileSync(clock, "0");
  place.environment["NODE_OPTIONS"] =
    `--import=${path.join(root, "dist/test/support/shifted-clock.js")}`;
  place.environment["TEST_CLOCK"] = clock;
  writeSlice(path.join(place.input, "many", "0.dcm"));
  const server = await startServer(place);
  t.teardown(() => server.stop());
  const job = async (output: string) => {
    const answer = await server.post("/bulk_inference", {
      input_folder_path: path.join(place.input, "many"),
      output_folder_path: path.join(place.output, output),
    });
    const { job_id } = (await answer.json()) as { job_id: string };
    const headers = { Authorization: server.token };
    for (;;) {
      const page = await fetch(`${server.url}/bulk_inference/${job_id}`, { headers });
      const found = (await page.json()) as { state: string; counts: object };
      if (found.state === "completed") return found.counts;
      await delay(100);
    }
  };
  t.match(await job("before"), { succeeded: 1 });
  writeFileSync(clock, String(-20 * 365 * 86_400_000));
  // The queue of scans looks every five seconds
  t.match(await job("after"), { succeeded: 1 });
  await delay(6_000);
  t.match(await job("later"), { succeeded: 1 });
  t.strictSame(
    server.log.filter(({ msg }) => msg === "on standard error").map(({ said }) => said),
    [],
    "no timer overflows",
  );
});
