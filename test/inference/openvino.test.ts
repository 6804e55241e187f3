/** From DICOM to SEG by OpenVINO: what a result says of it, and what is reused. */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import t, { type Test } from "tap";
import { createLog } from "../../src/base/log.js";
import { infer } from "../../src/inference/infer-image.js";
import type { Precision, Provider } from "../../src/manifest/providers.js";
import { effectivePrecision } from "../../src/models/canary.js";
import { loadModels, type ModelSet } from "../../src/models/set.js";
import { ModelTrials } from "../../src/models/trial.js";
import { receiptSchema } from "../../src/results/receipt/receipt.js";
import { COMPARED, modelsCompare } from "../../src/commands/models/compare.js";
import { ADDON, needs, OPENVINO } from "../support/needs.js";
import { copyModel } from "../support/manifests.js";
import { engine } from "../support/real-engine.js";
import { folderOf, slice } from "../support/series.js";

/** ct-tissue, whose numbers are the same wherever it is computed. */
function written(
  t: Test,
  precision: Precision = "float32",
  providers: Provider[] = ["openvino", "cpu"],
): string {
  const directory = t.testdir({});
  copyModel(directory, "ct-tissue", "tissue", (manifest) => {
    manifest.execution = { providers, precision };
    manifest.canary!.tolerance = providers.map((provider) => ({
      provider,
      precision: effectivePrecision(provider, precision),
      absolute: 0,
      relative: 0,
    }));
  });
  return directory;
}

async function modelsBy(t: Test, directory: string, provider: Provider): Promise<ModelSet> {
  const models = await loadModels({
    directory,
    engine: engine(),
    providers: [provider],
    log: createLog("silent"),
  });
  t.teardown(() => models.close());
  return models;
}

async function run({ entries }: ModelSet, inputPath: string, outputFolder: string) {
  const { receipt_path, reused } = await infer(
    {
      requestId: "r",
      inputPath,
      outputFolder,
      priority: "routine",
      cancelId: 1,
      roots: { input: undefined, output: undefined },
    },
    { engine: engine(), models: entries },
  );
  const [model] = receiptSchema.parse(JSON.parse(readFileSync(receipt_path, "utf8"))).models;
  return { model: model!, reused, seg: model!.outputs.find(({ path }) => path.includes(".seg.")) };
}

t.test("what names OpenVINO alone does not run elsewhere", { skip: needs(ADDON) }, async (t) => {
  const [entry] = (await modelsBy(t, written(t, "float32", ["openvino"]), "cpu")).entries;
  t.match(entry?.error?.message, /execution.providers allows openvino, and this server has cpu/);
});

t.test("an image by OpenVINO", { skip: needs(ADDON, OPENVINO) }, async (t) => {
  const directory = written(t);
  const [openvino, cpu] = await Promise.all([
    modelsBy(t, directory, "openvino"),
    modelsBy(t, directory, "cpu"),
  ]);
  const folder = folderOf(t, { a: slice({ z: 0, fill: 40 }) });
  const output = join(folder, "..", "out");
  const first = await run(cpu, join(folder, "a"), output);
  t.equal(first.model.provider, "cpu");
  t.notOk("precision" in first.model, "receipts of the CPU are as they were");
  const second = await run(openvino, join(folder, "a"), output);
  t.match(second, { reused: false, model: { provider: "openvino", precision: "float32" } });
  t.type(first.seg?.sop_instance_uid, "string");
  t.notOk(second.seg?.series_instance_uid === first.seg?.series_instance_uid);
  t.notOk(second.seg?.sop_instance_uid === first.seg?.sop_instance_uid);
  t.strictSame(second.model.measurements, first.model.measurements, "the same voxels");
  const expected = engine().runBytes(openvino.entries[0]!.nativeId!, 512 * 512);
  t.equal(expected, 0, "what the run before took is not counted as its own");
  const again = await run(openvino, join(folder, "a"), output);
  t.ok(again.reused);
  t.strictSame(again.seg, second.seg);
  t.notOk((await run(cpu, join(folder, "a"), output)).reused);
});

t.test("the receipt says bfloat16", { skip: needs(ADDON, OPENVINO) }, async (t) => {
  const directory = written(t, "bfloat16");
  const models = await modelsBy(t, directory, "openvino");
  const refusal = models.entries[0]?.error?.message;
  if (refusal !== undefined) {
    t.match(refusal, /Expected OpenVINO to compute the model in bf16, found/);
    return;
  }
  const folder = folderOf(t, { a: slice({ z: 0, fill: 40 }) });
  const { model } = await run(models, join(folder, "a"), join(folder, "..", "out"));
  t.match(model, { provider: "openvino", precision: "bfloat16" });
});

t.test("models compare", { skip: needs(ADDON, OPENVINO) }, async (t) => {
  const trials = new ModelTrials({
    stateDir: t.testdir({}),
    providers: COMPARED,
    version: "",
    threads: 2,
    weights: 2 ** 30,
  });
  t.teardown(() => trials.rest());
  const { text, exitCode, data } = await modelsCompare(
    join(written(t), "tissue"),
    engine(),
    trials.within(2 ** 30),
  );
  t.equal(exitCode, 0, "the same bits each time");
  const { turns } = data as { turns: { peak_bytes: number }[] };
  for (const { peak_bytes } of turns) t.ok(peak_bytes > 2 ** 20, "memory of a process of its own");
  t.match(text, /canary\.tolerance, .*{"provider":"openvino","precision":"float32",/);
  t.match(text, /^tissue .*by turns/);
  t.match(text, /tissue: largest difference 0.*0 have another label/);
  t.match(text, /"execution": {"providers":\["openvino","cpu"\],"precision":"float32"}/);
  t.match(data, { turns: [{ provider: "cpu" }, { provider: "openvino" }] });
});
