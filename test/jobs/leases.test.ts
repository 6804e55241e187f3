/** What is written down of items that ended, and when that ends their job. */
import { randomUUID } from "node:crypto";
import type { Pool, PoolClient } from "pg";
import t from "tap";
import type { ErrorCode } from "../../src/base/errors.js";
import { cancelJob, finishJobs, insertJob, setPaused } from "../../src/jobs/jobs.js";
import { transaction } from "../../src/jobs/database.js";
import { enter, freeSilent, leave } from "../../src/jobs/nodes.js";
import {
  hinderJob,
  lease,
  pauseJob,
  settle,
  type Ending,
  type LeasedItem,
} from "../../src/jobs/leases.js";
import { failure } from "../support/expect.js";
import { sharedDatabase } from "../support/postgres.js";
import { newInstance, newItems, newJob } from "../support/tables.js";
import { until } from "../support/until.js";

const DONE: Ending = {
  state: "succeeded",
  result: { status: "completed", reused: false, receipt: "a.json", outputs: [], models: [] },
};
const AGAIN: Ending = { state: "queued", afterSeconds: 0, counts: true };

const { pool } = await sharedDatabase(t);

async function leased(count: number) {
  await pool.query("truncate radserve.job, radserve.item, radserve.instance cascade");
  const id = randomUUID();
  const items = newItems(Array.from({ length: count }, (_, i) => i));
  await transaction(pool, (client) => insertJob(client, newJob({ id, items }), 1));
  const instance = newInstance();
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
    const { rows } = await pool.query<{ state: string }>(
      "select state from radserve.item order by index",
    );
    return { ...jobs[0], states: rows.map(({ state }) => state) };
  };
  return { id, instance, taken, end, look };
}

t.test("items are given in the order in which they are to run", async (t) => {
  const { taken, end, instance } = await leased(24);
  await end(taken, AGAIN);
  // So they do not lie in the table in their order, and no plan of the database finds them in it
  await pool.query("update radserve.item set blame = 0 where index < 12");
  const client = await pool.connect();
  try {
    await client.query("begin; set local enable_nestloop = off; set local enable_mergejoin = off");
    const again = await lease(client as unknown as Pool, instance, 24, false);
    t.strictSame(
      again.map(({ index }) => index),
      Array.from({ length: 24 }, (_, i) => i),
    );
  } finally {
    await client.query("rollback");
    client.release();
  }
});

t.test("a job ends with its last item, and not while its node has others", async (t) => {
  const { id, taken, end, look } = await leased(2);
  await end(taken.slice(0, 1), DONE, [id]);
  t.match(await look(), { over: false, states: ["succeeded", "running"] });
  await end(taken.slice(1), DONE);
  t.match(await look(), { over: true, states: ["succeeded", "succeeded"] });
});

t.test("an item of a cancelled job does not wait again", async (t) => {
  const { taken, end, look } = await leased(2);
  await end(taken.slice(0, 1), AGAIN);
  t.match(await look(), { over: false, states: ["queued", "running"] });
  await pool.query("update radserve.job set cancelled_at = now()");
  await end(taken.slice(1), AGAIN);
  t.match(await look(), { states: ["queued", "cancelled"] });
});

t.test("a job whose items have all ended is completed, though it is cancelled then", async (t) => {
  const { id, taken, end, look } = await leased(2);
  const scope = { subject: "x", admin: false };
  const state = async () => {
    const { rows } = await pool.query<{ cancelled: boolean }>(
      "select cancelled_at is not null as cancelled from radserve.job",
    );
    return { ...rows[0], ...(await look()) };
  };
  await end(taken, DONE, [id]);
  t.match(
    await state(),
    { over: false, states: ["succeeded", "succeeded"] },
    "nobody has noted its end",
  );
  await cancelJob(pool, scope, id);
  t.match(await state(), { cancelled: false, over: true, states: ["succeeded", "succeeded"] });
  await cancelJob(pool, scope, id);
  t.match(await state(), { cancelled: false, over: true });
});

