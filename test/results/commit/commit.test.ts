import { execFile, execFileSync, spawn } from "node:child_process";
import {
  constants,
  existsSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  statSync,
  watch,
  writeFileSync,
} from "node:fs";
import { readFile } from "node:fs/promises";
import { hostname } from "node:os";
import { once } from "node:events";
import { Worker } from "node:worker_threads";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import t, { type Test } from "tap";
import { LONGEST_WAIT_MS, until } from "../../support/until.js";
import { monotonic } from "../../../src/base/monotonic.js";
import { RadserveError } from "../../../src/base/errors.js";
import { withName } from "../../../src/results/commit/commit.js";
import { ifMissing, requireRoom } from "../../../src/files/durable-files.js";
import { LARGEST } from "../../../src/results/receipt/read-receipt.js";
import { reusable, sameImage } from "../../../src/results/commit/reuse.js";
import type { Receipt } from "../../../src/results/receipt/receipt.js";
import {
  hash,
  isOnBlockDevice,
  recoverFolder,
  sample,
  type Sample,
} from "../../support/commits.js";

const put = (dir: string, name: string, { files, receipt }: Sample) =>
  withName(dir, name, {}, (held) => held.commit(files, receipt));

async function refusal(work: Promise<unknown>): Promise<string> {
  try {
    await work;
  } catch (error) {
    if (error instanceof RadserveError) return error.code;
    throw error;
  }
  return "no error";
}

const contents = (dir: string): Record<string, string> =>
  Object.fromEntries(readdirSync(dir).map((f) => [f, readFileSync(`${dir}/${f}`, "utf8")]));

t.test("a result appears whole, and through the path of an open folder too", async (t) => {
  const dir = t.testdir();
  const fd = openSync(dir, "r");
  await put(`/proc/self/fd/${fd}`, "x.dcm", sample("x.dcm", "p", { m: "picture" }));
  t.same(readdirSync(dir).sort(), ["x.dcm.json", "x.dcm.m.png"]);
  await withName(dir, "x.dcm", {}, async (held) => {
    const found = await held.existing();
    t.match(found, { kind: "receipt", receipt: { source: { name: "x.dcm" } } });
  });
  await withName(dir, "y.dcm", {}, async (held) => t.same(await held.existing(), { kind: "none" }));
});

t.test("a receipt that could not be read back is refused, and what was there stays", async (t) => {
  const dir = t.testdir();
  await put(dir, "x", sample("x", "p", { a: "1" }));
  const before = contents(dir);
  const large = sample("x", "p", { a: "2" });
  const warning = { code: "large", message: "a".repeat(LARGEST) };
  large.receipt = { ...large.receipt, warnings: [warning] };
  t.equal(await refusal(put(dir, "x", large)), "output_invalid");
  t.same(contents(dir), before);
});

t.test(
  "the same image's result is replaced, files it no longer has go, changed ones stay",
  async (t) => {
    const dir = t.testdir();
    await put(dir, "x", sample("x", "p", { a: "1", b: "2", c: "3" }));
    writeFileSync(`${dir}/x.c.png`, "a person drew here");
    await put(dir, "x", sample("x", "p", { a: "new" }));
    t.same(readdirSync(dir).sort(), ["x.a.png", "x.c.png", "x.json"]);
    t.equal(readFileSync(`${dir}/x.a.png`, "utf8"), "new");
  },
);

