/** nnU-Net's cascade through the whole use-case: one model's labels are channels of the next. */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import t, { type Test } from "tap";
import { openInput } from "../../src/files/guarded-paths.js";
import { infer } from "../../src/inference/infer-image.js";
import { readInput } from "../../src/inference/read-input.js";
import { replay } from "../../src/inference/replay.js";
import type { Manifest } from "../../src/manifest/manifest.js";
import { modelsCheck } from "../../src/commands/models/check.js";
import { modelsImport } from "../../src/features/import/import.js";
import { receiptSchema } from "../../src/results/receipt/receipt.js";
import { ADDON, needs } from "../support/needs.js";
import { engine, modelsOf } from "../support/real-engine.js";
import { folderOf, slice } from "../support/series.js";

const REFERENCE = resolve("test/reference/volumes");

t.test("a cascade", { skip: needs(ADDON) }, async (t) => {
  t.teardown(() => engine().close());
  const folder = (t: Test) => {
    const made = mkdtempSync(join(tmpdir(), "radserve-cascade-"));
    t.teardown(() => {
      rmSync(made, { recursive: true });
    });
    return made;
  };
  const imported = async (models: string, name: string, previous?: string) => {
    const choices = { orientation: "SPL", mirror: "none", modality: "CT" };
    const more = previous === undefined ? {} : { previous };
    await modelsImport(join(REFERENCE, name), engine(), {
      ...choices,
      ...more,
      to: join(models, name),
    });
    const file = join(models, name, "model.json");
    const manifest = JSON.parse(readFileSync(file, "utf8")) as Manifest;
    writeFileSync(file, JSON.stringify({ ...manifest, release: "active" }));
  };
  const files = [0, 1, 2, 3, 4, 5].map((k) => slice({ z: 2 * k, fill: 40 * k + 1 }));

  await t.test(
    "the first runs too, the receipt pins it, and the result can be verified",
    async (t) => {
      const models = folder(t);
      await imported(models, "cascade-lowres");
      await imported(models, "cascade-fullres", "cascade-lowres");
      const set = await modelsOf(models);
      t.teardown(() => set.close());
      const input = folderOf(t, files);
      const task = {
        requestId: "r",
        priority: "routine" as const,
        cancelId: 1,
        models: ["cascade-fullres"],
      };
      const roots = { input: undefined, output: undefined };
      const answer = await infer(
        { ...task, roots, inputPath: input, outputFolder: folder(t) },
        { engine: engine(), models: set.entries },
      );
      const receipt = receiptSchema.parse(JSON.parse(readFileSync(answer.receipt_path, "utf8")));
      const [second, first] = receipt.models;
      t.equal(first?.name, "cascade-lowres", "who names the second alone gets the first too");
      t.strictSame(second?.cascade, {
        model: "cascade-lowres",
        version: "1",
        sha256: first?.sha256,
        site_thresholds: {},
        labels: ["liver", "spleen"],
      });
      t.equal(second?.status, "succeeded");
      const opened = await openInput(input, undefined);
      t.teardown(() => {
        opened.close();
      });
      const image = await readInput(opened);
      const checks = await replay({ receipt, image, models: set.entries, engine: engine() });
      t.ok(
        checks.every(({ verdict }) => verdict === "ok"),
        JSON.stringify(checks),
      );
    },
  );

  await t.test("without the first, or with other labels, it is not loaded", async (t) => {
    const models = folder(t);
    await imported(models, "cascade-fullres", "cascade-lowres");
    const alone = await modelsOf(models);
    t.match(
      alone.entries[0]?.error?.message ?? alone.problems[0]?.error.message,
      /cascade\.model: expected the folder/,
    );
    await alone.close();
    await imported(models, "cascade-lowres");
    const file = join(models, "cascade-lowres", "model.json");
    const text = readFileSync(file, "utf8");
    writeFileSync(file, text.replace('"spleen"', '"kidney"'));
    const { text: said, exitCode } = await modelsCheck(join(models, "cascade-fullres"), {
      engine: engine(),
      providers: ["cpu"],
    });
    t.equal(exitCode, 1);
    t.match(said, /cascade\.labels: expected all labels .* liver, kidney/);
  });
});
