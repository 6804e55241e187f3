/**
 * The PostgreSQL of a run: databases of tests apart from each other, and nothing of it after its
 * run, however that ends.
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { migrate } from "../../src/jobs/migrations.js";
import { sharedDatabase } from "./postgres.js";
import { until } from "./until.js";

/** Processes whose command line names a folder. */
const processesOf = (folder: string) =>
  readdirSync("/proc").filter((name) => {
    try {
      return /^\d+$/.test(name) && readFileSync(`/proc/${name}/cmdline`, "utf8").includes(folder);
    } catch {
      return false;
    }
  });

t.test("a database of a test has the tables of this release, and origins of its own", async (t) => {
  const [one, other, empty] = await Promise.all([
    sharedDatabase(t),
    sharedDatabase(t),
    sharedDatabase(t, { empty: true }),
  ]);
  const origins = await Promise.all([one, other].map(({ pool }) => migrate(pool)));
  t.match(origins, [{ made: false }, { made: false }]);
  t.not(origins[0]?.origin, origins[1]?.origin);
  t.match(await migrate(empty.pool), { made: true });
});

t.test("it ends with its run, also if that is killed", async (t) => {
  const module = new URL("./run-postgres.js", import.meta.url).href;
  const run = spawn(
    process.execPath,
    [
      "--input-type=module",
      "--eval",
      `import { startRunPostgres } from ${JSON.stringify(module)};
       console.log((await startRunPostgres()).socket);
       setInterval(() => undefined, 1_000);`,
    ],
    { stdio: ["ignore", "pipe", "inherit"] },
  );
  t.teardown(() => run.kill("SIGKILL"));
  const [said] = (await once(run.stdout, "data")) as [Buffer];
  const folder = path.dirname(said.toString().trim());
  t.ok(existsSync(path.join(folder, "data/postmaster.pid")));
  t.ok(processesOf(folder).length > 0);
  run.kill("SIGKILL");
  await until(
    "the folder and its processes have gone",
    () => !existsSync(folder) && processesOf(folder).length === 0,
  );
});