t.test("a job pauses that only a node of another release does not leave alone", async (t) => {
  const { id, instance } = await leased(1);
  const other = newInstance({ release: "2" });
  await enter(pool, other, true);
  const hinder = () => hinderJob(pool, id, { code: "share_unavailable", message: "" }, instance);
  t.equal(await hinder(), false, "the other could run it");
  const pins = { release: "1", every: false, models: {} };
  await pool.query("update radserve.job set pins = $1", [pins]);
  t.equal(await hinder(), true);
});

t.test("a job that has items left is cancelled", async (t) => {
  const { id, taken, end, look } = await leased(2);
  await end(taken.slice(0, 1), DONE, [id]);
  await end(taken.slice(1), AGAIN, [id]);
  await cancelJob(pool, { subject: "x", admin: false }, id);
  t.match(await look(), { over: true, states: ["succeeded", "cancelled"] });
  const { rows } = await pool.query("select from radserve.job where cancelled_at is not null");
  t.equal(rows.length, 1);
});

t.test("what another node has by now stays as it is", async (t) => {
  const { taken, end, look } = await leased(1);
  await pool.query("update radserve.item set lease = lease + 1");
  await end(taken, DONE);
  t.match(await look(), { over: false, states: ["running"] });
});

t.test("one that goes well ends the pause of its job, once the pause is over", async (t) => {
  const { id, taken, end, look } = await leased(3);
  await pool.query(
    "update radserve.job set pause_count = 1, pause_until = now() + interval '1 min'",
  );
  await end(taken.slice(0, 1), DONE, [id]);
  t.match(await look(), { pause_count: 1 }, "it was under way before");
  await pool.query("update radserve.job set pause_until = now()");
  await end(taken.slice(1, 2), AGAIN, [id]);
  t.match(await look(), { pause_count: 1 }, "it did not go well");
  await end(taken.slice(2), DONE, [id]);
  t.match(await look(), { pause_count: 0 });
});

t.test(
  "nobody waits for the time that a database's clock had before it was put back",
  async (t) => {
    const { instance, taken, end } = await leased(2);
    const other = { ...instance, id: randomUUID(), node: randomUUID(), process: randomUUID() };
    await enter(pool, other, true);
    await end(taken.slice(0, 1), { state: "queued", afterSeconds: 30, counts: true });
    t.strictSame(await lease(pool, other, 2, false), [], "it has to wait");
    await pool.query(`update radserve.item set not_before = not_before + interval '20 years'`);
    await pool.query(
      "update radserve.job set pause_count = 1, pause_until = now() + interval '20 years'",
    );
    await pool.query("update radserve.instance set beat_at = beat_at + interval '20 years'");
    t.strictSame(
      await lease(pool, other, 2, false),
      [],
      "another item tries whether the pause is over",
    );
    await freeSilent(pool, other);
    const { rows } = await pool.query<{ ahead: boolean }>(
      "select beat_at > now() as ahead from radserve.instance",
    );
    t.strictSame(
      rows,
      [{ ahead: false }, { ahead: false }],
      "a node that is silent from now on is found",
    );
    await end(taken.slice(1), DONE);
    t.equal((await lease(pool, other, 2, false)).length, 1);
  },
);

const FAILED: Ending = { state: "failed", error: { error: "corrupt_image", message: "" } };

