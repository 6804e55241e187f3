/**
 * The database of the bulk queue: the one that DATABASE_URL names, or the node's own. Both look the
 * same from here on. Whatever goes wrong with a connection is `bulk_unavailable` with what to
 * do; nothing else is changed by it.
 *
 * Waiting for an answer is limited everywhere, because a network that swallows packets never tells.
 */
import pg from "pg";
import type { Config } from "../config.js";
import { durations } from "../base/durations.js";
import { errno } from "../base/errno.js";
import { RadserveError } from "../base/errors.js";
import { faultForLog, type Logger } from "../base/log.js";
import { within } from "../base/waiting.js";
import { keepable } from "../base/validation.js";
import { noDatabase, type LocalDatabase, type LocalDatabases } from "./local-database.js";
import { BulkUnavailable } from "./database-trouble.js";

/** The oldest PostgreSQL that the queue's SQL runs on. */
export const OLDEST_POSTGRES = 13;

/** How to connect; pg and pg-boss take it as it is. It may hold a password: it is never logged. */
export type DatabaseConnection = pg.ClientConfig;

/** A pool, or a client, perhaps one of a pool that has a transaction. */
export type Queryable = pg.Pool | pg.ClientBase;

export interface Database {
  readonly connection: DatabaseConnection;
  /**
   * Its clients may fail at any time without harm to the process; wrap their errors with
   * `asUnavailable`.
   */
  readonly pool: pg.Pool;
  /** The same for endpoints, whose clients wait: each statement answers within seconds or fails. */
  readonly readPool: pg.Pool;
  /** For example 15.18. */
  readonly version: string;
  /** Why the node's own database is down now, if it is. */
  problem(): BulkUnavailable | undefined;
  /** Ends the pool, and the node's own database. */
  close(): Promise<void>;
}

/**
 * No endpoint may wait longer than five seconds for a database that does not answer: connecting,
 * the session's settings and the statement add up to less.
 */
const LONGEST_CONNECT_MS = 2_000;
const LONGEST_SETTINGS_MS = 1_000;
const LONGEST_READ_MS = 1_900;
const LONGEST_LOCK_MS = 1_900;
/** The server ends a statement of an endpoint before that, and says why. */
const LONGEST_READ_STATEMENT_MS = 1_800;
/**
 * One that waits for a lock, so much before that whoever asks is told of the lock also where the
 * answer takes a while to come.
 */
const LONGEST_READ_LOCK_MS = 1_400;
/** The longest statement, ten thousand items in one insert, takes a quarter of a second. */
const LONGEST_QUERY_MS = 60_000;
/** The pool's end waits for clients that are in use. */
const LONGEST_CLOSE_MS = 5_000;
const MOST_CLIENTS = 7;
const MOST_READING = 3;

/** Host and port, or the folder of a socket; never a user or a password. */
function nameOf(connection: DatabaseConnection): string {
  const { host, port } = new pg.Client(connection);
  return host.startsWith("/") ? `the socket in ${host}` : `${host}:${port}`;
}

/** Messages of pg, without a code, about a connection that was lost or did not come about. */
const LOST =
  /^(Connection terminated|SASL: |timeout e|Query read timeout|Client (has encountered|was closed)|The server does not support SSL|There was an error establishing an SSL|Cannot use a pool after)/;
const NETWORK =
  /^(ECONN(REFUSED|RESET|ABORTED)|EPIPE|E?TIMEDOUT|E(HOST|NET)(UNREACH|DOWN)|ENOTFOUND|EAI_AGAIN|ERR_(TLS|SSL)\w*|\w*CERT\w*|\w*SIGNATURE\w*)$/;

const UNAVAILABLE = "database_unavailable";

const OWNER = "Make the user of DATABASE_URL the owner of its database and of Radserve's tables.";

/**
 * SQLSTATEs (PostgreSQL's appendix A) that are not the fault of the statement, each with what to
 * do.
 */
