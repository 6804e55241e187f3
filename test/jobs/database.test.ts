/**
 * The queue's database in both modes; DATABASE_URL reaches a real PostgreSQL through a relay that
 * can fail.
 */
import net from "node:net";
import os from "node:os";
import pg from "pg";
import { pino } from "pino";
import t, { type Test } from "tap";
import { openSharedDatabase, transaction, type Database } from "../../src/jobs/database.js";
import { databaseFolders, socketOf } from "../../src/features/local-postgres/folders.js";
import { loadConfig } from "../../src/config.js";
import { failure } from "../support/expect.js";
import { ADDON, needs } from "../support/needs.js";
import { silent } from "../support/postgres.js";
import { privateDatabase } from "../support/private-postgres.js";
import { freePort, makePlace, radserve } from "../support/server.js";
import { until } from "../support/until.js";

interface Relay {
  url(database?: string): string;
  port: number;
  /** Swallow: takes bytes and connections and answers nothing, as a network that drops packets. */
  mode: "pass" | "swallow";
  cut(): void;
}

/**
 * TCP in front of a private database's socket; its one user is known by the socket, so any password
 * will do.
 */
async function relayTo(t: Test, socket: string): Promise<Relay> {
  const open = new Set<net.Socket>();
  const server = net.createServer((client) => {
    const target = net.connect(socket);
    for (const [from, to] of [
      [client, target],
      [target, client],
    ] as const) {
      open.add(from);
      from.on("error", () => to.destroy());
      from.on("close", () => to.destroy());
      from.on("data", (bytes) => {
        if (relay.mode === "pass") to.write(bytes);
      });
    }
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as net.AddressInfo;
  const relay: Relay = {
    port,
    mode: "pass",
    url: (database = "radserve") => `postgres://radserve:hunter2@127.0.0.1:${port}/${database}`,
    cut() {
      for (const one of open) one.destroy();
      open.clear();
    },
  };
  t.teardown(() => {
    relay.cut();
    server.close();
  });
  return relay;
}

async function countOf({ pool }: Database): Promise<number> {
  const { rows } = await pool.query<{ n: number }>("SELECT count(*)::int AS n FROM thing");
  return rows[0]?.n ?? -1;
}

const insert = (client: pg.PoolClient, id: number) =>
  client.query("INSERT INTO thing VALUES ($1)", [id]);

/** What holds in both modes. */
async function behaves(t: Test, database: Database): Promise<void> {
  const { pool } = database;
  t.match(database.version, /^\d+\.\d+$/);
  await pool.query("DROP TABLE IF EXISTS thing");
  await pool.query("CREATE TABLE thing(id int PRIMARY KEY)");

  await transaction(pool, (client) => insert(client, 1));
  t.equal(await countOf(database), 1, "committed");

  const own = new Error("of the work itself");
  const failing = transaction(pool, async (client) => {
    await insert(client, 2);
    throw own;
  });
  t.equal(await failing.catch((error: unknown) => error), own, "its own error comes out as it is");
  await t.rejects(
    transaction(pool, (client) => insert(client, 1)),
    { code: "23505" },
    "a statement's error too",
  );
  t.equal(await countOf(database), 1, "rolled back");
  t.equal(pool.idleCount, pool.totalCount, "all clients are given back");

  const killed = transaction(pool, async (client) => {
    await insert(client, 3);
    const { rows } = await client.query<{ pid: number }>("SELECT pg_backend_pid() AS pid");
    // The client hears of its end while it waits for nothing: that must not end this process.
    const ended = new Promise((resolve) => client.once("end", resolve));
    await pool.query("SELECT pg_terminate_backend($1)", [rows[0]?.pid]);
    await ended;
    return insert(client, 4);
  });
  const error = await failure(killed);
  t.match(error, { code: "bulk_unavailable", status: 503, details: { retry_after: 5 } });
  t.equal(await countOf(database), 1, "the pool goes on, the lost transaction left nothing");

  const idle = new pg.Client(database.connection);
  await idle.connect();
  await idle.query(
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = current_user AND pid <> pg_backend_pid()",
  );
  await idle.end();
  await until("all connections are closed", () => pool.totalCount === 0);
  t.equal(await countOf(database), 1, "idle clients may be lost too");
}

// Reached through a relay at first, and by itself then
const behind = privateDatabase(t);

t.test("DATABASE_URL", async (t) => {
  const { settings: own } = await behind;
  const socket = socketOf(databaseFolders(own.state_dir));
  const relay = await relayTo(t, socket);
  const lines: string[] = [];
  const log = pino({ level: "trace" }, { write: (line: string) => lines.push(line) });
  const database = await openSharedDatabase(relay.url(), log);
  t.teardown(() => database.close());
  await behaves(t, database);

  const cut = await failure(
    transaction(database.pool, async (client) => {
      await insert(client, 7);
      relay.cut();
      await client.query("SELECT 1");
    }),
  );
  t.match(cut.message, new RegExp(`PostgreSQL at 127.0.0.1:${relay.port} cannot be used`));
  t.equal(await countOf(database), 1);

  const refused = await failure(openSharedDatabase(relay.url("other"), log));
  t.match(refused.message, /\(28000\)\. Correct the user and password of DATABASE_URL/);

  relay.mode = "swallow";
  const unheard = await failure(openSharedDatabase(relay.url(), log));
  t.match(
    unheard,
    { code: "bulk_unavailable", message: /radserve doctor/ },
    "a network that swallows everything",
  );
  relay.mode = "pass";

  t.match(lines.join(""), /a connection to the bulk database was lost/);
  t.notMatch(
    lines.join("") + cut.message + refused.message + unheard.message,
    /hunter2/,
    "no password",
  );
});

t.test("the private one", async (t) => {
  const database = await behind;
  await behaves(t, database);

  await t.rejects(
    transaction(database.pool, (client) => client.query("COPY (SELECT 1) TO PROGRAM 'true'")),
    { code: "bulk_unavailable", cause: { code: "42501" } },
    "its role may start no programs",
  );
  await Promise.all([database.close(), database.close()]);
  const closed = await failure(transaction(database.pool, (client) => insert(client, 6)));
  t.match(closed.message, /Cannot use a pool after/);
});

t.test("DATABASE_URL that leads nowhere", async (t) => {
  const port = await freePort();
  // Where the machine stands still, the time for connecting is up before that is refused
  const open = (host: string) =>
    until(`connecting to ${host} is refused`, async () => {
      const url = `postgres://u:hunter2@${host}:${port}/x`;
      const error = await failure(openSharedDatabase(url, silent));
      return !error.message.includes("(timeout expired)") && error;
    });
  for (const [host, code] of [
    ["127.0.0.1", "ECONNREFUSED"],
    ["localhost", "ECONNREFUSED"],
    ["nowhere.invalid", "(ENOTFOUND|EAI_AGAIN)"],
  ] as const) {
    const error = await open(host);
    t.match(error, { code: "bulk_unavailable", details: { retry_after: 5 } });
    t.match(
      error.message,
      new RegExp(
        `^The bulk queue's PostgreSQL at ${host}:${port} cannot be used \\(${code}\\)\\. Start it, or correct`,
      ),
    );
    t.notMatch(JSON.stringify(error.toObject()), /hunter2/);
  }
  const wrong = (database_url: string) =>
    loadConfig({ directory: os.tmpdir(), environment: { DATABASE_URL: database_url } });
  for (const url of ["mysql://u:hunter2@db/x", "db:5432", "postgres://u:hunter2@db:port/x"])
    t.throws(() => wrong(url), { message: /^DATABASE_URL: Expected postgres:\/\/(?!.*hunter2)/ });
  t.equal(wrong("postgresql:///x?host=/run/postgresql").database_url?.length, 36);
});

t.test("doctor", { skip: needs(ADDON) }, async (t) => {
  const place = makePlace({ DATABASE_URL: "postgres://u:hunter2@127.0.0.1:1/x" });
  t.teardown(() => place.remove());
  const finding = async () => {
    const { stdout } = await radserve(place, "doctor", "--json");
    t.notMatch(stdout, /hunter2/);
    return (JSON.parse(stdout) as { name: string }[]).find(({ name }) => name === "bulk database");
  };
  t.match(await finding(), {
    ok: false,
    found: /PostgreSQL at 127.0.0.1:1 cannot be used \(ECONNREFUSED\)/,
    fix: /Start it, or correct DATABASE_URL/,
  });
  delete place.environment["DATABASE_URL"];
  t.match(await finding(), {
    ok: true,
    found: /^private PostgreSQL \d+\.\d+ from .* \(not made yet\)$/,
  });
  place.environment["RADSERVE_POSTGRES_BIN"] = "/nowhere";
  t.match(await finding(), {
    ok: false,
    found: /\/nowhere \(ENOENT\)/,
    fix: /RADSERVE_POSTGRES_BIN/,
  });
});
