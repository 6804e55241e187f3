/** Files that appear whole, or not at all. */
import { execFileSync } from "node:child_process";
import { readdirSync, readFileSync, rmSync, watch, writeFileSync } from "node:fs";
import path from "node:path";
import t, { type Test } from "tap";
import { UnnamedFile } from "../../src/files/durable-files.js";
import { receiveFile, type NewFileOptions } from "../../src/files/new-file.js";
import { until } from "../support/until.js";

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

/** For a test: no file can be made without a name, as on file systems of shares. */
function knowNone(t: Test): void {
  const make = UnnamedFile.make.bind(UnnamedFile);
  t.teardown(() => (UnnamedFile.make = make));
  UnnamedFile.make = () =>
    Promise.reject(Object.assign(new Error("It knows none"), { code: "EOPNOTSUPP" }));
}

async function receive(dir: string, text: string, more: Partial<NewFileOptions> = {}) {
  async function* pieces() {
    yield await Promise.resolve(Buffer.from(text));
  }
  const { outcome } = await receiveFile(dir, "x", pieces(), {
    overwrite: false,
    mostBytes: 100,
    minimumFreeBytes: 0,
    ...more,
  });
  return outcome;
}

t.test(
  "a name is taken by the whole file, or not at all, where no file is without a name",
  async (t) => {
    knowNone(t);
    const dir = t.testdir();
    const seen: string[] = [];
    const watcher = watch(dir, (change, name) => seen.push(`${change} ${name}`));
    t.teardown(() => watcher.close());
    t.equal(await receive(dir, "whole"), "created");
    writeFileSync(`${dir}/end`, "");
    await until("the last change is seen", () => seen.includes("rename end"));
    t.same(
      seen.filter((event) => event.endsWith(" x")),
      ["rename x"],
      "it is never there and empty",
    );
    t.same(readdirSync(dir).sort(), ["end", "x"]);
    t.equal(await receive(dir, "whole"), "same");
    await t.rejects(receive(dir, "another"), { code: "file_exists" });
    t.equal(await receive(dir, "another", { overwrite: true }), "replaced");
    t.equal(readFileSync(`${dir}/x`, "utf8"), "another");
    t.same(readdirSync(dir).sort(), ["end", "x"]);
  },
);

t.test("a fault before the file is whole leaves nothing under its name", async (t) => {
  knowNone(t);
  const dir = t.testdir();
  // The helper is lost on the way: it can neither be linked nor renamed
  const check = async (content: { written: () => Promise<unknown> }) => {
    // It is there only now
    await content.written();
    for (const name of readdirSync(dir)) rmSync(`${dir}/${name}`);
  };
  await t.rejects(receive(dir, "whole", { check }));
  t.same(readdirSync(dir), []);
});
