/**
 * The private PostgreSQL with real programs, processes and signals: its start, its end, and what
 * lies between.
 */
import {
  appendFileSync,
  chmodSync,
  chownSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  unlinkSync,
  writeFileSync,
} from "node:fs";
import { spawn } from "node:child_process";
import { once } from "node:events";
import os from "node:os";
import path from "node:path";
import { Worker } from "node:worker_threads";
import pg from "pg";
import t, { type Test } from "tap";
import { inspectPostgres, PrivatePostgres } from "../../../src/features/local-postgres/postgres.js";
import { databaseFolders, socketOf } from "../../../src/features/local-postgres/folders.js";
import {
  isPostmaster,
  logFile,
  postmasterOf,
} from "../../../src/features/local-postgres/process.js";
import { errno } from "../../../src/base/errno.js";
import { isRoot, silent } from "../../support/postgres.js";
import {
  BIN_FOLDERS,
  childrenOf,
  postgresChild,
  stateDirectory,
} from "../../support/private-postgres.js";
import { until } from "../../support/until.js";
import { gatedInitdb } from "../../support/gated-initdb.js";

const NOBODY = { uid: 65534, gid: 65534 };
const needsRoot = isRoot ? false : "only root can become another user";

async function start(t: Test, state_dir: string, postgres_bin?: string): Promise<PrivatePostgres> {
  const postgres = await PrivatePostgres.start({ state_dir, postgres_bin }, silent);
  t.teardown(() => postgres.stop());
  return postgres;
}

/** The rows' first columns, on a connection of its own. */
async function query(postgres: PrivatePostgres, text: string): Promise<unknown[]> {
  const client = new pg.Client(postgres.connection);
  client.on("error", () => undefined);
  await client.connect();
  try {
    const { rows } = await client.query<unknown[]>({ text, rowMode: "array" });
    return rows.map((row) => row[0]);
  } finally {
    await client.end();
  }
}

const modeOf = (file: string) => (statSync(file).mode & 0o777).toString(8);
const unfinished = (base: string) => readdirSync(base).filter((name) => name.startsWith("initdb-"));

/**
 * Kills the postmaster and the processes named, and waits for the next one. The postmaster is
 * killed first; one of the others may have ended by itself since it was listed (the backend of a
 * connection just closed, a worker of autovacuum), and the others that read its end may go with it.
 */
async function killAndWait(postgres: PrivatePostgres, others: number[]): Promise<void> {
  const before = postgres.pid;
  process.kill(before, "SIGKILL");
  for (const pid of others) {
    try {
      process.kill(pid, "SIGKILL");
    } catch (error) {
      if (errno(error) !== "ESRCH") throw error;
    }
  }
  await until("another PostgreSQL runs", () => postgres.pid !== before);
}

for (const [kind, folder] of Object.entries(BIN_FOLDERS)) {
  const skip = folder === undefined && `PostgreSQL of the ${kind} is not there`;

  t.test(`${kind}: its life`, { skip }, async (t) => {
    const state = stateDirectory(t);
    const place = databaseFolders(state);
    const kept = (postgres: PrivatePostgres) => query(postgres, "SELECT count(*)::int FROM kept");

    await t.test("made, private, stopped", async (t) => {
      const postgres = await start(t, state, folder);
      const names = ["fsync", "synchronous_commit", "listen_addresses", "server_encoding"];
      const shown = names.map((name) => query(postgres, `SHOW ${name}`));
      t.strictSame(await Promise.all(shown), [["on"], ["on"], [""], ["UTF8"]]);
      t.strictSame(
        await query(
          postgres,
          "SELECT datcollate FROM pg_database WHERE datname = current_database()",
        ),
        ["C"],
      );
      t.strictSame(
        await query(postgres, "SELECT rolsuper FROM pg_roles WHERE rolname = current_user"),
        [false],
        "the queue's role owns its database and no more",
      );
      t.strictSame([place.data, place.run, place.own, logFile(place)].map(modeOf), [
        "700",
        "700",
        "700",
        "600",
      ]);
      await query(postgres, "CREATE TABLE kept AS SELECT generate_series(1, 1000) AS number");
      const { pid } = postgres;
      await Promise.all([postgres.stop(), postgres.stop()]);
      t.notOk(isPostmaster(pid, place.data), "stopped");
      t.notOk(existsSync(path.join(place.data, "postmaster.pid")), "cleanly");
    });

    await t.test("started again, and taken over after kill -9 of its owner", async (t) => {
      const owner = postgresChild(t, { state_dir: state, postgres_bin: folder });
      const { pid } = await owner.answer;
      await owner.kill();
      const heir = await start(t, state, folder);
      t.equal(heir.pid, pid);
      t.strictSame(await kept(heir), [1000]);
      await heir.stop();
      t.equal(postmasterOf(place.data), undefined, "its heir ends it");
    });

    await t.test("started again after kill -9", async (t) => {
      const postgres = await start(t, state, folder);
      await killAndWait(postgres, childrenOf(postgres.pid));
      t.strictSame(await kept(postgres), [1000], "of all its processes");
      await killAndWait(postgres, childrenOf(postgres.pid));
      t.strictSame(await kept(postgres), [1000], "again");
      await killAndWait(postgres, []);
      t.strictSame(await kept(postgres), [1000], "of the postmaster alone");
      t.equal(postgres.problem, undefined);
    });
  });
}

