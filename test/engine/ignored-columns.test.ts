/**
 * Columns of scores that are no label: a background class, "no object", what was never trained.
 * Softmax goes over them, and nothing else is made of them. The tensors are given, so that the
 * numbers can be computed by hand.
 */
import t, { type Test } from "tap";
import { createEngine } from "../../src/engine/engine.js";
import type { EngineOutput } from "../../src/engine/types.js";
import type { ImageInput } from "../../src/manifest/manifest.js";
import type { ModelOutput } from "../../src/manifest/outputs/outputs.js";
import { manifestSchema } from "../../src/manifest/rules.js";
import { manifestOf } from "../support/test-models.js";
import { input, loadOptions, plane, writeModel } from "../support/tiny-models.js";
import { geometryOf, slicesOf } from "../support/volumes.js";

const folder = t.testdir();
const engine = createEngine({ provider: "cpu", threads: 2 });
t.teardown(() => engine.close());

interface Given {
  shape: readonly number[];
  data: number[];
}

let graphs = 0;

/** The output that is made of tensors that are the same for every image. */
async function made(
  tensors: Record<string, Given>,
  output: object,
  volume = false,
): Promise<EngineOutput | undefined> {
  const sides = volume ? ["d", "h", "w"] : ["h", "w"];
  const path = writeModel(folder, {
    name: `given-${++graphs}`,
    inputs: [{ name: "x", dtype: "float32", shape: ["n", 1, ...sides] }],
    outputs: Object.entries(tensors).map(([name, { shape }]) => ({
      name,
      dtype: "float32",
      shape,
    })),
    initializers: [
      { name: "zero", dtype: "float32", shape: [1], data: [0] },
      ...Object.entries(tensors).map(([name, { shape, data }]) => ({
        name: `${name}-given`,
        dtype: "float32" as const,
        shape,
        data,
      })),
    ],
    nodes: [
      { op: "GlobalAveragePool", inputs: ["x"], outputs: ["mean"] },
      { op: "Flatten", inputs: ["mean"], outputs: ["row"] },
      { op: "Mul", inputs: ["row", "zero"], outputs: ["nothing"] },
      ...Object.keys(tensors).map((name) => ({
        op: "Add",
        inputs: [`${name}-given`, "nothing"],
        outputs: [name],
      })),
    ],
  });
  const own: ImageInput = volume ? { ...input, layout: "NCDHW" } : input;
  const outputs = [output as ModelOutput];
  const { id } = await engine.load(loadOptions(path, { inputs: [own], outputs }));
  const { outputs: found } = volume
    ? await engine.infer(id, slicesOf(new Uint16Array(8), [2, 2, 2]), {
        geometry: geometryOf("SPL"),
      })
    : await engine.infer(id, [plane(8, 8)], {});
  return found[0];
}

const labels = (...names: string[]) => names.map((label) => ({ label, threshold: 0.5 }));
const sigmoid = (x: number) => 1 / (1 + Math.exp(-x));
const softmax = (all: readonly number[]) => {
  const sum = all.reduce((total, x) => total + Math.exp(x), 0);
  return all.map((x) => Math.exp(x) / sum);
};
const near = (t: Test, found: readonly number[], wanted: readonly number[]) => {
  t.equal(found.length, wanted.length);
  found.forEach((value, i) => t.ok(Math.abs(value - wanted[i]!) < 1e-6, `${value} ${wanted[i]}`));
};

t.test("scores and values", async (t) => {
  const classification = {
    kind: "classification",
    tensor: "y",
    activation: "sigmoid",
    calibration: { kind: "none" },
    labels: labels("a", "b"),
  };
  const y = { shape: [1, 4], data: [2, -3, 5, 1] };
  const scores = async (more: object) => {
    const found = await made({ y }, { ...classification, ...more });
    return found?.kind === "classification" ? [...found.scores] : [];
  };
  near(t, await scores({ ignored: [2, 0] }), [sigmoid(-3), sigmoid(1)]);
  const [, b, , d] = softmax(y.data);
  near(t, await scores({ activation: "softmax", ignored: [0, 2] }), [b!, d!]);
  const value = (name: string, multiply: number) => ({ name, unit: {}, multiply, add: 1 });
  const found = await made(
    { y },
    { kind: "regression", tensor: "y", values: [value("a", 2), value("b", 3)], ignored: [1, 3] },
  );
  t.strictSame(found?.kind === "regression" && [...found.values], [5, 16]);
});