const STATES: [states: RegExp, reason: string, fix: string][] = [
  [/^(08|57P0)/, UNAVAILABLE, "Try again in a few seconds."],
  [
    /^28/,
    UNAVAILABLE,
    "Correct the user and password of DATABASE_URL, or the server's pg_hba.conf.",
  ],
  [/^3D000/, UNAVAILABLE, "Create the database that DATABASE_URL names."],
  [/^42501/, UNAVAILABLE, OWNER],
  [/^53100/, "database_full", "Make room on its disk."],
  [/^53200/, "database_memory", "It has too little memory: give it more, or stop other clients."],
  [/^53300/, "database_connections", "Raise its max_connections, or stop other clients."],
  [/^(53|58)/, UNAVAILABLE, "See its log."],
  [
    /^25006/,
    "database_read_only",
    "It takes no writes. DATABASE_URL has to name a server that does, not a standby.",
  ],
  [
    /^(55P03|57014)/,
    "database_locked",
    "Another session holds a lock, or it is overloaded: see pg_stat_activity and pg_locks.",
  ],
  [/^(42P01|3F000)/, "database_lost", "Radserve's tables are gone from it; they are made again."],
];

/**
 * Why jobs wait, and the remedy, for a fault of the connection or the server; undefined for any
 * other error.
 */
function remedyOf(
  error: Error,
  connection: DatabaseConnection,
): { reason: string; fix: string } | undefined {
  const code = errno(error);
  if (error instanceof pg.DatabaseError) {
    const [, reason, fix] = STATES.find(([states]) => states.test(code)) ?? [];
    return reason === undefined || fix === undefined ? undefined : { reason, fix };
  }
  const connecting = "syscall" in error && error.syscall === "connect";
  if (!(code === "" ? LOST.test(error.message) : connecting || NETWORK.test(code)))
    return undefined;
  const fix =
    connection.connectionString === undefined
      ? "It is started again by itself: try again in a few seconds; radserve doctor looks at it."
      : "Start it, or correct DATABASE_URL; radserve doctor looks at it.";
  return { reason: UNAVAILABLE, fix };
}

/** Whether a statement failed because Radserve's tables are not there. */
export function isTableLoss(thrown: unknown): boolean {
  const error = thrown instanceof BulkUnavailable ? thrown.cause : thrown;
  return error instanceof pg.DatabaseError && /^(42P01|3F000)$/.test(errno(error));
}

/**
 * Whether the work of a transaction, or the server, refused. Then nothing of it was kept, which is
 * unknown if a connection broke.
 */
export function wasRefused(thrown: unknown): boolean {
  if (thrown instanceof RadserveError && !(thrown instanceof BulkUnavailable)) return true;
  const error = thrown instanceof BulkUnavailable ? thrown.cause : thrown;
  return error instanceof pg.DatabaseError && !/^(08|57P)/.test(errno(error));
}

/**
 * A fault of the connection or of the server as BulkUnavailable; any other error, such as a
 * statement's own, as it is.
 * @param connection the pool's options, or a client's configuration
 */
export function asUnavailable(thrown: unknown, connection: DatabaseConnection): unknown {
  const remedy = thrown instanceof Error ? remedyOf(thrown, connection) : undefined;
  if (!(thrown instanceof Error) || remedy === undefined) return thrown;
  return new BulkUnavailable(
    `The bulk queue's PostgreSQL at ${nameOf(connection)} cannot be used (${errno(thrown) || thrown.message}).`,
    remedy.fix,
    { cause: thrown, reason: remedy.reason },
  );
}

/**
 * Runs work in one transaction on a client of its own: committed when it resolves, rolled back when
 * it throws. Throws BulkUnavailable if the connection fails; if that was during COMMIT, it may have
 * been committed, so what work does must bear repetition.
 */
export async function transaction<T>(
  pool: pg.Pool,
  work: (client: pg.PoolClient) => Promise<T>,
): Promise<T> {
  try {
    const client = await pool.connect();
    let broken = true;
    try {
      // The first statement has a short limit, because a network may swallow everything; pg's types
      // do not know the limit
      await client.query({ text: "BEGIN", query_timeout: LONGEST_READ_MS } as pg.QueryConfig);
      const result = await work(client);
      await client.query("COMMIT");
      broken = false;
      return result;
    } catch (error) {
      // A client whose connection is lost, or hangs, is thrown away, and the server rolls back.
      if (asUnavailable(error, pool.options) === error)
        broken = await client.query("ROLLBACK").then(
          () => false,
          () => true,
        );
      throw error;
    } finally {
      client.release(broken);
    }
  } catch (error) {
    throw asUnavailable(error, pool.options);
  }
}

/**
 * A time that is further ahead than anything waits (durations.jobPauseMost is the longest) was set
 * before somebody put the database's clock back. In milliseconds.
 */
const farAhead = () => 5 * durations.jobPauseMost;

