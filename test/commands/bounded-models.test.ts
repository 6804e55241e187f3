/** Commands that load models are bounded as a server is, and say what it says. */
import { execFileSync } from "node:child_process";
import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import t, { type Test } from "tap";
import { ctPlace, writeSlice } from "../support/bulk.js";
import { withDurations } from "../support/durations.js";
import { endless, endlessOver, foldsMuch, hungryOver, stuckOver } from "../support/endless.js";
import { ADDON, needs } from "../support/needs.js";
import { radserve } from "../support/server.js";

const GIB = 2 ** 30;

t.test("hostile models at the command line", { skip: needs(ADDON) }, async (t) => {
  const place = ctPlace({ RADSERVE_MEMORY: "1GiB" });
  t.teardown(() => place.remove());
  const models = place.environment["RADSERVE_MODELS_DIR"]!;
  const folder = (name: string) => path.join(models, name);
  const bright = path.join(place.input, "bright.dcm");
  writeSlice(bright, 2, { RescaleIntercept: "5000" });
  const say = (...args: string[]) => radserve(place, ...args);
  // Short alone where something is to be late: all else may take its time on a busy machine
  const within =
    (lengths: Record<string, string>) =>
    (...args: string[]) =>
      radserve({ ...place, environment: { ...place.environment, ...lengths } }, ...args);
  const loadSoon = within(withDurations({ firstRun: 2_000 }));
  const answerSoon = within({ RADSERVE_DEADLINE_SECONDS: "2" });
  const model = (make: (models: string) => void, name: string) => {
    make(models);
    return () => rmSync(folder(name), { recursive: true });
  };

  await t.test("a graph that needs more memory than there is", (t) => tooMuch(t));
  async function tooMuch(t: Test): Promise<void> {
    const remove = model((all) => foldsMuch(all, 64 * GIB), "folds-much");
    const words =
      /Model folds-much(: it was tried in a process of its own| does not serve: .*memory)/;
    t.match(await say("models", "check", folder("folds-much")), { status: 1, stdout: words });
    t.match(await say("models", "try", folder("folds-much"), bright), { status: 1, stderr: words });
    const inferred = await say("infer", bright, place.output, "--model", "folds-much");
    t.match(inferred, { status: 1, stderr: words });
    remove();
  }

  await t.test("a graph that does not end while it is loaded", async (t) => {
    const remove = model(endless, "endless");
    const words = /Model endless does not serve: a run of its graph did not end within 2 s/;
    t.match(await loadSoon("models", "check", folder("endless")), { status: 1, stdout: words });
    t.match(await loadSoon("models", "try", folder("endless"), bright), {
      status: 1,
      stderr: words,
    });
    remove();
  });

  await t.test("a graph that does not end for some images", async (t) => {
    const remove = model((all) => endlessOver(all, 4_000), "endless-over");
    t.match(await say("models", "check", folder("endless-over")), { status: 0 });
    const late = { status: 1, stderr: /deadline_exceeded/ };
    t.match(await answerSoon("models", "try", folder("endless-over"), bright), late);
    t.match(await answerSoon("infer", bright, place.output, "--model", "endless-over"), late);
    remove();
  });

  await t.test("a graph whose run does not look whether it is to stop", async (t) => {
    const remove = model((all) => stuckOver(all, 4_000), "stuck-over");
    const late = { status: 1, stderr: /deadline_exceeded/ };
    t.match(await answerSoon("models", "try", folder("stuck-over"), bright), late);
    t.match(await answerSoon("models", "canary", folder("stuck-over"), bright), late);
    remove();
  });

  await t.test("a graph that asks for more memory than there is for some images", async (t) => {
    const remove = model((all) => hungryOver(all, 2 ** 45, 4_000), "hungry-over");
    t.match(await say("models", "try", folder("hungry-over"), bright), {
      status: 1,
      stderr:
        /needs \d+ MiB or more at once, and all runs together may have \d+ MiB here.*memory_exceeded/,
    });
    remove();
  });

  await t.test("pipes and devices are told and not opened", async (t) => {
    const broken = path.join(place.directory, "broken");
    mkdirSync(broken);
    for (const name of ["graph.onnx", "model.json", "site.json"]) {
      execFileSync("mkfifo", [path.join(broken, name)]);
      const { status, stdout } = await say("models", "check", broken);
      t.match({ status, stdout }, { status: 1, stdout: /named pipe|does not exist/ }, name);
    }
    t.match(await say("models", "init", path.join(broken, "graph.onnx")), {
      status: 1,
      stderr: /named pipe|model\.json/,
    });
    rmSync(path.join(broken, "model.json"));
    t.match(await say("models", "init", path.join(broken, "graph.onnx")), {
      status: 1,
      stderr: /named pipe/,
    });
    writeFileSync(path.join(broken, "model.json"), "{}");
    t.match(await say("models", "try", broken, "/dev/zero"), { status: 1 });
  });
});
