/**
 * Where the private database of a state directory lies, and whose it is.
 *
 * As an ordinary user all of it is in STATE/postgres (0700). PostgreSQL refuses to run as root, and
 * its account cannot reach into root's private state directory; as root it therefore lies in
 * /var/lib/radserve-postgres/<hash of the state directory> (beside /var/lib/radserve, which may
 * well be a state directory and has to stay closed), run by the distribution's `postgres`, else by
 * `nobody`. That folder is root's own, with the configuration files in it, so that the account can
 * neither change them nor lead root astray with links; inside, `data` and `run` (the socket) belong
 * to the account, 0700.
 *
 * Who may connect: the socket is the only way in, and PostgreSQL asks the kernel who is at its
 * other end (`peer`). The user name map lets exactly one in, the operating-system user that runs
 * Radserve, as the role `radserve`, which owns its database and nothing else. So there is no
 * password to keep, leak or lose; and not even the account that runs PostgreSQL can connect.
 */
import { createHash } from "node:crypto";
import {
  accessSync,
  constants,
  existsSync,
  lstatSync,
  readFileSync,
  realpathSync,
  statSync,
} from "node:fs";
import { chmod, chown, mkdir, writeFile } from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import { errno, tried } from "../../base/errno.js";
import { BulkUnavailable } from "../../jobs/database-trouble.js";
import type { Account } from "./binaries.js";

/** Where root's databases lie. */
export const ROOTS_PLACE = "/var/lib/radserve-postgres";
/** Names the socket file; nothing listens on TCP. */
const PORT = 5432;
/** sockaddr_un.sun_path has 108 bytes with its end (unix(7)). */
const LONGEST_SOCKET_PATH = 107;

export const ROLE = "radserve";

export interface DatabaseFolders {
  /** The configuration files, and the folders below. */
  base: string;
  data: string;
  /** The folder of the socket. */
  run: string;
  /** This user's own: the log and the lock. */
  own: string;
  /** The account that PostgreSQL runs as, if not this user. */
  account?: Account;
}

/** How the queue connects. `ssl: false` keeps PGSSLMODE of our environment out. */
export function connectionOf(folders: DatabaseFolders) {
  return { host: folders.run, port: PORT, user: ROLE, database: ROLE, ssl: false };
}

export const socketOf = (folders: DatabaseFolders): string => socketIn(folders.run);

const socketIn = (folder: string) => path.join(folder, `.s.PGSQL.${PORT}`);

const hashOf = (text: string) => createHash("sha256").update(text).digest("hex").slice(0, 16);

/** The first folder whose socket's path is short enough. */
function socketFolder(state: string, base: string): string {
  const name = `radserve-${process.geteuid?.()}-${hashOf(state)}`;
  const places = [path.join(base, "run"), path.join(os.tmpdir(), name)];
  const short = places.find((folder) => Buffer.byteLength(socketIn(folder)) <= LONGEST_SOCKET_PATH);
  return short ?? path.join("/tmp", name);
}

const statOf = (file: string) => tried(() => statSync(file));

/** An existing data directory stays with its owner, whatever accounts were added since. */
function accountFor(data: string): Account {
  const there = statOf(data);
  if (there !== undefined && there.uid !== 0) return { uid: there.uid, gid: there.gid };
  const rows = readFileSync("/etc/passwd", "utf8")
    .split("\n")
    .map((line) => line.split(":"));
  for (const name of ["postgres", "nobody"]) {
    const [, , uid, gid] = rows.find((row) => row[0] === name) ?? [];
    if (Number(uid) > 0 && Number(gid) > 0) return { uid: Number(uid), gid: Number(gid) };
  }
  throw new BulkUnavailable(
    "PostgreSQL does not run as root, and this machine has neither a user postgres nor nobody.",
    "Create one (useradd --system postgres), run Radserve as an ordinary user, or set DATABASE_URL.",
  );
}

const OWNER_FILE = "state_directory";

/**
 * The state directory that a folder of a database belongs to; undefined if this user cannot read
 * it, or there is none.
 */
export function stateOf(base: string): string | undefined {
  if (path.dirname(base) !== ROOTS_PLACE) return path.dirname(base);
  return tried(() => readFileSync(path.join(base, OWNER_FILE), "utf8").trim()) || undefined;
}

/**
 * The path with its links resolved, also if its end does not exist yet: it must name the same
 * folder once it does.
 */
function withoutLinks(folder: string): string {
  try {
    return realpathSync(folder);
  } catch {
    const parent = path.dirname(folder);
    return parent === folder ? folder : path.join(withoutLinks(parent), path.basename(folder));
  }
}

/** The folders of a state directory; nothing is made. Throws BulkUnavailable. */
export function databaseFolders(stateDirectory: string): DatabaseFolders {
  const state = withoutLinks(path.resolve(stateDirectory));
  const own = path.join(state, "postgres");
  if (process.geteuid?.() !== 0)
    return { base: own, data: path.join(own, "data"), run: socketFolder(state, own), own };
  const users = statOf(path.join(own, "data"));
  if (users !== undefined)
    throw new BulkUnavailable(
      `The bulk queue of this state directory belongs to the user with the number ${users.uid}; this is root.`,
      "Run Radserve as that user.",
    );
  const base = path.join(ROOTS_PLACE, hashOf(state));
  const data = path.join(base, "data");
  return { base, data, run: path.join(base, "run"), own, account: accountFor(data) };
}