t.test("what is not this image's result is never overwritten", async (t) => {
  const other = sample("x", "other pixels", { m: "other" });
  const mine = sample("x", "p", { m: "mine" });
  await t.test("another image", async (t) => {
    const dir = t.testdir();
    await put(dir, "x", other);
    const before = contents(dir);
    t.equal(await refusal(put(dir, "x", mine)), "output_name_taken");
    t.same(contents(dir), before);
  });
  for (const [what, folder] of [
    ["no JSON", { "x.json": "hello" }],
    ["other JSON", { "x.json": "{}" }],
    ["a folder", { "x.json": {} }],
    ["a link", { "x.json": t.fixture("symlink", "/etc/passwd") }],
    ["a file that no receipt lists", { "x.m.png": "a person's" }],
    ["a link that no receipt lists", { "x.m.png": t.fixture("symlink", "nowhere") }],
    ["a file in place of the staging folder", { ".x.radserve": "?" }],
    ["a link in place of the staging folder", { ".x.radserve": t.fixture("symlink", ".") }],
  ] as const) {
    await t.test(what, async (t) => {
      const dir = t.testdir(folder);
      const before = readdirSync(dir);
      t.equal(await refusal(put(dir, "x", mine)), "output_name_taken");
      t.same(readdirSync(dir), before);
    });
  }
  await t.test("a file that appears while the result is being published", async (t) => {
    const dir = t.testdir();
    await put(dir, "x", sample("x", "p", { a: "old" }));
    const before = contents(dir);
    const onStep = (step: string) => {
      if (step === "mark it complete") writeFileSync(`${dir}/x.m.png`, "a person's");
    };
    const both = sample("x", "p", { a: "new", m: "mine" });
    const work = withName(dir, "x", { onStep }, (held) => held.commit(both.files, both.receipt));
    t.equal(await refusal(work), "output_name_taken");
    t.same(contents(dir), { ...before, "x.m.png": "a person's" });
  });
});

t.test("a failure at any step puts everything back", async (t) => {
  const fail = async (dir: string, at: number): Promise<boolean> => {
    let step = 0;
    const onStep = () => {
      if (step++ === at) throw Object.assign(new Error("full"), { code: "ENOSPC" });
    };
    const next = sample("x", "p", { a: "new", c: "new" });
    const code = await refusal(
      withName(dir, "x", { onStep }, (held) => held.commit(next.files, next.receipt)),
    );
    t.ok(code === "disk_full" || code === "no error", code);
    return code === "disk_full";
  };
  for (let at = 0; ; at++) {
    const dir = t.testdir({ [`at${at}`]: {} }) + `/at${at}`;
    await put(dir, "x", sample("x", "p", { a: "old", b: "old" }));
    const before = contents(dir);
    if (!(await fail(dir, at))) break;
    if (readdirSync(dir).includes(".x.radserve")) await recoverFolder(dir);
    const after = contents(dir);
    // The last step is after the commit mark: then the new result is there, and only the rest was
    // not removed.
    if (after["x.a.png"] === "new") t.match(after["x.json"], /"c"/);
    else t.same(after, before, `step ${at}`);
  }
});

t.test("a fault after the receipt is in place keeps the old result until the next", async (t) => {
  const dir = t.testdir();
  await put(dir, "x", sample("x", "p", { a: "old" }));
  const next = sample("x", "p", { a: "new" });
  let isSynced = true;
  const onStep = (step: string) => {
    if (step !== "remove the staging folder" || !isSynced) return;
    isSynced = false;
    throw Object.assign(new Error("The folder is not synced"), { code: "EIO" });
  };
  t.equal(
    await refusal(withName(dir, "x", { onStep }, (held) => held.commit(next.files, next.receipt))),
    "share_unavailable",
  );
  t.equal(readFileSync(`${dir}/x.a.png`, "utf8"), "new");
  t.equal(readFileSync(`${dir}/.x.radserve/previous/x.a.png`, "utf8"), "old");
  t.ok(statSync(`${dir}/.x.radserve/previous.json`).isFile());
  t.same(await recoverFolder(dir), ["x"]);
  t.same(readdirSync(dir).sort(), ["x.a.png", "x.json"]);
  t.equal(readFileSync(`${dir}/x.a.png`, "utf8"), "new");
});

t.test("a staged file that was harmed is not published, and the old result stays", async (t) => {
  const dir = t.testdir();
  await put(dir, "x", sample("x", "pixels", { a: "old" }));
  const before = contents(dir);
  const child = fileURLToPath(new URL("commit-child.js", import.meta.url));
  // Step 5 is the first after the mark, with two files.
  for (const step of [5, 7]) {
    t.throws(() =>
      execFileSync(process.execPath, [
        child,
        dir,
        "x",
        String(step),
        JSON.stringify({ a: "new", c: "n" }),
      ]),
    );
    writeFileSync(`${dir}/.x.radserve/x.c.png`, "harmed");
    t.same(await recoverFolder(dir), ["x"]);
    t.same(contents(dir), before);
  }
});

