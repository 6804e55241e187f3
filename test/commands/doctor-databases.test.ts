/**
 * What doctor says of a PostgreSQL that asks for a password, and of databases that servers have
 * left behind.
 */
import { rmSync } from "node:fs";
import path from "node:path";
import t, { type Test } from "tap";
import {
  databaseFolders,
  type DatabaseFolders,
} from "../../src/features/local-postgres/folders.js";
import { SharedPostgres } from "../crash/lib/postgres.js";
import { Doctor, type Planted } from "../support/doctor-faults.js";
import { databaseUrl, isRoot } from "../support/postgres.js";
import { postgresChild, removePlace } from "../support/private-postgres.js";
import type { Place } from "../support/server.js";

/**
 * A private database of the place, made by a process that is no server: with "killed" it outlives
 * that process, and with "ended" it was stopped and its data are left.
 */
async function privateDatabase(
  place: Place,
  t: Test,
  how: "killed" | "ended",
): Promise<DatabaseFolders> {
  const state_dir = place.environment["RADSERVE_STATE_DIR"]!;
  const folders = databaseFolders(state_dir);
  t.teardown(() => removePlace(folders));
  const owner = postgresChild(t, { state_dir });
  const { error } = await owner.answer;
  if (error !== undefined) throw new Error(error);
  await (how === "killed" ? owner.kill() : owner.finish());
  return folders;
}

let postgres: Promise<SharedPostgres> | undefined;
t.teardown(async () => (await postgres)?.stop());
/** The address, with its password, of a PostgreSQL that asks for one. */
async function guarded(): Promise<string> {
  postgres ??= SharedPostgres.start();
  return (await postgres).url;
}

/** Another state directory than that of the place, as if it had been somebody's before. */
const elsewhere = (place: Place): Place => ({
  ...place,
  environment: {
    ...place.environment,
    RADSERVE_STATE_DIR: path.join(place.directory, "state-of-before"),
  },
});

const PLANTED: Planted[] = [
  {
    fault: "a wrong password of PostgreSQL",
    plant: async (place) => {
      place.environment["DATABASE_URL"] = (await guarded()).replace(":secret@", ":wrong@");
    },
    finding: "bulk database",
    found: /cannot be used \(28P01\)/,
    fix: /Correct the user and password/,
  },
  {
    fault: "no password of PostgreSQL",
    plant: async (place) => {
      place.environment["DATABASE_URL"] = (await guarded()).replace(":secret@", "@");
    },
    finding: "bulk database",
    found: /cannot be used \(SASL: .*password/,
    fix: /correct DATABASE_URL/,
  },
  {
    fault: "a private PostgreSQL that outlived its server",
    plant: async (place, t) => {
      await privateDatabase(place, t, "killed");
    },
    finding: "orphaned database",
    found:
      /^PostgreSQL runs on .*\(process \d+\), and no server does: it outlived that of .*state\.$/,
    fix: /Start a server with that state directory.*kill -INT \d+$/,
    advice: true,
    own: true,
  },
  {
    fault: "a private PostgreSQL whose state directory is gone",
    plant: async (place, t) => {
      const before = elsewhere(place);
      await privateDatabase(before, t, "killed");
      rmSync(before.environment["RADSERVE_STATE_DIR"]!, { recursive: true });
    },
    finding: "orphaned database",
    found: /\(process \d+\), and its state directory .*state-of-before is gone\.$/,
    fix: /kill -INT \d+$/,
    advice: true,
    own: true,
    skip: isRoot ? false : "the data of others than root go with their state directory",
  },
  {
    fault: "data of a private database whose state directory is gone",
    plant: async (place, t) => {
      const before = elsewhere(place);
      await privateDatabase(before, t, "ended");
      rmSync(before.environment["RADSERVE_STATE_DIR"]!, { recursive: true });
    },
    finding: "orphaned database",
    found:
      /^\/var\/lib\/.* \(\d+ MiB\) is the database of .*state-of-before, which is not there\.$/,
    fix: /put it back.*rm -r \/var\/lib\/radserve-postgres\/[0-9a-f]{16}$/,
    advice: true,
    own: true,
    skip: isRoot ? false : "the data of others than root go with their state directory",
  },
  {
    fault: "a private database that DATABASE_URL has replaced",
    plant: async (place, t) => {
      await privateDatabase(place, t, "ended");
      place.environment["DATABASE_URL"] = databaseUrl(t);
    },
    finding: "orphaned database",
    found: /\(\d+ MiB\) holds a private database, and DATABASE_URL names another/,
    fix: /start once without DATABASE_URL.*rm -r /,
    advice: true,
    own: true,
  },
];

new Doctor(t).plantEach(PLANTED);
