/**
 * Maps that cover a part of their input, as convolutions without padding and pooling that rounds
 * down give them: every kind of map lies where its values come from, and what is outside is no
 * finding. The graphs cut the tensor, so that each place is known.
 */
import t from "tap";
import { int, ints, type ModelDescription } from "../../scripts/lib/onnx-model.js";
import { createEngine } from "../../src/engine/engine.js";
import type { EngineOutput, LoadOptions } from "../../src/engine/types.js";
import type { ImageInput } from "../../src/manifest/manifest.js";
import type { ModelOutput } from "../../src/manifest/outputs/outputs.js";
import { failure } from "../support/expect.js";
import { ints64 } from "../support/model-parts.js";
import { input, loadOptions, plane, writeModel } from "../support/tiny-models.js";
import { geometryOf, slicesOf } from "../support/volumes.js";

const folder = t.testdir();
const engine = createEngine({ provider: "cpu", threads: 2 });
t.teardown(() => engine.close());

/** y is x from `first` on, `counts` along its last axes; of each `stride` values the mean. */
function cut(first: readonly number[], counts: readonly number[], stride = 1): ModelDescription {
  const name = `cut-${[...first, ...counts, stride].join("-")}`;
  const open = first.map((_, axis) => `s${axis}`);
  const axes = first.map((_, axis) => axis + 2);
  const pooled = {
    kernel_shape: ints(first.map(() => stride)),
    strides: ints(first.map(() => stride)),
  };
  return {
    name,
    inputs: [{ name: "x", dtype: "float32", shape: ["n", 1, ...open] }],
    outputs: [
      { name: "y", dtype: "float32", shape: ["n", 1, ...open.map((side) => `${side}y`)] },
      { name: "two", dtype: "float32", shape: ["n", 2, ...open.map((side) => `${side}y`)] },
    ],
    initializers: [
      ints64("starts", first),
      ints64(
        "ends",
        first.map((from, axis) => from + (counts[axis] ?? 0) * stride),
      ),
      ints64("axes", axes),
      { name: "hundred", dtype: "float32", shape: [1], data: [100] },
      { name: "zero", dtype: "float32", shape: [1], data: [0] },
    ],
    nodes: [
      { op: "Slice", inputs: ["x", "starts", "ends", "axes"], outputs: ["part"] },
      { op: "AveragePool", inputs: ["part"], outputs: ["pooled"], attributes: pooled },
      { op: "Div", inputs: ["pooled", "hundred"], outputs: ["y"] },
      { op: "Mul", inputs: ["y", "zero"], outputs: ["zeros"] },
      { op: "Sub", inputs: ["zeros", "y"], outputs: ["below"] },
      { op: "Concat", inputs: ["below", "y"], outputs: ["two"], attributes: { axis: int(1) } },
    ],
  };
}

const fixed = (height: number, width: number, more: Partial<ImageInput> = {}): ImageInput => ({
  ...input,
  size: { kind: "fixed", height, width },
  ...more,
});

const segmentation = (more: object): ModelOutput => ({
  kind: "segmentation",
  tensor: "y",
  activation: "none",
  labels: [{ label: "bright", threshold: 0.5 }],
  postprocess: [],
  measurements: [],
  ...more,
});

async function inferred(
  graph: ModelDescription,
  more: Pick<LoadOptions, "inputs" | "outputs">,
  ...[planes, options]: [Parameters<typeof engine.infer>[1], Parameters<typeof engine.infer>[2]?]
): Promise<EngineOutput[]> {
  const { id } = await engine.load(loadOptions(writeModel(folder, graph), more));
  return (await engine.infer(id, planes, options ?? {})).outputs;
}

const maskOf = (output: EngineOutput | undefined): number[] =>
  output?.kind === "segmentation" ? [...output.mask] : [];

/** Bright spots of which the third is in the middle and the others at the edges. */
const SPOTS = [
  [3, 5],
  [60, 70],
  [141, 150],
  [280, 280],
] as const;
const spotted = (side: number, value = 100): number[] => {
  const samples = new Array<number>(side * side).fill(0);
  for (const [y, x] of SPOTS)
    for (let k = 0; k < 9; k++) samples[(y + Math.floor(k / 3)) * side + x + (k % 3)] = value;
  return samples;
};

