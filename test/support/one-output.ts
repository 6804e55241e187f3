/** An image through a model with one output whose tensor is given, to the files of its result. */
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { onnxModel, type ModelDescription } from "../../scripts/lib/onnx-model.js";
import type { Engine } from "../../src/engine/engine.js";
import { sha256 } from "../../src/files/durable-files.js";
import { openFile } from "../../src/images/dicom/dicom-file.js";
import type { Attributes } from "../../src/images/image.js";
import { readImage } from "../../src/images/read-image.js";
import { infer } from "../../src/inference/infer-image.js";
import { replay } from "../../src/inference/replay.js";
import type { Manifest } from "../../src/manifest/manifest.js";
import { labelsOf, type ModelOutput } from "../../src/manifest/outputs/outputs.js";
import type { ModelEntry } from "../../src/models/entry.js";
import { receiptSchema, type Receipt } from "../../src/results/receipt/receipt.js";
import { manifestOf } from "./test-models.js";

/**
 * @param of the name of its model, whose manifest is that of the test model `columns` but for the
 * output
 */
export async function resultOf(
  { engine, folder }: { engine: Engine; folder: string },
  of: { name: string; graph: ModelDescription; output: ModelOutput; dicom: Buffer },
) {
  const { name, graph, output, dicom } = of;
  const bytes = onnxModel(graph);
  const modelPath = join(folder, `${name}.onnx`);
  writeFileSync(modelPath, bytes);
  const manifest: Manifest = { ...manifestOf("columns"), name, outputs: [output] };
  const { version, inputs, outputs, batching } = manifest;
  const loaded = await engine.load({
    modelPath,
    name,
    version,
    inputs,
    outputs,
    batching,
    provider: "cpu",
  });
  const model: ModelEntry = {
    name,
    version,
    sha256: sha256(bytes),
    manifest,
    site: { thresholds: {} },
    thresholds: outputs.map((one) => labelsOf(one).map(({ threshold }) => threshold ?? NaN)),
    state: "ready",
    nativeId: loaded.id,
    provider: "cpu",
  };
  const inputPath = join(folder, `${name}.dcm`);
  writeFileSync(inputPath, dicom);
  const roots = { input: undefined, output: undefined };
  const task = {
    requestId: "test",
    inputPath,
    outputFolder: join(folder, "out"),
    cancelId: 1,
    roots,
  };
  const answer = await infer({ ...task, priority: "routine" }, { engine, models: [model] });
  const receipt = receiptSchema.parse(JSON.parse(readFileSync(answer.receipt_path, "utf8")));
  const paths = answer.models[0]?.outputs.map(({ path }) => path) ?? [];
  const image = await readImage(dicom);
  return {
    receipt,
    result: receipt.models[0]!,
    paths,
    verdicts: async (changed: Receipt) =>
      (await replay({ receipt: changed, image, models: [model], engine })).map(
        ({ verdict }) => verdict,
      ),
  };
}

/** The items of a report and all below them, in their order. */
export function reportItems(paths: readonly string[]): Attributes[] {
  const path = paths.find((each) => each.endsWith(".sr.dcm"));
  if (path === undefined) throw new Error("Expected a report");
  const all = (item: Attributes): Attributes[] => [
    item,
    ...(item.sequence("ContentSequence") ?? []).flatMap(all),
  ];
  return all(openFile(readFileSync(path)).attributes);
}
