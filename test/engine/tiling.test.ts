/**
 * Windows over images and volumes: a graph that looks at each pixel by itself gives the same mask
 * whole and in windows, and the receipt, the canary and the check of the manifest know of the
 * windows. What windows, weights and mirrored runs are is held against MONAI and nnU-Net in
 * native/test/tiling.
 */
import { readFileSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import t from "tap";
import { samples } from "../../scripts/demo/samples.js";
import type { Engine } from "../../src/engine/engine.js";
import { openInput } from "../../src/files/guarded-paths.js";
import type { Image } from "../../src/images/image.js";
import { readImage } from "../../src/images/read-image.js";
import { infer } from "../../src/inference/infer-image.js";
import { readInput } from "../../src/inference/read-input.js";
import type { Manifest } from "../../src/manifest/manifest.js";
import { manifestSchema } from "../../src/manifest/rules.js";
import type { ModelOutput } from "../../src/manifest/outputs/outputs.js";
import { checkGraph } from "../../src/models/graph.js";
import type { ModelEntry } from "../../src/models/entry.js";
import { receiptSchema } from "../../src/results/receipt/receipt.js";
import { endlessGraph } from "../support/endless.js";
import { failure } from "../support/expect.js";
import { ADDON, needs } from "../support/needs.js";
import { engineWithFolder } from "../support/real-engine.js";
import { loadTestModel, manifestOf } from "../support/test-models.js";
import { loadOptions, plane, writeModel } from "../support/tiny-models.js";
import { until } from "../support/until.js";

const SERIES = resolve("test/reference/inputs/series");
type Tiling = NonNullable<Manifest["tiling"]>;

const gaussian = { kind: "gaussian", sigma: 0.125, centre: "half", least: 0.001 } as const;
const flat: Tiling = {
  window: [96, 130],
  overlap: 0.3,
  steps: "even",
  weights: gaussian,
  padding: 0,
};
const deep: Tiling = { ...flat, window: [3, 7, 6], steps: "stride", mirror: ["depth", "width"] };
const tiled = (tiling: Tiling) => (manifest: Manifest) => {
  manifest.tiling = tiling;
};

async function maskOf(engine: Engine, model: ModelEntry, image: Image): Promise<Uint8Array> {
  const planes = await Promise.all(
    Array.from({ length: image.frameCount }, async (_, frame) => ({
      format: image.format,
      data: await image.frame(frame),
      interpretation: image.interpretation(frame),
      pixelAspect: image.pixelAspect(frame),
    })),
  );
  const geometry = image.series?.volume.geometry;
  const options = geometry === undefined ? {} : { geometry };
  const { outputs } = await engine.infer(model.nativeId!, planes, options);
  const [output] = outputs;
  if (output?.kind !== "segmentation") throw new Error("The test models segment");
  return Uint8Array.from(output.mask);
}

t.test("windows", { skip: needs(ADDON) }, async (t) => {
  const { engine, folder } = engineWithFolder(t, "tiling");
  const { ct } = await samples();
  const path = join(folder, "ct.dcm");
  writeFileSync(path, ct);

  await t.test("over an image give the mask of the whole", async (t) => {
    const image = await readImage(ct);
    const whole = await maskOf(engine, await loadTestModel(engine, folder, "overlapping"), image);
    const inWindows = await loadTestModel(engine, folder, "overlapping", tiled(flat));
    t.equal(Buffer.compare(await maskOf(engine, inWindows, image), whole), 0);
    t.ok(new Set(whole).size > 1, "something is marked, and something is not");
    const padded = { ...flat, window: [600, 400] };
    const larger = await loadTestModel(engine, folder, "overlapping", tiled(padded));
    t.equal(
      Buffer.compare(await maskOf(engine, larger, image), whole),
      0,
      "windows larger than the image",
    );
  });

  await t.test("over a volume give the mask of the whole", async (t) => {
    const input = await openInput(SERIES, undefined);
    t.teardown(() => input.close());
    const image = await readInput(input);
    const whole = await maskOf(
      engine,
      await loadTestModel(engine, folder, "volume-fractional"),
      image,
    );
    const inWindows = await loadTestModel(engine, folder, "volume-fractional", tiled(deep));
    t.equal(Buffer.compare(await maskOf(engine, inWindows, image), whole), 0);
    t.ok(new Set(whole).size > 1);
  });

  await t.test("stand in the receipt", async (t) => {
    const model = await loadTestModel(engine, folder, "overlapping", tiled(flat));
    const answer = await infer(
      {
        requestId: "test",
        inputPath: path,
        outputFolder: join(folder, "out"),
        outputs: ["json"],
        priority: "routine",
        cancelId: 1,
        roots: { input: undefined, output: undefined },
      },
      { engine, models: [model] },
    );
    const receipt = receiptSchema.parse(JSON.parse(readFileSync(answer.receipt_path, "utf8")));
    const steps = receipt.models[0]!.transforms.map(({ step }) => step);
    t.strictSame(steps.slice(-2), ["tensor", "tiling"]);
    t.strictSame(receipt.models[0]!.transforms.at(-1), { step: "tiling", ...flat });
  });

  await t.test("cancelled between windows", async (t) => {
    const [side, value] = [64, 1];
    const values = (name: string) =>
      ({ name, dtype: "float32", shape: ["n", 1, "h", "w"] }) as const;
    // The window in the last corner does not end: the image is never done before it is cancelled
    const graph = { name: "last-window", ...endlessGraph(values("x"), values("y"), value - 1) };
    const corner = Array.from({ length: side * side }, (_, i) => (i === side ** 2 - 1 ? value : 0));
    const marked: ModelOutput = {
      kind: "segmentation",
      tensor: "y",
      activation: "sigmoid",
      labels: [{ label: "marked", threshold: 0.5 }],
      postprocess: [],
      measurements: [],
    };
    const { id } = await engine.load(
      loadOptions(writeModel(folder, graph), {
        outputs: [marked],
        tiling: { ...flat, window: [8, 8], overlap: 0.5 },
      }),
    );
    const running = failure(engine.infer(id, [plane(side, side, corner)], { cancelId: 77 }));
    await until("a window is done", () => (engine.progress(77)?.done ?? 0) > 0, setImmediate);
    engine.cancel(77);
    t.equal((await running).code, "cancelled");
  });
});

t.test("mistakes in tiling are named", (t) => {
  const mistakes = (
    name: "overlapping" | "volume-fractional" | "classifier",
    change: (manifest: Manifest) => void,
  ) => {
    const manifest = manifestOf(name);
    manifest.stage = "draft";
    manifest.results.outputs = ["json"];
    manifest.accepts.modality = ["CT"];
    manifest.tiling = name === "volume-fractional" ? { ...deep } : { ...flat };
    change(manifest);
    const parsed = manifestSchema.safeParse(manifest);
    return parsed.error?.issues.map(({ path, message }) => `${path.join(".")}: ${message}`) ?? [];
  };
  t.strictSame(
    mistakes("overlapping", () => undefined),
    [],
  );
  t.strictSame(
    mistakes("volume-fractional", () => undefined),
    [],
  );
  const first = (...given: Parameters<typeof mistakes>) => mistakes(...given)[0];
  t.match(
    first("overlapping", (m) => (m.tiling!.window = [4, 4, 4])),
    /^tiling.window: Expected 2 sides/,
  );
  t.match(
    first("overlapping", (m) => (m.tiling!.mirror = ["depth"])),
    /^tiling.mirror: The window has no depth/,
  );
  t.match(
    first("volume-fractional", (m) => (m.tiling!.mirror = ["depth", "depth"])),
    /each axis once/,
  );
  t.match(
    first("classifier", () => undefined),
    /size "source"/,
  );
  t.match(
    first("overlapping", (m) => (m.execution.providers = ["cpu", "cuda"])),
    /CPU alone so far/,
  );
  t.match(
    first("overlapping", (m) => {
      const [output] = m.outputs;
      if (output?.kind === "segmentation") output.activation = "label_map";
    }),
    /no label_map/,
  );
  t.end();
});

t.test("a window that the graph does not take is named", (t) => {
  const manifest = manifestOf("overlapping");
  manifest.tiling = flat;
  const side = (height: number) => ({
    inputs: [
      {
        name: "x",
        dtype: "float32" as const,
        shape: [-1, 1, height, 130],
        names: ["", "", "", ""],
      },
    ],
    outputs: [
      {
        name: "y",
        dtype: "float32" as const,
        shape: [-1, 2, height, 130],
        names: ["", "", "", ""],
      },
    ],
    float16: false,
    activations: {},
    metadata: {},
  });
  t.strictSame(checkGraph(manifest, side(96)), []);
  t.match(checkGraph(manifest, side(64)), [
    { path: "tiling.window", message: /^96 x 130 does not fit/ },
  ]);
  t.end();
});