t.test("faults of the folder have their own codes", async (t) => {
  const mine = sample("x", "p", { m: "mine" });
  // No file can be made in sysfs, by nobody: EACCES.
  t.equal(await refusal(put("/sys", "x", mine)), "path_not_allowed");
  t.equal(await refusal(put(`${t.testdir()}/none`, "x", mine)), "bad_request");
  const long = "n".repeat(250);
  t.equal(await refusal(put(t.testdir(), long, sample(long, "p", {}))), "bad_request");
  t.equal(await refusal(put(t.testdir(), "a/b", mine)), "bad_request");
  t.equal(await refusal(requireRoom(t.testdir(), 1e18)), "disk_full");
  t.equal(await refusal(requireRoom(t.testdir(), 1)), "no error");
});

t.test("one holder at a time, among threads and processes", async (t) => {
  const dir = t.testdir();
  const worker = fileURLToPath(new URL("lock-worker.js", import.meta.url));
  const turns = 8;
  const threads = [1, 2].map(() => new Worker(worker, { argv: [dir, "x", String(turns)] }));
  const child = spawn(process.execPath, [worker, dir, "x", String(turns)], { stdio: "inherit" });
  const codes = await Promise.all([...threads.map((w) => once(w, "exit")), once(child, "exit")]);
  t.same(
    codes.map(([code]) => code as number),
    [0, 0, 0],
  );
  // Each turn read the number, let others run, and wrote it back plus one: two at once would lose a
  // turn.
  t.equal(readFileSync(`${dir}/count`, "utf8"), String(turns * 3));
  t.same(readdirSync(dir), ["count"]);
});

t.test("waiting ends at the deadline, and when the check says so", async (t) => {
  const dir = t.testdir();
  await withName(dir, "x", {}, async () => {
    const nothing = () => Promise.resolve();
    t.equal(
      await refusal(withName(dir, "x", { deadline: monotonic() + 20 }, nothing)),
      "deadline_exceeded",
    );
    const abort = new AbortController();
    const waiting = withName(dir, "x", { check: () => abort.signal.throwIfAborted() }, nothing);
    abort.abort(new RadserveError("shutting_down", "stop"));
    t.equal(await refusal(waiting), "shutting_down");
    await withName(dir, "y", {}, nothing);
    t.same(await recoverFolder(dir), [], "what is held is left alone");
  });
  t.same(readdirSync(dir), []);
});

const deadLock = (change: object) =>
  JSON.stringify({
    token: "t",
    host: hostname(),
    boot_id: readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim(),
    pid_namespace: readlinkSync("/proc/self/ns/pid"),
    pid: process.pid,
    started: "1",
    lease_ms: 50,
    beat: "0",
    ...change,
  });

/**
 * Another machine takes a name. Its file is another one: whoever had the name before writes signs
 * of life into that which is gone.
 */
function takenElsewhere(file: string): void {
  rmSync(file, { force: true });
  writeFileSync(file, deadLock({ boot_id: "another machine" }));
}

t.test("a lock is taken over where its owner is gone, and only there", async (t) => {
  const take = (dir: string) =>
    refusal(
      withName(dir, "x", { deadline: monotonic() + LONGEST_WAIT_MS }, () => Promise.resolve()),
    );
  const give = (dir: string) =>
    refusal(withName(dir, "x", { deadline: monotonic() + 200 }, () => Promise.resolve()));
  const longLease = { lease_ms: 3_600_000 };
  t.equal(
    await take(t.testdir({ ".x.lock": deadLock(longLease) })),
    "no error",
    "another with this PID",
  );
  const noProcess = deadLock({ ...longLease, pid: 2 ** 22 + 1, started: "1" });
  t.equal(await take(t.testdir({ ".x.lock": noProcess, ".x.lock.break": noProcess })), "no error");
  const elsewhere = { boot_id: "another machine" };
  t.equal(
    await take(t.testdir({ ".x.lock": deadLock(elsewhere) })),
    "no error",
    "its lease runs out",
  );
  for (const other of [elsewhere, { host: "other" }, { pid_namespace: "pid:[1]" }])
    t.equal(
      await give(t.testdir({ ".x.lock": deadLock({ ...other, ...longLease }) })),
      "deadline_exceeded",
    );
  t.equal(await give(t.testdir({ ".x.lock": "" })), "deadline_exceeded", "just being made");
});

