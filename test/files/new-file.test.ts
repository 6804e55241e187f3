/** Files that appear whole, or not at all. */
import { execFileSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import t from "tap";

const MODULE = new URL("../../src/files/new-file.js", import.meta.url).href;

/** What another process removes as soon as it was seen to be there; the modules take this lstat. */
const SCRIPT = `
  import fs from "node:fs/promises";
  const folder = process.argv[1];
  const { lstat } = fs;
  fs.lstat = async (path) => {
    const found = await lstat(path);
    await fs.rm(folder, { recursive: true });
    return found;
  };
  const { receiveFile } = await import(${JSON.stringify(MODULE)});
  async function* pieces() {
    yield Buffer.from("these bytes");
  }
  const { outcome } = await receiveFile(folder, "1.dcm", pieces(), {
    overwrite: false,
    mostBytes: 1e6,
    minimumFreeBytes: 0,
    makeFolder: () => fs.mkdir(folder),
  });
  process.stdout.write(outcome);
`;

t.test("a file that is removed while it is compared is made again", (t) => {
  const folder = path.join(t.testdir({ series: {} }), "series");
  for (const there of ["these bytes", "other bytes"]) {
    writeFileSync(path.join(folder, "1.dcm"), there);
    const words = ["--input-type=module", "--eval", SCRIPT, folder];
    t.equal(execFileSync(process.execPath, words, { encoding: "utf8" }), "created");
    t.equal(readFileSync(path.join(folder, "1.dcm"), "utf8"), "these bytes");
  }
  t.end();
});