t.test("columns that are none, and the highest of which one is no label", (t) => {
  const shipped = manifestOf("classifier");
  const refused = (more: object) => {
    const outputs = [{ ...shipped.outputs[0], ...more }];
    const { error } = manifestSchema.safeParse({ ...shipped, outputs });
    return (error?.issues ?? [])
      .map(({ path, message }) => `${path.join(".")}: ${message}`)
      .filter((issue) => issue.includes("ignored"));
  };
  const [two] = shipped.outputs;
  const names = two !== undefined && "labels" in two ? two.labels : [];
  t.match(refused({ ignored: [3] }), [/outputs\.0\.ignored\.0: Expected 0 to 2, of 3 columns/]);
  t.match(refused({ ignored: [1, 1] }), [/outputs\.0\.ignored\.1: Expected each column once/]);
  const labels = names.map(({ label, code }) => ({ label, code }));
  t.match(refused({ ignored: [0], decision: "highest", labels }), [
    /outputs\.0\.ignored: Expected none with decision highest/,
  ]);
  t.end();
});

/** Two boxes of 8 x 8 pixels. */
const boxes = { shape: [1, 2, 4], data: [0, 0, 4, 4, 2, 2, 8, 8] };
const found = (output: EngineOutput | undefined) =>
  output?.kind === "boxes" ? output.boxes.map(({ label, x0, score }) => [label, x0, score]) : [];

t.test("boxes: no object is none of the labels, and never the best", async (t) => {
  const detection = {
    kind: "detection",
    boxes: { tensor: "boxes", format: "xyxy", normalised: false },
    scores: { tensor: "scores", activation: "softmax" },
    max_boxes: 10,
    labels: labels("a", "b"),
  };
  // "No object" is last (DETR), or first (torchvision).
  const logits = [
    [1, 4, 0],
    [2, 1, 9],
  ];
  const [first = []] = logits.map(softmax);
  const last = await made(
    { boxes, scores: { shape: [1, 2, 3], data: logits.flat() } },
    { ...detection, ignored: [2] },
  );
  t.match(found(last), [[1, 0, Math.fround(first[1]!)]]);
  t.equal(found(last).length, 1, "the other is no object");
  const before = await made(
    {
      boxes,
      scores: {
        shape: [1, 2, 3],
        data: logits.flatMap(([a = 0, b = 0, none = 0]) => [none, a, b]),
      },
    },
    { ...detection, ignored: [0] },
  );
  t.strictSame(found(before), found(last));
  const listed = await made(
    {
      boxes,
      scores: { shape: [1, 2], data: [0.9, 0.8] },
      classes: { shape: [1, 2], data: [2, 4] },
    },
    {
      ...detection,
      scores: { tensor: "scores", activation: "none" },
      classes: { tensor: "classes", first: 1 },
      labels: labels("a", "b", "c"),
      ignored: [1],
    },
  );
  t.match(found(listed), [[2, 2, Math.fround(0.8)]]);
  t.equal(found(listed).length, 1, "class 2 is ignored");
});

