/**
 * kill -9 before every single change that a commit makes on disk: afterwards it is all or nothing.
 */
import { execFile } from "node:child_process";
import {
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import t from "tap";
import { withName } from "../../../src/results/commit/commit.js";
import { receiptSchema } from "../../../src/results/receipt/receipt.js";
import { reusable } from "../../../src/results/commit/reuse.js";
import { isOnBlockDevice, recoverFolder, sample } from "../../support/commits.js";

const NAME = "slice.dcm";
const OLD = { a: "old a", gone: "old, of a model no longer there" };
const NEW = { a: "new a, longer", c: "new c" };
const child = fileURLToPath(new URL("commit-child.js", import.meta.url));
const run = promisify(execFile);

async function commitIn(
  dir: string,
  step: number,
  contents: object = NEW,
  how = "",
): Promise<{ stdout: string; killed: boolean }> {
  try {
    const words = [child, dir, NAME, String(step), JSON.stringify(contents), how];
    const { stdout } = await run(process.execPath, words, { env: {} });
    return { stdout, killed: false };
  } catch (error) {
    t.equal((error as { signal?: string }).signal, "SIGKILL");
    return { stdout: "", killed: true };
  }
}

/** What the folder holds, said in one word; throws where it is neither. */
async function state(dir: string): Promise<"old" | "new" | "none"> {
  const names = readdirSync(dir).sort();
  if (names.length === 0) return "none";
  const receipt = receiptSchema.parse(JSON.parse(readFileSync(`${dir}/${NAME}.json`, "utf8")));
  const listed = receipt.models.flatMap((m) => m.outputs.map((o) => o.path));
  t.same(names, [...listed, `${NAME}.json`].sort(), "exactly the listed files and the receipt");
  const wanted = { ...receipt, file_sha256: receipt.source.file_sha256 };
  t.equal(await reusable(dir, receipt, wanted), true, "every file has the hash that is listed");
  return receipt.models.some((m) => m.name === "c") ? "new" : "old";
}

const WAYS = { "": "", "at-once": ", by a thread of bulk work" };

for (const [before, how] of [
  ["none", ""],
  ["old", ""],
  ["old", "at-once"],
] as const) {
  t.test(
    `killed at every step, ${before === "old" ? "over an old result" : "in an empty folder"}${WAYS[how]}`,
    async (t) => {
      const prepare = async (dir: string): Promise<string> => {
        const { files, receipt } = sample(NAME, "pixels", OLD);
        if (before === "old") await withName(dir, NAME, {}, (held) => held.commit(files, receipt));
        return dir;
      };
      const whole = await prepare(t.testdir({ whole: {} }) + "/whole");
      const steps = Number((await commitIn(whole, -1, NEW, how)).stdout);
      t.equal(await state(whole), "new");
      t.ok(steps > 8, `${steps} steps`);
      const seen: string[] = [];
      for (let step = 0; step < steps; step++) {
        const dir = await prepare(t.testdir({ [`at${step}`]: {} }) + `/at${step}`);
        t.equal((await commitIn(dir, step, NEW, how)).killed, true);
        t.ok(readdirSync(dir).includes(`.${NAME}.lock`), "the dead process left its lock");
        t.same(await recoverFolder(dir), [NAME]);
        seen.push(await state(dir));
      }
      const turn = seen.indexOf("new");
      t.ok(turn > 0 && turn < steps, "some deaths come before the mark, some after");
      t.same(seen, [
        ...Array<string>(turn).fill(before),
        ...Array<string>(steps - turn).fill("new"),
      ]);
    },
  );
}

// In memory there is no block device, as on a network file system: there the receipt is staged
for (const [where, base] of [
  ["on a disk", undefined],
  ["in memory", "/dev/shm"],
] as const) {
  t.test(`killed at every step of a receipt without files, ${where}`, async (t) => {
    const folder = mkdtempSync(`${base ?? t.testdir()}/radserve-`);
    t.teardown(() => rmSync(folder, { recursive: true, force: true }));
    const at = (name: string) => {
      mkdirSync(`${folder}/${name}`);
      return `${folder}/${name}`;
    };
    const steps = Number((await commitIn(at("whole"), -1, {})).stdout);
    t.same(readdirSync(`${folder}/whole`), [`${NAME}.json`]);
    const [seen, left]: string[][][] = [[], []];
    for (let step = 0; step < steps; step++) {
      const dir = at(`at${step}`);
      t.equal((await commitIn(dir, step, {})).killed, true);
      left!.push(readdirSync(dir));
      t.same(await recoverFolder(dir), [NAME]);
      seen!.push(readdirSync(dir));
    }
    if (isOnBlockDevice(folder)) {
      t.same(left, [[`.${NAME}.lock`], [`.${NAME}.lock`]], "nothing has a name before it is whole");
      t.same(seen, [[], []]);
    } else t.same(seen, [[], [], [], [`${NAME}.json`]]);
  });
}

/** The first step after the mark: its process has decided the result and published nothing. */
const MARKED = 1 + Object.keys(NEW).length + 1 + 1;

t.test("killed again and again while it recovers", async (t) => {
  const dir = t.testdir({ x: {} }) + "/x";
  const { files, receipt } = sample(NAME, "pixels", OLD);
  await withName(dir, NAME, {}, (held) => held.commit(files, receipt));
  const steps: string[] = [];
  t.equal((await commitIn(dir, MARKED)).killed, true);
  t.ok(readdirSync(dir).includes(`.${NAME}.radserve`));
  for (let step = 1; step < 5; step++) t.equal((await commitIn(dir, step)).killed, true);
  await withName(dir, NAME, { onStep: (step) => void steps.push(step) }, () => Promise.resolve());
  t.ok(steps.length > 0, "the last one still had something to do");
  t.equal(await state(dir), "new");
});

for (const [what, harm, wanted] of [
  ["is finished", () => undefined, "new"],
  [
    "in which a file was harmed is put back",
    (folder: string) => writeFileSync(`${folder}/${NAME}.c.png`, "harmed"),
    "old",
  ],
] as const)
  t.test(`what 0.6 left, with its files in a folder of their own, ${what}`, async (t) => {
    const dir = t.testdir({ x: {} }) + "/x";
    const { files, receipt } = sample(NAME, "pixels", OLD);
    await withName(dir, NAME, {}, (held) => held.commit(files, receipt));
    // Both receipts are aside, and one file of two is in place
    t.equal((await commitIn(dir, MARKED + 5)).killed, true);
    const staging = `${dir}/.${NAME}.radserve`;
    const staged = readdirSync(staging).filter((name) => name.startsWith(NAME));
    t.equal(staged.length, 1);
    mkdirSync(`${staging}/files`);
    for (const name of staged) renameSync(`${staging}/${name}`, `${staging}/files/${name}`);
    harm(`${staging}/files`);
    t.same(await recoverFolder(dir), [NAME]);
    t.equal(await state(dir), wanted);
  });
