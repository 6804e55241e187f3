/** Which jobs get what the nodes have now, when no node has what they were submitted with. */
import { randomUUID } from "node:crypto";
import t from "tap";
import { setDurations } from "../../src/base/durations.js";
import { jobOf } from "../../src/jobs/api.js";
import { transaction } from "../../src/jobs/database.js";
import { findJob, insertJob } from "../../src/jobs/jobs.js";
import { beat, enter, NO_FACTS, type Instance } from "../../src/jobs/nodes.js";
import { depth, lease, pauseJob, settle, type Ending } from "../../src/jobs/leases.js";
import { pinAnew, UnrunnableJobs } from "../../src/jobs/pin-anew.js";
import type { Pins } from "../../src/jobs/pins.js";
import { sharedDatabase } from "../support/postgres.js";
import { newInstance, newItems, newJob } from "../support/tables.js";
import { until } from "../support/until.js";

setDurations({ jobPinAnew: 0 });
const { pool } = await sharedDatabase(t);

const models = (version: string): Pins["models"] => ({
  ct: { version, sha256: version.padEnd(64, "0"), thresholds: null, state: "ready" },
});
const pinsOf = (version: string): Pins => ({ release: "1", every: false, models: models(version) });
const facts = (version: string) => ({ ...NO_FACTS, models: models(version) });
const DONE: Ending = {
  state: "succeeded",
  result: { status: "completed", reused: false, receipt: "a.json", outputs: [], models: [] },
};
const FAILED: Ending = { state: "failed", error: { error: "corrupt_image", message: "It is." } };
const GIVEN_BACK: Ending = { state: "queued", afterSeconds: 0, counts: false };

async function job(): Promise<string> {
  await pool.query("truncate radserve.job, radserve.item, radserve.instance cascade");
  const id = randomUUID();
  await transaction(pool, (client) =>
    insertJob(
      client,
      newJob({ id, request: { models: ["ct"] }, items: newItems([1, 2]), pins: pinsOf("1.0") }),
      10,
    ),
  );
  return id;
}

async function node(version: string): Promise<Instance> {
  const instance = newInstance({ name: `has ${version}` });
  await enter(pool, instance, true, facts(version));
  return instance;
}

const look = (instance: Instance, version = "2.0") =>
  new UnrunnableJobs().pinAnew(pool, instance, () => Promise.resolve(pinsOf(version)));
const shown = async (id: string) => findJob(pool, { subject: "x", admin: false }, id);

/** A node that has the version takes an image, which ends, and then gets another version. */
async function replacedAfter(ending: Ending | undefined): Promise<{ id: string; other: Instance }> {
  const id = await job();
  const other = await node("1.0");
  const [item] = await lease(pool, other, 1, false);
  if (ending !== undefined) await settle(pool, other, [{ item: item!, ending }], new Set([id]));
  await beat(pool, other, true, facts("2.0"));
  return { id, other };
}

t.test("a job of which nothing was done gets what the node has", async (t) => {
  const id = await job();
  const other = await node("2.0");
  t.match(jobOf(await shown(id)), { state: "running" }, "a node may be starting");
  t.match(await depth(pool), { paused_for: { no_node_can_run: 1 } });
  t.match(await look(other), [{ id, subject: "x", pins: pinsOf("2.0"), before: pinsOf("1.0") }]);
  t.match(await shown(id), {
    pins: pinsOf("2.0"),
    pinned_before: { length: 0 },
    pinned_anew: [{ node: "has 2.0", before: pinsOf("1.0") }],
  });
  t.equal((await lease(pool, other, 2, false)).length, 2);
  t.strictSame(await look(other, "3.0"), [], "a node can run it now");
});

t.test("it waits first, because a node that starts again may have what it needs", async (t) => {
  const id = await job();
  const other = await node("2.0");
  setDurations({ jobPinAnew: 60_000 });
  const jobs = new UnrunnableJobs();
  const again = () => jobs.pinAnew(pool, other, () => Promise.resolve(pinsOf("2.0")));
  t.strictSame([await again(), await again()], [[], []]);
  setDurations({ jobPinAnew: 0 });
  t.match(await again(), [{ id }]);
});