/** The condition that a time is so far ahead. */
const isFarAhead = (column: string): string =>
  `${column} > now() + interval '${farAhead()} milliseconds'`;

/** Whether a time is so far ahead of what the database's clock shows. */
export const isFarAfter = (time: Date | null, now: Date): boolean =>
  time !== null && time.getTime() > now.getTime() + farAhead();

/**
 * The condition that a time to wait for is over; nobody waits until one that is far ahead comes
 * round.
 */
export const hasPassed = (column: string): string =>
  `(${column} is null or ${column} <= now() or ${isFarAhead(column)})`;

/**
 * A value for a jsonb parameter. What errors tell of a file may hold characters that PostgreSQL's
 * text has not.
 */
export function jsonb(value: unknown): string {
  return JSON.stringify(value, (_, part: unknown) =>
    typeof part === "string" ? keepable(part) : part,
  );
}

/**
 * What the statements, and pg's reading of their answers, rest on: a role, a database or a server
 * may be set otherwise (ALTER ROLE ... SET). Times are those of this process alone, which ends what
 * takes too long; what is committed must not be lost with the power.
 */
const SETTINGS: Readonly<Record<string, string>> = {
  search_path: "public",
  DateStyle: "ISO, MDY",
  IntervalStyle: "postgres",
  TimeZone: "UTC",
  client_encoding: "UTF8",
  standard_conforming_strings: "on",
  extra_float_digits: "1",
  default_transaction_isolation: "read committed",
  statement_timeout: "0",
  transaction_timeout: "0",
  idle_session_timeout: "0",
  lock_timeout: String(LONGEST_LOCK_MS),
  idle_in_transaction_session_timeout: String(LONGEST_QUERY_MS),
  synchronous_commit: "on",
};

/** Those that this version of PostgreSQL has; a stricter synchronous_commit than "on" stays. */
const SET = `select pg_catalog.set_config(s.name, wanted.value, false)
  from pg_catalog.jsonb_each_text($1) as wanted (name, value) join pg_catalog.pg_settings s on s.name = wanted.name
  where s.name <> 'synchronous_commit' or s.setting = 'off'`;

/** Gives a session our settings, before anything else is asked of it. */
async function prepare(client: pg.ClientBase, others: Record<string, string> = {}): Promise<void> {
  await client.query({
    text: SET,
    values: [JSON.stringify({ ...SETTINGS, ...others })],
    query_timeout: LONGEST_SETTINGS_MS,
  } as pg.QueryConfig);
}

function makePool(
  connection: DatabaseConnection,
  log: Logger,
  limits: pg.PoolConfig,
  settings: Record<string, string> = {},
): pg.Pool {
  const pool = new pg.Pool({
    ...connection,
    connectionTimeoutMillis: LONGEST_CONNECT_MS,
    idleTimeoutMillis: 30_000,
    verify: (client, done) =>
      void prepare(client, settings).then(
        () => done(),
        (error: unknown) => done(error as Error),
      ),
    ...limits,
  });
  const lost = (error: Error) =>
    log.debug({ fault: faultForLog(error) }, "a connection to the bulk database was lost");
  pool.on("error", lost);
  // The pool listens to idle clients only; an error of one in use would end the process.
  pool.on("connect", (client) => client.on("error", lost));
  return pool;
}

type Look = (client: pg.ClientBase) => Promise<void>;

interface Server {
  number: number;
  version: string;
  encoding: string;
  standby: boolean;
  database: string;
  user: string;
  /** Every start makes its schema, and PostgreSQL wants this right even where it is there. */
  may_create: boolean;
}

const ABOUT_SERVER = `SELECT current_setting('server_version_num')::int AS number,
  split_part(current_setting('server_version'), ' ', 1) AS version,
  current_setting('server_encoding') AS encoding, pg_is_in_recovery() AS standby,
  current_database() AS database, current_user AS user, has_database_privilege(current_database(), 'CREATE') AS may_create`;

