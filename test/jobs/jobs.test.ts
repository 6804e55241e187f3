/** What a client may do to a job, in the database. */
import { randomUUID } from "node:crypto";
import t from "tap";
import { transaction } from "../../src/jobs/database.js";
import { insertJob, retryJob, setPaused } from "../../src/jobs/jobs.js";
import { sharedDatabase } from "../support/postgres.js";
import { newItems, newJob } from "../support/tables.js";

t.test("a job that is over has its marks made anew, whether they are gone or not", async (t) => {
  const { pool } = await sharedDatabase(t);
  const id = randomUUID();
  const job = newJob({ id, items: newItems([1]), marked: true });
  await transaction(pool, (client) => insertJob(client, job, 1));
  const fail = () => pool.query("update radserve.item set state = 'failed', error = '{}'");
  await fail();
  const marked: string[] = [];
  const retry = () =>
    retryJob(pool, { subject: "x", admin: false }, id, {
      mark: (row) => {
        marked.push(row.id);
        return Promise.resolve();
      },
      scan: () => Promise.reject(new Error("It has no folder")),
    });
  t.equal(await retry(), 1);
  t.strictSame(marked, [], "it goes on, and has its marks");
  await fail();
  // Whoever took its marks out of its folders died before that was kept
  await pool.query("update radserve.job set finished_at = now(), counts = '{}'");
  await setPaused(pool, { subject: "x", admin: false }, id, true);
  t.equal(await retry(), 1);
  t.strictSame(marked, [id]);
  const { rows } = await pool.query("select held from radserve.job");
  t.strictSame(rows, [{ held: false }], "what was over when it was paused goes on");
});
