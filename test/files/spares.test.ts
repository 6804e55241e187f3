/** Lock files and staging folders that serve again, through the commits that use them. */
import { chmodSync, existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync, statSync } from "node:fs";
import t from "tap";
import { keepSpares, spares } from "../../src/files/spares.js";
import { withName } from "../../src/results/commit/commit.js";
import { isOnBlockDevice, sample } from "../support/commits.js";

const base = t.testdir({ home: {}, a: {}, b: {}, group: {} });
const home = `${base}/home`;
keepSpares(home);
t.afterEach(() => spares()?.drop());

/** Inodes of what was used for one commit. */
interface Used {
  lock: number;
  staging: number;
  /** Mode of a result while it is staged. */
  folderMode: number;
}

async function commit(
  dir: string,
  name: string,
  contents: Record<string, string> = { a: "of a" },
): Promise<Used> {
  const { files, receipt } = sample(name, "pixels", contents);
  const used: Used = { lock: 0, staging: 0, folderMode: 0 };
  const onStep = (step: string) => {
    used.lock ||= statSync(`${dir}/.${name}.lock`).ino;
    if (step !== "mark it complete") return;
    const staging = statSync(`${dir}/.${name}.radserve`);
    Object.assign(used, { staging: staging.ino, folderMode: staging.mode });
  };
  await withName(dir, name, { onStep }, (held) => held.commit(files, receipt));
  return used;
}

const seen = (dir: string) => readdirSync(dir).filter((name) => name.startsWith("."));

t.test(
  "one result after another uses the same lock and folder",
  { skip: !isOnBlockDevice(base) },
  async (t) => {
    const first = await commit(`${base}/a`, "x");
    t.same(seen(`${base}/a`), [], "nothing of it is left beside the results");
    t.equal(readdirSync(home).length, 2, "both are kept");
    const second = await commit(`${base}/a`, "y");
    t.same(second, first);
    const other = await commit(`${base}/b`, "x");
    t.not(other.lock, first.lock, "another folder has its own");
    t.not(other.staging, first.staging);
    const replacing = await commit(`${base}/a`, "y", { a: "another", b: "of b" });
    t.same(replacing, first, "they serve a result that replaces another, too");
    t.same(seen(`${base}/a`), []);
    spares()?.drop();
    t.same(readdirSync(home), [], "none is kept when there is nothing to do");
  },
);

t.test("at once, each has its own", { skip: !isOnBlockDevice(base) }, async (t) => {
  const names = Array.from({ length: 8 }, (_, i) => `at-once-${i}`);
  const used = await Promise.all(names.map((name) => commit(`${base}/a`, name)));
  t.equal(new Set(used.map(({ lock }) => lock)).size, names.length);
  t.equal(new Set(used.map(({ staging }) => staging)).size, names.length);
  t.ok(readdirSync(home).length <= 8, "a few of each are kept");
  const again = await Promise.all(names.map((name) => commit(`${base}/a`, `${name}-again`)));
  t.equal(new Set(again.map(({ lock }) => lock)).size, names.length);
  t.same(seen(`${base}/a`), []);
});

t.test("results have the rights that their folder gives", { skip: !isOnBlockDevice(base) }, async (t) => {
  const dir = `${base}/group`;
  await commit(dir, "x");
  chmodSync(dir, 0o2775);
  const { folderMode } = await commit(dir, "y");
  t.equal(folderMode & 0o2000, 0o2000, "what was made before the folder had them does not serve");
});

t.test("a lock that somebody took over does not serve again", async (t) => {
  const dir = `${base}/b`;
  await withName(dir, "lost", {}, () => {
    rmSync(`${dir}/.lost.lock`);
    return Promise.resolve();
  });
  t.same(readdirSync(home), []);
});

t.test("a folder that is in the way is not taken for one", async (t) => {
  const dir = `${base}/b`;
  await commit(dir, "before");
  const { files, receipt } = sample("taken", "pixels", { a: "a" });
  const onStep = (step: string) => {
    if (step === "make the staging folder")
      mkdirSync(`${dir}/.taken.radserve/of somebody`, { recursive: true });
  };
  await t.rejects(withName(dir, "taken", { onStep }, (held) => held.commit(files, receipt)));
  t.ok(existsSync(`${dir}/.taken.radserve/of somebody`));
});

t.test("on another mount nothing is kept", { skip: !existsSync("/dev/shm") }, async (t) => {
  const dir = mkdtempSync("/dev/shm/radserve-");
  t.teardown(() => rmSync(dir, { recursive: true, force: true }));
  await commit(dir, "x");
  await commit(dir, "y");
  t.same(seen(dir), []);
  t.same(readdirSync(home), []);
});