t.test("one state directory, several things that happen", async (t) => {
  const state = stateDirectory(t);
  const place = databaseFolders(state);
  const settings = { state_dir: state, postgres_bin: undefined };

  await t.test("doctor, before anything is made", async (t) => {
    t.match(
      await inspectPostgres(settings),
      /^private PostgreSQL \d+\.\d+ from \/.*\(not made yet\)$/,
    );
    t.strictSame(readdirSync(state), [], "and makes nothing");
  });

  await t.test("a crash while the data directory is made", async (t) => {
    // It is all there, and not in its place yet
    const { bin } = gatedInitdb(t, "at its end");
    const child = postgresChild(t, { state_dir: state, postgres_bin: bin });
    await until(
      "a data directory is being made",
      () => existsSync(place.base) && unfinished(place.base).length > 0,
    );
    await child.kill();
    t.notOk(existsSync(place.data), "nothing half-finished in its place");
  });

  await t.test("two processes start it at once, twice each", async (t) => {
    const children = [1, 2].map(() => postgresChild(t, { state_dir: state }));
    const here = await Promise.all([1, 2].map(() => start(t, state)));
    const there = await Promise.all(children.map(({ answer }) => answer));
    t.equal(new Set([...here, ...there].map(({ pid }) => pid)).size, 1, "one postmaster");
    t.strictSame(unfinished(place.base), [], "the remains of the crash are gone");
  });

  await t.test("doctor", async (t) => {
    const postgres = await start(t, state);
    t.match(await inspectPostgres(settings), /\(running\)$/);
    await postgres.stop();
    t.match(await inspectPostgres(settings), /\(not running\)$/);
  });

  await t.test("not even its own account may connect", { skip: needsRoot }, async (t) => {
    const postgres = await start(t, state);
    const { uid, gid } = statSync(place.data);
    t.not(uid, 0);
    const task = { state_dir: "", connect: postgres.connection.host, user: { uid, gid } };
    t.strictSame(await postgresChild(t, task).answer, { error: "28000" });
  });

  await t.test("a socket that was removed", async (t) => {
    const postgres = await start(t, state);
    const before = postgres.pid;
    unlinkSync(socketOf(place));
    await until("another PostgreSQL runs", () => postgres.pid !== before);
    t.strictSame(await query(postgres, "SELECT 1"), [1]);
  });

  await t.test("the log holds no values, and stays small", async (t) => {
    const postgres = await start(t, state);
    const insert = "INSERT INTO item VALUES ('/in/DOE^JANE.dcm')";
    await query(postgres, "CREATE TABLE item(path text PRIMARY KEY)");
    await query(postgres, insert);
    await t.rejects(query(postgres, insert), { code: "23505" });
    await t.rejects(query(postgres, "SELECT 'DOE^JANE'::int"), { code: "22P02" });
    await t.rejects(query(postgres, "SELECT nothing_DOE FROM item"), { code: "42703" });
    const file = logFile(place);
    t.match(readFileSync(file, "utf8"), /ready to accept connections/);
    t.notMatch(readFileSync(file, "utf8"), /DOE/i);

    const many = 9 * 1024 * 1024;
    appendFileSync(file, Buffer.alloc(many, "line\n"));
    // Empty for a moment alone: a checkpoint is told there, for one
    await until("the log is emptied", () => statSync(file).size < many);
    await postgres.stop();
    t.match(
      readFileSync(file, "utf8"),
      /^\d{4}-[^\0]*database system is shut down\n$/,
      "it begins anew",
    );
  });

  await t.test("in a worker thread", async (t) => {
    const module = new URL("../../../src/features/local-postgres/postgres.js", import.meta.url)
      .href;
    const worker = new Worker(
      `const { workerData, parentPort } = require("node:worker_threads");
       void (async () => {
         const { PrivatePostgres } = await import(workerData.module);
         const log = { info() {}, warn() {}, error() {}, debug() {} };
         const postgres = await PrivatePostgres.start({ state_dir: workerData.state }, log);
         parentPort.postMessage(postgres.pid);
         parentPort.once("message", () => postgres.stop().then(() => parentPort.postMessage("stopped")));
       })();`,
      { eval: true, workerData: { module, state } },
    );
    const said = async () => (await once(worker, "message"))[0] as unknown;
    t.equal(await said(), postmasterOf(place.data));
    worker.postMessage("stop");
    t.equal(await said(), "stopped");
    t.equal(postmasterOf(place.data), undefined);
    await worker.terminate();
  });

  await t.test("another process under the number in postmaster.pid", async (t) => {
    const { uid, gid } = statSync(place.data);
    const other = spawn("sleep", ["1000"], isRoot ? { uid, gid } : {});
    t.teardown(() => other.kill());
    const file = path.join(place.data, "postmaster.pid");
    const text = `${other.pid}\n${place.data}\n`;
    writeFileSync(file, text);
    await t.rejects(start(t, state), {
      code: "bulk_unavailable",
      message: new RegExp(
        `lock file .* already exists.*names process ${other.pid}. If that is no PostgreSQL`,
      ),
    });
    t.equal(readFileSync(file, "utf8"), text, "not removed");
    t.ok(existsSync(`/proc/${other.pid}`), "nor is that process harmed");
  });
});

