/**
 * The bulk thread where the database or the disk fails at a bad moment, and what it does by itself.
 */
import { randomUUID } from "node:crypto";
import { mkdirSync, rmdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import type { Pool } from "pg";
import t, { type Test } from "tap";
import { setDurations } from "../../src/base/durations.js";
import { monotonic } from "../../src/base/monotonic.js";
import { loadConfig } from "../../src/config.js";
import { DatabaseTroubles } from "../../src/jobs/database-trouble.js";
import { transaction, type Database } from "../../src/jobs/database.js";
import { insertJob } from "../../src/jobs/jobs.js";
import { KnownJobs } from "../../src/jobs/known-jobs.js";
import { enter, NO_FACTS } from "../../src/jobs/nodes.js";
import { Runner } from "../../src/jobs/runner.js";
import { withDurations } from "../support/durations.js";
import { ADDON, needs } from "../support/needs.js";
import { bulkPlace, hold, startBulk, writeSlice } from "../support/bulk.js";
import { deadMount, mountsNothing } from "../support/mounts.js";
import { sharedDatabase, silent } from "../support/postgres.js";
import { queueCares } from "../support/queue-cares.js";
import { makePlace } from "../support/server.js";
import { newInstance, newJob } from "../support/tables.js";
import { until } from "../support/until.js";

// One waits for the care of the queue of scans meanwhile
t.jobs = 2;

t.test("a database as it may be met", { skip: needs(ADDON) }, async (t) => {
  const { pool, url } = await sharedDatabase(t);
  const place = bulkPlace(t, {
    ...withDurations({ nodeBeat: 500, itemName: 2_000 }),
    DATABASE_URL: url,
  });
  const input = path.join(place.input, "slow.dcm");
  const output = path.join(place.output, "held");
  writeSlice(input);
  // A database that ends in the middle of the node's entry, once
  await pool.query(`
    create sequence radserve.entries;
    create function radserve.refuse_the_first() returns trigger language plpgsql as $$
      begin
        if nextval('radserve.entries') = 1 then
          raise exception 'terminating connection' using errcode = '57P01';
        end if;
        return new;
      end $$;
    create trigger refuse_the_first before insert on radserve.instance
      for each row execute function radserve.refuse_the_first();`);
  const old = await oldJobs(pool);
  // It has run for longer than jobs are kept
  const ago = Date.now() - 40 * 86_400_000;
  const stretch = { wall: ago, ran: 0, wallEnd: Date.now(), ranEnd: Date.now() - ago };
  mkdirSync(place.environment["RADSERVE_STATE_DIR"]!, { recursive: true, mode: 0o700 });
  writeFileSync(
    path.join(place.environment["RADSERVE_STATE_DIR"]!, "clock.json"),
    JSON.stringify([stretch]),
  );
  const bulk = await startBulk(t, place);

  await t.test("a node that could not enter itself takes nothing until it has", async (t) => {
    // It runs until its name is free: longer than the node takes to notice that it was never in the
    // table
    const release = await hold(t, output, ["slow.dcm"]);
    await bulk.server.logged(({ msg }) => msg.startsWith("the database of the bulk queue failed"));
    const id = await bulk.submit({
      items: [{ input_image_path: input, output_folder_path: output }],
    });
    await bulk.until(id, ({ counts }) => counts.running === 1);
    const { rows } = await pool.query(
      "select from radserve.item i where state = 'running' and owner not in (select id from radserve.instance)",
    );
    t.equal(rows.length, 0, "whoever has an item can be found dead");
    await release();
    t.match(await bulk.ended(id), { state: "completed", counts: { succeeded: 1 } });
    await bulk.send("POST", `/bulk_inference/${id}/purge`);
  });

  await t.test(
    "jobs that are over are forgotten in time, also where the node is off at night",
    async (t) => {
      t.match(await bulk.server.logged(({ msg }) => msg === "old bulk jobs forgotten"), {
        jobs: 2,
      });
      const { rows } = await pool.query<{ id: string }>(
        "select id from radserve.job where subject = $1",
        [OLD],
      );
      t.strictSame(rows.map(({ id }) => id).sort(), [old.young, old.open].sort());
      const { rowCount } = await pool.query("select from radserve.item where input = $1", [OLD]);
      t.equal(rowCount, 2, "with their items");
      const { rows: daily } = await pool.query(
        "select cron from radserve_queue.schedule where name = 'radserve-sweep'",
      );
      t.match(daily, [{ cron: /^\d+ \d+ \* \* \*$/ }], "and once a day");
    },
  );

  await t.test("items that were given in an answer that was lost", async (t) => {
    const id = await bulk.submit({
      items: [{ input_image_path: input, output_folder_path: path.join(place.output, "lost") }],
      outputs: ["json"],
    });
    await bulk.ended(id);
    // What the database keeps where the connection ends between its commit and its answer. At
    // once: the node ends a job that has no open items
    await transaction(pool, async (client) => {
      await client.query(
        "update radserve.job set finished_at = null, counts = null where id = $1",
        [id],
      );
      await client.query(
        `update radserve.item set state = 'running', finished_at = null, result = null, lease = lease + 1,
           attempts = attempts + 1, owner = (select id from radserve.instance) where job_id = $1`,
        [id],
      );
    });
    t.match(await bulk.ended(id), { state: "completed", counts: { succeeded: 1 } });
    t.match(await bulk.items(id), [{ attempts: 2 }], "what was not heard of is no attempt");
  });

  await t.test("a suspect whose name another node holds does not stop the others", async (t) => {
    await pool.query(`
      create function radserve.suspect_the_first() returns trigger language plpgsql as $$
        begin
          new.suspect := new.index = 0;
          return new;
        end $$;
      create trigger suspect_the_first before insert on radserve.item
        for each row execute function radserve.suspect_the_first();`);
    const files = ["suspect.dcm", "a.dcm", "b.dcm", "c.dcm"];
    for (const file of files) writeSlice(path.join(place.input, file));
    // As a frozen node, it gives no name back
    const release = await hold(t, output, ["suspect.dcm"]);
    const id = await bulk.submit({
      items: files.map((file) => ({
        input_image_path: path.join(place.input, file),
        output_folder_path: output,
      })),
      outputs: ["json"],
    });
    const { counts } = await bulk.until(id, (job) => job.counts.succeeded === 3);
    // It waits, or asks for its name just now
    t.match([counts.failed, counts.queued + counts.running], [0, 1]);
    await release();
    t.match(await bulk.ended(id), { state: "completed", counts: { succeeded: 4 } });
  });
});

/** Lengths of time of a runner in the test's own process. */
const OWN = { nodeBeat: 100, nodeLease: 2_000, bulkPoll: 100, jobPinAnew: 0 };

/** A way to a database on which each question fails, or gets no answer, until it is mended. */
function wayTo(pool: Pool) {
  let how: "fail" | "hang" | undefined;
  let mended: () => void = () => undefined;
  let mending = Promise.resolve();
  const passed = async () => {
    if (how === "fail") throw new Error("Connection terminated");
    if (how === "hang") await mending;
  };
  const way = {
    options: {},
    query: async (text: string, values?: unknown[]) => {
      await passed();
      return pool.query(text, values);
    },
    connect: async () => {
      await passed();
      return pool.connect();
    },
  };
  return {
    pool: way as unknown as Pool,
    cut(as: "fail" | "hang") {
      how = as;
      mending = new Promise((resolve) => (mended = resolve));
    },
    mend() {
      how = undefined;
      mended();
    },
  };
}

/** A node's runner, without a server, whose database can be cut off; and what it gives threads. */
async function ownRunner(t: Test) {
  setDurations(OWN);
  const { pool } = await sharedDatabase(t);
  const directory = t.testdir({ input: {}, output: {} });
  const [input, output] = [path.join(directory, "input"), path.join(directory, "output")];
  const way = wayTo(pool);
  const given: number[] = [];
  const cancelled: number[] = [];
  const instance = newInstance();
  const runner = new Runner({
    config: { ...loadConfig({ directory, environment: {} }), database_url: "a shared one" },
    roots: { input: [input], output: [output] },
    database: { pool: way.pool, connection: {}, problem: () => undefined } as unknown as Database,
    log: silent,
    troubles: new DatabaseTroubles(),
    window: 4,
    instance: () => instance,
    owner: {
      run: (items) => given.push(...items.map(({ id }) => id)),
      cancel: (id) => cancelled.push(id),
      pinned: () => undefined,
    },
    known: new KnownJobs(path.join(directory, "jobs.json")),
    ready: () => true,
    facts: () => NO_FACTS,
    pinsOf: () => Promise.reject(new Error("no job is pinned anew")),
    repair: () => Promise.resolve(),
    recognise: () => Promise.resolve(),
    entered: () => undefined,
    writeReport: undefined,
  });
  t.teardown(() => {
    way.mend();
    return runner.close();
  });
  runner.start();
  await until("the node is known", () => runner.instance !== undefined);
  return { pool, way, input, output, given, cancelled };
}

t.test("a node that comes back first leaves the others time to come back", async (t) => {
  const { pool, way } = await ownRunner(t);
  way.cut("fail");
  await delay(OWN.nodeLease);
  // It worked before, and was cut off as well
  const other = newInstance();
  await enter(pool, other, true);
  await pool.query("update radserve.instance set beat_at = now() - interval '1 h' where id = $1", [
    other.id,
  ]);
  const back = monotonic();
  way.mend();
  await until("the other, which stays away, is taken for dead", async () => {
    const { rowCount } = await pool.query("select from radserve.instance where id = $1", [
      other.id,
    ]);
    return rowCount === 0;
  });
  t.ok(monotonic() - back >= OWN.nodeLease, "and not before it could have come back");
});

t.test("a node whose database never answers ends its work, too", async (t) => {
  const { pool, way, input, output, given, cancelled } = await ownRunner(t);
  const items = [{ id: randomUUID(), input: path.join(input, "1.dcm"), output }];
  await transaction(pool, (client) => insertJob(client, newJob({ items }), 1));
  await until("a thread has the image", () => given.length === 1);
  way.cut("hang");
  await until("its work is ended", () => cancelled.length === 1);
  t.equal(cancelled[0], given[0]);
});

t.test("a share that does not answer holds up its own jobs alone", async (t) => {
  if (mountsNothing !== false) {
    t.comment(mountsNothing);
    return;
  }
  const place = makePlace();
  t.teardown(() => place.remove());
  const dead = path.join(place.directory, "dead");
  const refused = await deadMount(t, place.directory, dead);
  if (refused !== undefined) {
    t.comment(`no FUSE here: ${refused}`);
    return;
  }
  const { pool, input, output, given } = await ownRunner(t);
  for (const folder of [path.join(dead, "results"), output]) {
    const items = [{ id: randomUUID(), input: path.join(input, "1.dcm"), output: folder }];
    await transaction(pool, (client) => insertJob(client, newJob({ items }), 2));
  }
  await until("a thread has the image of the other job", () => given.length === 1);
  await until("the job of the dead share waits for it", async () => {
    const { rows } = await pool.query<{ pause_code: string }>(
      "select pause_code from radserve.job where pause_code is not null",
    );
    return rows[0]?.pause_code === "share_unavailable";
  });
});

const OLD = "old";

/**
 * Jobs of 29, 30 and 31 days ago, and one of a year ago that waits, each with an item. @returns
 * those that stay
 */
async function oldJobs(pool: Pool): Promise<{ young: string; open: string }> {
  const add = async (job: string, values: unknown[]) => {
    const id = randomUUID();
    await pool.query(
      `insert into radserve.job (id, subject, request, request_sha256, total, next_index, ${job})
       values ($1, $2, '{}', '', 1, 1, ${values.map((_, i) => `$${i + 3}`).join(", ")})`,
      [id, OLD, ...values],
    );
    await pool.query(
      "insert into radserve.item (job_id, index, id, input, output, state) values ($1, 0, $2, $3, '/', 'queued')",
      [id, randomUUID(), OLD],
    );
    return id;
  };
  const ago = (days: number) => new Date(Date.now() - days * 86_400_000);
  const [young = ""] = await Promise.all(
    [29, 30, 31].map((days) => add("finished_at, counts", [ago(days), "{}"])),
  );
  return { young, open: await add("created_at, held", [ago(365), true]) };
}

t.test(
  "a queue that could not be opened leaves nothing behind",
  { skip: needs(ADDON) },
  async (t) => {
    const { pool, url } = await sharedDatabase(t);
    const place = bulkPlace(t, {
      ...withDurations({ queueCare: 1_000 }),
      DATABASE_URL: url,
      RADSERVE_LOG_LEVEL: "debug",
    });
    // In the way of the last step of opening
    const inTheWay = path.join(place.environment["RADSERVE_STATE_DIR"]!, "node-id");
    mkdirSync(inTheWay, { recursive: true });
    const bulk = await startBulk(t, place);
    await bulk.server.told(({ msg }) => msg.startsWith("the bulk queue cannot be opened"), 3);
    const refused = await bulk.once("GET", "/bulk_inference");
    t.match(refused, { status: 503, body: { error: "bulk_unavailable" } });
    rmdirSync(inTheWay);
    await until(
      "jobs are listed",
      async () => (await bulk.send("GET", "/bulk_inference")).status === 200,
    );
    // What was left of an earlier one would have cared by then, too, and in vain
    await queueCares(pool, 2);
    t.notOk(bulk.server.log.some(({ msg }) => msg === "the queue of scans reports a fault"));
  },
);

t.test(
  "a queue that cannot be made again at once is made later",
  { skip: needs(ADDON) },
  async (t) => {
    const { pool, url } = await sharedDatabase(t);
    const bulk = await startBulk(t, bulkPlace(t, { DATABASE_URL: url }));
    const { input, output } = bulk.place;
    writeSlice(path.join(input, "folder", "1.dcm"));
    await bulk.send("GET", "/bulk_inference");
    // In the way of what the queue makes
    await pool.query(`
      drop schema radserve_queue cascade;
      create schema radserve_queue;
      create type radserve_queue.job_state as enum ('other');`);
    await bulk.server.told(({ msg }) => msg.startsWith("the queue of scans cannot be started"), 2);
    await pool.query("drop schema radserve_queue cascade");
    let id = "";
    await until("a folder is taken", async () => {
      const { status, body } = await bulk.send("POST", "/bulk_inference", {
        input_folder_path: path.join(input, "folder"),
        output_folder_path: path.join(output, "folder"),
      });
      id = String(body["job_id"]);
      return status === 202;
    });
    t.match(await bulk.ended(id), { state: "completed", counts: { succeeded: 1 } });
  },
);