/** Throws BulkUnavailable if the queue cannot work there. Names of files need UTF-8. */
function checkedVersion(server: Server | undefined, name: string): string {
  const { number = 0, version = "unknown", encoding = "unknown", standby = false } = server ?? {};
  const { database = "", user = "", may_create: mayCreate = true } = server ?? {};
  const refuse = (found: string, fix: string) => new BulkUnavailable(`Expected ${found}.`, fix);
  if (number < OLDEST_POSTGRES * 10_000)
    throw refuse(
      `PostgreSQL ${OLDEST_POSTGRES} or newer at ${name}; found ${version}`,
      "Upgrade it, or name another one in DATABASE_URL.",
    );
  if (encoding !== "UTF8")
    throw refuse(
      `a database of encoding UTF8 at ${name}; found ${encoding}`,
      "Create one (ENCODING 'UTF8' TEMPLATE template0), and name it in DATABASE_URL.",
    );
  if (standby)
    throw refuse(
      `a PostgreSQL that takes writes at ${name}; found a standby`,
      "Name the primary in DATABASE_URL.",
    );
  if (!mayCreate)
    throw refuse(
      `a user who may make tables in the database ${database} at ${name}; found ${user}, who may not`,
      OWNER,
    );
  return version;
}

/** The server's version, which also proves that it answers. Throws BulkUnavailable. */
async function versionOf(connection: DatabaseConnection, look?: Look): Promise<string> {
  const client = new pg.Client({
    ...connection,
    connectionTimeoutMillis: LONGEST_CONNECT_MS,
    query_timeout: LONGEST_READ_MS,
  });
  client.on("error", () => undefined);
  try {
    await client.connect();
    await prepare(client);
    const { rows } = await client.query<Server>(ABOUT_SERVER);
    const version = checkedVersion(rows[0], nameOf(connection));
    await look?.(client);
    return version;
  } catch (error) {
    throw asUnavailable(error, connection);
  } finally {
    await client.end().catch(() => undefined);
  }
}

/**
 * Throws BulkUnavailable where a certificate or key that the address names cannot be read, which pg
 * does at once.
 */
function urlConnection(url: string): DatabaseConnection {
  const connection = {
    connectionString: url,
    keepAlive: true,
    keepAliveInitialDelayMillis: 10_000,
    application_name: "radserve",
  };
  try {
    nameOf(connection);
  } catch (error) {
    throw new BulkUnavailable(
      `A file that DATABASE_URL names cannot be read (${errno(error) || "unknown"}).`,
      "Correct its sslrootcert, sslcert or sslkey, or let the server's user read the file.",
      { cause: error },
    );
  }
  return connection;
}

/**
 * Opens the database that DATABASE_URL names, or the node's own, and proves that it answers.
 * @throws BulkUnavailable; a later call may succeed
 */
export async function openDatabase(
  config: Config,
  log: Logger,
  local: LocalDatabases | undefined,
): Promise<Database> {
  const { database_url: url } = config;
  if (url !== undefined) return openSharedDatabase(url, log);
  if (local === undefined) throw noDatabase();
  const own = await local.start(config, log);
  return opened({ ...own.connection, application_name: "radserve" }, log, own);
}

/** Opens the database of a URL. @throws BulkUnavailable; a later call may succeed */
export async function openSharedDatabase(url: string, log: Logger): Promise<Database> {
  return opened(urlConnection(url), log);
}

async function opened(
  connection: DatabaseConnection,
  log: Logger,
  own?: LocalDatabase,
): Promise<Database> {
  let version: string;
  try {
    version = await versionOf(connection);
  } catch (error) {
    await own?.stop();
    throw error;
  }
  const pool = makePool(connection, log, { max: MOST_CLIENTS, query_timeout: LONGEST_QUERY_MS });
  const readPool = makePool(
    connection,
    log,
    { max: MOST_READING, query_timeout: LONGEST_READ_MS },
    {
      statement_timeout: String(LONGEST_READ_STATEMENT_MS),
      lock_timeout: String(LONGEST_READ_LOCK_MS),
    },
  );
  let closed: Promise<void> | undefined;
  return {
    connection,
    pool,
    readPool,
    version,
    problem: () => own?.problem,
    close() {
      closed ??= within(Promise.all([pool.end(), readPool.end()]), LONGEST_CLOSE_MS).then(() =>
        own?.stop(),
      );
      return closed;
    },
  };
}

/**
 * Says for `radserve doctor` which database would be used; nothing is started or made. Throws
 * BulkUnavailable.
 * @param look at the tables of a shared one, with a client of it
 */
export async function inspectDatabase(
  config: Config,
  look: Look,
  local: LocalDatabases | undefined,
): Promise<string> {
  if (config.database_url === undefined) {
    if (local === undefined) throw noDatabase();
    return local.inspect(config);
  }
  const connection = urlConnection(config.database_url);
  return `PostgreSQL ${await versionOf(connection, look)} at ${nameOf(connection)}`;
}