/** The name that the kernel's user number has; PostgreSQL itself refuses users without one. */
function userName(): string {
  try {
    return os.userInfo().username;
  } catch (error) {
    throw new BulkUnavailable(
      `PostgreSQL needs a user with a name; number ${process.geteuid?.()} has none on this machine.`,
      "Add the user to /etc/passwd, run as another user, or set DATABASE_URL.",
      { cause: error },
    );
  }
}

/**
 * A folder that is the account's alone. In /tmp somebody else may have made one of its name: that
 * is refused.
 */
async function privateFolder(folder: string, account: Account | undefined): Promise<void> {
  await mkdir(folder, { recursive: true, mode: 0o700 });
  if (account !== undefined) await chown(folder, account.uid, account.gid);
  const found = lstatSync(folder);
  const owner = account?.uid ?? process.geteuid?.();
  if (!found.isDirectory() || found.uid !== owner)
    throw new BulkUnavailable(
      `Expected ${folder} to be a private folder of this user; found another's.`,
      "Remove it.",
    );
  await chmod(folder, 0o700);
}

/** Makes what is missing of the folders. Throws BulkUnavailable if it cannot. */
export async function makeFolders(folders: DatabaseFolders): Promise<void> {
  try {
    await mkdir(folders.own, { recursive: true, mode: 0o700 });
    if (folders.account !== undefined) {
      await mkdir(folders.base, { recursive: true, mode: 0o755 });
      await chmod(ROOTS_PLACE, 0o755);
      await chmod(folders.base, 0o755);
      await writeFile(path.join(folders.base, OWNER_FILE), `${path.dirname(folders.own)}\n`, {
        mode: 0o600,
      });
    }
    await privateFolder(folders.run, folders.account);
  } catch (error) {
    throw error instanceof BulkUnavailable ? error : notWritable(folders.base, error);
  }
}

function notWritable(folder: string, error: unknown): BulkUnavailable {
  return new BulkUnavailable(
    `The bulk queue's database cannot be made in ${folder} (${errno(error) || "unknown"}).`,
    "Let this user write there, or set DATABASE_URL.",
    { cause: error },
  );
}

/**
 * Whether makeFolders could work, as far as that can be told without doing it. Throws
 * BulkUnavailable.
 */
export function checkWritable(folders: DatabaseFolders): void {
  for (const folder of [folders.base, folders.own]) {
    let nearest = folder;
    while (!existsSync(nearest)) nearest = path.dirname(nearest);
    try {
      accessSync(nearest, constants.W_OK | constants.X_OK);
    } catch (error) {
      throw notWritable(folder, error);
    }
  }
}

const quoted = (text: string) => `'${text.replaceAll("'", "''")}'`;

/**
 * Modest memory, since the node is there for inference; nothing of what makes a commit durable is
 * touched. The log says what becomes of the server, and never errors of statements: those quote
 * values, and values hold patients' names.
 */
function settings(folders: DatabaseFolders, major: number): Record<string, string | number> {
  return {
    listen_addresses: "''",
    port: PORT,
    // A folder in a list of folders is quoted once more (SplitDirectoriesString)
    unix_socket_directories: quoted(`"${folders.run.replaceAll('"', '""')}"`),
    unix_socket_permissions: "0700",
    hba_file: quoted(path.join(folders.base, "pg_hba.conf")),
    ident_file: quoted(path.join(folders.base, "pg_ident.conf")),
    max_connections: 60,
    fsync: "on",
    synchronous_commit: "on",
    full_page_writes: "on",
    shared_buffers: "32MB",
    work_mem: "4MB",
    maintenance_work_mem: "32MB",
    // Outside its directory nothing of it lies about: systemd removes a user's /dev/shm when he
    // logs out (RemoveIPC).
    dynamic_shared_memory_type: "mmap",
    huge_pages: "off",
    jit: "off",
    max_parallel_workers: 0,
    max_parallel_workers_per_gather: 0,
    max_parallel_maintenance_workers: 0,
    max_logical_replication_workers: 0,
    wal_level: "minimal",
    max_wal_senders: 0,
    min_wal_size: "32MB",
    max_wal_size: "256MB",
    timezone: "'UTC'",
    log_timezone: "'UTC'",
    lc_messages: "'C'",
    log_destination: "'stderr'",
    logging_collector: "off",
    log_min_messages: "log",
    log_min_error_statement: "panic",
    log_error_verbosity: "terse",
    log_statement: "'none'",
    log_checkpoints: "off",
    log_line_prefix: "'%m [%p] '",
    ...(major >= 18 ? { io_method: "'sync'" } : {}),
  };
}

/** Writes the configuration of a server that does not run. */
export async function writeSettings(folders: DatabaseFolders, major: number): Promise<void> {
  const lines = Object.entries(settings(folders, major)).map(
    ([name, value]) => `${name} = ${value}`,
  );
  const user = `"${userName().replaceAll('"', '""')}"`;
  const files = {
    "postgresql.conf": lines,
    "pg_hba.conf": [`local ${ROLE} ${ROLE} peer map=${ROLE}`],
    "pg_ident.conf": [`${ROLE} ${user} ${ROLE}`],
  };
  for (const [name, text] of Object.entries(files)) {
    const file = path.join(folders.base, name);
    await writeFile(file, `${text.join("\n")}\n`);
    await chmod(file, 0o644);
  }
}
