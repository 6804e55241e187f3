/**
 * A model that looks at a region of a case: the model that finds it goes first, whatever their
 * names are.
 */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import t from "tap";
import { infer } from "../../src/inference/infer-image.js";
import type { Manifest } from "../../src/manifest/manifest.js";
import { receiptSchema } from "../../src/results/receipt/receipt.js";
import { ADDON, needs } from "../support/needs.js";
import { reference, writeReachModel } from "../support/reach-models.js";
import { engine, modelsOf } from "../support/real-engine.js";

t.test("a region of a case", { skip: needs(ADDON) }, async (t) => {
  t.teardown(() => engine().close());
  const draft = (m: Manifest) => {
    Object.assign(m, { stage: "draft", results: { outputs: ["json"] } });
    m.outputs = m.outputs.filter(({ kind }) => kind === "segmentation");
  };
  /**
   * The same region, found by a model whose name comes after or before that of the model which
   * looks at it.
   */
  const sourceArea = async (finder: string) => {
    const models = t.testdir();
    writeReachModel(models, "together", (m) => {
      draft(m);
      m.name = finder;
    });
    writeReachModel(models, "together", (m) => {
      draft(m);
      Object.assign(m, {
        name: "looker",
        region: { model: finder, label: "bright", margin_mm: 2, when_empty: "negative" },
      });
    });
    const set = await modelsOf(models);
    t.teardown(() => set.close());
    const roots = { input: undefined, output: undefined };
    const answer = await infer(
      {
        requestId: "test",
        priority: "routine",
        cancelId: 1,
        roots,
        inputPath: join(reference("roles"), "brain"),
        outputFolder: t.testdir(),
      },
      { engine: engine(), models: set.entries },
    );
    const receipt = receiptSchema.parse(JSON.parse(readFileSync(answer.receipt_path, "utf8")));
    const looker = receipt.models.find(({ name }) => name === "looker");
    t.strictSame(
      looker?.warnings.filter(({ code }) => code === "region_empty"),
      [],
    );
    return looker?.transforms[0]?.["source_area"];
  };
  const before = await sourceArea("finder");
  t.type(before, Object);
  t.strictSame(await sourceArea("together"), before);
});
