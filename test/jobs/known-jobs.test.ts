/** What a node knows of its jobs while the database is away. */
import { randomUUID } from "node:crypto";
import path from "node:path";
import pg from "pg";
import t from "tap";
import { KnownJobs } from "../../src/jobs/known-jobs.js";
import { sharedDatabase } from "../support/postgres.js";

t.test("a job that was taken just before the database went", async (t) => {
  const { pool } = await sharedDatabase(t);
  const file = path.join(t.testdir(), "bulk-jobs.json");
  const id = randomUUID();
  const known = new KnownJobs(file);
  known.add(id, "x");
  // Port 1 (tcpmux) takes no connections
  const away = new pg.Pool({ host: "127.0.0.1", port: 1 });
  t.teardown(() => away.end());
  await t.rejects(known.look(away, "a"));
  await known.keep();
  const afterStart = new KnownJobs(file);
  t.strictSame(await afterStart.look(pool, "a"), [id], "the node that is back misses it");
  t.strictSame(await afterStart.look(pool, "a"), [], "once");
});

t.test("what is kept is added to what was kept before", async (t) => {
  const { pool } = await sharedDatabase(t);
  const file = path.join(t.testdir(), "bulk-jobs.json");
  const [first, second] = [randomUUID(), randomUUID()];
  const known = new KnownJobs(file);
  known.add(first, "x");
  await known.keep();
  const afterStart = new KnownJobs(file);
  afterStart.add(second, "x");
  // Before it has read what is there
  await afterStart.keep();
  t.strictSame((await new KnownJobs(file).look(pool, "a")).sort(), [first, second].sort());
});
