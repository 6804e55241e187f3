/**
 * The mean of activated outputs (after_activation), wherever the graphs have their channels:
 * softmax goes over those that the output's own shape shows, as everything else reads it. The
 * logits are given, so that the probabilities can be computed by hand.
 */
import t from "tap";
import type { ModelDescription } from "../../scripts/lib/onnx-model.js";
import { createEngine } from "../../src/engine/engine.js";
import type { EngineOutput, LoadOptions } from "../../src/engine/types.js";
import type { ImageInput } from "../../src/manifest/manifest.js";
import type { ModelOutput } from "../../src/manifest/outputs/outputs.js";
import { failure } from "../support/expect.js";
import { ints64, scalar } from "../support/model-parts.js";
import { input, loadOptions, plane, writeModel } from "../support/tiny-models.js";
import { geometryOf, slicesOf } from "../support/volumes.js";

const folder = t.testdir();
const engine = createEngine({ provider: "cpu", threads: 2 });
t.teardown(() => engine.close());

let graphs = 0;

/** Gives `data` of this shape for each image or window, whose tensor has as many sides. */
function given(shape: readonly number[], data: readonly number[]): ModelDescription {
  const axes = shape.map((_, axis) => axis + 1);
  const open = shape.map((_, axis) => `s${axis}`);
  return {
    name: `given-${++graphs}`,
    inputs: [{ name: "x", dtype: "float32", shape: ["n", ...open] }],
    outputs: [{ name: "y", dtype: "float32", shape: ["n", ...shape] }],
    initializers: [
      { name: "head", dtype: "float32", shape: [1, ...shape], data },
      ints64(
        "starts",
        axes.map(() => 0),
      ),
      ints64(
        "ends",
        axes.map(() => 1),
      ),
      ints64("axes", axes),
      scalar("nothing", 0),
    ],
    nodes: [
      { op: "Slice", inputs: ["x", "starts", "ends", "axes"], outputs: ["first"] },
      { op: "Mul", inputs: ["first", "nothing"], outputs: ["zeros"] },
      { op: "Add", inputs: ["zeros", "head"], outputs: ["y"] },
    ],
  };
}

interface Grid {
  /** Slices of a volume, and rows and columns. */
  sides: readonly number[];
  layout: ImageInput["layout"];
  tiling?: LoadOptions["tiling"];
  batch?: number;
}

/** What is found in an image or volume of zeros by the mean of graphs that give these tensors. */
async function meanOf(
  models: readonly ModelDescription[],
  output: object,
  { sides, layout, tiling, batch = 1 }: Grid,
): Promise<EngineOutput | undefined> {
  const [modelPath = "", ...others] = models.map((graph) => writeModel(folder, graph));
  const { id } = await engine.load(
    loadOptions(modelPath, {
      inputs: [{ ...input, layout }],
      outputs: [output as ModelOutput],
      ensemble: { others, average: "after_activation" },
      batching: { max: batch },
      ...(tiling === undefined ? {} : { tiling }),
    }),
  );
  const [columns = 1, rows = 1, slices = 1] = sides.toReversed();
  const voxels = new Uint16Array(slices * rows * columns);
  const { outputs } =
    sides.length === 3
      ? await engine.infer(id, slicesOf(voxels, [slices, rows, columns]), {
          geometry: geometryOf("SPL"),
        })
      : await engine.infer(id, [plane(rows, columns)], {});
  return outputs[0];
}

const softmax = (all: readonly number[]) => {
  const sum = all.reduce((total, x) => total + Math.exp(x), 0);
  return all.map((x) => Math.exp(x) / sum);
};

const CLASSES = 3;
const exclusive = {
  kind: "segmentation",
  tensor: "y",
  activation: "softmax",
  labels: [{ label: "a" }, { label: "b" }],
  postprocess: [],
  measurements: [],
  segment_type: "fractional",
};
const windows = (...window: number[]): LoadOptions["tiling"] => ({
  window,
  overlap: 0,
  steps: "even",
  weights: { kind: "constant" },
  padding: 0,
});

