/**
 * What the kernel can say from its memory is asked for at once; whatever would have to be waited
 * for is left to others.
 */
import { spawnSync } from "node:child_process";
import fs, {
  closeSync,
  constants,
  existsSync,
  fstatSync,
  openSync,
  readlinkSync,
  statSync,
} from "node:fs";
import { setImmediate as nextTurn } from "node:timers/promises";
import t from "tap";
import { descriptorPath, readWholeHere } from "../../src/files/descriptor.js";
import * as disk from "../../src/files/disk.js";

/** The real path of what a descriptor names, which is then closed. */
function targetOf(fd: number): string {
  try {
    return readlinkSync(descriptorPath(fd));
  } finally {
    closeSync(fd);
  }
}

t.test("a path is pinned as open(2) would, known to the kernel or not", async (t) => {
  const dir = t.testdir({
    folder: { file: "text" },
    link: t.fixture("symlink", "folder"),
    dangling: t.fixture("symlink", "none"),
  });
  for (const time of ["at first", "from memory"]) {
    t.equal(
      targetOf(await disk.pinDescriptor(`${dir}/folder/file`, 0, false)),
      `${dir}/folder/file`,
      time,
    );
    t.equal(
      targetOf(await disk.pinDescriptor(`${dir}/link/../link/file`, 0, false)),
      `${dir}/folder/file`,
      time,
    );
    t.equal(
      targetOf(await disk.pinDescriptor(`${dir}/link`, constants.O_DIRECTORY, false)),
      `${dir}/folder`,
    );
    for (const none of ["none", "folder/none", "none/none", "dangling"])
      await t.rejects(
        disk.pinDescriptor(`${dir}/${none}`, 0, false),
        { code: "ENOENT", syscall: "open" },
        none,
      );
    await t.rejects(disk.pinDescriptor(`${dir}/folder/file`, constants.O_DIRECTORY, false), {
      code: "ENOTDIR",
    });
    await t.rejects(disk.pinDescriptor(`${dir}/folder/file/x`, 0, false), { code: "ENOTDIR" });
    await t.rejects(
      disk.pinDescriptor(`${dir}/link`, constants.O_DIRECTORY | constants.O_NOFOLLOW, false),
      {
        code: "ENOTDIR",
      },
    );
  }
});

t.test("where a pinned thing lies is that of stat(2)", async (t) => {
  const dir = t.testdir();
  for (const place of [dir, "/proc", "/dev"]) {
    const fd = await disk.pinDescriptor(place, constants.O_DIRECTORY, false);
    t.equal(disk.isLocal(fd), disk.onBlockDevice(statSync(place)), place);
    t.equal(fstatSync(fd).dev, statSync(place).dev, place);
    closeSync(fd);
  }
});

t.test("a link is told from what is none", async (t) => {
  const dir = t.testdir({ link: t.fixture("symlink", "some/where"), file: "", folder: {} });
  const folder = openSync(dir, constants.O_RDONLY | constants.O_DIRECTORY);
  for (const now of [false, true]) {
    t.equal(await disk.linkIn(folder, "link", now), "some/where");
    for (const name of ["file", "folder", "none", ".", ""])
      t.equal(await disk.linkIn(folder, name, now), undefined, name);
  }
  closeSync(folder);
});

t.test("a name that is taken is found among several", async (t) => {
  const dir = t.testdir({ file: "", link: t.fixture("symlink", "none") });
  const [none, file, link, below] = ["none", "file", "link", "file/below"].map(
    (name) => `${dir}/${name}`,
  ) as [string, string, string, string];
  t.notOk(await disk.anyThere([none]));
  t.notOk(await disk.anyThere([none, `${dir}/also none`]));
  t.ok(await disk.anyThere([none, file]));
  t.ok(await disk.anyThere([link]), "a link that leads nowhere");
  t.ok(await disk.anyThere([below]), "where it cannot be said, it may be there");
});

t.test(
  "names in a folder that was made here are looked up at once, and no longer when its number is another's",
  async (t) => {
    const dir = t.testdir({ own: {}, other: {} });
    const own = await disk.pinDescriptor(`${dir}/own`, constants.O_DIRECTORY, false);
    if (!disk.isLocal(own)) {
      t.comment("this folder is on no disk of the machine");
      return;
    }
    t.notOk(disk.isLocal(`${descriptorPath(own)}/name`));
    disk.noteOwnFolder(own);
    t.ok(disk.isLocal(`${descriptorPath(own)}/name`));
    t.notOk(await disk.anyThere([`${descriptorPath(own)}/name`]));
    fs.writeFileSync(`${dir}/own/name`, "");
    t.ok(await disk.anyThere([`${descriptorPath(own)}/name`]));
    closeSync(own);
    const other = await disk.pinDescriptor(`${dir}/other`, constants.O_DIRECTORY, false);
    t.equal(other, own, "the system gives the lowest number");
    t.notOk(disk.isLocal(`${descriptorPath(other)}/name`));
    closeSync(other);
  },
);

t.test("a file is read whole, from memory or not", async (t) => {
  const text = "0123456789".repeat(100_000);
  const dir = t.testdir({ file: text, empty: "" });
  for (const [name, expected] of [
    ["file", text],
    ["empty", ""],
  ] as const) {
    const fd = openSync(`${dir}/${name}`, "r");
    t.equal(Buffer.from(await readWholeHere(fd)).toString(), expected);
    closeSync(fd);
  }
  const half = openSync(`${dir}/file`, "r");
  const bytes = Buffer.alloc(10);
  t.equal(disk.readNow(half, bytes.subarray(0, 3)), 3);
  t.equal(disk.readNow(half, bytes.subarray(3)), 7, "goes on where the file stands");
  t.equal(bytes.toString(), "0123456789");
  closeSync(half);
  const folder = openSync(dir, "r");
  t.equal(disk.readNow(folder, bytes), 0, "what cannot be read is left to whoever says why");
  closeSync(folder);
});

const FUSE = "/dev/fuse";
const cannotMount =
  process.getuid?.() === 0 && existsSync(FUSE) ? false : "needs root and /dev/fuse";

t.test("nobody waits for a file system that does not answer", { skip: cannotMount }, async (t) => {
  const mounted = `${t.testdir({ mounted: {} })}/mounted`;
  // The kernel sends each question here, and nobody reads them
  const server = openSync(FUSE, "r+");
  const options = `fd=3,rootmode=40000,user_id=0,group_id=0`;
  const mount = spawnSync("mount", ["-i", "-t", "fuse", "silent", mounted, "-o", options], {
    stdio: ["ignore", "ignore", "pipe", server],
    encoding: "utf8",
  });
  if (mount.status !== 0) {
    closeSync(server);
    t.comment(`cannot mount: ${mount.stderr}`);
    return;
  }
  try {
    const names = ["name", "folder/name"].map((name) => `${mounted}/${name}`);
    const ends = Promise.allSettled(names.map((name) => disk.pinDescriptor(name, 0, false)));
    t.equal(await Promise.race([ends, nextTurn("free")]), "free", "this thread goes on");
    closeSync(server);
    for (const end of await ends) t.equal(end.status, "rejected");
  } finally {
    spawnSync("umount", ["-l", mounted], { stdio: "ignore" });
  }
});