t.test("failures in a row for one reason pause a job, once for each reason", async (t) => {
  const { id, instance, taken } = await leased(30);
  const failed = (code: ErrorCode, model?: string): Ending => ({
    state: "failed",
    error: { error: code, message: "", ...(model === undefined ? {} : { details: { model } }) },
  });
  const corrupt = failed("corrupt_image");
  let next = 0;
  /** Ends so many items, in this order and in one round; a job pauses after three failures. */
  const ends = async (...endings: Ending[]) => {
    const some = endings.map((ending) => ({ item: taken[next++]!, ending }));
    await settle(pool, instance, some, new Set([id]), 3);
    const { rows } = await pool.query<{
      held: boolean;
      streak: number;
      pause_message: string | null;
    }>("select held, streak, pause_message from radserve.job");
    return rows[0];
  };
  const resume = () => setPaused(pool, { subject: "x", admin: false }, id, false);
  t.match(await ends(corrupt, corrupt), { held: false, streak: 2 });
  t.match(await ends(DONE), { held: false, streak: 0 });
  t.match(await ends(corrupt, DONE, corrupt, corrupt), { held: false, streak: 2 });
  t.match(await ends(failed("truncated_image")), { held: false, streak: 1 }, "another reason");
  t.match(await ends(corrupt, corrupt), { held: false, streak: 2 });
  t.match(await ends({ state: "skipped", reason: { code: "x", message: "" } }, AGAIN), {
    streak: 2,
  });
  t.match(await ends(corrupt), {
    held: true,
    streak: 3,
    pause_message: /^3 images in a row failed with corrupt_image, and none/,
  });
  await pauseJob(pool, id, { code: "disk_full", message: "" }, "node-2");
  t.match(
    await ends(DONE),
    { held: true, pause_message: /corrupt_image/ },
    "it waits for somebody",
  );
  await resume();
  t.match(
    await ends(corrupt, corrupt, corrupt, corrupt),
    { held: false },
    "not for that reason again",
  );
  const [one, other] = [failed("output_invalid", "one"), failed("output_invalid", "other")];
  t.match(await ends(one, one, other, other), { held: false }, "of another model");
  t.match(await ends(other), { held: true, pause_message: /output_invalid \(model other\)/ });
});

t.test("failures that are written down a second time count once", async (t) => {
  const { id, instance, taken } = await leased(4);
  // A database that fails after the images were written, and before the job was
  await pool.query(`
    create function radserve.refuse() returns trigger language plpgsql as $$
      begin raise exception 'out of memory' using errcode = '53200'; end $$;
    create trigger refuse before update of held on radserve.job for each row execute function radserve.refuse();`);
  const ends = (some: readonly LeasedItem[]) =>
    settle(
      pool,
      instance,
      some.map((item) => ({ item, ending: FAILED })),
      new Set([id]),
      3,
    );
  await t.rejects(ends(taken.slice(0, 3)), { code: "53200" });
  await pool.query("drop function radserve.refuse cascade");
  const look = async () => {
    const { rows } = await pool.query<{ held: boolean; streak: number }>(
      "select held, streak from radserve.job",
    );
    return rows;
  };
  await ends(taken.slice(0, 3));
  t.strictSame(await look(), [{ held: false, streak: 3 }]);
  await ends(taken.slice(3));
  t.strictSame(await look(), [{ held: true, streak: 4 }]);
});

t.test("a node that was taken for dead while it stood still takes nothing more", async (t) => {
  const { instance, taken, end, look } = await leased(2);
  await end(taken, AGAIN);
  const other = { ...instance, id: randomUUID(), node: randomUUID(), process: randomUUID() };
  await enter(pool, other, true);
  await pool.query("update radserve.instance set beat_at = now() - interval '1 h' where id = $1", [
    instance.id,
  ]);
  await freeSilent(pool, other);
  t.strictSame(await lease(pool, instance, 2, false), [], "nobody would ever free them");
  t.equal((await lease(pool, other, 2, false)).length, 2);
  t.match(await look(), { states: ["running", "running"] });
});

t.test("a node that leaves gives back what it has, known to it or not", async (t) => {
  const { instance, look } = await leased(2);
  await leave(pool, instance);
  t.match(await look(), { over: false, states: ["queued", "queued"] });
  const { rows } = await pool.query("select suspect from radserve.item");
  t.strictSame(rows, [{ suspect: false }, { suspect: false }], "nothing crashed");
});

t.test("a job whose failed images run again at the moment of its end does not end", async (t) => {
  const { id, taken, end, look } = await leased(1);
  await end(taken, FAILED, [id]);
  t.match(await look(), { over: false, states: ["failed"] });
  const client = await pool.connect();
  await client.query("begin");
  await client.query("select from radserve.job where id = $1 for update", [id]);
  const finishing = finishJobs(pool, [id]);
  const blocked = `select from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()`;
  await until("the job's end waits", async () => (await pool.query(blocked)).rowCount !== 0);
  // As retryJob does it
  await client.query("update radserve.item set state = 'queued', error = null, finished_at = null");
  await client.query("update radserve.job set finished_at = null, counts = null");
  await client.query("commit");
  client.release();
  await finishing;
  t.match(await look(), { over: false, states: ["queued"] });
});

