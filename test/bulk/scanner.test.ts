/** Scans of folders whose share is away: they wait, and hold up nobody. */
import { mkdirSync, renameSync, rmdirSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { pino } from "pino";
import t from "tap";
import { MemoryPlaces, ProcessMemory } from "../../src/base/process-memory.js";
import { openDatabase } from "../../src/bulk/database.js";
import { migrate } from "../../src/bulk/migrations.js";
import { Scanner } from "../../src/bulk/scanner.js";
import { Troubles } from "../../src/bulk/trouble.js";
import { loadConfig } from "../../src/config.js";
import { ADDON, needs } from "../support/needs.js";
import { bulkPlace, startBulk, startWorker, writeSlice } from "../support/bulk.js";
import { databaseUrl } from "../support/postgres.js";

t.test("boxes that open a fresh database at one moment", async (t) => {
  const url = databaseUrl(t, { empty: true });
  const said: unknown[] = [];
  const log = pino({ level: "error" }, { write: (line) => said.push(line) });
  const open = async (works: boolean) => {
    const settings = { database_url: url, state_dir: "", postgres_bin: undefined };
    const database = await openDatabase(settings, log);
    t.teardown(() => database.close());
    const scanner = new Scanner({
      config: loadConfig({ directory: os.tmpdir(), environment: {} }),
      roots: { input: [], output: [] },
      database,
      log,
      works,
      box: "",
      troubles: new Troubles(),
      onLost: () => said.push("lost"),
      models: () => Promise.resolve([]),
      memory: new ProcessMemory(new MemoryPlaces(1).counts, 0, 2 ** 30),
      onFound: () => undefined,
    });
    t.teardown(() => scanner.stop());
    await migrate(database.pool);
    await scanner.start();
  };
  await Promise.all([true, false, true, false].map(open));
  t.strictSame(said, []);
});

/** More than a box scans at once. */
const AWAY = ["1", "2", "3"];

t.test("folders that are away when their turn comes", { skip: needs(ADDON) }, async (t) => {
  const place = bulkPlace(t, { RADSERVE_ROLE: "api" });
  const at = (...parts: string[]) => path.join(place.input, ...parts);
  const api = await startBulk(t, place);
  const submit = (...folder: string[]) =>
    api.submit({
      input_folder_path: at(...folder),
      output_folder_path: path.join(place.output, ...folder),
      outputs: ["json"],
    });
  for (const name of AWAY) writeSlice(at("share", name, "image.dcm"));
  writeSlice(at("here", "image.dcm"));
  mkdirSync(at("empty"));
  const waiting = await Promise.all(AWAY.map((name) => submit("share", name)));
  const here = await submit("here");
  const empty = await submit("empty");
  renameSync(at("share"), at("away"));
  // As a mount point looks whose share is not mounted
  for (const name of AWAY.slice(0, 2)) mkdirSync(at("share", name), { recursive: true });

  const worker = await startWorker(t, place);
  t.match(await api.ended(here), { state: "completed", total: 1, counts: { succeeded: 1 } });
  t.match(await api.ended(empty), { state: "completed", total: 0 });
  for (const id of waiting)
    t.match(
      await api.until(
        id,
        ({ state, paused_reason }) => state === "paused" && paused_reason?.code !== "no_worker",
      ),
      { total: null, paused_reason: { code: "share_unavailable", message: /input folder/ } },
    );
  const said = () => worker.log.filter(({ msg }) => msg === "a folder cannot be scanned now").length;
  t.equal(said(), AWAY.length, "said once of each");
  for (const name of AWAY.slice(0, 2)) rmdirSync(at("share", name));
  rmdirSync(at("share"));
  renameSync(at("away"), at("share"));
  for (const id of waiting)
    t.match(await api.ended(id), { state: "completed", total: 1, counts: { succeeded: 1 } });
  t.equal(said(), AWAY.length);
});
