/** The data directory: made once, complete or not at all. */
import { execFile, type ExecFileException } from "node:child_process";
import { chown, mkdtemp, readdir, readFile, rename, rm } from "node:fs/promises";
import path from "node:path";
import { promisify } from "node:util";
import { errno } from "../../base/errno.js";
import { syncFolder } from "../../files/durable-files.js";
import { BulkUnavailable } from "../../jobs/database-trouble.js";
import { BARE_ENVIRONMENT, type Account, type Binaries } from "./binaries.js";
import { ROLE, type DatabaseFolders } from "./folders.js";

/**
 * The folder in which a data directory is made. What is left of such a folder belongs to a process
 * that died.
 */
const UNFINISHED = "initdb-";

/** Run by a server without connections: nobody can ever connect as the superuser (folders.ts). */
const FIRST_STATEMENTS = `CREATE ROLE ${ROLE} LOGIN;\nCREATE DATABASE ${ROLE} OWNER ${ROLE};\n`;

const run = promisify(execFile);

/** Runs a program to its end. Throws BulkUnavailable with the end of what it said. */
async function finished(
  program: string,
  args: string[],
  input: string,
  account?: Account,
): Promise<void> {
  const running = run(program, args, { cwd: "/", env: BARE_ENVIRONMENT, ...account });
  running.child.stdin?.on("error", () => undefined).end(input);
  try {
    await running;
  } catch (error) {
    const { stdout = "", stderr = "", code, signal } = error as ExecFileException;
    const lines = `${stdout}\n${stderr}`
      .split("\n")
      .filter((line) => /error|fatal|hint/i.test(line));
    throw new BulkUnavailable(
      `The bulk queue's database could not be made: ${path.basename(program)} ended with ${signal ?? code}. ${lines.slice(0, 4).join(" ")}`.trim(),
      "Correct that, or set DATABASE_URL.",
    );
  }
}

/** The major version of the data directory; undefined if there is none, or an empty folder. */
export async function dataVersion(data: string): Promise<number | undefined> {
  const entries = await readdir(data).catch((error: unknown) => {
    if (errno(error) === "ENOENT") return [];
    throw new BulkUnavailable(
      `The bulk queue's data directory ${data} cannot be read (${errno(error) || "unknown"}).`,
      "Run Radserve as the user that made it.",
    );
  });
  if (entries.length === 0) return undefined;
  const text = await readFile(path.join(data, "PG_VERSION"), "utf8").catch(() => "");
  const major = Number.parseInt(text, 10);
  if (major > 0) return major;
  throw new BulkUnavailable(
    `${data} is not a data directory of PostgreSQL, and is not empty.`,
    "Move it aside; it is not changed or removed here.",
  );
}

/**
 * Makes the data directory beside its place and renames it when it is complete, so that a crash in
 * the middle leaves none. The caller holds the lock. UTF-8 and the C locale: order by bytes, the
 * same on every machine.
 */
export async function createData(folders: DatabaseFolders, { folder }: Binaries): Promise<void> {
  const { base, data, account } = folders;
  for (const name of await readdir(base))
    if (name.startsWith(UNFINISHED))
      await rm(path.join(base, name), { recursive: true, force: true, maxRetries: 5 });
  const unfinished = await mkdtemp(path.join(base, UNFINISHED));
  try {
    if (account !== undefined) await chown(unfinished, account.uid, account.gid);
    const initdb = [
      "-D",
      unfinished,
      "-U",
      "postgres",
      "-E",
      "UTF8",
      "--locale=C",
      "-A",
      "reject",
      "-k",
    ];
    await finished(path.join(folder, "initdb"), initdb, "", account);
    const single = ["--single", "-D", unfinished, "-c", "exit_on_error=on", "postgres"];
    await finished(path.join(folder, "postgres"), single, FIRST_STATEMENTS, account);
    await rename(unfinished, data);
    await syncFolder(base);
  } catch (error) {
    await rm(unfinished, { recursive: true, force: true, maxRetries: 5 }).catch(() => undefined);
    throw error;
  }
}