/** Watches for how long the timers of this process stand still. @returns the longest time so far */
function standstill(t: Test): () => number {
  let [last, longest] = [performance.now(), 0];
  const look = () => {
    const now = performance.now();
    [last, longest] = [now, Math.max(longest, now - last)];
    return longest;
  };
  const timer = setInterval(look, 10);
  t.teardown(() => clearInterval(timer));
  return look;
}

t.test("a holder that shows signs of life keeps its lock beyond its lease", async (t) => {
  const dir = t.testdir();
  const worker = fileURLToPath(new URL("lock-worker.js", import.meta.url));
  // Of a machine that stood still for half a lease nothing can be said: the next one is longer
  for (let leaseMs = 500; ; leaseMs *= 2) {
    const stoodStill = standstill(t);
    const other = await withName(dir, "x", { leaseMs }, async () => {
      const words = [worker, dir, "x", "1", String(3 * leaseMs)];
      const [ended] = await Promise.allSettled([promisify(execFile)(process.execPath, words)]);
      return ended.status === "rejected" ? String(ended.reason) : "it took the lock";
    });
    if (stoodStill() > leaseMs / 2 && leaseMs < 10_000) continue;
    t.match(other, /deadline_exceeded/);
    return;
  }
});

t.test("many requests of one thread for one name go on one after the other", async (t) => {
  const dir = t.testdir();
  const order: number[] = [];
  let given: () => void = () => undefined;
  const isGivenUp = new Promise<void>((resolve) => (given = resolve));
  let looks = 0;
  const giveUp = () => {
    if ((looks += 1) === 1) return;
    given();
    throw new RadserveError("shutting_down", "stop");
  };
  const take = (i: number, work: () => Promise<void> | void) =>
    withName(dir, "x", i === 7 ? { check: giveUp } : {}, async (held) => {
      await work();
      await held.existing();
      order.push(i);
    });
  const waits: Promise<void>[] = [];
  // The others begin when one has the name, which holds it until another has given up
  await new Promise<void>((resolve) =>
    waits.push(
      take(0, () => {
        resolve();
        return isGivenUp;
      }),
    ),
  );
  for (let i = 1; i < 20; i++) waits.push(take(i, () => undefined));
  const results = await Promise.allSettled(waits);
  t.same(
    results.flatMap((r, i) => (r.status === "rejected" ? [i] : [])),
    [7],
  );
  t.equal(order.length, 19);
  t.same(readdirSync(dir), []);
});

t.test("a waiter that stood still itself takes no lock from whoever lives", async (t) => {
  const dir = t.testdir();
  let beats = 0;
  const live = () =>
    writeFileSync(
      `${dir}/.x.lock`,
      deadLock({ boot_id: "another machine", lease_ms: 200, beat: String(beats++) }),
    );
  live();
  const stop = new AbortController();
  let looks = 0;
  const check = () => {
    looks += 1;
    if (looks === 3) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 300);
    else if (looks > 3 && existsSync(`${dir}/.x.lock`)) live();
    if (looks === 6) stop.abort(new RadserveError("shutting_down", "stop"));
    stop.signal.throwIfAborted();
  };
  t.equal(await refusal(withName(dir, "x", { check }, () => Promise.resolve())), "shutting_down");
  t.equal(looks, 6);
});

/** Another takes NAME over from whoever holds it, and publishes its own result. */
function publishTheirs(dir: string): void {
  const child = fileURLToPath(new URL("commit-child.js", import.meta.url));
  rmSync(`${dir}/.x.lock`);
  execFileSync(process.execPath, [child, dir, "x", "-1", JSON.stringify({ m: "theirs" })]);
}

