/** Adds one to a number in a file, under the lock of NAME, some times over: `lock-worker.js DIR NAME TURNS`. */
import { readFile, writeFile } from "node:fs/promises";
import { withName } from "../../src/results/commit.js";

const [dir = "", name = "", turns = ""] = process.argv.slice(2);
for (let turn = 0; turn < Number(turns); turn++) {
  await withName(dir, name, {}, async () => {
    const count = Number(await readFile(`${dir}/count`, "utf8").catch(() => "0"));
    await new Promise((next) => setImmediate(next));
    await writeFile(`${dir}/count`, String(count + 1));
  });
}
