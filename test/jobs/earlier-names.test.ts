/** What 0.6 kept under other names is taken over. */
import { randomUUID } from "node:crypto";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { migrate } from "../../src/jobs/migrations.js";
import { bulkPlace, startBulk } from "../support/bulk.js";
import { ADDON, needs } from "../support/needs.js";
import { sharedDatabase } from "../support/postgres.js";
import { AS_0_6_LEAVES_THEM } from "../support/tables.js";
import { until } from "../support/until.js";

t.test("jobs of the gateway's earlier subject are the gateway's", async (t) => {
  const { pool } = await sharedDatabase(t);
  const add = async (subject: string, key: string | null) => {
    const id = randomUUID();
    await pool.query(
      "insert into radserve.job (id, subject, request, request_sha256, idempotency_key) values ($1, $2, '{}', '', $3)",
      [id, subject, key],
    );
    return id;
  };
  const taken = [await add("doors", null), await add("doors", "a"), await add("gateway", "b")];
  // A job of the same key that is there already keeps the earlier one from being its twin
  const left = await add("doors", "b");
  await add("alice", "a");
  await pool.query(AS_0_6_LEAVES_THEM);
  for (let starts = 0; starts < 2; starts++) {
    await migrate(pool);
    const { rows } = await pool.query<{ id: string; subject: string }>(
      "select id, subject from radserve.job order by seq",
    );
    t.strictSame(
      rows.filter(({ subject }) => subject === "gateway").map(({ id }) => id),
      taken,
    );
    t.equal(rows.find(({ id }) => id === left)?.subject, "doors");
    t.equal(rows.filter(({ subject }) => subject === "alice").length, 1);
  }
  const later = await add("doors", "c");
  await migrate(pool);
  const { rows } = await pool.query("select subject from radserve.job where id = $1", [later]);
  t.strictSame(rows, [{ subject: "doors" }], "once: it is a subject like any other now");
});

t.test("tables of 0.6 are left as they are while another node works with them", async (t) => {
  const { pool } = await sharedDatabase(t);
  await pool.query(AS_0_6_LEAVES_THEM);
  const add = async (name: string, seconds: number) => {
    const node = randomUUID();
    await pool.query(
      `insert into radserve.instance (id, box, process, works, ready, name, beat_at)
       values (gen_random_uuid(), $1, gen_random_uuid(), true, true, $2, now() - make_interval(secs => $3))`,
      [node, name, seconds],
    );
    return node;
  };
  const version = async () =>
    (
      await pool.query<{ version: number }>(
        "select max(version) as version from radserve.migration",
      )
    ).rows[0]?.version;
  await add("killed", 60);
  const own = await add("own", 0);
  await add("ct-room", 0);
  await t.rejects(migrate(pool, own), {
    code: "bulk_unavailable",
    message: /of 0\.6 or earlier.*: ct-room\. Stop/,
  });
  t.equal(await version(), 9, "and goes on with them");
  await pool.query("delete from radserve.instance where name = 'ct-room'");
  await migrate(pool, own);
  t.ok(((await version()) ?? 0) > 9, "what was killed, and this node's own past, is no other node");
});

t.test(
  "a state directory keeps its number, and the file of before for the way back",
  { skip: needs(ADDON) },
  async (t) => {
    const { pool, url } = await sharedDatabase(t);
    const place = bulkPlace(t, { DATABASE_URL: url });
    const state = place.environment["RADSERVE_STATE_DIR"]!;
    const number = randomUUID();
    mkdirSync(state, { recursive: true });
    writeFileSync(path.join(state, "box"), `${number}\n`);
    const bulk = await startBulk(t, place);
    t.equal((await bulk.send("GET", "/bulk_inference")).status, 200);
    const rows = await until("the node is known", async () => {
      const found = await pool.query("select box from radserve.instance");
      return found.rows.length > 0 && found.rows;
    });
    t.strictSame(rows, [{ box: number }]);
    for (const name of ["box", "node-id"])
      t.equal(readFileSync(path.join(state, name), "utf8"), `${number}\n`);
    await bulk.server.stop();
  },
);