t.test("the middle 196 of 284 pixels: every kind of map lies where it comes from", async (t) => {
  const graph = cut([44, 44], [196, 196]);
  const samples = spotted(284);
  const inside = (i: number) => [Math.floor(i / 284), i % 284].every((at) => at >= 44 && at < 240);
  const expected = samples.map((value, i) => (value > 0 && inside(i) ? 1 : 0));
  const covers = "centre" as const;
  const outputs: ModelOutput[] = [
    segmentation({ covers }),
    segmentation({ covers, tensor: "two", activation: "argmax", labels: [{ label: "b" }] }),
    segmentation({ covers, activation: "label_map", labels: [{ label: "c" }] }),
    { kind: "heatmap", tensor: "y", activation: "none", label: { label: "d" }, covers },
    {
      kind: "probability_map",
      tensor: "y",
      activation: "none",
      threshold: 0.5,
      minimum_area: 0,
      unclip: 0,
      max_boxes: 10,
      label: { label: "e", threshold: 0.5 },
      covers,
    },
    {
      kind: "keypoints",
      tensor: "y",
      activation: "none",
      labels: [{ label: "f", threshold: 0.5 }],
      covers,
    },
  ];
  const found = await inferred(graph, { inputs: [fixed(284, 284)], outputs }, [
    plane(284, 284, samples),
  ]);
  for (const output of found.slice(0, 3)) t.strictSame(maskOf(output), expected, "mask");
  const [, , , heat, boxes, points] = found;
  t.strictSame(heat?.kind === "heatmap" && Array.from(heat.values), expected, "heat map");
  t.match(boxes, {
    boxes: [
      { x0: 70, y0: 60, x1: 73, y1: 63 },
      { x0: 150, y0: 141, x1: 153, y1: 144 },
    ],
  });
  t.match(points, { points: [{ x: 70.5, y: 60.5, score: 1 }] });
});

t.test("through a stretch, a letterbox and a crop", async (t) => {
  const graph = cut([44, 44], [196, 196]);
  const outputs: ModelOutput[] = [
    segmentation({ covers: "centre" }),
    {
      kind: "keypoints",
      tensor: "y",
      activation: "none",
      labels: [{ label: "f", threshold: 0.5 }],
      covers: "centre",
    },
  ];
  const of = async (
    rows: number,
    columns: number,
    fit: ImageInput["fit"],
    y: number,
    x: number,
  ) => {
    const samples = new Array<number>(rows * columns).fill(0);
    for (let k = 0; k < 16; k++) samples[(y + Math.floor(k / 4)) * columns + x + (k % 4)] = 100;
    const [mask, points] = await inferred(graph, { inputs: [fixed(284, 284, { fit })], outputs }, [
      plane(rows, columns, samples),
    ]);
    const own = maskOf(mask);
    const at = own.flatMap((pixel, i) => (pixel > 0 ? [i] : []));
    const mean = (of: (i: number) => number) =>
      at.reduce((sum, i) => sum + of(i) + 0.5, 0) / at.length;
    t.ok(
      Math.abs(mean((i) => Math.floor(i / columns)) - y - 2) < 0.3 &&
        Math.abs(mean((i) => i % columns) - x - 2) < 0.3,
      `${fit}: the middle of the mask is that of the spot`,
    );
    const [point] = points?.kind === "points" ? points.points : [];
    t.ok(
      Math.abs((point?.y ?? NaN) - y - 2) <= 2 && Math.abs((point?.x ?? NaN) - x - 2) <= 2,
      `${fit}: and so is the point`,
    );
    return own;
  };
  await of(568, 426, "stretch", 300, 130);
  await of(142, 100, "letterbox", 70, 50);
  await of(300, 500, "crop", 150, 260);
});

t.test("from the first pixel on: 96 of 103", async (t) => {
  const samples = Array.from({ length: 103 * 103 }, (_, i) => ((i * 7919) % 211 > 105 ? 100 : 0));
  const [mask] = await inferred(
    cut([0, 0], [96, 96]),
    { inputs: [fixed(103, 103)], outputs: [segmentation({ covers: "start" })] },
    [plane(103, 103, samples)],
  );
  const expected = samples.map((value, i) =>
    value > 0 && Math.floor(i / 103) < 96 && i % 103 < 96 ? 1 : 0,
  );
  t.strictSame(maskOf(mask), expected);
});

t.test("the middle, one value for each 8 x 8 pixels", async (t) => {
  const samples = new Array<number>(224 * 224).fill(0);
  // The map's pixel 5 down and 7 across covers rows 56 to 64 and columns 72 to 80.
  for (let y = 56; y < 64; y++) for (let x = 72; x < 80; x++) samples[y * 224 + x] = 100;
  const found = await inferred(
    cut([16, 16], [24, 24], 8),
    {
      inputs: [fixed(224, 224)],
      outputs: [
        segmentation({ covers: "centre", stride: 8, activation: "label_map" }),
        {
          kind: "keypoints",
          tensor: "y",
          activation: "none",
          labels: [{ label: "f", threshold: 0.5 }],
          covers: "centre",
          stride: 8,
        },
      ],
    },
    [plane(224, 224, samples)],
  );
  t.strictSame(
    maskOf(found[0]),
    samples.map((value) => value / 100),
  );
  t.match(found[1], { points: [{ x: 76, y: 60 }] });
});

