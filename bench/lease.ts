/**
 * `npm run bench -- lease [--jobs N --items N --nodes N --take N] [--alter SQL]`: what taking items
 * and writing down their ends costs the database, without images: items a second, log (WAL) for
 * each item, rows that a lease locks, and leases that came back empty while items waited. A
 * thousand jobs of a thousand items and one node, then others, the last with three nodes; or what
 * the options say. On a PostgreSQL of its own, as a node starts one. `--alter SQL` tries the tables
 * in another form.
 */
import { mkdtempSync, rmSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { parseArgs } from "node:util";
import type { Pool } from "pg";
import { loadConfig } from "../src/config.js";
import { createLog } from "../src/base/log.js";
import { databaseFolders } from "../src/features/local-postgres/folders.js";
import { jobs as localDatabase } from "../src/features/local-postgres/jobs.js";
import { openDatabase } from "../src/jobs/database.js";
import { lease, settle, type Ending } from "../src/jobs/leases.js";
import { migrate } from "../src/jobs/migrations.js";
import { enter, type Instance } from "../src/jobs/nodes.js";
import { newInstance } from "../test/support/tables.js";
import { machine } from "./lib/server.js";
import { median, quantile } from "./lib/statistics.js";

const { values } = parseArgs({
  options: {
    jobs: { type: "string" },
    items: { type: "string", default: "1000" },
    nodes: { type: "string", default: "1" },
    take: { type: "string", default: "25600" },
    alter: { type: "string" },
  },
});

interface Load {
  jobs: number;
  /** Of each job. */
  items: number;
  nodes: number;
  /** Items that are taken and ended, of all. */
  take: number;
}

const LOADS: Record<string, Load> =
  values.jobs === undefined
    ? {
        thousand_jobs_of_a_thousand: { jobs: 1_000, items: 1_000, nodes: 1, take: 25_600 },
        hundred_jobs_of_600: { jobs: 100, items: 600, nodes: 1, take: 25_600 },
        one_job_of_60000: { jobs: 1, items: 60_000, nodes: 1, take: 25_600 },
        sixty_jobs_of_a_hundred_three_nodes: { jobs: 60, items: 100, nodes: 3, take: 6_000 },
      }
    : {
        given: {
          jobs: Number(values.jobs),
          items: Number(values.items),
          nodes: Number(values.nodes),
          take: Number(values.take),
        },
      };
/** Items of a lease: those of a node with many worker threads. */
const LIMIT = 128;
const SUBJECTS = 5;

const ENDING: Ending = {
  state: "succeeded",
  result: {
    status: "completed",
    reused: false,
    receipt: "image.dcm.json",
    outputs: [],
    models: [],
  },
};

async function fill(pool: Pool, { jobs, items }: Load): Promise<void> {
  await pool.query("truncate radserve.job, radserve.item, radserve.instance cascade");
  await pool.query(
    `insert into radserve.job (id, subject, request, request_sha256, total, next_index, started_at)
     select md5('job ' || j)::uuid, 's' || j % $3, '{"input_folder_path": "/i", "output_folder_path": "/o"}', '',
       $2::int, $2::int, now() from generate_series(1, $1::int) j`,
    [jobs, items, SUBJECTS],
  );
  for (let from = 0; from < jobs; from += 100)
    await pool.query(
      `insert into radserve.item (job_id, index, id, input, state)
       select md5('job ' || j)::uuid, i, md5(j || ' ' || i)::uuid, 'patient-' || j || '/image-' || i || '.dcm', 'queued'
       from generate_series($1::int + 1, least($1::int + 100, $3::int)) j, generate_series(0, $2::int - 1) i`,
      [from, items, jobs],
    );
  await pool.query("vacuum analyze radserve.item");
  await pool.query("vacuum analyze radserve.job");
}

interface LeaseFigures {
  items_per_second: number;
  lease_ms: { median: number; p95: number };
  leases: number;
  /** Came back with nothing while items waited. */
  empty: number;
  wal_bytes_per_item: number;
  locked_rows_per_lease: number;
  /** Updates of items that stayed in their page, and needed no new entry in an index. */
  hot_percent: number;
  table_mb: number;
  indexes_mb: number;
}

interface PlanNode {
  "Node Type": string;
  "Actual Rows": number;
  "Actual Loops": number;
  Plans?: PlanNode[];
}

/** Rows that one lease locks; nothing of it is kept. */
async function lockedBy(pool: Pool, instance: Instance): Promise<number> {
  const client = await pool.connect();
  let locked = 0;
  const all = (plan: PlanNode): PlanNode[] => [plan, ...(plan.Plans ?? []).flatMap(all)];
  const explaining = {
    async query(text: string, given: unknown[]) {
      const { rows } = await client.query<{ "QUERY PLAN": { Plan: PlanNode }[] }>(
        `explain (analyze, timing off, format json) ${text}`,
        given,
      );
      for (const plan of rows.flatMap((row) => row["QUERY PLAN"].flatMap(({ Plan }) => all(Plan))))
        if (plan["Node Type"] === "LockRows") locked += plan["Actual Rows"] * plan["Actual Loops"];
      return { rows: [] };
    },
  };
  await client.query("begin");
  await lease(explaining as unknown as Pool, instance, LIMIT, false);
  await client.query("rollback");
  client.release();
  return locked;
}

async function measure(pool: Pool, load: Load): Promise<LeaseFigures> {
  await fill(pool, load);
  const nodes = Array.from({ length: load.nodes }, () => newInstance());
  for (const one of nodes) await enter(pool, one, true);
  const locked_rows_per_lease = await lockedBy(pool, nodes[0]!);
  const one = async <T extends object>(text: string): Promise<T> =>
    (await pool.query<T>(text)).rows[0]!;
  const wal = async () =>
    Number((await one<{ at: string }>("select pg_current_wal_lsn() - '0/0' as at")).at);
  const updates = "select n_tup_upd, n_tup_hot_upd from pg_stat_user_tables where relname = 'item'";
  type Updates = { n_tup_upd: string; n_tup_hot_upd: string };
  const before = { wal: await wal(), updates: await one<Updates>(updates) };
  const times: number[] = [];
  let [done, empty] = [0, 0];
  const began = performance.now();
  await Promise.all(
    nodes.map(async (instance) => {
      while (done < load.take) {
        const at = performance.now();
        const items = await lease(pool, instance, LIMIT, false);
        times.push(performance.now() - at);
        if (items.length === 0) {
          if (done < load.take) empty += 1;
          await delay(5);
          const { some } = await one<{ some: boolean }>(
            "select exists (select from radserve.item where state in ('queued', 'running')) as some",
          );
          if (!some) return;
          continue;
        }
        const settled = items.map((item) => ({ item, ending: ENDING }));
        await settle(pool, instance, settled, new Set(items.map(({ job_id }) => job_id)), 50);
        done += items.length;
      }
    }),
  );
  const seconds = (performance.now() - began) / 1000;
  const bytes = (await wal()) - before.wal;
  await pool.query("select pg_stat_force_next_flush()").catch(() => undefined);
  await delay(1_200);
  const after = await one<Updates>(updates);
  const made = (key: keyof Updates) => Number(after[key]) - Number(before.updates[key]);
  const size = await one<{ rows: string; indexes: string }>(
    "select pg_table_size('radserve.item') as rows, pg_indexes_size('radserve.item') as indexes",
  );
  return {
    items_per_second: Math.round(done / seconds),
    lease_ms: { median: median(times), p95: quantile(times, 0.95) },
    leases: times.length,
    empty,
    wal_bytes_per_item: Math.round(bytes / done),
    locked_rows_per_lease,
    hot_percent: Math.round((100 * made("n_tup_hot_upd")) / Math.max(1, made("n_tup_upd"))),
    table_mb: Math.round(Number(size.rows) / 1e6),
    indexes_mb: Math.round(Number(size.indexes) / 1e6),
  };
}

const scratch = mkdtempSync(path.join(os.tmpdir(), "radserve-bench-"));
const config = loadConfig({ directory: scratch, environment: { RADSERVE_STATE_DIR: scratch } });
const database = await openDatabase(config, createLog("silent"), localDatabase.databases);
try {
  await migrate(database.pool);
  if (values.alter !== undefined) await database.pool.query(values.alter);
  const found: Record<string, LeaseFigures> = {};
  for (const [name, load] of Object.entries(LOADS))
    found[name] = await measure(database.pool, load);
  const { version } = database;
  console.log(
    JSON.stringify({ ...machine(), postgres: version, limit: LIMIT, ...found }, undefined, 2),
  );
} finally {
  await database.close();
  rmSync(databaseFolders(scratch).base, { recursive: true, force: true });
  rmSync(scratch, { recursive: true, force: true });
}
