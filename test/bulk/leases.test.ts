/** What is written down of items that ended, and when that ends their job. */
import { randomUUID } from "node:crypto";
import t, { type Test } from "tap";
import { insertJob } from "../../src/bulk/jobs.js";
import { transaction } from "../../src/bulk/database.js";
import { enter, lease, settle, type Ending, type LeasedItem } from "../../src/bulk/leases.js";
import { migrate } from "../../src/bulk/migrations.js";
import { privateDatabase } from "../support/postgres.js";

const DONE: Ending = {
  state: "succeeded",
  result: { status: "completed", reused: false, receipt: "a.json", outputs: [], models: [] },
};
const AGAIN: Ending = { state: "queued", afterSeconds: 0, counts: true };

async function leased(t: Test, count: number) {
  const { pool } = await privateDatabase(t);
  await migrate(pool);
  const id = randomUUID();
  const items = Array.from({ length: count }, (_, i) => ({ id: randomUUID(), input: `/${i}`, output: "/o" }));
  const made = { id, subject: "x", inputRoots: undefined, outputRoots: undefined, request: {}, items };
  await transaction(pool, (client) =>
    insertJob(client, { ...made, requestSha256: "", idempotencyKey: undefined, marked: [] }),
  );
  const instance = {
    id: randomUUID(),
    box: randomUUID(),
    process: randomUUID(),
    afterCrash: false,
    works: true,
  };
  await enter(pool, instance, true);
  const taken = await lease(pool, instance, count, false);
  const end = (some: LeasedItem[], ending: Ending, busy: string[] = []) =>
    settle(
      pool,
      instance,
      some.map((item) => ({ item, ending })),
      new Set(busy),
    );
  const look = async () => {
    const { rows: jobs } = await pool.query<{ over: boolean; pause_count: number }>(
      "select finished_at is not null as over, pause_count from radserve.job",
    );
    const { rows } = await pool.query<{ state: string }>("select state from radserve.item order by index");
    return { ...jobs[0], states: rows.map(({ state }) => state) };
  };
  return { pool, id, taken, end, look };
}

t.test("a job ends with its last item, and not while its box has others", async (t) => {
  const { id, taken, end, look } = await leased(t, 2);
  await end(taken.slice(0, 1), DONE, [id]);
  t.match(await look(), { over: false, states: ["succeeded", "running"] });
  await end(taken.slice(1), DONE);
  t.match(await look(), { over: true, states: ["succeeded", "succeeded"] });
});

t.test("an item of a cancelled job does not wait again", async (t) => {
  const { pool, taken, end, look } = await leased(t, 2);
  await end(taken.slice(0, 1), AGAIN);
  t.match(await look(), { over: false, states: ["queued", "running"] });
  await pool.query("update radserve.job set cancelled_at = now()");
  await end(taken.slice(1), AGAIN);
  t.match(await look(), { states: ["queued", "cancelled"] });
});

t.test("what another box has by now stays as it is", async (t) => {
  const { pool, taken, end, look } = await leased(t, 1);
  await pool.query("update radserve.item set lease = lease + 1");
  await end(taken, DONE);
  t.match(await look(), { over: false, states: ["running"] });
});

t.test("one that goes well ends the pause of its job, once the pause is over", async (t) => {
  const { pool, id, taken, end, look } = await leased(t, 3);
  await pool.query("update radserve.job set pause_count = 1, pause_until = now() + interval '1 h'");
  await end(taken.slice(0, 1), DONE, [id]);
  t.match(await look(), { pause_count: 1 }, "it was under way before");
  await pool.query("update radserve.job set pause_until = now()");
  await end(taken.slice(1, 2), AGAIN, [id]);
  t.match(await look(), { pause_count: 1 }, "it did not go well");
  await end(taken.slice(2), DONE, [id]);
  t.match(await look(), { pause_count: 0 });
});