t.test("boxes of a table", async (t) => {
  const y = { shape: [1, 2, 7], data: [0, 0, 4, 4, 0.6, 0.9, 0.1, 2, 2, 8, 8, 0.1, 0.2, 0.7] };
  const table = {
    kind: "detection_table",
    tensor: "y",
    axes: "boxes_columns",
    columns: ["x1", "y1", "x2", "y2", "class_scores"],
    normalised: false,
    scores: { activation: "none", labels_per_box: "one" },
    nms: { kind: "none" },
    max_boxes: 10,
    labels: labels("a", "b"),
    ignored: [1],
  };
  t.match(found(await made({ y }, table)), [
    [1, 2, Math.fround(0.7)],
    [0, 0, Math.fround(0.6)],
  ]);
  const several = { ...table, scores: { activation: "none", labels_per_box: "several" } };
  t.strictSame(found(await made({ y }, several)), found(await made({ y }, table)));
});

t.test("points", async (t) => {
  const keypoints = {
    kind: "keypoints",
    tensor: "y",
    activation: "none",
    labels: labels("a", "b"),
    ignored: [1],
  };
  const points = (output: EngineOutput | undefined) =>
    output?.kind === "points" ? output.points.map(({ label, x, y }) => [label, x, y]) : [];
  const table = { columns: ["x", "y"], normalised: false, counted_from: "edges" };
  const rows = { shape: [1, 3, 2], data: [1, 2, 3, 4, 5, 6] };
  t.strictSame(points(await made({ y: rows }, { ...keypoints, table })), [
    [0, 1, 2],
    [1, 5, 6],
  ]);
  const map = (at: number) => Array.from({ length: 64 }, (_, i) => (i === at ? 1 : 0));
  const maps = { shape: [1, 3, 8, 8], data: [...map(0), ...map(9), ...map(63)] };
  t.strictSame(points(await made({ y: maps }, keypoints)), [
    [0, 0.5, 0.5],
    [1, 7.5, 7.5],
  ]);
});

t.test("masks of images and of volumes", async (t) => {
  const segmentation = {
    kind: "segmentation",
    tensor: "y",
    labels: labels("a", "b"),
    postprocess: [],
    measurements: [],
    segment_type: "fractional",
  };
  // Channels over 8 x 8 pixels or 2 x 2 x 2 voxels, each the same everywhere but at the first.
  const of = (volume: boolean, ...channels: [first: number, others: number][]) => {
    const size = volume ? 8 : 64;
    return {
      shape: [1, channels.length, ...(volume ? [2, 2, 2] : [8, 8])],
      data: channels.flatMap(([first, others]) =>
        Array.from({ length: size }, (_, i) => (i === 0 ? first : others)),
      ),
    };
  };
  for (const volume of [false, true]) {
    const size = volume ? 8 : 64;
    // Background, a, what is ignored, b: the first pixel is b, the others are what is ignored.
    const exclusive = of(volume, [0, 0], [1, 1], [2, 5], [4, 3]);
    for (const activation of ["softmax", "argmax"]) {
      const output = await made(
        { y: exclusive },
        {
          ...segmentation,
          labels: [{ label: "a" }, { label: "b" }],
          activation,
          ignored: [2],
          ...(activation === "argmax" ? { segment_type: "binary" } : {}),
        },
        volume,
      );
      t.match(output, { counts: [0, 1] }, activation);
      if (output?.kind !== "segmentation" || output.fractions === undefined) continue;
      const [, , , b] = softmax([0, 1, 2, 4]);
      const [, a] = softmax([0, 1, 5, 3]);
      t.equal(output.fractions.length, 2 * size);
      t.equal(output.fractions[size], Math.round(b! * 255), "b of the first");
      t.equal(output.fractions[1], Math.round(a! * 255), "a of the second");
    }
    const overlapping = of(volume, [0.875, 0.1], [0.8, 0.8], [0.2, 0.625]);
    const output = await made(
      { y: overlapping },
      { ...segmentation, activation: "none", ignored: [1] },
      volume,
    );
    t.match(output, { counts: [1, size - 1], overlapping: true });
    const planes = output?.kind === "segmentation" ? output.fractions : undefined;
    t.strictSame(planes && [planes.length, planes[0], planes[size + 1]], [
      2 * size,
      Math.round(0.875 * 255),
      Math.round(0.625 * 255),
    ]);
  }
});