t.test("who lost the lock publishes nothing and harms nothing", async (t) => {
  for (const at of ["make the staging folder", "mark it complete"]) {
    const dir = t.testdir();
    const mine = sample("x", "pixels", { m: "mine" });
    const onStep = (step: string) => {
      if (step === at) publishTheirs(dir);
    };
    const work = withName(dir, "x", { onStep }, (held) => held.commit(mine.files, mine.receipt));
    t.equal(await refusal(work), "overloaded", at);
    await withName(dir, "x", {}, () => Promise.resolve());
    t.equal(readFileSync(`${dir}/x.m.png`, "utf8"), "theirs", `${at}: nor does the next one`);
    t.same(readdirSync(dir).sort(), ["x.json", "x.m.png"]);
  }
});

t.test("what is not marked when the lock is lost is never published", async (t) => {
  const dir = t.testdir();
  await put(dir, "x", sample("x", "pixels", { m: "old" }));
  const before = contents(dir);
  const mine = sample("x", "pixels", { m: "mine" });
  const onStep = (step: string) => {
    if (step === "mark it complete") takenElsewhere(`${dir}/.x.lock`);
  };
  const work = withName(dir, "x", { onStep }, (held) => held.commit(mine.files, mine.receipt));
  t.equal(await refusal(work), "overloaded");
  await withName(dir, "x", {}, () => Promise.resolve());
  t.same(contents(dir), before);
});

t.test(
  "a staging folder that came late, of one who lost the lock, is in nobody's way",
  async (t) => {
    const dir = t.testdir();
    const mine = sample("x", "pixels", { m: "mine" });
    let isLate = true;
    const onStep = (step: string) => {
      if (step !== "make the staging folder" || !isLate) return;
      isLate = false;
      mkdirSync(`${dir}/.x.radserve`);
      writeFileSync(`${dir}/.x.radserve/receipt.json.part`, "{");
    };
    await withName(dir, "x", { onStep }, (held) => held.commit(mine.files, mine.receipt));
    t.same(readdirSync(dir).sort(), ["x.json", "x.m.png"]);
  },
);

t.test("whoever writes something else under a name can ask whether it is still held", async (t) => {
  const dir = t.testdir();
  await withName(dir, "x", {}, async (held) => {
    await held.requireHeld();
    takenElsewhere(`${dir}/.x.lock`);
    t.equal(await refusal(held.requireHeld()), "overloaded");
  });
});

t.test(
  "who lost the lock while publishing leaves the rest to the next, who completes it",
  async (t) => {
    for (const at of [
      "move x.m.png into place",
      "move the receipt into place",
      "mark it complete",
    ]) {
      const dir = t.testdir();
      await put(dir, "x", sample("x", "pixels", { m: "old" }));
      const before = contents(dir);
      const mine = sample("x", "pixels", { m: "mine" });
      const onStep = (step: string) => {
        if (step !== at) return;
        // And a file operation of this one fails
        takenElsewhere(`${dir}/.x.lock`);
        throw Object.assign(new Error("The share stood still"), { code: "EIO" });
      };
      await t.rejects(
        withName(dir, "x", { onStep }, (held) => held.commit(mine.files, mine.receipt)),
      );
      t.ok(readdirSync(dir).includes(".x.radserve"), "nothing is taken away from under the other");
      await withName(dir, "x", {}, () => Promise.resolve());
      const after = contents(dir);
      if (at === "mark it complete") t.same(after, before, "not marked: the old result stays");
      else t.match([after["x.m.png"], Object.keys(after).sort()], ["mine", ["x.json", "x.m.png"]]);
    }
  },
);

t.test("the receipt is not moved by who lost the lock", async (t) => {
  const dir = t.testdir();
  const mine = sample("x", "pixels", { m: "mine" });
  const onStep = (step: string) => {
    if (step === "move the receipt into place") takenElsewhere(`${dir}/.x.lock`);
  };
  const work = withName(dir, "x", { onStep }, (held) => held.commit(mine.files, mine.receipt));
  t.equal(await refusal(work), "overloaded");
  t.notOk(readdirSync(dir).includes("x.json"));
  await withName(dir, "x", {}, () => Promise.resolve());
  t.same(Object.keys(contents(dir)).sort(), ["x.json", "x.m.png"], "the next one completes it");
});

