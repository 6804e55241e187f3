/**
 * The scanners of nodes that start at one moment; roles.test.ts tests scans of shares that are
 * away.
 */
import { randomUUID } from "node:crypto";
import os from "node:os";
import { pino } from "pino";
import t, { type Test } from "tap";
import { MemoryPlaces, ProcessMemory } from "../../src/base/process-memory.js";
import { openSharedDatabase } from "../../src/jobs/database.js";
import { migrate } from "../../src/jobs/migrations.js";
import { Scanner } from "../../src/jobs/scanner.js";
import { BulkUnavailable, DatabaseTroubles } from "../../src/jobs/database-trouble.js";
import { loadConfig } from "../../src/config.js";
import { databaseUrl } from "../support/postgres.js";
import { until } from "../support/until.js";

/** Opens nodes on one fresh database. What they complain of is in `said`. */
function nodes(t: Test) {
  const url = databaseUrl(t, { empty: true });
  const said: unknown[] = [];
  const log = pino({ level: "error" }, { write: (line) => said.push(line) });
  const open = async (works: boolean, troubles = new DatabaseTroubles()) => {
    const database = await openSharedDatabase(url, log);
    t.teardown(() => database.close());
    const scanner = new Scanner({
      clock: { before: () => undefined },
      config: loadConfig({ directory: os.tmpdir(), environment: {} }),
      roots: { input: [], output: [] },
      database,
      log,
      works,
      instance: () => undefined,
      troubles,
      onLost: () => said.push("lost"),
      models: () => Promise.resolve({ entries: [], problems: [] }),
      memory: new ProcessMemory(new MemoryPlaces(1, 2 ** 30).take()),
      onFound: () => undefined,
    });
    t.teardown(() => scanner.stop());
    await migrate(database.pool);
    await scanner.start();
    return { scanner, pool: database.pool };
  };
  return { open, said };
}

t.test("nodes that open a fresh database at one moment", async (t) => {
  const { open, said } = nodes(t);
  await Promise.all([true, false, true, false].map((works) => open(works)));
  t.strictSame(said, []);
});

t.test(
  "scans that were queued, or begun by a node that died, while the database's clock was 20 years ahead",
  async (t) => {
    const { open } = nodes(t);
    const { scanner, pool } = await open(false);
    const jobs = [randomUUID(), randomUUID()];
    for (const job_id of jobs) await scanner.enqueue({ job_id }, pool);
    // Cancelled, so that their scans end at once
    await pool.query(
      `insert into radserve.job (id, subject, request, request_sha256, cancelled_at)
       select id, 'x', '{}', '', now() from unnest($1::uuid[]) as id`,
      [jobs],
    );
    const [waiting, begun] = jobs;
    const queue = "radserve_queue.job";
    const later = "now() + interval '20 years'";
    await pool.query(`update ${queue} set start_after = ${later} where data->>'job_id' = $1`, [
      waiting,
    ]);
    await pool.query(
      `update ${queue} set state = 'active', started_on = ${later}, heartbeat_on = ${later} where data->>'job_id' = $1`,
      [begun],
    );
    await open(true);
    const left = async () => {
      const { rows } = await pool.query<{ left: number }>(
        `select count(*)::int as left from ${queue} where name = 'radserve-scan' and state <> 'completed'`,
      );
      return rows[0]?.left;
    };
    await until("no scan is left", async () => (await left()) === 0);
  },
);

t.test("what kept a node from a folder is over once another has scanned that", async (t) => {
  const { open } = nodes(t);
  const { pool } = await open(false);
  const scanned = randomUUID();
  await pool.query(
    "insert into radserve.job (id, subject, request, request_sha256, total, held) values ($1, 'x', '{}', '', 1, true)",
    [scanned],
  );
  const troubles = new DatabaseTroubles();
  troubles.failed(new BulkUnavailable("It is full.", "Make room."), scanned);
  await open(true, troubles);
  t.equal(troubles.of(scanned), undefined);
});

t.test("subjects take turns: many folders of one do not hold up another's", async (t) => {
  const { open } = nodes(t);
  const { scanner, pool } = await open(false);
  const subjects = ["x", "x", "x", "y"];
  for (const subject of subjects) {
    const job_id = randomUUID();
    await pool.query(
      "insert into radserve.job (id, subject, request, request_sha256) values ($1, $2, '{}', '')",
      [job_id, subject],
    );
    await scanner.enqueue({ job_id }, pool);
  }
  // As pg-boss gives them out
  const { rows } = await pool.query<{ subject: string }>(
    `select j.subject from radserve_queue.job q join radserve.job j on j.id::text = q.data->>'job_id'
     where q.name = 'radserve-scan' order by q.priority desc, q.created_on`,
  );
  t.strictSame(
    rows.map(({ subject }) => subject),
    ["x", "y", "x", "x"],
  );
});