t.test("a state directory is one, by whatever name and before it is made", (t) => {
  const top = stateDirectory(t);
  mkdirSync(path.join(top, "real"));
  symlinkSync("real", path.join(top, "link"));
  const before = databaseFolders(path.join(top, "link", "state"));
  mkdirSync(path.join(top, "real", "state"));
  t.strictSame(databaseFolders(path.join(top, "link", "state")), before);
  t.strictSame(databaseFolders(path.join(top, "real", "state")), before);
  t.end();
});

t.test("what it does not know is left alone", async (t) => {
  const state = stateDirectory(t);
  const { data } = databaseFolders(state);
  mkdirSync(data, { recursive: true });
  writeFileSync(path.join(data, "precious"), "1");
  await t.rejects(start(t, state), {
    code: "bulk_unavailable",
    message: /is not empty. Move it aside/,
  });
  writeFileSync(path.join(data, "PG_VERSION"), "12\n");
  await t.rejects(start(t, state), {
    code: "bulk_unavailable",
    message: /data are of PostgreSQL 12.*RADSERVE_POSTGRES_BIN to the bin folder of PostgreSQL 12/,
  });
  t.strictSame(readdirSync(data).sort(), ["PG_VERSION", "precious"]);
});

t.test("faults of the system are told with the folders they can come from", async (t) => {
  const state = stateDirectory(t);
  const { own } = databaseFolders(state);
  writeFileSync(own, "in the way");
  await t.rejects(start(t, state), {
    code: "bulk_unavailable",
    message: /postgres cannot be locked \(E[A-Z]+\)/,
  });
  rmSync(own);
  mkdirSync(`${own}/postgres.log/in the way`, { recursive: true });
  await t.rejects(start(t, state), {
    code: "bulk_unavailable",
    message: /could not be started \(EISDIR\)\. Check that the disks of/,
  });
});

t.test("programs that cannot be used", async (t) => {
  await t.rejects(start(t, stateDirectory(t), "/nowhere/bin"), {
    code: "bulk_unavailable",
    details: { retry_after: 5 },
    message: /Expected PostgreSQL 13 or newer.*\/nowhere\/bin \(ENOENT\).*set DATABASE_URL/,
  });
});

