/**
 * The mean of three networks against what numpy and onnxruntime made of the same graphs
 * (test/reference/ensemble).
 */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import t from "tap";
import { decodeNpy } from "../../src/engine/npy.js";
import { openInput } from "../../src/files/guarded-paths.js";
import { infer } from "../../src/inference/infer-image.js";
import { readInput } from "../../src/inference/read-input.js";
import { replay } from "../../src/inference/replay.js";
import type { Manifest } from "../../src/manifest/manifest.js";
import { inferOnce } from "../../src/inference/infer-once.js";
import { modelsCheck } from "../../src/commands/models/check.js";
import { modelsCanary } from "../../src/commands/models/canary.js";
import { toNumbers } from "../../src/models/compare.js";
import { readModelFolder } from "../../src/models/read.js";
import { receiptSchema } from "../../src/results/receipt/receipt.js";
import { makePlace } from "../support/server.js";
import { ADDON, needs } from "../support/needs.js";
import { FOLDS, reference, writeReachModel } from "../support/reach-models.js";
import { engine, modelsOf } from "../support/real-engine.js";

const stored = (name: string) =>
  toNumbers(decodeNpy(readFileSync(join(reference("ensemble"), `${name}.npy`))));
const SLICES = 5;
const sigmoid = (x: number) => 1 / (1 + Math.exp(-x));

t.test("ensembles", { skip: needs(ADDON) }, async (t) => {
  t.teardown(() => engine().close());
  const options = { engine: engine(), providers: ["cpu"] as const };
  const opened = await openInput(join(reference("inputs"), "series"), undefined);
  t.teardown(() => {
    opened.close();
  });
  const image = await readInput(opened);

  for (const average of ["before", "after"])
    await t.test(`the mean ${average} the activation is the reference's`, async (t) => {
      const folder = writeReachModel(t.testdir(), `folds-${average}`);
      await modelsCanary(folder, image, { ...options, frame: 3 });
      t.match(
        (await modelsCheck(folder, options)).text,
        /in order\n {2}It loads and its canary passes/,
      );
      const { model } = await readModelFolder(folder);
      const scores = stored(`${average}-scores`);
      const masks = ["bright", "soft"].map((label) => stored(`${average}-${label}`));
      // All at once, so that they may run in batches.
      const all = await Promise.all(
        Array.from({ length: SLICES }, (_, slice) =>
          inferOnce(folder, model!, image, { ...options, frame: slice + 1 }),
        ),
      );
      all.forEach(({ result }, slice) => {
        const [mask, found] = result.outputs;
        if (mask?.kind !== "segmentation" || found?.kind !== "classification")
          throw new Error("Expected a mask and scores");
        const size = mask.mask.length;
        const expected = Array.from(mask.mask, (_, i) =>
          masks.reduce((label, of, n) => (of[slice * size + i] === 1 ? n + 1 : label), 0),
        );
        t.strictSame(Array.from(mask.mask), expected, `slice ${slice + 1}`);
        for (const n of [0, 1])
          t.ok(Math.abs((found.scores[n] ?? NaN) - sigmoid(scores[2 * slice + n] ?? NaN)) < 1e-6);
      });
    });

  await t.test("the receipt names each graph with its hash, and can be verified", async (t) => {
    const place = makePlace();
    t.teardown(() => {
      place.remove();
    });
    const models = place.environment["RADSERVE_MODELS_DIR"]!;
    const folder = writeReachModel(models, "folds-after");
    await modelsCanary(folder, image, options);
    const { entries } = await modelsOf(models, engine());
    const roots = { input: undefined, output: undefined };
    const task = { requestId: "test", priority: "routine" as const, cancelId: 1, roots };
    const inputPath = join(reference("inputs"), "series");
    const answer = await infer(
      { ...task, inputPath, outputFolder: place.output },
      { engine: engine(), models: entries },
    );
    const receipt = receiptSchema.parse(JSON.parse(readFileSync(answer.receipt_path, "utf8")));
    const { manifest } = (await readModelFolder(folder)).model!;
    t.strictSame(receipt.models[0]!.ensemble, {
      average: "after_activation",
      graphs: manifest.files.map(({ path, sha256 }) => ({ path, sha256 })),
    });
    const replayed = () => replay({ receipt, image, models: entries, engine: engine() });
    t.match(await replayed(), [{ verdict: "ok" }, { verdict: "ok" }]);
    receipt.models[0]!.ensemble!.graphs.reverse();
    t.match(await replayed(), [{ verdict: "ok" }, { verdict: "differs", detail: /ensemble/ }]);
  });

  await t.test("what has no mean, or is not pinned, is a mistake", async (t) => {
    const problems = async (change: (m: Manifest) => void) =>
      (await modelsCheck(writeReachModel(t.testdir(), "folds-after", change), options)).text;
    t.match(
      await problems((m) => m.files.pop()),
      /ensemble\.graphs\[2\].*Expected a path of files/,
    );
    t.match(
      await problems((m) => {
        m.ensemble!.graphs = [FOLDS[0]!, FOLDS[1]!, FOLDS[1]!];
      }),
      /ensemble\.graphs\[2\].*is there twice/,
    );
    t.match(await problems((m) => m.files.reverse()), /ensemble\.graphs\[0\].*the first of files/);
    t.match(
      await problems((m) => {
        m.files[1]!.sha256 = m.files[0]!.sha256;
      }),
      /fold_1\.onnx.*Expected sha256/,
    );
    t.match(
      await problems((m) => {
        (m.outputs[1] as { calibration: unknown }).calibration = {
          kind: "temperature",
          temperature: 2,
        };
      }),
      /ensemble\.average.*divides logits/,
    );
    const resampled = (activation: string) =>
      problems((m) =>
        Object.assign(m.inputs[0]!, {
          layout: "NCDHW",
          interpolation: "spline",
          resampling: {
            grid: "first_voxel",
            spacing_mm: [null, 1, 1],
            order: 1,
            order_back: 1,
            keep_range: false,
            clip: "after",
            crop: "none",
            activation,
          },
        }),
      );
    t.match(
      await resampled("after"),
      /ensemble\.average.*before_activation, because resampling\.activation is "after"/,
    );
    t.notMatch(await resampled("before"), /before_activation, because/);
    t.match(
      await problems((m) => {
        (m.outputs[0] as { activation: string }).activation = "label_map";
      }),
      /ensemble.*outputs that have a mean/,
    );
  });
});