t.test("many jobs of which nothing can run yet do not hide those that can", async (t) => {
  const { id, instance, taken, end } = await leased(2);
  await end(taken.slice(0, 1), AGAIN, [id]);
  await pool.query(
    "insert into radserve.job (id, subject, request, request_sha256) select gen_random_uuid(), 'x', '{}', '' from generate_series(1, 100)",
  );
  t.match(await lease(pool, instance, 2, false), [{ job_id: id }]);
});

/** Jobs of a subject, each with so many items that wait. */
async function waiting(subject: string, jobs: number, items: number, request = {}): Promise<void> {
  await pool.query(
    `with made as (insert into radserve.job (id, subject, request, request_sha256, total, next_index)
       select gen_random_uuid(), $1, $4, '', $3::int, $3::int from generate_series(1, $2::int) returning id)
     insert into radserve.item (job_id, index, id, input, output, state)
       select made.id, i, gen_random_uuid(), '/i', '/o', 'queued' from made, generate_series(0, $3::int - 1) i`,
    [subject, jobs, items, request],
  );
}

const counted = (values: readonly string[]) =>
  Object.fromEntries(
    [...new Set(values)].map((one) => [one, values.filter((v) => v === one).length]),
  );

t.test("subjects take turns, however many jobs each has", async (t) => {
  const { instance, taken, end } = await leased(1);
  await end(taken, DONE);
  await waiting("s1", 46, 50);
  for (const subject of ["s2", "s3", "s4", "s5"]) await waiting(subject, 1, 50);
  const first = await lease(pool, instance, 40, false);
  t.strictSame(counted(first.map(({ subject }) => subject)), { s1: 8, s2: 8, s3: 8, s4: 8, s5: 8 });
  await end(first, DONE);
  const given = [...first];
  for (let round = 0; round < 6; round++) {
    const more = await lease(pool, instance, 40, false);
    await end(more, DONE);
    given.push(...more);
  }
  t.match(
    counted(given.map(({ subject }) => subject)),
    { s2: 50, s3: 50, s4: 50, s5: 50 },
    "with one job each they are through after seven times forty items",
  );
});

t.test("what a subject has running already counts as its turns", async (t) => {
  const { instance, taken, end } = await leased(1);
  await end(taken, DONE);
  await waiting("s1", 1, 6);
  await lease(pool, instance, 6, false);
  await waiting("s1", 3, 6);
  await waiting("s2", 1, 20);
  const next = await lease(pool, instance, 8, false);
  t.strictSame(counted(next.map(({ subject }) => subject)), { s2: 7, s1: 1 });
});

t.test("a stat job goes before the other jobs of its subject, and of no other", async (t) => {
  const { instance, taken, end } = await leased(1);
  await end(taken, DONE);
  await waiting("s1", 3, 5);
  await waiting("s1", 1, 5, { priority: "stat" });
  await waiting("s2", 1, 5);
  const first = await lease(pool, instance, 6, false);
  t.strictSame(
    counted(first.map(({ subject, request }) => `${subject} ${request.priority ?? "routine"}`)),
    { "s1 stat": 3, "s2 routine": 3 },
  );
});

t.test("a node without the key of a job leaves it to those that have it", async (t) => {
  const { instance, taken, end } = await leased(1);
  await end(taken, DONE);
  await waiting("x", 1, 4);
  const pins = { release: "1", every: false, models: {}, result_key: "theirs" };
  await pool.query("update radserve.job set pins = $1 where subject = 'x' and total = 4", [pins]);
  const other = { ...instance, id: randomUUID(), node: randomUUID(), process: randomUUID() };
  await enter(pool, other, true);
  await pool.query(
    "update radserve.instance set release = '1', result_keys = case when id = $1 then '{theirs}' else '{own}' end::text[]",
    [other.id],
  );
  t.strictSame(await lease(pool, instance, 2, false), [], "its results would not be trusted");
  t.equal((await lease(pool, other, 2, false)).length, 2);
  await pool.query("update radserve.instance set result_keys = '{own}'");
  t.equal((await lease(pool, instance, 2, false)).length, 2, "a key that was taken away");
});

