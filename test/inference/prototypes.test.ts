/**
 * Masks by prototypes against what numpy and onnxruntime made of the same boxes
 * (test/reference/prototypes).
 */
import { readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import t from "tap";
import { decodeNpy } from "../../src/engine/npy.js";
import { readImage } from "../../src/images/read-image.js";
import { inferOnce } from "../../src/inference/infer-once.js";
import { decodingSteps } from "../../src/models/transform-steps.js";
import { modelsCheck } from "../../src/commands/models/check.js";
import { modelsCanary } from "../../src/commands/models/canary.js";
import { readModelFolder } from "../../src/models/read.js";
import type { Manifest } from "../../src/manifest/manifest.js";
import { toNumbers } from "../../src/models/compare.js";
import { ADDON, needs } from "../support/needs.js";
import { reference, writeReachModel } from "../support/reach-models.js";
import { engine } from "../support/real-engine.js";

const stored = (name: string) =>
  decodeNpy(readFileSync(join(reference("prototypes"), `${name}.npy`)));

t.test("masks by prototypes", { skip: needs(ADDON) }, async (t) => {
  t.teardown(() => engine().close());
  const options = { engine: engine(), providers: ["cpu"] as const };
  const image = await readImage(readFileSync(join(reference("prototypes"), "image.dcm")));
  const folder = writeReachModel(t.testdir(), "instances");
  await modelsCanary(folder, image, options);
  const { model } = await readModelFolder(folder);

  await t.test("boxes and masks are the reference's", async (t) => {
    const { result } = await inferOnce(folder, model!, image, options);
    const [boxes, masks] = result.outputs;
    if (boxes?.kind !== "boxes" || masks?.kind !== "segmentation")
      throw new Error("Expected boxes and masks");
    t.strictSame(
      boxes.boxes.flatMap(({ label, x0, y0, x1, y1 }) => [label, x0, y0, x1, y1]),
      Array.from(toNumbers(stored("boxes"))),
    );
    t.ok(masks.overlapping);
    const size = masks.rows * masks.columns;
    for (const [label, name] of ["nodule", "mass"].entries()) {
      const expected = stored(name).data;
      t.ok(Buffer.from(masks.mask.slice(label * size, (label + 1) * size)).equals(expected), name);
      t.equal(
        masks.counts[label],
        expected.reduce((sum, pixel) => sum + pixel, 0),
      );
    }
    t.match(decodingSteps(model!.manifest, model!.thresholds).slice(-4), [
      { step: "masks_by_prototypes", tensor: "output1", boxes: "output0" },
      { step: "mask_thresholds", at_or_above: { nodule: 0.5, mass: 0.6 } },
      { step: "within_box" },
      { step: "union" },
    ]);
  });

  await t.test("a site moves the scores of boxes, and not the area of masks", async (t) => {
    writeFileSync(join(folder, "site.json"), JSON.stringify({ thresholds: { nodule: 0.7 } }));
    const moved = (await readModelFolder(folder)).model!;
    rmSync(join(folder, "site.json"));
    t.strictSame(moved.thresholds, [
      [0.7, model!.thresholds[0]![1]],
      [0.5, 0.6],
    ]);
  });

  await t.test("what does not fit the table is a mistake", async (t) => {
    const problems = async (change: (m: Manifest) => void) =>
      (await modelsCheck(writeReachModel(t.testdir(), "instances", change), options)).text;
    const part = (m: Manifest) =>
      m.outputs[1] as Extract<Manifest["outputs"][number], { labels: unknown }>;
    t.match(
      await problems((m) => part(m).labels.reverse()),
      /outputs\[1\]\.labels: Expected the labels of its detection_table in their order: nodule, mass/,
    );
    t.match(
      await problems((m) => Object.assign(part(m), { boxes: "output1" })),
      /outputs\[1\]\.boxes: Expected the tensor of a detection_table with a column mask_coefficients/,
    );
    t.match(
      await problems((m) => Object.assign(part(m), { boxes: undefined })),
      /outputs\[1\]\.boxes: Expected the tensor of a detection_table/,
    );
    t.match(
      await problems((m) => Object.assign(m.outputs[0]!, { mask_coefficients: undefined })),
      /outputs\[0\]\.mask_coefficients: Expected how many there are/,
    );
    // A canary, which the stage final asks for, is not what is looked at here.
    const draft = (m: Manifest) =>
      Object.assign(m, { stage: "draft", results: { outputs: ["json"] } });
    t.match(
      await problems((m) => {
        draft(m);
        Object.assign(m.outputs[0]!, { mask_coefficients: 5 });
      }),
      /outputs\[0\]\.columns: Expected 11 columns.*\n.*outputs\[1\]\.labels: Expected 5 channels/,
    );
    t.match(
      await problems((m) => Object.assign(part(m), { segment_type: "fractional" })),
      /outputs\[1\]\.segment_type: fractional gives one probability a pixel/,
    );
  });
});
