/**
 * Private databases that nobody looks after: a PostgreSQL that outlived its server, and data that
 * no server will open again. They are found and named only; nothing is ended or removed.
 */
import { existsSync, lstatSync, readdirSync, readFileSync, statSync, type Dirent } from "node:fs";
import path from "node:path";
import type { Config } from "../../config.js";
import { isSameFile } from "../../files/same-file.js";
import { holderHere } from "../../files/state-lock.js";
import { databaseFolders, ROOTS_PLACE, stateOf, type DatabaseFolders } from "./folders.js";
import { isPostmaster, postmasterOf } from "./process.js";

export interface Orphan {
  /** A whole sentence. */
  found: string;
  fix: string;
}

type OrphanSettings = Pick<Config, "state_dir" | "database_url">;

interface RunningPostgres {
  pid: number;
  data: string;
}

/**
 * Whether a process sees the same files as this one. In a container its paths would name others
 * here.
 */
function hasOurRoot(pid: number): boolean {
  try {
    const exact = { bigint: true } as const;
    return isSameFile(statSync(`/proc/${pid}/root`, exact), statSync("/", exact));
  } catch {
    return false;
  }
}

/** The data folder of a process that was started as process.ts starts a postmaster. */
function dataOf(pid: number): string | undefined {
  try {
    const words = readFileSync(`/proc/${pid}/cmdline`, "utf8").split("\0");
    const data = words[words.indexOf("-D") + 1] ?? "";
    const own = words.includes(`config_file=${path.join(path.dirname(data), "postgresql.conf")}`);
    return own && isPostmaster(pid, data) ? data : undefined;
  } catch {
    return undefined;
  }
}

/** Postmasters of private databases on this machine that this user may look at. */
function running(): RunningPostgres[] {
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .map(Number)
    .flatMap((pid) => {
      const data = dataOf(pid);
      return data !== undefined && hasOurRoot(pid) ? [{ pid, data }] : [];
    });
}

/** How many bytes of the disk lie below a folder, in words. */
function sizeOf(folder: string): string {
  let entries: Dirent[];
  try {
    entries = readdirSync(folder, { recursive: true, withFileTypes: true });
  } catch {
    return "of unknown size";
  }
  const bytes = entries
    .map(({ parentPath, name }) =>
      lstatSync(path.join(parentPath, name), { throwIfNoEntry: false }),
    )
    .reduce((sum, found) => sum + (found?.blocks ?? 0) * 512, 0);
  return `${Math.ceil(bytes / 2 ** 20)} MiB`;
}

/** Ends it as endPostmaster does: SIGINT closes its sessions and writes a checkpoint. */
const endIt = (pid: number) => `end it with: kill -INT ${pid}`;

function withoutServer({ pid, data }: RunningPostgres, state: string | undefined): Orphan[] {
  if (state !== undefined && holderHere(state) !== undefined) return [];
  if (state === undefined || !existsSync(state))
    return [
      {
        found: `PostgreSQL runs on ${data} (process ${pid}), and its state directory ${state ?? ""} is gone.`,
        fix: `If no server needs it, ${endIt(pid)}`,
      },
    ];
  return [
    {
      found: `PostgreSQL runs on ${data} (process ${pid}), and no server does: it outlived that of ${state}.`,
      fix: `Start a server with that state directory: it takes the database over, and stops it when it ends. Or ${endIt(pid)}`,
    },
  ];
}

/** Folders of root's databases whose state directory was removed or moved. */
function withoutState(own: string): Orphan[] {
  let names: string[];
  try {
    names = readdirSync(ROOTS_PLACE);
  } catch {
    return [];
  }
  return names.flatMap((name) => {
    const base = path.join(ROOTS_PLACE, name);
    const state = stateOf(base);
    const unused = state !== undefined && base !== own && !existsSync(state);
    if (!unused || postmasterOf(path.join(base, "data")) !== undefined) return [];
    return [
      {
        found: `${base} (${sizeOf(base)}) is the database of ${state}, which is not there.`,
        fix: `If that state directory was moved, put it back. If it is gone for good: rm -r ${base}`,
      },
    ];
  });
}

/** Data of a private database that DATABASE_URL has replaced. */
function replaced({ base, data }: DatabaseFolders, { database_url }: OrphanSettings): Orphan[] {
  if (database_url === undefined || !existsSync(path.join(data, "PG_VERSION"))) return [];
  const pid = postmasterOf(data);
  if (pid !== undefined) return [];
  return [
    {
      found: `${base} (${sizeOf(base)}) holds a private database, and DATABASE_URL names another: its jobs are not seen.`,
      fix: `To end those jobs, start once without DATABASE_URL. If none is wanted any more: rm -r ${base}`,
    },
  ];
}

/**
 * Finds databases that nobody looks after, as far as this user may see them: of this state
 * directory, of other servers of this user, and as root of all on this machine.
 */
export function orphans(settings: OrphanSettings): Orphan[] {
  const folders = databaseFolders(settings.state_dir);
  return [
    ...running().flatMap((one) => withoutServer(one, stateOf(path.dirname(one.data)))),
    ...replaced(folders, settings),
    ...(process.geteuid?.() === 0 ? withoutState(folders.base) : []),
  ];
}
