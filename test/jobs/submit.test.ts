/** What becomes of a request where the database fails behind it. */
import { readdirSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { loadConfig } from "../../src/config.js";
import { markName } from "../../src/files/folder-mark.js";
import { openSharedDatabase } from "../../src/jobs/database.js";
import { submit } from "../../src/jobs/submit.js";
import { sharedDatabase, silent } from "../support/postgres.js";

const IMAGES = 1_000;

t.test(
  "a large job that was kept is kept, though its table cannot be looked at then",
  async (t) => {
    const { pool, url } = await sharedDatabase(t);
    const database = await openSharedDatabase(url, silent);
    t.teardown(() => database.close());
    const directory = t.testdir({ input: {}, output: {} });
    const roots = {
      input: [path.join(directory, "input")],
      output: [path.join(directory, "output")],
    };
    const output = path.join(directory, "output", "results");
    const items = Array.from({ length: IMAGES }, (_, i) => ({
      input_image_path: path.join(directory, "input", `${i}.dcm`),
      output_folder_path: output,
    }));
    // As a vacuum of the table holds it
    const other = await pool.connect();
    t.teardown(() => other.release());
    await other.query("begin");
    await other.query("lock table radserve.item in share update exclusive mode");
    const { id } = await submit(
      { subject: "x", admin: false, inputRoots: undefined, outputRoots: undefined },
      { items },
      {
        config: loadConfig({ directory, environment: {} }),
        roots,
        known: { add: () => undefined },
        models: () => Promise.resolve({ entries: [], problems: [] }),
        database: () => Promise.resolve(database),
        scanner: () => Promise.reject(new Error("no folder is scanned")),
      },
    );
    await other.query("rollback");
    t.strictSame(readdirSync(output), [markName(id)], "its folder has its mark");
    const { rows } = await pool.query(
      "select count(*)::int as items from radserve.item where job_id = $1",
      [id],
    );
    t.strictSame(rows, [{ items: IMAGES }]);
  },
);
