/**
 * A PostgreSQL that is full, read-only, locked, crowded, without memory, or emptied, and what is
 * said and done then.
 */
import { execFileSync, spawnSync } from "node:child_process";
import {
  chmodSync,
  chownSync,
  mkdirSync,
  mkdtempSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import os from "node:os";
import path from "node:path";
import pg from "pg";
import t, { type Test } from "tap";
import { SharedPostgres } from "../crash/lib/postgres.js";
import { bulkPlace, hold, startBulk, writeSlice } from "../support/bulk.js";
import { withDurations } from "../support/durations.js";
import { ADDON, needs } from "../support/needs.js";
import { radserve } from "../support/server.js";
import { inTime, until } from "../support/until.js";

const skip = needs(ADDON);
const postgres = await SharedPostgres.start();
t.teardown(() => postgres.stop());

/** The server's role and database; an ordinary one, as an administrator makes it. */
const NAME = "faulty";
const url = new URL(postgres.url);
const maker = new pg.Client(postgres.url);
await maker.connect();
await maker.query(`create role ${NAME} login password 'secret'`);
await maker.query(`create database ${NAME} owner ${NAME}`);
await maker.end();
url.pathname = `/${NAME}`;
const admin = new pg.Client(url.href);
admin.on("error", () => undefined);
await admin.connect();
t.teardown(() => admin.end());
url.username = NAME;

// One server for all: each fault ends, and then work goes on
const place = bulkPlace(t, {
  ...withDurations({ nodeBeat: 500, bulkPoll: 300 }),
  DATABASE_URL: url.href,
});
const bulk = skip === false ? await startBulk(t, place) : undefined!;

let jobs = 0;

function image(name: string) {
  const file = path.join(place.input, "slices", name);
  writeSlice(file);
  return { input_image_path: file, output_folder_path: path.join(place.output, "results") };
}

/** A job of images that no other job has. */
function submit(count: number): Promise<string> {
  jobs += 1;
  const items = Array.from({ length: count }, (_, i) => image(`${jobs}-${i}.dcm`));
  return bulk.submit({ items, outputs: ["json"] });
}

/** A job of one image that has ended. */
async function doneJob(): Promise<string> {
  const done = await submit(1);
  await bulk.ended(done);
  return done;
}

/** The status and reason of a page, which comes while the fault still lasts. */
async function asked(t: Test, page: string, method = "GET", body?: unknown) {
  const answer = await inTime(`${method} ${page} answers`, bulk.send(method, page, body));
  t.ok(answer.status, `${method} ${page} answers in time`);
  return answer;
}

const pausedFor = (id: string, code: string) =>
  bulk.until(id, ({ state, paused_reason }) => state === "paused" && paused_reason?.code === code);

t.test("a user who may make no tables", { skip }, async (t) => {
  const foreign = new URL(url.href);
  foreign.pathname = "/postgres";
  const place = bulkPlace(t, { DATABASE_URL: foreign.href });
  // A server whose database cannot say whether other nodes have keys makes none
  t.match(await radserve(place, "init"), { status: 0 });
  const alone = await startBulk(t, place);
  const { status, body } = await alone.send("GET", "/bulk_inference");
  t.equal(status, 503);
  t.match(JSON.stringify(body), /owner of its database/);
});

t.test("locked by another session", { skip }, async (t) => {
  const done = await doneJob();
  const id = await submit(3);
  await admin.query("begin");
  await admin.query("lock table radserve.job in access exclusive mode");
  const refused = {
    status: 503,
    body: {
      error: "bulk_unavailable",
      message: /\(55P03\)/,
      details: { reason: "database_locked" },
    },
  };
  for (const [method, page] of [
    ["GET", `/bulk_inference/${id}`],
    ["GET", "/bulk_inference"],
    ["GET", `/bulk_inference/${done}/items`],
    ["POST", `/bulk_inference/${id}/pause`],
    ["DELETE", `/bulk_inference/${done}`],
  ] as const)
    t.match(await asked(t, page, method), refused, `${method} ${page}`);
  t.equal((await fetch(`${bulk.server.url}/health/ready`)).status, 200);
  await admin.query("rollback");
  await admin.query("begin");
  // Jobs can be looked at, and images not taken
  await admin.query("lock table radserve.instance in access exclusive mode");
  await bulk.server.logged(
    ({ fault }) => (fault as { code?: string } | undefined)?.code === "55P03",
  );
  await admin.query("rollback");
  t.match(await bulk.ended(id), { state: "completed", counts: { succeeded: 3 } });
});

t.test("locked where items are written", { skip }, async (t) => {
  await doneJob();
  await admin.query("begin");
  await admin.query("lock table radserve.item in share mode");
  const id = await bulk.submit({
    input_folder_path: path.join(place.input, "slices"),
    output_folder_path: place.output,
    outputs: ["json"],
  });
  const waiting = await pausedFor(id, "database_locked");
  t.match(waiting, { waiting: [{ reason: "database_locked", since: String, images: null }] });
  t.match(await asked(t, "/bulk_inference?state=paused"), { status: 200 });
  await admin.query("rollback");
  t.match(await bulk.ended(id), { state: "completed", counts: { failed: 0 } });
  t.match(await bulk.ended(await submit(1)), { counts: { succeeded: 1 } });
});

t.test("read-only", { skip }, async (t) => {
  const done = await doneJob();
  const id = await submit(3);
  await bulk.send("POST", `/bulk_inference/${id}/pause`);
  const write = async (how: "on" | "off") => {
    await admin.query(`alter system set default_transaction_read_only = ${how}`);
    await admin.query("select pg_reload_conf()");
  };
  t.teardown(() => write("off").catch(() => undefined));
  await bulk.send("POST", `/bulk_inference/${id}/resume`);
  await write("on");
  const look = await bulk.until(
    id,
    ({ state, paused_reason }) =>
      state === "completed" || paused_reason?.code === "database_read_only",
  );
  t.ok(look);
  await until("a new job is refused because the database is read-only", async () => {
    const { body } = await bulk.send("POST", "/bulk_inference", {
      input_folder_path: path.join(place.input, "slices"),
      output_folder_path: place.output,
    });
    return (body["details"] as { reason?: string } | undefined)?.reason === "database_read_only";
  });
  t.match(await asked(t, `/bulk_inference/${done}`), { status: 200, body: { state: "completed" } });
  await write("off");
  t.match(await bulk.ended(id), { state: "completed", counts: { succeeded: 3 } });
});

t.test("too many connections, and out of memory", { skip }, async (t) => {
  await doneJob();
  const id = await submit(2);
  await admin.query(`alter role ${NAME} connection limit 0`);
  const end = () =>
    admin.query(`select pg_terminate_backend(pid) from pg_stat_activity where usename = '${NAME}'`);
  await end();
  await until("the database refuses connections", async () => {
    const answer = await asked(t, `/bulk_inference/${id}`);
    return (
      answer.status === 503 &&
      (answer.body["details"] as { reason?: string }).reason === "database_connections"
    );
  });
  await admin.query(`alter role ${NAME} connection limit -1`);
  t.match(await bulk.ended(id), { counts: { succeeded: 2 } });

  await admin.query(`
    create function radserve.refuse() returns trigger language plpgsql as $$
      begin raise exception 'out of memory' using errcode = '53200'; end $$;
    create trigger refuse before update on radserve.item for each row execute function radserve.refuse();`);
  const second = await submit(2);
  const waiting = await pausedFor(second, "database_memory");
  t.match(waiting, { paused_reason: { message: /too little memory/, since: String } });
  await admin.query("drop trigger refuse on radserve.item");
  t.match(await bulk.ended(second), { counts: { succeeded: 2 } });
});

const probe = mkdtempSync(path.join(os.tmpdir(), "radserve-mount-"));
const mounts = spawnSync("mount", ["-t", "tmpfs", "-o", "size=4m", "tmpfs", probe]).status === 0;
if (mounts) execFileSync("umount", [probe]);
rmSync(probe, { recursive: true });

t.test("full", { skip: skip || (mounts ? false : "this user may not mount") }, async (t) => {
  const done = await doneJob();
  const space = mkdtempSync(path.join(os.tmpdir(), "radserve-space-"));
  execFileSync("mount", ["-t", "tmpfs", "-o", "size=8m", "tmpfs", space]);
  t.teardown(async () => {
    await admin.query("alter table radserve.item set tablespace pg_default").catch(() => undefined);
    await admin.query("drop tablespace small").catch(() => undefined);
    execFileSync("umount", ["-l", space]);
    rmSync(space, { recursive: true, force: true });
  });
  const data = path.join(space, "data");
  mkdirSync(data);
  const nobody = (flag: string) =>
    Number(execFileSync("id", [flag, "nobody"], { encoding: "utf8" }));
  chownSync(data, nobody("-u"), nobody("-g"));
  chmodSync(space, 0o755);
  chmodSync(data, 0o700);
  await admin.query(`create tablespace small location '${data}'`);
  await admin.query("alter table radserve.item set tablespace small");
  const names = Array.from({ length: 200 }, (_, i) => `${jobs + 1}-${i}.dcm`);
  // The job is not done before there is no room
  const release = await hold(t, path.join(place.output, "results"), names.slice(100));
  const id = await submit(names.length);
  await bulk.send("POST", `/bulk_inference/${id}/pause`);
  const ballast = path.join(space, "ballast");
  t.throws(() => writeFileSync(ballast, Buffer.alloc(16_000_000)), { code: "ENOSPC" });
  t.ok(statSync(ballast).size > 0);
  await release();
  await bulk.send("POST", `/bulk_inference/${id}/resume`);
  await pausedFor(id, "database_full");
  t.match(await asked(t, `/bulk_inference/${done}`), { status: 200 });
  const refused = await asked(t, "/bulk_inference", "POST", {
    items: Array.from({ length: 500 }, (_, i) => ({
      input_image_path: path.join(place.input, `${"x".repeat(200)}-${i}.dcm`),
      output_folder_path: path.join(place.output, "refused"),
    })),
  });
  t.match(refused, { status: 503, body: { details: { reason: "database_full" } } });
  rmSync(ballast);
  t.match(await bulk.ended(id), { state: "completed", counts: { succeeded: 200, failed: 0 } });
});

t.test("without its tables", { skip }, async (t) => {
  const done = await doneJob();
  /** A paused job with images left, of which there are more than a node takes at once. */
  const paused = async () => {
    const count = 40;
    const names = Array.from({ length: count }, (_, i) => `${jobs + 1}-${i}.dcm`);
    const release = await hold(t, path.join(place.output, "results"), names);
    const id = await submit(count);
    t.match(await bulk.send("POST", `/bulk_inference/${id}/pause`), { body: { state: "paused" } });
    await release();
    return id;
  };
  await paused();
  const { server } = bulk;
  /** Beside a node at work, of which either may be ended by the other's locks (40P01). */
  const drop = async (statement: string) =>
    until(`"${statement}" is not in the way of others`, async () =>
      admin.query(statement).catch((error: unknown) => {
        if ((error as { code?: string }).code !== "40P01") throw error;
        return undefined;
      }),
    );
  const said = () => server.log.filter(({ msg }) => msg.startsWith("the bulk tables were lost"));
  const lost = async (id: string, times: number) => {
    await until("the loss of the tables is logged", () => said().length >= times);
    await until(
      "the lost job is not found",
      async () => (await bulk.send("GET", `/bulk_inference/${id}`)).status === 404,
    );
    t.match(await bulk.send("GET", `/bulk_inference/${id}`), {
      body: {
        error: "job_not_found",
        message: /tables were lost and made again at .* jobs from before are gone/,
      },
    });
    t.match(await bulk.ended(await submit(2)), { counts: { succeeded: 2 } });
  };
  await drop("drop schema radserve cascade");
  await lost(done, 1);
  // Some of them: what is left is kept, and no job without its images ends as if all were done
  const third = await paused();
  await drop("drop table radserve.item");
  await lost(third, 2);
  t.match(said()[1], { lost_jobs: [third], kept_as: /^radserve_lost_/ });
  await drop("drop schema radserve_queue cascade");
  const scanned = await bulk.until(await untilTaken(), ({ state }) => state === "completed");
  t.match(scanned, { counts: { failed: 0 } });
  t.equal(said().length, 2, "the jobs are there");

  // Before a start
  const { RADSERVE_STATE_DIR: state = "" } = place.environment;
  t.ok(statSync(path.join(state, "bulk-origin")).isFile());
  const keep = { ...place, remove: () => undefined };
  server.place.remove = () => undefined;
  await server.stop();
  await admin.query("drop schema radserve cascade; drop schema radserve_queue cascade");
  const anew = await startBulk(t, keep);
  await anew.server.logged(({ msg }) => msg.startsWith("the bulk tables were lost"));
  // Until the tables are made, pages say that the database is being started
  let page = await anew.send("GET", `/bulk_inference/${third}`);
  const isMade = async () => {
    page = await anew.send("GET", `/bulk_inference/${third}`);
    return page.status !== 503;
  };
  await until("the tables are made", isMade);
  t.match(page, { status: 404, body: { message: /were lost/ } });
});

/** A folder as a job, once it is taken. */
async function untilTaken(): Promise<string> {
  let id = "";
  await until("the folder is taken as a job", async () => {
    const { status, body } = await bulk.send("POST", "/bulk_inference", {
      input_folder_path: path.join(place.input, "slices"),
      output_folder_path: path.join(place.output, "scanned"),
      outputs: ["json"],
    });
    if (status === 202) id = String(body["job_id"]);
    return status === 202;
  });
  return id;
}