t.test("volumes, however they lie", async (t) => {
  const sides = [14, 12, 10] as const;
  const voxels = Uint16Array.from({ length: 14 * 12 * 10 }, (_, i) =>
    (i * 7919) % 211 > 105 ? 100 : 0,
  );
  const volume: ImageInput = { ...input, layout: "NCDHW" };
  // Of the tensor's sides along slices, rows and columns 3, 2 and 1 are left out at each end.
  const left = { S: 3, P: 2, L: 1 } as Record<string, number>;
  const expected = [...voxels].map((value, i) => {
    const at = [Math.floor(i / 120), Math.floor(i / 10) % 12, i % 10];
    const within = at.every((place, axis) => {
      const out = axis === 0 ? 3 : axis === 1 ? 2 : 1;
      return place >= out && place < (sides[axis] ?? 0) - out;
    });
    return within && value > 0 ? 1 : 0;
  });
  const axis = (letter: string) =>
    ({ S: "S", I: "S", P: "P", A: "P", L: "L", R: "L" })[letter] ?? "";
  const length = { S: 14, P: 12, L: 10 } as Record<string, number>;
  for (const orientation of ["SPL", "RAS", "IAR", "AIL"]) {
    const order = Array.from(orientation).map(axis);
    const first = order.map((side) => left[side] ?? 0);
    const counts = order.map((side) => (length[side] ?? 0) - 2 * (left[side] ?? 0));
    const found = await inferred(
      cut(first, counts),
      {
        inputs: [{ ...volume, orientation }],
        outputs: [
          segmentation({ covers: "centre" }),
          segmentation({
            covers: "centre",
            tensor: "two",
            activation: "argmax",
            labels: [{ label: "b" }],
          }),
        ],
      },
      slicesOf(voxels, [...sides]),
      { geometry: geometryOf("SPL") },
    );
    for (const output of found) t.strictSame(maskOf(output), expected, orientation);
  }
});

t.test("a volume that is resampled, and its segments in the grid of the model", async (t) => {
  // Spacing 2 mm to 1 mm: 20 voxels along each axis, of which the middle 12 are there.
  const voxels = new Uint16Array(1000).fill(0);
  for (const at of [555, 556, 565, 566, 455, 456, 465, 466]) voxels[at] = 100;
  const inputs: ImageInput[] = [
    {
      ...input,
      layout: "NCDHW",
      interpolation: "spline",
      resampling: {
        grid: "edges",
        spacing_mm: [1, 1, 1],
        order: 1,
        order_back: 1,
        keep_range: false,
        clip: "before",
        crop: "none",
        activation: "before",
      },
    },
  ];
  const [found] = await inferred(
    cut([4, 4, 4], [12, 12, 12]),
    { inputs, outputs: [segmentation({ covers: "centre", segment_grid: "model" })] },
    slicesOf(voxels, [10, 10, 10]),
    { geometry: geometryOf("SPL", [2, 2, 2]) },
  );
  t.strictSame(
    maskOf(found),
    [...voxels].map((value) => value / 100),
  );
  const model = found?.kind === "segmentation" ? found.model : undefined;
  t.match(model, { slices: 12, rows: 12, columns: 12, geometry: { sliceSpacing: 1 } });
  // Its first voxel lies 4 mm from the volume's edge, which is 1 mm before the first voxel.
  t.strictSame(model?.geometry.origin, [-12.5 - 1 + 4.5, 30 - 1 + 4.5, 7 - 1 + 4.5]);
});

t.test("a map of which nothing is said is stretched by whole parts alone", async (t) => {
  const samples = new Array<number>(284 * 284).fill(0);
  const run = (graph: ModelDescription, output: object, inputs: ImageInput[]) =>
    inferred(graph, { inputs, outputs: [segmentation(output)] }, [plane(284, 284, samples)]);
  const own: ImageInput[] = [{ ...input, size: { kind: "source" } }];
  const part = cut([44, 44], [196, 196]);
  t.match(await failure(run(part, {}, own)), {
    code: "output_invalid",
    message:
      /"y" whose sides are whole parts of the tensor's; found 196 for 284 of the tensor\. Say in the manifest which part of the tensor it covers: covers "centre"/,
  });
  t.match(await failure(run(part, { covers: "centre", stride: 2 }, own)), {
    code: "output_invalid",
    message: /lies within the tensor; found 196 for 284 of the tensor, with a stride of 2/,
  });
  t.match(await run(part, { covers: "all" }, own), [{ counts: [0] }]);
  t.match(await run(cut([0, 0], [71, 142], 1), {}, own), [{ counts: [0] }]);
});