/** The npm package as it is where its install script did not run. */
function withoutLinks(t: Test): { top: string; bin: string } {
  const top = mkdtempSync(path.join(os.tmpdir(), "radserve-package-"));
  t.teardown(() => rmSync(top, { recursive: true, force: true }));
  const native = path.join(top, "native");
  cpSync(path.dirname(BIN_FOLDERS.npm), native, { recursive: true, verbatimSymlinks: true });
  const links = JSON.parse(readFileSync(path.join(native, "pg-symlinks.json"), "utf8")) as {
    target: string;
  }[];
  for (const { target } of links) unlinkSync(path.join(top, target));
  return { top, bin: path.join(native, "bin") };
}

/**
 * Runs as nobody, whose state directory it gives away: modes, ownership, who may connect, and
 * taking over.
 */
async function asNobody(t: Test, state: string, folder: string | undefined): Promise<void> {
  for (const owned of [path.dirname(state), state]) {
    mkdirSync(owned, { recursive: true });
    chownSync(owned, NOBODY.uid, NOBODY.gid);
    chmodSync(owned, 0o755);
  }
  const data = path.join(state, "postgres", "data");
  const task = { state_dir: state, postgres_bin: folder, user: NOBODY };
  const first = postgresChild(t, task);
  const { pid = 0, host = "", error } = await first.answer;
  t.teardown(() => {
    if (isPostmaster(pid, data)) process.kill(pid, "SIGINT");
    rmSync(host, { recursive: true, force: true });
  });
  t.equal(error, undefined);
  t.strictSame([data, host, path.dirname(data)].map(modeOf), ["700", "700", "700"]);
  t.strictSame(
    [`/proc/${pid}`, data, host].map((file) => statSync(file).uid),
    Array<number>(3).fill(NOBODY.uid),
  );
  const intruder = postgresChild(t, { state_dir: "", connect: host });
  t.strictSame(
    await intruder.answer,
    { error: "28000" },
    "another user, even root, may not connect",
  );
  await first.kill();
  const heir = postgresChild(t, task);
  t.equal((await heir.answer).pid, pid, "taken over");
  await t.rejects(start(t, state), {
    message: /belongs to the user with the number 65534; this is root/,
  });
  await heir.finish();
  t.notOk(isPostmaster(pid, data), "stopped");
}

t.test("the npm package without its links", async (t) => {
  const { top, bin } = withoutLinks(t);
  const link = path.join(bin, "../lib/libicui18n.so.60");

  await t.test(
    "which an ordinary user may not make; a very long path",
    { skip: needsRoot },
    async (t) => {
      chmodSync(top, 0o755);
      await asNobody(t, stateDirectory(t, "long-".repeat(30), "state"), bin);
      t.notOk(existsSync(link));
    },
  );

  await t.test("out of its account's reach, as root", { skip: needsRoot }, async (t) => {
    chmodSync(top, 0o700);
    const state = stateDirectory(t);
    const copies = () =>
      readdirSync(databaseFolders(state).base).filter((name) => name.startsWith("binaries-"));
    const postgres = await start(t, state, bin);
    t.strictSame(await query(postgres, "SELECT 1"), [1]);
    const copy = copies();
    t.equal(copy.length, 1);
    await postgres.stop();
    await start(t, state, bin);
    t.strictSame(copies(), copy, "copied once");
    rmSync(link, { force: true });
  });

  await t.test("in reach", async (t) => {
    chmodSync(top, 0o755);
    t.notOk(existsSync(link));
    const postgres = await start(t, stateDirectory(t), bin);
    t.strictSame(await query(postgres, "SELECT 1"), [1]);
    t.ok(existsSync(link), "the links are made");
  });
});

const noDistribution =
  BIN_FOLDERS.distribution === undefined && "PostgreSQL of the distribution is not there";

t.test("an ordinary user", { skip: needsRoot || noDistribution }, async (t) => {
  await asNobody(t, stateDirectory(t, "a", "state"), BIN_FOLDERS.distribution);
});

t.test("data of one version, programs of another", { skip: noDistribution }, async (t) => {
  const state = stateDirectory(t);
  const made = await start(t, state, BIN_FOLDERS.npm);
  await query(made, "CREATE TABLE kept AS SELECT 7 AS number");
  await made.stop();
  await t.rejects(start(t, state, BIN_FOLDERS.distribution), {
    message: /only that version opens them; found .*\(version \d+\.\d+\)/,
  });
  const opened = await start(t, state);
  t.strictSame(
    await query(opened, "SELECT number FROM kept"),
    [7],
    "the fitting programs are found",
  );
});
