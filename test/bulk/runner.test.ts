/** The bulk thread where the database or the disk fails at a bad moment, and what it does by itself. */
import { mkdirSync, rmdirSync } from "node:fs";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import t from "tap";
import { NameLock } from "../../src/files/name-lock.js";
import { ADDON, needs } from "../support/needs.js";
import { bulkPlace, startBulk, startWorker, writeSlice } from "../support/bulk.js";
import { sharedDatabase, until } from "../support/postgres.js";

t.test("a box that could not enter itself takes nothing until it has", { skip: needs(ADDON) }, async (t) => {
  const { pool, url } = await sharedDatabase(t);
  // As a database that ends in the middle of it, once
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
  const place = bulkPlace(t, { DATABASE_URL: url });
  const input = path.join(place.input, "slow.dcm");
  const output = path.join(place.output, "held");
  writeSlice(input);
  mkdirSync(output);
  // It runs until its name is free: longer than the box takes to notice that it was never in the table
  const lock = await NameLock.take(output, "slow.dcm");
  t.teardown(() => lock.release());

  const bulk = await startBulk(t, place);
  await bulk.server.logged(({ msg }) => msg.startsWith("the database of the bulk queue failed"));
  const id = await bulk.submit({ items: [{ input_image_path: input, output_folder_path: output }] });
  await bulk.until(id, ({ counts }) => counts.running === 1);
  const { rows } = await pool.query(
    "select from radserve.item i where state = 'running' and owner not in (select id from radserve.instance)",
  );
  t.equal(rows.length, 0, "whoever has an item can be found dead");
  await lock.release();
  t.match(await bulk.ended(id), { state: "completed", counts: { succeeded: 1 } });
});

t.test(
  "a suspect whose name another box holds does not stop the others",
  { skip: needs(ADDON) },
  async (t) => {
    const { pool, url } = await sharedDatabase(t);
    await pool.query(`
    create function radserve.suspect_the_first() returns trigger language plpgsql as $$
      begin
        new.suspect := new.index = 0;
        return new;
      end $$;
    create trigger suspect_the_first before insert on radserve.item
      for each row execute function radserve.suspect_the_first();`);
    const place = bulkPlace(t, { DATABASE_URL: url });
    const output = path.join(place.output, "held");
    const files = ["suspect.dcm", "a.dcm", "b.dcm", "c.dcm"];
    for (const file of files) writeSlice(path.join(place.input, file));
    mkdirSync(output);
    // As a frozen box, it gives no name back
    const lock = await NameLock.take(output, "suspect.dcm");
    t.teardown(() => lock.release());
    const bulk = await startBulk(t, place);
    const id = await bulk.submit({
      items: files.map((file) => ({
        input_image_path: path.join(place.input, file),
        output_folder_path: output,
      })),
      outputs: ["json"],
    });
    t.match(await bulk.until(id, ({ counts }) => counts.succeeded === 3), {
      counts: { failed: 0, queued: 1 },
    });
    await lock.release();
    t.match(await bulk.ended(id), { state: "completed", counts: { succeeded: 4 } });
  },
);

t.test("items that were given in an answer that was lost", { skip: needs(ADDON) }, async (t) => {
  const { pool, url } = await sharedDatabase(t);
  const place = bulkPlace(t, { DATABASE_URL: url });
  const bulk = await startBulk(t, place);
  const input = path.join(place.input, "image.dcm");
  writeSlice(input);
  await bulk.server.logged(({ msg }) => msg === "models loaded");
  const id = await bulk.submit({
    items: [{ input_image_path: input, output_folder_path: path.join(place.output, "lost") }],
    outputs: ["json"],
  });
  await bulk.ended(id);
  // What the database keeps where the connection ends between its commit and its answer
  await pool.query(`
    update radserve.job set finished_at = null, counts = null;
    update radserve.item set state = 'running', finished_at = null, result = null, lease = lease + 1,
      attempts = attempts + 1, owner = (select id from radserve.instance);`);
  t.match(await bulk.ended(id), { state: "completed", counts: { succeeded: 1 } });
  t.match(await bulk.items(id), [{ attempts: 2 }], "what was not heard of is no attempt");
});

t.test(
  "jobs that are over are forgotten in time, also where the box is off at night",
  { skip: needs(ADDON) },
  async (t) => {
    const { pool, url } = await sharedDatabase(t);
    const first = bulkPlace(t, { DATABASE_URL: url, RADSERVE_ROLE: "api" });
    const api = await startBulk(t, first);
    const jobs: string[] = [];
    for (let days = 29; days <= 31; days++) {
      const id = await api.submit({
        items: [{ input_image_path: path.join(first.input, "none"), output_folder_path: first.output }],
      });
      await pool.query(
        `update radserve.job set finished_at = now() - make_interval(days => $2), counts = '{}' where id = $1`,
        [id, days],
      );
      jobs.push(id);
    }
    const running = await api.submit({
      items: [{ input_image_path: path.join(first.input, "none"), output_folder_path: first.output }],
    });
    await pool.query(
      "update radserve.job set created_at = now() - interval '1 year', held = true where id = $1",
      [running],
    );
    const worker = await startWorker(t, first);
    t.match(await worker.logged(({ msg }) => msg === "old bulk jobs forgotten"), { jobs: 2 });
    const { rows } = await pool.query<{ id: string }>("select id from radserve.job order by seq");
    t.strictSame(
      rows.map(({ id }) => id),
      [jobs[0], running],
    );
    t.equal((await pool.query("select from radserve.item")).rowCount, 2, "with their items");
    const { rows: daily } = await pool.query(
      "select cron from radserve_queue.schedule where name = 'radserve-sweep'",
    );
    t.match(daily, [{ cron: /^\d+ \d+ \* \* \*$/ }], "and once a day");
  },
);

t.test("a queue that could not be opened leaves nothing behind", { skip: needs(ADDON) }, async (t) => {
  const { url } = await sharedDatabase(t);
  const place = bulkPlace(t, { DATABASE_URL: url, RADSERVE_LOG_LEVEL: "debug" });
  // In the way of the last step of opening
  const inTheWay = path.join(place.environment["RADSERVE_STATE_DIR"]!, "box");
  mkdirSync(inTheWay, { recursive: true });
  const bulk = await startBulk(t, place);
  const failures = () =>
    bulk.server.log.filter(({ msg }) => msg.startsWith("the bulk queue cannot be opened"));
  await bulk.server.logged(() => failures().length === 3);
  const refused = await bulk.send("GET", "/bulk_inference");
  t.match(refused, { status: 503, body: { error: "bulk_unavailable" } });
  rmdirSync(inTheWay);
  await until(async () => (await bulk.send("GET", "/bulk_inference")).status === 200);
  // What is left of a queue looks after itself every five seconds
  await delay(6_000);
  t.notOk(bulk.server.log.some(({ msg }) => msg === "the queue of scans reports a fault"));
});
