/**
 * Jobs while the clock is set: nothing goes round without an end, nothing waits for the old time,
 * and no item is taken from the node that works on it.
 */
import { writeFileSync } from "node:fs";
import path from "node:path";
import t, { type Test } from "tap";
import { bulkOf, bulkPlace, hold, nameOf, startWorker, writeSlice } from "../support/bulk.js";
import { withDurations } from "../support/durations.js";
import { ADDON, needs } from "../support/needs.js";
import { sharedDatabase } from "../support/postgres.js";
import { queueCares } from "../support/queue-cares.js";
import { root, startServer } from "../support/server.js";

/**
 * A place whose programs have a clock that `set` sets ahead or back, in milliseconds.
 * @returns `right` is a clock for programs beside them
 */
function clockedPlace(t: Test, url: string, given: Parameters<typeof withDurations>[0]) {
  const place = bulkPlace(t, { DATABASE_URL: url });
  const clock = path.join(place.directory, "clock");
  const set = (milliseconds: number) => writeFileSync(clock, String(milliseconds));
  set(0);
  const right = path.join(place.directory, "right-clock");
  writeFileSync(right, "0");
  const short = withDurations(given);
  Object.assign(place.environment, short, { TEST_CLOCK: clock });
  place.environment["NODE_OPTIONS"] =
    `${short["NODE_OPTIONS"]} --import=${path.join(root, "dist/test/support/shifted-clock.js")}`;
  return { place, set, right };
}

t.test("jobs go on after the clock was set back by 20 years", { skip: needs(ADDON) }, async (t) => {
  const { pool, url } = await sharedDatabase(t);
  const { place, set } = clockedPlace(t, url, { queueCare: 1_000 });
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
  set(-20 * 365 * 86_400_000);
  t.match(await job("after"), { succeeded: 1 });
  await queueCares(pool, 2);
  t.match(await job("later"), { succeeded: 1 });
  t.strictSame(
    server.log.filter(({ msg }) => msg === "on standard error").map(({ said }) => said),
    [],
    "no timer overflows",
  );
});

t.test("a clock that jumps takes no item from its node", { skip: needs(ADDON) }, async (t) => {
  const { pool, url } = await sharedDatabase(t);
  // A node that stands still for some seconds does not lose its item for that
  const { place, set, right } = clockedPlace(t, url, { queueCare: 1_000, nodeLease: 60_000 });
  writeSlice(path.join(place.input, "many", nameOf(0)));
  const server = await startServer(place);
  t.teardown(() => server.stop());
  const bulk = bulkOf(server);
  const hours = 3_600_000;
  for (const [name, jump] of [
    ["ahead", 6 * hours],
    ["back", -6 * hours],
  ] as const) {
    const output = path.join(place.output, name);
    const release = await hold(t, output, [nameOf(0)]);
    const id = await bulk.submit({
      input_folder_path: path.join(place.input, "many"),
      output_folder_path: output,
      outputs: ["json"],
    });
    await bulk.until(id, ({ counts }) => counts.running === 1);
    // A node whose clock is right looks for items whose node is gone
    const other = await startWorker(t, place, { TEST_CLOCK: right });
    set(jump);
    await queueCares(pool, 5);
    t.match(await bulk.items(id), [{ state: "running", attempts: 1 }], name);
    await release();
    t.match(await bulk.ended(id), { counts: { succeeded: 1 } });
    t.match(await bulk.items(id), [{ attempts: 1 }], name);
    set(0);
    await other.stop();
  }
});
