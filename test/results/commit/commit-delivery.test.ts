/**
 * A result and the file that says to where it is delivered appear together, and an old one that was
 * not delivered stays.
 */
import { execFile } from "node:child_process";
import { existsSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import t, { type Test } from "tap";
import { withName } from "../../../src/results/commit/commit.js";
import {
  deliveryText,
  readDelivery,
  type Delivery,
} from "../../../src/results/receipt/delivery.js";
import { deliveryFor, recoverFolder, sample } from "../../support/commits.js";

const NAME = "slice.dcm";
const OLD = { a: "old a", gone: "old, of a model no longer there" };
const NEW = { a: "new a, longer", c: "new c" };
const HELPER = `.${NAME}.delivery.json`;
const child = fileURLToPath(new URL("commit-child.js", import.meta.url));

async function commitIn(dir: string, step: number, how: string): Promise<string> {
  const words = [child, dir, NAME, String(step), JSON.stringify(NEW), how];
  const ended = await promisify(execFile)(process.execPath, words, { env: {} }).catch(
    (error: unknown) => ({
      stdout: (error as { signal?: string }).signal ?? "",
    }),
  );
  return ended.stdout;
}

async function put(
  dir: string,
  contents: Record<string, string>,
  delivery?: Delivery,
): Promise<void> {
  const { files, receipt } = sample(NAME, "pixels", contents);
  await withName(dir, NAME, {}, (held) => held.commit(files, receipt, undefined, delivery));
}

const text = (file: string) => readFileSync(file, "utf8");
const namesOf = (contents: object) => Object.keys(contents).map((model) => `${NAME}.${model}.png`);
const isNew = (dir: string) => text(`${dir}/${NAME}.json`).includes('"c"');

/** The old result as it is kept until it is delivered. */
async function checkKept(t: Test, dir: string, number = 1): Promise<void> {
  const kept = `${dir}/.${NAME}.delivery.${number}`;
  t.match(await readDelivery(`${kept}/previous.delivery.json`, NAME), { id: "old", open: true });
  t.same(readdirSync(`${kept}/previous`).sort(), namesOf(OLD).sort());
  t.equal(text(`${kept}/previous/${NAME}.a.png`), OLD.a);
  t.match(text(`${kept}/previous.json`), /"gone"/);
}

for (const how of ["deliver", ""])
  await t.test(
    `killed at every step over a result that is not delivered, ${how || "with nothing to deliver"}`,
    async (t) => {
      const prepare = async (name: string) => {
        const dir = `${t.testdir({ [name]: {} })}/${name}`;
        await put(dir, OLD, deliveryFor("old"));
        return dir;
      };
      const steps = Number(await commitIn(await prepare("whole"), -1, how));
      t.ok(steps > 10);
      const seen = new Set<boolean>();
      for (let step = 0; step < steps; step++) {
        const dir = await prepare(`at${step}`);
        t.equal(await commitIn(dir, step, how), "SIGKILL");
        t.same(await recoverFolder(dir), [NAME]);
        seen.add(isNew(dir));
        const delivery = await readDelivery(`${dir}/${HELPER}`, NAME);
        const results = readdirSync(dir).filter((name) => !name.startsWith("."));
        if (isNew(dir)) {
          t.same(results.sort(), [...namesOf(NEW), `${NAME}.json`].sort());
          if (how === "deliver")
            t.match(delivery, { id: "new", open: true, replaces: { id: "old" } }, `step ${step}`);
          else t.equal(delivery, undefined);
          await checkKept(t, dir);
        } else {
          t.same(results.sort(), [...namesOf(OLD), `${NAME}.json`].sort());
          t.match(delivery, { id: "old" }, `step ${step}`);
          t.notOk(existsSync(`${dir}/.${NAME}.delivery.1`));
        }
      }
      t.same(seen, new Set([false, true]));
    },
  );

for (const at of ["the old delivery", "the old receipt", `the old ${NAME}.a.png`])
  await t.test(
    `who stood still before it moved ${at} aside moves nothing of a newer result`,
    async (t) => {
      const dir = t.testdir();
      await put(dir, OLD, deliveryFor("old"));
      const late = sample(NAME, "pixels", { a: "late" });
      const onStep = async (step: string) => {
        if (step !== `move ${at} aside`) return;
        rmSync(`${dir}/.${NAME}.lock`);
        t.ok(Number(await commitIn(dir, -1, "")) > 10);
      };
      await t.rejects(
        withName(dir, NAME, { onStep }, (held) => held.commit(late.files, late.receipt)),
        { code: "overloaded" },
      );
      t.ok(isNew(dir));
      t.equal(text(`${dir}/${NAME}.a.png`), NEW.a);
      await checkKept(t, dir);
    },
  );

await t.test(
  "a result that was delivered goes when it is replaced, and the new one names it",
  async (t) => {
    const dir = t.testdir();
    await put(dir, OLD, deliveryFor("old"));
    writeFileSync(
      `${dir}/${HELPER}`,
      await deliveryText({ ...deliveryFor("old"), open: false }, NAME),
    );
    await put(dir, NEW, deliveryFor("new"));
    t.same(readdirSync(dir).sort(), [HELPER, ...namesOf(NEW), `${NAME}.json`].sort());
    t.match(await readDelivery(`${dir}/${HELPER}`, NAME), {
      id: "new",
      replaces: { id: "old", open: false },
    });
  },
);

await t.test(
  "of several that wait the older has the smaller number, whatever was between",
  async (t) => {
    const dir = t.testdir({ [`.${NAME}.delivery.3`]: { x: "" } });
    await put(dir, OLD, deliveryFor("old"));
    await put(dir, NEW, deliveryFor("new"));
    await checkKept(t, dir, 4);
  },
);

await t.test("what is to be delivered of a result that somebody removed is dropped", async (t) => {
  const dir = t.testdir({ [HELPER]: await deliveryText(deliveryFor("old"), NAME) });
  t.same(await recoverFolder(dir), [NAME]);
  t.same(readdirSync(dir), []);
});

await t.test(
  "a name that is too long for the file beside the receipt is refused before anything is done",
  async (t) => {
    const name = "n".repeat(241);
    const dir = t.testdir();
    const { files, receipt } = sample(name, "pixels", {});
    for (let i = 0; i < 2; i++)
      await withName(dir, name, {}, (held) => held.commit(files, receipt));
    t.same(readdirSync(dir), [`${name}.json`]);
    await t.rejects(
      withName(dir, name, { delivers: true }, () => Promise.resolve()),
      { code: "bad_request" },
    );
  },
);
