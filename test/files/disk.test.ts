import { execFileSync, spawnSync } from "node:child_process";
import { closeSync, constants, existsSync, readFileSync, rmdirSync } from "node:fs";
import t from "tap";
import * as disk from "../../src/files/disk.js";
import { errno } from "../../src/base/errno.js";

/**
 * What each operation gives in a folder of its own, and the code that it fails with where there is
 * nothing.
 */
async function operations(dir: string): Promise<unknown> {
  const {
    openDescriptor,
    writeStart,
    access,
    lstat,
    mkdir,
    readdir,
    rename,
    rmdir,
    stat,
    statfs,
    unlink,
  } = disk;
  await mkdir(`${dir}/a`);
  const fd = await openDescriptor(`${dir}/a/f`, constants.O_CREAT | constants.O_RDWR, 0o600);
  const written = [await writeStart(fd, "long"), await writeStart(fd, "go")];
  closeSync(fd);
  await access(`${dir}/a/f`, constants.R_OK);
  await rename(`${dir}/a/f`, `${dir}/a/g`);
  const seen = {
    written,
    text: readFileSync(`${dir}/a/g`, "utf8"),
    names: await readdir(`${dir}/a`),
    size: (await stat(`${dir}/a/g`)).size,
    mode: (await lstat(`${dir}/a/g`)).mode & 0o777,
    folder: (await lstat(`${dir}/a`)).isDirectory(),
    room: (await statfs(dir)).bsize > 0,
  };
  await unlink(`${dir}/a/g`);
  await rmdir(`${dir}/a`);
  const missing = `${dir}/none`;
  const failures = [
    openDescriptor(missing, "r"),
    access(missing, constants.R_OK),
    lstat(missing),
    mkdir(`${missing}/none`),
    readdir(missing),
    rename(missing, `${dir}/a`),
    rmdir(missing),
    stat(missing),
    statfs(missing),
    unlink(missing),
  ].map((work) => work.then(() => "nothing", errno));
  return { ...seen, failures: await Promise.all(failures) };
}

t.test("operations do the same at once as through libuv's threads", async (t) => {
  const expected = {
    written: [4, 2],
    text: "gong",
    names: ["g"],
    size: 4,
    mode: 0o600,
    folder: true,
    room: true,
    failures: new Array<string>(10).fill("ENOENT"),
  };
  t.same(await operations(t.testdir()), expected);
  disk.operateAtOnce();
  t.same(await operations(t.testdir()), expected);
});

const needsRoot = process.getuid?.() === 0 ? false : "only root can mount";

t.test("what is busy is tried again", { skip: needsRoot }, async (t) => {
  const mounted = t.testdir({ mounted: {} }) + "/mounted";
  execFileSync("mount", ["-t", "tmpfs", "none", mounted]);
  t.teardown(() => spawnSync("umount", [mounted], { stdio: "ignore" }));
  t.throws(() => rmdirSync(mounted), { code: "EBUSY" });
  const removed = disk.rmdir(mounted);
  execFileSync("umount", [mounted]);
  await removed;
  t.notOk(existsSync(mounted));
});

t.test("what stays busy fails in the end", (t) =>
  t.rejects(disk.rename("/", t.testdir()), { code: "EBUSY" }),
);

t.test("a file system that does not say what it has is not taken for full", async (t) => {
  const [here, proc] = [await disk.statfs(t.testdir()), await disk.statfs("/proc")];
  t.equal(proc.blocks, 0);
  t.equal(disk.freeBytes(proc), Infinity);
  t.equal(disk.freeBytes(here), here.bavail * here.bsize);
});

t.test("at once, it is done when the call returns", async (t) => {
  const dir = t.testdir();
  const made = disk.mkdir(`${dir}/a`);
  const removed = disk.rmdir(`${dir}/a`);
  await Promise.all([made, removed]);
  t.same(await disk.readdir(dir), []);
});
