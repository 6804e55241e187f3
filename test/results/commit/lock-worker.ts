/**
 * Adds one to a number in a file, under the lock of NAME, some times over: `lock-worker.js DIR NAME
 * TURNS [MILLISECONDS]`.
 */
import { readFile, writeFile } from "node:fs/promises";
import { monotonic } from "../../../src/base/monotonic.js";
import { withName } from "../../../src/results/commit/commit.js";

const [dir = "", name = "", turns = "", patience] = process.argv.slice(2);
for (let turn = 0; turn < Number(turns); turn++) {
  const options = patience === undefined ? {} : { deadline: monotonic() + Number(patience) };
  await withName(dir, name, options, async () => {
    const count = Number(await readFile(`${dir}/count`, "utf8").catch(() => "0"));
    await new Promise((next) => setImmediate(next));
    await writeFile(`${dir}/count`, String(count + 1));
  });
}
