/**
 * Jobs while the clock is set back by years: nothing goes round without an end, and nothing waits
 * for the old time.
 */
import { writeFileSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { bulkOf, bulkPlace, writeSlice } from "../support/bulk.js";
import { withDurations } from "../support/durations.js";
import { ADDON, needs } from "../support/needs.js";
import { sharedDatabase } from "../support/postgres.js";
import { queueCares } from "../support/queue-cares.js";
import { root, startServer } from "../support/server.js";

t.test("jobs go on after the clock was set back by 20 years", { skip: needs(ADDON) }, async (t) => {
  const { pool, url } = await sharedDatabase(t);
  const place = bulkPlace(t, { DATABASE_URL: url });
  const clock = path.join(place.directory, "clock");
  writeFileSync(clock, "0");
  const short = withDurations({ queueCare: 1_000 });
  Object.assign(place.environment, short);
  place.environment["NODE_OPTIONS"] =
    `${short["NODE_OPTIONS"]} --import=${path.join(root, "dist/test/support/shifted-clock.js")}`;
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
    return (await bulkOf(server).ended(job_id)).counts;
  };
  t.match(await job("before"), { succeeded: 1 });
  writeFileSync(clock, String(-20 * 365 * 86_400_000));
  t.match(await job("after"), { succeeded: 1 });
  await queueCares(pool, 2);
  t.match(await job("later"), { succeeded: 1 });
  t.strictSame(
    server.log.filter(({ msg }) => msg === "on standard error").map(({ said }) => said),
    [],
    "no timer overflows",
  );
});
