/**
 * Resampling with ends aligned, there and back, to the bit what scipy.ndimage.zoom made
 * (test/reference/ends).
 */
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import t from "tap";
import type { ImageInput, Manifest } from "../../src/manifest/manifest.js";
import { manifestSchema } from "../../src/manifest/rules.js";
import { comparedWithScipy, endsInput, endsTiling, ends, steps } from "../support/ends.js";
import { failure } from "../support/expect.js";
import { segmentation } from "../support/model-parts.js";
import { ADDON, needs } from "../support/needs.js";
import { reference } from "../support/reach-models.js";
import { engineWithFolder } from "../support/real-engine.js";
import { manifestOf } from "../support/test-models.js";
import { loadOptions } from "../support/tiny-models.js";
import { geometryOf, slicesOf } from "../support/volumes.js";

t.test("volumes are scipy's to the bit, and so are labels", { skip: needs(ADDON) }, async (t) => {
  const { engine, folder } = engineWithFolder(t, "ends");
  let cases = 0;
  for await (const { name, tensor, labels, counts } of comparedWithScipy(
    engine,
    reference("ends"),
    folder,
  )) {
    cases++;
    t.strictSame(tensor.found.shape, tensor.expected.shape, name);
    t.ok(Buffer.from(tensor.found.data).equals(tensor.expected.data), `values: ${name}`);
    t.ok(Buffer.from(labels.found).equals(labels.expected), `labels: ${name}`);
    t.ok(
      counts.some((count) => count > 0),
      `something is marked: ${name}`,
    );
  }
  t.equal(cases, 4);
});

t.test("clip and normalisation are of the resampled values", { skip: needs(ADDON) }, async (t) => {
  const { engine, folder } = engineWithFolder(t, "ends");
  const modelPath = join(folder, "steps.onnx");
  writeFileSync(modelPath, steps("steps"));
  const tensorOf = async (change: Partial<ImageInput>) => {
    const { id } = await engine.load(
      loadOptions(modelPath, {
        inputs: [{ ...endsInput, ...change }],
        outputs: [segmentation({ activation: "softmax" })],
        tiling: endsTiling,
      }),
    );
    // 0, 10, 20, 30 with ends aligned over twice as many voxels; the first is cut off.
    const voxels = Uint16Array.from(
      [0, 10, 20, 30].flatMap((value) => [value, value, value, value]),
    );
    const { tensors } = await engine.infer(id, slicesOf(voxels, [4, 2, 2]), {
      geometry: geometryOf("SPL", [3, 1.5, 1.5]),
      dump: true,
    });
    const { shape, data } = tensors!.inputs[0]!;
    t.strictSame(shape, [1, 1, 7, 2, 2]);
    const all = new Float32Array(Uint8Array.from(data).buffer);
    return Array.from({ length: 7 }, (_, z) => all[4 * z] ?? NaN);
  };
  const values = [4, 8, 12, 17, 21, 25, 30];
  t.strictSame(await tensorOf({}), values);
  t.strictSame(
    await tensorOf({
      clip: [10, 25],
      normalisation: { kind: "mean_std", mean: [10], std: [5] },
    }),
    [0, 0, Math.fround(0.4), Math.fround(1.4), Math.fround(2.2), 3, 3],
  );
  const mean = values.reduce((sum, value) => sum + value, 0) / 7;
  const std = Math.sqrt(values.reduce((sum, value) => sum + (value - mean) ** 2, 0) / 7);
  const scored = await tensorOf({ normalisation: { kind: "z_score", over: "volume" } });
  scored.forEach((value, i) =>
    t.ok(Math.abs(value - ((values[i] ?? NaN) - mean) / std) < 1e-6, `value ${i}`),
  );
});

t.test("a volume that the grid cannot hold is refused", { skip: needs(ADDON) }, async (t) => {
  const { engine, folder } = engineWithFolder(t, "ends");
  const modelPath = join(folder, "steps.onnx");
  writeFileSync(modelPath, steps("steps"));
  const { id } = await engine.load(
    loadOptions(modelPath, {
      inputs: [endsInput],
      outputs: [segmentation({ activation: "softmax" })],
      tiling: endsTiling,
    }),
  );
  for (const spacing of [
    [5, 1.5, 1.5],
    [0.6, 1.5, 1.5],
  ] as [number, number, number][]) {
    const { code, message } = await failure(
      engine.infer(id, slicesOf(new Uint16Array(4), [1, 2, 2]), {
        geometry: geometryOf("SPL", spacing),
      }),
    );
    t.equal(code, "no_model_accepts");
    t.match(message, /at least two voxels.*found 1 of/);
  }
});

t.test("what the grid does not go with is a mistake", (t) => {
  const mistakes = (change: (manifest: Manifest, input: ImageInput) => unknown) => {
    const manifest = structuredClone(manifestOf("volume"));
    const own = structuredClone(endsInput);
    Object.assign(manifest, { stage: "draft", results: { outputs: ["json"] } });
    manifest.accepts.modality = ["CT"];
    manifest.inputs = [own];
    manifest.outputs = [segmentation({ activation: "softmax" })];
    manifest.tiling = endsTiling;
    change(manifest, own);
    return manifestSchema
      .safeParse(manifest)
      .error?.issues.map(({ path, message }) => `${path.join(".")}: ${message}`);
  };
  const resampled = (change: object) => (_: Manifest, own: ImageInput) =>
    Object.assign(own.resampling!, change);
  t.equal(
    mistakes(() => 0),
    undefined,
  );
  for (const [change, expected] of [
    [resampled({ order: 3 }), /resampling.order: Expected 1/],
    [resampled({ order_back: 1 }), /resampling.order_back: Expected 0/],
    [resampled({ separate_above: 3 }), /separate_above: Expected none/],
    [resampled({ keep_range: true }), /keep_range: Expected false/],
    [resampled({ clip: "before" }), /clip: Expected "after"/],
    [resampled({ crop: "foreground" }), /crop: Expected none or nonzero/],
    [(_, own) => (own.dtype = "float16"), /dtype float32/],
    [(m) => delete m.tiling, /Expected tiling/],
    [
      (_, own) => (own.normalisation = { kind: "z_score", over: "volume", of: "nonzero" }),
      /normalisation.of: Expected none/,
    ],
  ] as [Parameters<typeof mistakes>[0], RegExp][])
    t.match(mistakes(change)?.join("\n"), expected);
  t.equal(ends.grid, "ends");
  t.end();
});