t.test("nor is a receipt without files, or over a file that appeared", async (t) => {
  const alone = sample("x", "pixels", {});
  const inMemory = mkdtempSync("/dev/shm/radserve-");
  t.teardown(() => rmSync(inMemory, { recursive: true }));
  for (const [base, there, code] of [
    [t.testdir(), ".x.lock", "overloaded"],
    [t.testdir(), "x.json", "output_name_taken"],
    [inMemory, ".x.lock", "overloaded"],
    [inMemory, "x.json", "output_name_taken"],
  ] as const) {
    const dir = mkdtempSync(`${base}/x-`);
    const onStep = (step: string) => {
      if (step === "move the receipt into place") takenElsewhere(`${dir}/${there}`);
    };
    const work = withName(dir, "x", { onStep }, (held) => held.commit(alone.files, alone.receipt));
    t.equal(await refusal(work), code);
    await withName(dir, "x", {}, () => Promise.resolve());
    t.same(readdirSync(dir), there === "x.json" ? ["x.json"] : []);
  }
});

/** Flags that the lock of NAME in a folder was opened with. */
async function lockFlags(dir: string): Promise<number> {
  return withName(dir, "x", {}, async () => {
    const { dev, ino } = statSync(`${dir}/.x.lock`);
    const lock = readdirSync("/proc/self/fd").find((fd) => {
      const open = statSync(`/proc/self/fd/${fd}`, { throwIfNoEntry: false });
      return open?.dev === dev && open.ino === ino;
    });
    const flags = /flags:\s*([0-7]+)/.exec(
      await readFile(`/proc/self/fdinfo/${lock}`, "utf8"),
    )?.[1];
    return parseInt(flags ?? "", 8);
  });
}

t.test("a lock names its owner from the moment that it is there", async (t) => {
  const dir = t.testdir();
  if (!isOnBlockDevice(dir)) {
    t.comment("the folder is on no disk of this machine");
    return;
  }
  const seen: string[] = [];
  const watcher = watch(dir, (change, name) => seen.push(`${change} ${name}`));
  t.teardown(() => watcher.close());
  // However long this process stands still, no sign of life is due meanwhile
  await withName(dir, "x", { leaseMs: 3_600_000 }, () => Promise.resolve());
  writeFileSync(`${dir}/end`, "");
  await until("the last change is seen", () => seen.includes("rename end"));
  t.same(
    seen.filter((event) => event.endsWith(".x.lock")),
    ["rename .x.lock", "rename .x.lock"],
    "made and removed, but not written to in between",
  );
});

t.test("signs of life are written through where the folder may be another machine's", async (t) => {
  // Like a network file system, one in memory has no device of its own
  const folders = [t.testdir(), mkdtempSync("/dev/shm/radserve-")];
  t.teardown(() => rmSync(folders[1]!, { recursive: true }));
  for (const dir of folders) {
    t.equal(
      (await lockFlags(dir)) & constants.O_DSYNC,
      isOnBlockDevice(dir) ? 0 : constants.O_DSYNC,
    );
    t.same(readdirSync(dir), []);
  }
});

t.test("a file that another machine removed is missing", (t) => {
  const stale = Object.assign(new Error("stale"), { code: "ESTALE" });
  t.equal(ifMissing("none")(stale), "none");
  t.throws(() => ifMissing("none")(Object.assign(new Error("io"), { code: "EIO" })));
  t.end();
});

t.test("a receipt that lists other files than are given is a fault of the caller", async (t) => {
  const dir = t.testdir();
  const { files, receipt } = sample("x", "p", { a: "1", b: "2" });
  const commit = (some: typeof files) =>
    withName(dir, "x", {}, (held) => held.commit(some, receipt));
  await t.rejects(commit(files.slice(1)));
  const bytes = Buffer.from("3");
  await t.rejects(commit([files[0]!, { name: "x.b.png", bytes, sha256: hash(bytes) }]));
  t.same(readdirSync(dir), []);
});

