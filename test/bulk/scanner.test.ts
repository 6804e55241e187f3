/** The scanners of boxes that start at one moment; roles.test.ts tests scans of shares that are away. */
import os from "node:os";
import { pino } from "pino";
import t from "tap";
import { MemoryPlaces, ProcessMemory } from "../../src/base/process-memory.js";
import { openDatabase } from "../../src/bulk/database.js";
import { migrate } from "../../src/bulk/migrations.js";
import { Scanner } from "../../src/bulk/scanner.js";
import { DatabaseTroubles } from "../../src/bulk/database-trouble.js";
import { loadConfig } from "../../src/config.js";
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
      troubles: new DatabaseTroubles(),
      onLost: () => said.push("lost"),
      models: () => Promise.resolve([]),
      memory: new ProcessMemory(new MemoryPlaces(1, 2 ** 30).take()),
      onFound: () => undefined,
    });
    t.teardown(() => scanner.stop());
    await migrate(database.pool);
    await scanner.start();
  };
  await Promise.all([true, false, true, false].map(open));
  t.strictSame(said, []);
});
