/** `radserve models canary`: what it writes passes, and nothing is overwritten. */
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import t from "tap";
import { decodeNpy } from "../../src/engine/npy.js";
import { sha256 } from "../../src/files/durable-files.js";
import type { Manifest } from "../../src/manifest/manifest.js";
import { modelsCheck } from "../../src/commands/models/check.js";
import { soundModel } from "../../src/commands/models/try.js";
import { loadSession } from "../../src/models/load.js";
import { readModelFolder } from "../../src/models/read.js";
import { toNumbers } from "../../src/models/compare.js";
import { modelsCanary } from "../../src/commands/models/canary.js";
import { ADDON, needs } from "../support/needs.js";
import { readImage } from "../../src/images/read-image.js";
import { radiograph } from "../support/radiograph.js";
import { engine } from "../support/real-engine.js";
import { writeTestModel } from "../support/test-models.js";

const manifestAt = (folder: string) =>
  JSON.parse(readFileSync(join(folder, "model.json"), "utf8")) as Manifest;

t.test("canary", { skip: needs(ADDON) }, async (t) => {
  t.teardown(() => engine().close());
  const options = { engine: engine(), providers: ["cpu"] as const };
  const image = await readImage(radiograph());

  await t.test("makes what check asks for", async (t) => {
    const folder = writeTestModel(t.testdir(), "columns");
    t.match(
      (await modelsCheck(folder, options)).text,
      /canary: Required in stage final: `radserve models canary`/,
    );
    const { text, exitCode } = await modelsCanary(folder, image, options);
    t.equal(exitCode, 0);
    t.match(
      text,
      /in {3}x: float32 \[1, 1, 32, 32\]\n {2}out {2}output0: float32 \[1, 6, 4\]\n {2}output0: 2 boxes/,
    );
    t.match(text, /wrote canary\/input\.npy\n {2}wrote canary\/output-1\.npy/);
    t.match(await modelsCheck(folder, options), {
      exitCode: 0,
      text: /in order\n {2}It loads and its canary passes/,
    });
    const { canary, stage, results } = manifestAt(folder);
    t.equal(stage, "final");
    t.ok(results.outputs.includes("sr"), "the rest of the manifest is as it was");
    t.strictSame(canary?.tolerance, [
      { provider: "cpu", precision: "float32", absolute: 0.0001, relative: 0.001 },
    ]);
    for (const file of [canary!.input!, ...canary!.expected.map((e) => e.file)])
      t.equal(sha256(readFileSync(join(folder, file.path))), file.sha256);
    const stored = decodeNpy(readFileSync(join(folder, "canary/output-1.npy")));
    t.equal(toNumbers(stored)[16]?.toFixed(2), "0.90", "the first score");

    await t.rejects(modelsCanary(folder, image, options), {
      code: "bad_request",
      message: /found one\. Take it out/,
    });
    const before = manifestAt(folder);
    delete before.canary;
    writeFileSync(join(folder, "model.json"), JSON.stringify(before));
    await t.rejects(modelsCanary(folder, image, options), {
      code: "bad_request",
      message: /files of an earlier/,
    });
    t.strictSame(manifestAt(folder), before);
  });

  await t.test("a canary sees other weights", async (t) => {
    const folder = writeTestModel(t.testdir(), "rows");
    await modelsCanary(folder, image, { ...options, tolerance: { absolute: 0.25, relative: 0 } });
    const manifest = manifestAt(folder);
    t.strictSame(manifest.canary?.tolerance[0], {
      provider: "cpu",
      precision: "float32",
      absolute: 0.25,
      relative: 0,
    });
    const expected = join(folder, "canary/output-1.npy");
    const bytes = readFileSync(expected);
    bytes.writeFloatLE(bytes.readFloatLE(bytes.length - 4) + 0.5, bytes.length - 4);
    writeFileSync(expected, bytes);
    manifest.canary!.expected[0]!.file.sha256 = sha256(bytes);
    writeFileSync(join(folder, "model.json"), JSON.stringify(manifest));
    t.match(await modelsCheck(folder, options), {
      exitCode: 1,
      text: /canary's output "output0" is wrong here/,
    });
  });

  await t.test("what ran elsewhere runs its canary alone when it is loaded", async (t) => {
    const folder = writeTestModel(t.testdir(), "columns");
    const runs = async () => {
      const model = soundModel(await readModelFolder(folder));
      const loaded = await loadSession(folder, model, engine(), ["cpu"], { tried: true });
      const found = engine()
        .stats()
        .models.find(({ id }) => id === loaded.id);
      await engine().unload(loaded.id);
      return found?.runSeconds.counts.reduce((sum, count) => sum + count, 0);
    };
    const draft = { ...manifestAt(folder), stage: "draft", results: { outputs: ["json"] } };
    writeFileSync(join(folder, "model.json"), JSON.stringify(draft));
    t.equal(await runs(), 0, "nothing to show, and its first image warms it");
    await modelsCanary(folder, image, options);
    t.not(await runs(), 0);
  });

  await t.test("says where an output tells nothing", async (t) => {
    const folder = writeTestModel(t.testdir(), "regression");
    t.match(
      (await modelsCanary(folder, image, options)).text,
      /out {2}y: float32 \[1, 1\]\n/,
      "one number",
    );
    const map = writeTestModel(t.testdir({ other: {} }), "mapper");
    const black = await readImage(radiograph({ WindowCenter: "60000", WindowWidth: "2" }));
    t.match(
      (await modelsCanary(map, black, options)).text,
      /the same number everywhere: take an image on which/,
    );
  });

  await t.test("nothing is left of one that cannot be made", async (t) => {
    const folder = writeTestModel(t.testdir(), "columns");
    const manifest = manifestAt(folder);
    manifest.inputs[0]!.tensor = "image";
    writeFileSync(join(folder, "model.json"), JSON.stringify(manifest));
    await t.rejects(modelsCanary(folder, image, options), {
      code: "model_unavailable",
      message: /did you mean "x"/,
    });
    t.notOk(existsSync(join(folder, "canary")));
    Object.assign(manifest, { version: null });
    writeFileSync(join(folder, "model.json"), JSON.stringify(manifest));
    await t.rejects(modelsCanary(folder, image, options), {
      message: /found 1 in test-columns\. Run: radserve models check/,
    });
    const empty = join(folder, "empty");
    mkdirSync(empty);
    await t.rejects(modelsCanary(empty, image, options), {
      code: "bad_request",
      message: /Expected a model\.json/,
    });
    t.strictSame(readdirSync(empty), []);
  });
});