/** Class by class for each pixel of one run; the second network is surer than the first. */
const logitsOf = (pixels: number, sureness: number) =>
  Array.from({ length: pixels }, (_, i) =>
    Array.from({ length: CLASSES }, (__, c) => sureness * (((i * 7 + c * 5 + sureness) % 11) - 5)),
  );

for (const [name, grid, run, channelsLast] of [
  ["an image, channels first", { sides: [6, 5], layout: "NCHW" }, [6, 5], false],
  [
    "an image, channels first, and a graph that gives them last",
    { sides: [6, 5], layout: "NCHW" },
    [6, 5],
    true,
  ],
  ["an image, channels last", { sides: [6, 5], layout: "NHWC" }, [6, 5], true],
  [
    "an image, channels last, and a graph that gives them first",
    { sides: [6, 5], layout: "NHWC" },
    [6, 5],
    false,
  ],
  [
    "a volume, channels first, and a graph that gives them last",
    { sides: [6, 6, 5], layout: "NCDHW" },
    [6, 6, 5],
    true,
  ],
  [
    "a volume, channels last, and a graph that gives them first",
    { sides: [6, 6, 5], layout: "NDHWC" },
    [6, 6, 5],
    false,
  ],
  [
    "windows of an image, several at once",
    { sides: [6, 10], layout: "NCHW", tiling: windows(6, 5), batch: 2 },
    [6, 5],
    false,
  ],
  [
    "windows with channels last",
    { sides: [6, 10], layout: "NHWC", tiling: windows(6, 5), batch: 2 },
    [6, 5],
    true,
  ],
  [
    "windows of two sides over a volume",
    { sides: [6, 6, 5], layout: "NCDHW", tiling: windows(6, 5), batch: 3 },
    [6, 5],
    false,
  ],
] as const)
  t.test(`softmax goes over the classes: ${name}`, async (t) => {
    const pixels = run.reduce((product, side) => product * side, 1);
    const logits = [1, 2].map((sureness) => logitsOf(pixels, sureness));
    const models = logits.map((all) =>
      channelsLast
        ? given([...run, CLASSES], all.flat())
        : given(
            [CLASSES, ...run],
            [0, 1, 2].flatMap((c) => all.map((one) => one[c]!)),
          ),
    );
    const found = await meanOf(models, exclusive, grid);
    if (found?.kind !== "segmentation") throw new Error("Expected a mask");
    const mean = logits[0]!.map((one, i) => {
      const other = softmax(logits[1]![i]!);
      return softmax(one).map((value, c) => (value + other[c]!) / 2);
    });
    const columns = grid.sides.at(-1)!;
    const expected = Array.from(found.mask, (_, i) =>
      // Every window and slice is the same
      grid.sides.length === run.length && columns === run.at(-1)
        ? mean[i]!
        : mean[(Math.floor(i / columns) % run[0]) * run.at(-1)! + (i % run.at(-1)!)]!,
    );
    t.strictSame(
      Array.from(found.mask),
      expected.map((one) => one.indexOf(Math.max(...one))),
    );
    [1, 2].forEach((c) => {
      const fractions = found.fractions!.subarray((c - 1) * expected.length, c * expected.length);
      t.ok(expected.every((one, i) => Math.abs(fractions[i]! - one[c]! * 255) < 0.51));
    });
  });

t.test("a shape that has the classes nowhere is refused by name", async (t) => {
  const models = [1, 2].map(() => given([4, 6, 5], new Array<number>(120).fill(0)));
  t.match(await failure(meanOf(models, exclusive, { sides: [6, 5], layout: "NCHW" })), {
    code: "output_invalid",
    message: /a map of 3 channel\(s\) for one image from the output "y", found shape \[1,4,6,5\]/,
  });
});

t.test("an infinity of one network is no probability of 1", async (t) => {
  const sigmoid = {
    ...exclusive,
    activation: "sigmoid",
    labels: [{ label: "a", threshold: 0.5 }],
    segment_type: "binary",
  };
  for (const odd of [Infinity, -Infinity, NaN]) {
    const models = [odd, 0].map((first) => given([1, 1, 2], [first, 0]));
    t.match(await failure(meanOf(models, sigmoid, { sides: [1, 2], layout: "NCHW" })), {
      code: "output_invalid",
      message: /no finite numbers/,
    });
  }
});