t.test("jobs that are tried already keep no place from others", async (t) => {
  const { instance, taken, end } = await leased(1);
  await end(taken, DONE);
  await waiting("busy", 1, 10);
  await lease(pool, instance, 3, false);
  for (let i = 0; i < 100; i++) await waiting(`tried ${i}`, 1, 2);
  await pool.query("update radserve.job set pause_count = 1 where subject like 'tried %'");
  const tried = await lease(pool, instance, 100, false);
  t.equal(new Set(tried.map(({ job_id }) => job_id)).size, 100, "one item of each");
  const next = await lease(pool, instance, 128, false);
  t.strictSame(counted(next.map(({ subject }) => subject)), { busy: 7 });
});

t.test("of two nodes that lease at once, each gets as many items as it asks for", async (t) => {
  const { instance, taken, end } = await leased(1);
  await end(taken, DONE);
  await waiting("s1", 60, 10);
  await pool.query("update radserve.job set started_at = now()");
  const other = { ...instance, id: randomUUID(), node: randomUUID(), process: randomUUID() };
  await enter(pool, other, true);
  const client = await pool.connect();
  try {
    await client.query("begin");
    const first = await lease(client as unknown as Pool, instance, 128, false);
    const second = await lease(pool, other, 128, false);
    t.match([first.length, second.length], [128, 128]);
    const { rows } = await pool.query<{ free: number }>(
      "select count(*)::int as free from (select from radserve.item where state = 'queued' for update skip locked) f",
    );
    t.equal(rows[0]?.free, 600 - 256, "only what was taken is locked");
  } finally {
    await client.query("rollback");
    client.release();
  }
});

t.test("whatever a file says about itself can be kept", async (t) => {
  const { taken, end, look } = await leased(2);
  const said = 'found "C\0T\ud800", \\u0000 in a text, \u{1f600}';
  await end(taken.slice(0, 1), {
    state: "failed",
    error: { error: "corrupt_image", message: said },
  });
  const reason = { code: "no_model_accepts", message: said, details: { models: [said] } };
  await end(taken.slice(1), { state: "skipped", reason });
  t.match(await look(), { over: true, states: ["failed", "skipped"] });
  const { rows } = await pool.query<{ message: string }>(
    "select error->>'message' as message from radserve.item",
  );
  const kept = 'found "C\ufffdT\ufffd", \\u0000 in a text, \u{1f600}';
  t.strictSame(
    rows.map(({ message }) => message),
    [kept, kept],
  );
});

t.test(
  "suspects are alone by turns, so that kills from outside do not all meet the same image",
  async (t) => {
    const { instance } = await leased(3);
    const alone: number[][] = [];
    for (let kill = 0; kill < 9; kill++) {
      const next = { ...instance, id: randomUUID(), process: randomUUID() };
      await enter(pool, next, true);
      alone.push((await lease(pool, next, 1, true)).map(({ index }) => index));
    }
    t.strictSame(alone.flat(), [0, 1, 2, 0, 1, 2, 0, 1, 2]);
    const { rows } = await pool.query("select from radserve.item where state = 'failed'");
    t.equal(rows.length, 0);
  },
);

t.test("of two that open a subject's last job at once, one is refused", async (t) => {
  const { id } = await leased(1);
  const open = (client: PoolClient, subject: string) => insertJob(client, newJob({ subject }), 2);
  let second: unknown;
  await transaction(pool, async (client) => {
    await open(client, "x");
    let ended = false;
    second = failure(transaction(pool, (late) => open(late, "x")).finally(() => (ended = true)));
    await transaction(pool, (late) => open(late, "y"));
    await until("the second transaction waits for the first, or has ended", async () => {
      const { rows } = await pool.query<{ waits: boolean }>(
        `select exists (select from pg_stat_activity
           where wait_event_type = 'Lock' and wait_event = 'advisory' and datname = current_database()) as waits`,
      );
      return ended || rows[0]?.waits === true;
    });
  });
  t.match(await second, { code: "rate_limited", details: { limit: 2 } });
  const { rows } = await pool.query<{ n: number }>(
    "select count(*)::int as n from radserve.job where id <> $1",
    [id],
  );
  t.equal(rows[0]?.n, 2, "one of each subject, beside the first");
});