t.test("which images are the same", (t) => {
  const { receipt } = sample("x", "p", {});
  t.equal(sameImage(receipt, receipt.source), true);
  const { file_sha256 } = receipt.source;
  const pixels = { file_sha256, pixel_sha256: hash("p") };
  t.equal(sameImage(receipt, { ...pixels, sop_instance_uid: "1.2.4" }), false);
  t.equal(sameImage(receipt, pixels), false);
  const moved = { ...receipt.source, series_instance_uid: "1.2.9" };
  t.equal(sameImage(receipt, moved), true, "a SOP Instance UID says it alone");
  t.equal(
    sameImage(
      { ...receipt, source: { ...moved, sop_instance_uid: undefined } },
      { ...moved, sop_instance_uid: undefined },
    ),
    true,
  );
  const other = { ...moved, sop_instance_uid: undefined, series_instance_uid: "1.2.8" };
  t.equal(
    sameImage({ ...receipt, source: { ...moved, sop_instance_uid: undefined } }, other),
    false,
    "another series",
  );
  const changed = { ...receipt.source, file_sha256: hash("f"), pixel_sha256: hash("q") };
  t.equal(sameImage(receipt, changed), false);
  t.equal(sameImage(receipt, { ...changed, replaced: ["1.2.3"] }), true, "it was replaced");
  t.equal(sameImage(receipt, { ...changed, replaced: ["1.2.4"] }), false, "another was");
  const group = (replaced: readonly string[], ...files: string[]): Receipt["source"] => ({
    ...other,
    group: "series",
    pixel_sha256: hash(files.join()),
    replaced: [...replaced],
    slices: files.map((file, i) => ({ sop_instance_uid: `1.${i}`, file_sha256: hash(file) })),
  });
  const two = { ...receipt, source: group([], "a", "b") };
  t.equal(sameImage(two, group([], "a", "b", "c")), true, "it has grown");
  t.equal(sameImage(two, group([], "a", "x")), false);
  t.equal(sameImage(two, group(["1.1"], "a", "x", "c")), true, "a slice was replaced");
  t.equal(sameImage(two, group(["1.1"], "y", "x")), false, "another one differs too");
  t.end();
});

t.test("a finished result is used again only where everything is equal", async (t) => {
  const dir = t.testdir();
  const { files, receipt } = sample("x", "p", { a: "1", b: "2" });
  await put(dir, "x", { files, receipt });
  const wanted = {
    file_sha256: receipt.source.file_sha256,
    models: receipt.models
      .map(({ name, sha256 }) => ({ name, sha256, site_thresholds: {} }))
      .reverse(),
    outputs_requested: ["png", "json"],
  };
  t.equal(await reusable(dir, receipt, wanted), true);
  t.equal(await reusable(dir, receipt, { ...wanted, radserve_version: "0.1.0" }), true);
  const [a] = receipt.models;
  const different: [string, object, object][] = [
    ["file", {}, { file_sha256: hash("other") }],
    ["outputs", {}, { outputs_requested: ["json"] }],
    ["version", {}, { radserve_version: "0.2.0" }],
    ["fewer models", {}, { models: wanted.models.slice(1) }],
    ["model's files", {}, { models: wanted.models.map((m) => ({ ...m, sha256: hash("other") })) }],
    [
      "thresholds",
      {},
      { models: wanted.models.map((m) => ({ ...m, site_thresholds: { l: 0.1 } })) },
    ],
    ["a failed model", { models: [{ ...a, status: "failed" }, receipt.models[1]] }, {}],
  ];
  for (const [what, changed, asked] of different)
    t.equal(await reusable(dir, { ...receipt, ...changed }, { ...wanted, ...asked }), false, what);
  writeFileSync(`${dir}/x.b.png`, "changed");
  t.equal(await reusable(dir, receipt, wanted), false, "a changed file");
  rmSync(`${dir}/x.b.png`);
  t.equal(await reusable(dir, receipt, wanted), false, "a missing file");
});
