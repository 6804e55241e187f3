/**
 * The plans of the statements that nodes ask all the time, over a million items: none may walk
 * through what has ended, also where the statistics are those of a time when nothing had.
 */
import type { Pool } from "pg";
import t, { type Test } from "tap";
import { depth, lease, someSuspect, tidy } from "../../src/jobs/leases.js";
import { enter } from "../../src/jobs/nodes.js";
import { sharedDatabase } from "../support/postgres.js";
import { newInstance } from "../support/tables.js";

const JOBS = 1_000;
const ITEMS = 1_000;
/** Jobs whose items are written by one statement. */
const AT_ONCE = 100;
/** Items that a lease may look at: one of each job, and some times as many as it takes. */
const MOST_ROWS = 5_000;
const LEASED = 128;

interface PlanNode {
  "Node Type": string;
  "Relation Name"?: string;
  "Index Name"?: string;
  "Actual Rows": number;
  "Actual Loops": number;
  "Rows Removed by Filter"?: number;
  Plans?: PlanNode[];
}

const { pool } = await sharedDatabase(t);
const instance = newInstance({
  id: "00000000-0000-4000-8000-000000000001",
  node: "00000000-0000-4000-8000-000000000002",
  process: "00000000-0000-4000-8000-000000000003",
});

const all = (node: PlanNode): PlanNode[] => [node, ...(node.Plans ?? []).flatMap(all)];

/** The parts of the plans with which the statements of a call run; nothing of it is kept. */
async function planOf(call: (pool: Pool) => Promise<unknown>): Promise<PlanNode[]> {
  const client = await pool.connect();
  const nodes: PlanNode[] = [];
  const explaining = {
    async query(text: string, values?: unknown[]) {
      const { rows } = await client.query<{ "QUERY PLAN": { Plan: PlanNode }[] }>(
        `explain (analyze, timing off, format json) ${text}`,
        values,
      );
      nodes.push(...rows.flatMap((row) => row["QUERY PLAN"].flatMap(({ Plan }) => all(Plan))));
      return { rows: [], rowCount: 0 };
    },
  };
  await client.query("begin");
  try {
    await call(explaining as unknown as Pool);
  } finally {
    await client.query("rollback");
    client.release();
  }
  return nodes;
}

const touched = (nodes: PlanNode[]) =>
  nodes
    .filter((node) => node["Relation Name"] === "item" && node["Node Type"] !== "ModifyTable")
    .reduce(
      (sum, node) =>
        sum + (node["Actual Rows"] + (node["Rows Removed by Filter"] ?? 0)) * node["Actual Loops"],
      0,
    );

async function holds(t: Test): Promise<void> {
  const leasing = await planOf((given) => lease(given, instance, LEASED, false));
  const locked = leasing.filter((node) => node["Node Type"] === "LockRows");
  t.equal(
    Math.max(...locked.map((node) => node["Actual Rows"])),
    LEASED,
    "a lease locks what it takes",
  );
  t.ok(touched(leasing) < MOST_ROWS, `a lease looks at ${touched(leasing)} items`);
  for (const [name, call] of [
    ["someSuspect", (given: Pool) => someSuspect(given, instance)],
    ["tidy", tidy],
  ] as const) {
    const rows = touched(await planOf(call));
    t.ok(rows < MOST_ROWS, `${name} looks at ${rows} items`);
  }
  const walks = (await planOf(depth)).filter((node) => node["Node Type"] === "Seq Scan");
  t.notOk(
    walks.some((node) => node["Relation Name"] === "item"),
    "depth counts by an index",
  );
}

t.test("a thousand jobs of a thousand items", async (t) => {
  await pool.query("alter table radserve.item set (autovacuum_enabled = off)");
  await pool.query(
    `insert into radserve.job (id, subject, request, request_sha256, total, next_index, started_at, pins)
     select md5('job ' || j)::uuid, 's' || j % 7, '{}', '', $2::int, $2::int, now(), $3 from generate_series(1, $1::int) j`,
    [JOBS, ITEMS, { release: "1", every: true, models: {} }],
  );
  for (let from = 0; from < JOBS; from += AT_ONCE)
    await pool.query(
      `insert into radserve.item (job_id, index, id, input, output, state)
       select md5('job ' || j)::uuid, i, md5(j || ' ' || i)::uuid, '/i', '/o', 'queued'
       from generate_series($1::int + 1, $1::int + $3::int) j, generate_series(0, $2::int - 1) i`,
      [from, ITEMS, AT_ONCE],
    );
  await pool.query("analyze radserve.item");
  await pool.query("analyze radserve.job");
  await enter(pool, instance, true);
  await t.test("all wait", holds);
  for (let from = 0; from < JOBS; from += AT_ONCE)
    await pool.query(
      `update radserve.item set state = 'succeeded', finished_at = now()
       where index < $1 and job_id = any(select md5('job ' || j)::uuid from generate_series($2::int + 1, $2::int + $3::int) j)`,
      [(ITEMS * 8) / 10, from, AT_ONCE],
    );
  await t.test("four of five have ended, and the statistics are of before", holds);
  await pool.query("analyze radserve.item");
  await t.test("the statistics are new", holds);
});