t.test("an image that was given back, or that a scan skipped, is nothing done", async (t) => {
  const { id, other } = await replacedAfter(GIVEN_BACK);
  await pool.query(
    `insert into radserve.item (job_id, index, id, input, state) values ($1, 9, $2, '/9', 'skipped')`,
    [id, randomUUID()],
  );
  t.match(await look(other), [{ id }]);
});

t.test("a job of which something was done, or runs, keeps what it has", async (t) => {
  for (const ending of [DONE, FAILED, undefined]) {
    const { id, other } = await replacedAfter(ending);
    t.strictSame(await look(other), []);
    t.match(await shown(id), { pins: pinsOf("1.0"), pinned_anew: { length: 0 }, begun: true });
  }
});

t.test("other nodes, and jobs that others have a reason to hold, are left alone", async (t) => {
  const id = await job();
  const other = await node("2.0");
  t.strictSame(
    await new UnrunnableJobs().pinAnew(pool, other, () => Promise.reject(new Error("not here"))),
    [],
    "a node without the model leaves it to others",
  );
  await pool.query("update radserve.job set held = true");
  t.strictSame(await look(other), [], "whoever resumes it has it pinned anew");
  await pool.query("update radserve.job set held = false");
  const younger = newInstance({ node: other.node, place: "a copy" });
  await enter(pool, younger, true, facts("2.0"));
  t.strictSame(await look(younger), [], "a copied node takes no images");
  await node("1.0");
  t.strictSame(await look(other), [], "a node has it again");
  t.match(await shown(id), { pins: pinsOf("1.0") });
});

t.test("a node that is taking images by the earlier version is waited for", async (t) => {
  const id = await job();
  const [earlier, other] = [await node("1.0"), await node("2.0")];
  const client = await pool.connect();
  try {
    // As it is within a lease: its row is held until the images are its own
    await client.query("begin");
    await client.query("select from radserve.instance where id = $1 for key share", [earlier.id]);
    await client.query("update radserve.item set state = 'running', owner = $1 where index = 0", [
      earlier.id,
    ]);
    // For the others it is gone
    await pool.query("update radserve.instance set ready = false where id = $1", [earlier.id]);
    // It does not wait for long: where this process stands still, it has given up by then
    let over = false;
    const looking = look(other).finally(() => (over = true));
    await until("it waits, or has waited", async () => {
      const { rows } = await pool.query(
        `select from pg_stat_activity
         where wait_event_type = 'Lock' and datname = current_database()`,
      );
      return over || rows.length > 0;
    });
    await client.query("commit");
    t.strictSame(await looking, []);
  } finally {
    client.release();
  }
  t.match(await shown(id), { pins: pinsOf("1.0") });
});

t.test("a lock that is not given is no failure of the database", async (t) => {
  const id = await job();
  const other = await node("2.0");
  const client = await pool.connect();
  try {
    await client.query("begin");
    await client.query("lock table radserve.instance in row exclusive mode");
    t.strictSame(await look(other), []);
    await client.query("rollback");
  } finally {
    client.release();
  }
  t.match(await look(other), [{ id }]);
});

t.test("whoever resumes a job has it go on, with what was done kept", async (t) => {
  const { id } = await replacedAfter(DONE);
  await pinAnew(pool, id, "asked", () => Promise.resolve(pinsOf("2.0")));
  t.match(await shown(id), {
    pins: pinsOf("2.0"),
    pinned_before: [pinsOf("1.0")],
    pinned_anew: { length: 0 },
  });
  const fresh = await job();
  await node("2.0");
  await pinAnew(pool, fresh, "asked", () => Promise.resolve(pinsOf("2.0")));
  t.match(await shown(fresh), {
    pinned_before: { length: 0 },
    pinned_anew: [{ node: "asked", before: pinsOf("1.0") }],
  });
});

t.test("a job that waited for a share, and that no node can run by now, says that", async (t) => {
  const { id } = await replacedAfter(DONE);
  const share = { code: "share_unavailable", message: "It is away." };
  await pauseJob(pool, id, share, "has 2.0");
  const row = await shown(id);
  t.match(jobOf(row), { state: "paused", paused_reason: { code: "no_node_can_run" } });
  t.match(await depth(pool), { paused: 1, paused_for: { no_node_can_run: 1 } });
  await node("1.0");
  t.match(jobOf(await shown(id)), { paused_reason: share });
  t.match(await depth(pool), { paused_for: { share_unavailable: 1 } });
});
