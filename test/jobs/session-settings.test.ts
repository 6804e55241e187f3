/** A role whose sessions PostgreSQL sets otherwise: each connection sets what it rests on. */
import path from "node:path";
import t from "tap";
import { bulkPlace, startBulk, writeSlices } from "../support/bulk.js";
import { ADDON, needs } from "../support/needs.js";
import { sharedDatabase } from "../support/postgres.js";

/** Each of these alone changes an answer, ends a statement or breaks the reading of one. */
const OTHERWISE = {
  DateStyle: "'SQL, DMY'",
  IntervalStyle: "'sql_standard'",
  TimeZone: "'Asia/Kathmandu'",
  search_path: "'nowhere'",
  client_encoding: "'LATIN1'",
  default_transaction_isolation: "'serializable'",
  // The first statement of a session, which sets it otherwise, has to be through by then
  statement_timeout: "'5s'",
  lock_timeout: "'1ms'",
  idle_in_transaction_session_timeout: "'10ms'",
  standard_conforming_strings: "'off'",
  synchronous_commit: "'off'",
};
const IMAGES = 3;

t.test("a role that is set otherwise", { skip: needs(ADDON) }, async (t) => {
  const { pool, url } = await sharedDatabase(t, { empty: true });
  const { rows } = await pool.query<{ name: string }>("select current_database() as name");
  for (const [setting, value] of Object.entries(OTHERWISE))
    await pool.query(
      `alter role current_user in database ${rows[0]!.name} set ${setting} = ${value}`,
    );
  const bulk = await startBulk(t, bulkPlace(t, { DATABASE_URL: url }));
  const input = path.join(bulk.place.input, "Müller");
  writeSlices(input, IMAGES);
  const began = Date.now();
  const id = await bulk.submit({
    input_folder_path: input,
    output_folder_path: path.join(bulk.place.output, "Müller"),
    outputs: ["json"],
  });
  const job = await bulk.ended(id);
  t.match(job, { state: "completed", counts: { succeeded: IMAGES, failed: 0 } });
  t.equal(job.request.input_folder_path, input);
  for (const time of [job.created_at, job.finished_at!])
    t.ok(Math.abs(Date.parse(time) - began) < 600_000, `${time} is now`);
  t.match(await bulk.send("GET", "/bulk_inference"), { body: { jobs: [{ job_id: id }] } });
  t.strictSame(
    bulk.server.log.filter(({ level }) => level === "error" || level === "fatal"),
    [],
    "and nothing went wrong on the way",
  );
});
