/** Models that take all memory, or do not end, cost their first process that, and nobody else. */
import { mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import os from "node:os";
import { join } from "node:path";
import t, { type Test } from "tap";
import { onnxModel, type ModelDescription } from "../../scripts/lib/onnx-model.js";
import { readModelFolder } from "../../src/models/read.js";
import { ModelTrials } from "../../src/models/trial.js";
import { withDurations } from "../support/durations.js";
import { endless, foldsMuch } from "../support/endless.js";
import { copyModel, shippedModels } from "../support/manifests.js";
import { ADDON, needs } from "../support/needs.js";
import { until } from "../support/until.js";

const MIB = 2 ** 20;

/** Each function calls the one before twice. */
const multiplying = (functions: number): ModelDescription => {
  const x = { name: "x", dtype: "float32", shape: ["n"] } as const;
  const call = (op: string, domain: string, from: string, to: string) => ({
    op,
    domain,
    inputs: [from],
    outputs: [to],
  });
  const name = (i: number) => `f${i}`;
  return {
    name: "multiplying",
    inputs: [x],
    outputs: [{ ...x, name: "y" }],
    nodes: [call(name(functions - 1), "own", "x", "y")],
    functions: Array.from({ length: functions }, (_, i) => {
      const [op, domain] = i === 0 ? ["Neg", ""] : [name(i - 1), "own"];
      return {
        name: name(i),
        domain: "own",
        inputs: ["a"],
        outputs: ["c"],
        nodes: [call(op, domain, "a", "b"), call(op, domain, "b", "c")],
      };
    }),
  };
};

/** Processes that are started from now on have other lengths, until the test has ended. */
function shorten(t: Test, others: Parameters<typeof withDurations>[0]): void {
  const before = { ...process.env };
  Object.assign(process.env, withDurations(others));
  t.teardown(() => Object.assign(process.env, { NODE_OPTIONS: "" }, before));
}

/** 4 GiB, beside what is made of them. */
const NUMBERS = 2 ** 30;

t.test("models are tried by a process of their own", { skip: needs(ADDON) }, async (t) => {
  const stateDir = t.testdir();
  const models = join(stateDir, "models");
  mkdirSync(models);
  const trials = new ModelTrials({
    stateDir,
    providers: ["cpu"],
    version: "1",
    threads: 2,
    weights: Number.MAX_SAFE_INTEGER,
  });
  t.teardown(() => trials.rest());
  const of = async (folder: string, bytes = 512 * MIB, besideOthers = false) =>
    trials.of(await readModelFolder(folder), { bytes, besideOthers, stop: undefined });
  const remembered = () =>
    JSON.parse(readFileSync(join(stateDir, "tried-models.json"), "utf8")) as {
      tried: { model: string; bytes: number; failed?: object }[];
    };

  await t.test("a good one, once", (t) => goodOne(t));
  async function goodOne(t: Test): Promise<void> {
    const folder = join(shippedModels, "ct-tissue");
    const first = await of(folder);
    t.equal(first?.refused, undefined);
    t.match(remembered().tried, [{ bytes: first!.bytes }]);
    const written = () => statSync(join(stateDir, "tried-models.json")).ino;
    const before = written();
    t.strictSame(await of(folder), first);
    t.equal(written(), before, "what was tried is not tried again");
    t.match((await of(folder, first!.bytes - 1))?.refused?.message, /^Model ct-tissue: expected/);
    writeFileSync(join(stateDir, "tried-models.json"), "{");
    t.equal((await of(folder))?.refused, undefined, "a file that cannot be read is made again");
    t.equal(remembered().tried.length, 1);
  }

  await t.test("one that takes more memory than it may", async (t) => {
    foldsMuch(models, NUMBERS);
    const { refused } = (await of(join(models, "folds-much")))!;
    t.match(refused?.toObject(), {
      error: "model_unavailable",
      message: /^Model folds-much(: it was tried in a process| does not serve: .*memory)/,
    });
    t.equal((await of(join(shippedModels, "ct-tissue")))?.refused, undefined, "the next is tried");
  });

  await t.test("one that does not end", async (t) => {
    endless(models);
    // The next process begins with these
    trials.rest();
    shorten(t, { firstRun: 6_000 });
    const folder = join(models, "endless");
    t.match((await of(folder))?.refused?.message, /a run of its graph did not end within 6 s/);
    t.match(remembered().tried, { 1: { failed: { with_bytes: 512 * MIB } } });
    const again = await of(folder);
    t.match(again?.refused?.message, /did not end.*models reload tries it again\.$/);
  });

  await t.test("only beside models that serve it gives way to others", async (t) => {
    endless(models);
    const report = await readModelFolder(join(models, "endless"));
    const children = () =>
      readFileSync(`/proc/${process.pid}/task/${process.pid}/children`, "utf8").trim().split(" ");
    const priorities: number[] = [];
    for (const besideOthers of [false, true]) {
      trials.rest();
      const stop = new AbortController();
      const others = children();
      const trying = trials.of(report, {
        bytes: 512 * MIB,
        besideOthers,
        stop: stop.signal,
      });
      const pid = await until("a process tries it", () =>
        children().find((one) => !others.includes(one)),
      );
      priorities.push(os.getPriority(Number(pid)));
      stop.abort();
      await trying;
    }
    const own = os.getPriority();
    t.strictSame(priorities, [own, Math.min(own + 10, os.constants.priority.PRIORITY_LOW)]);
  });

  await t.test("a graph whose functions multiply without end", async (t) => {
    trials.rest();
    shorten(t, { graphLook: 1 });
    const file = join(stateDir, "multiplying.onnx");
    writeFileSync(file, onnxModel(multiplying(60)));
    await t.rejects(trials.within(512 * MIB).inspectGraph(file), {
      code: "model_unavailable",
      message: /^The graph multiplying\.onnx: it was tried in a process .* did not end in time/,
    });
    writeFileSync(file, onnxModel(multiplying(2)));
    const { inputs } = await trials.within(512 * MIB).inspectGraph(file);
    t.equal(inputs[0]?.name, "x", "the next is looked at");
  });

  await t.test("one that is off, broken, or for a GPU alone is not tried", async (t) => {
    const off = copyModel(models, "ct-tissue", "off", (m) => (m.release = "off"));
    t.equal(await of(off), undefined);
    rmSync(join(off, "model.onnx"));
    t.equal(await of(off), undefined);
    const gpu = copyModel(models, "ct-tissue", "gpu", (m) => (m.execution.providers = ["cuda"]));
    t.equal(await of(gpu), undefined);
  });
});
