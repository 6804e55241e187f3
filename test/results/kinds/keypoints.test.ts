/**
 * Points from tables and heatmaps: where they lie in the source, and what receipt, report and
 * picture say of them.
 */
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import t from "tap";
import { onnxModel, type ModelDescription } from "../../../scripts/lib/onnx-model.js";
import type { Engine } from "../../../src/engine/engine.js";
import { sha256 } from "../../../src/files/durable-files.js";
import { openFile } from "../../../src/images/dicom/dicom-file.js";
import { readImage } from "../../../src/images/read-image.js";
import { infer } from "../../../src/inference/infer-image.js";
import { replay } from "../../../src/inference/replay.js";
import type { ImageInput, Manifest } from "../../../src/manifest/manifest.js";
import { keypoints, type Keypoints } from "../../../src/manifest/outputs/keypoints.js";
import { labelsOf } from "../../../src/manifest/outputs/outputs.js";
import { manifestSchema } from "../../../src/manifest/rules.js";
import type { ModelEntry } from "../../../src/models/entry.js";
import { interpret } from "../../../src/results/findings/findings.js";
import { kindOfGiven, resultKindOf } from "../../../src/results/kinds/kinds.js";
import { receiptSchema } from "../../../src/results/receipt/receipt.js";
import { constant, sct } from "../../support/model-parts.js";
import { ADDON, commandsAre, needs } from "../../support/needs.js";
import { radiograph } from "../../support/radiograph.js";
import { engineWithFolder } from "../../support/real-engine.js";
import { manifestOf } from "../../support/test-models.js";
import { identity, input, loadOptions, plane, writeModel } from "../../support/tiny-models.js";
import { objectErrors } from "../../support/validators.js";

const label = (name: string, threshold?: number) => ({
  label: name,
  code: sct("39607008", "Lung"),
  ...(threshold === undefined ? {} : { threshold }),
});
const heatmaps: Keypoints = {
  kind: "keypoints",
  tensor: "y",
  activation: "none",
  labels: [label("tip", 0.5)],
};
const table = (more: Partial<NonNullable<Keypoints["table"]>> = {}): Keypoints => ({
  ...heatmaps,
  tensor: "points",
  table: { columns: ["x", "y", "score"], normalised: false, counted_from: "edges", ...more },
  labels: ["apex", "carina", "angle"].map((name) => label(name, 0.5)),
});

const points = (name: string, shape: readonly number[], data: number[]) =>
  constant(name, "points", ["h", "w"], shape, data);

async function pointsOf(engine: Engine, id: number, given: ReturnType<typeof plane>) {
  const { outputs } = await engine.infer(id, [given], {});
  const [output] = outputs;
  if (output?.kind !== "points") throw new Error("Keypoints give points");
  return output.points;
}

const fixed = (height: number, width: number, fit: ImageInput["fit"]): ImageInput => ({
  ...input,
  size: { kind: "fixed", height, width },
  fit,
  interpolation: "nearest",
});

t.test("where points lie", { skip: needs(ADDON) }, async (t) => {
  const { engine, folder } = engineWithFolder(t, "keypoints");
  let count = 0;
  const load = async (model: ModelDescription, output: Keypoints, from: ImageInput) => {
    const modelPath = writeModel(folder, { ...model, name: `${model.name}-${++count}` });
    return (await engine.load(loadOptions(modelPath, { inputs: [from], outputs: [output] }))).id;
  };
  /** An image of 6 x 10 pixels, 0 but for one. */
  const spot = (row: number, column: number) =>
    plane(
      6,
      10,
      Array.from({ length: 60 }, (_, i) => (i === row * 10 + column ? 1 : 0)),
    );

  await t.test("the highest pixel of a map, its middle", async (t) => {
    const same = await load(identity, heatmaps, { ...input, fit: "none" });
    for (const [row, column] of [
      [0, 0],
      [0, 9],
      [5, 0],
      [5, 9],
      [2, 7],
    ] as const) {
      const at = { x: column + 0.5, y: row + 0.5, score: 1, label: 0 };
      t.strictSame(await pointsOf(engine, same, spot(row, column)), [at]);
      // The image turned over: what lies at the right lies at the left
      const flipped = await pointsOf(engine, same, spot(5 - row, 9 - column));
      t.strictSame(flipped, [{ ...at, x: 10 - at.x, y: 6 - at.y }]);
    }
    const [first] = await pointsOf(engine, same, plane(6, 10));
    t.match(first, { x: 0.5, y: 0.5, score: 0 }, "of equal ones the first");
  });

  await t.test("through resizing, margins and cuts", async (t) => {
    // Each pixel is four of the map, and the first of them is taken
    const stretched = await load(identity, heatmaps, fixed(12, 20, "stretch"));
    t.match(await pointsOf(engine, stretched, spot(2, 7)), [{ x: 7.25, y: 2.25 }]);
    // The image lies in rows 4 to 16 of 20, each pixel two high and two wide
    const letterbox = await load(identity, heatmaps, fixed(20, 20, "letterbox"));
    t.match(await pointsOf(engine, letterbox, spot(5, 9)), [{ x: 9.25, y: 5.25 }]);
    // Of ten columns the middle six are seen
    const crop = await load(identity, heatmaps, fixed(6, 6, "crop"));
    t.match(await pointsOf(engine, crop, spot(3, 2)), [{ x: 2.5, y: 3.5 }]);
    t.match(await pointsOf(engine, crop, spot(3, 7)), [{ x: 7.5, y: 3.5 }]);
    const margin = await load(identity, heatmaps, { ...fixed(20, 20, "letterbox"), background: 2 });
    t.match(
      await pointsOf(engine, margin, spot(3, 2)),
      [{ y: NaN, score: 2 }],
      "none in the margin",
    );
  });

  await t.test("what is cut off has no points", async (t) => {
    // Of ten columns the middle six are seen, from 2 to 8
    const rows = points("cut-rows", [3, 3], [-0.5, 3, 1, 6.5, 3, 1, 6, 6, 1]);
    const crop = fixed(6, 6, "crop");
    const beyond = [
      { x: NaN, y: 3, label: 0 },
      { x: NaN, y: 3, label: 1 },
      { x: 8, y: 6, label: 2 },
    ];
    t.match(await pointsOf(engine, await load(rows, table(), crop), spot(0, 0)), beyond);
    const own = points("cut-source", [3, 3], [1.5, 3, 1, 8.5, 3, 1, 8, 6, 1]);
    const inSource = table({ pixels_of: "source" });
    t.match(await pointsOf(engine, await load(own, inSource, crop), spot(0, 0)), beyond);
    // Of the third pixel a half is seen: the model looks at that one too
    const part = points("cut-part", [3, 3], [-0.25, 2.5, 1, -1, 2.5, 1, 0, 2.5, 1]);
    const narrow = await load(part, table(), fixed(6, 5, "crop"));
    t.match(await pointsOf(engine, narrow, spot(0, 0)), [{ x: 2.25 }, { x: NaN }, { x: 2.5 }]);
    // Corners that lie on corners: half a pixel more than the tensor's edge is in the image
    const corners = points("corners", [3, 3], [0, 0, 1, -0.5, 0, 1, -3, 0, 1]);
    const aligned = { ...fixed(12, 20, "stretch"), align_corners: true, antialias: false };
    const [first, before, outside] = await pointsOf(
      engine,
      await load(corners, table(), { ...aligned, interpolation: "linear" }),
      spot(0, 0),
    );
    t.ok(first!.x > 0.25 && before!.x > 0 && before!.x < first!.x);
    t.match(outside, { x: NaN });
  });

  await t.test("the rows of a table, in every way of counting", async (t) => {
    // 6 x 10 pixels lie in 20 x 20 from row 4 on, twice as large
    const from = fixed(20, 20, "letterbox");
    const rows = (data: number[]) => points("rows", [3, 3], data);
    const edges = [0, 4, 0.25, 20, 16, 0.5, 5, 7, 0.75];
    const expected = [
      { x: 0, y: 0, score: 0.25, label: 0 },
      { x: 10, y: 6, score: 0.5, label: 1 },
      { x: 2.5, y: 1.5, score: 0.75, label: 2 },
    ];
    t.strictSame(
      await pointsOf(engine, await load(rows(edges), table(), from), spot(0, 0)),
      expected,
    );
    const centres = edges.map((value, i) => (i % 3 === 2 ? value : value - 0.5));
    const counted = table({ counted_from: "centres" });
    t.strictSame(
      await pointsOf(engine, await load(rows(centres), counted, from), spot(0, 0)),
      expected,
    );
    const parts = edges.map((value, i) => (i % 3 === 2 ? value : value / 20));
    const relative = await load(rows(parts), table({ normalised: true }), from);
    for (const [i, { x, y }] of (await pointsOf(engine, relative, spot(0, 0))).entries()) {
      t.ok(Math.abs(x - expected[i]!.x) < 1e-5 && Math.abs(y - expected[i]!.y) < 1e-5);
    }
    // From the middle of the first pixel to that of the last: 19 pixels
    const between = [0, 4 / 19, 0.1, 1, 15 / 19, 0.1, 0.5, 0.5, 0.1];
    const middles = await load(
      rows(between),
      table({ normalised: true, counted_from: "centres" }),
      from,
    );
    const [first, last, middle] = await pointsOf(engine, middles, spot(0, 0));
    t.match(first, { x: 0.25, label: 0 });
    t.ok(Math.abs(first!.y - 0.25) < 1e-5);
    t.match(last, { x: 9.75, label: 1 });
    t.match(middle, { x: 5, y: 3, label: 2 });
    const turned = table({ columns: ["unused", "y", "x"] });
    const [one] = await pointsOf(
      engine,
      await load(rows([9, 8, 6, 9, 8, 6, 9, 8, 6]), turned, from),
      spot(0, 0),
    );
    t.match(one, { x: 3, y: 2, score: NaN });
    const flat = await load(points("flat", [9], edges), table(), from);
    t.strictSame(await pointsOf(engine, flat, spot(0, 0)), expected, "all numbers in one row");
    const outside = await load(rows([-2, 4, 1, 20, 17, 1, 0, 3.999, 1]), table(), from);
    t.match(
      await pointsOf(engine, outside, spot(0, 0)),
      [{ x: NaN }, { y: NaN }, { x: 0, y: 0 }],
      "but for rounding",
    );
  });

  await t.test("scores through the sigmoid, and no table that runs the other way", async (t) => {
    const from = fixed(20, 20, "letterbox");
    const logits = points("logits", [3, 3], [5, 7, 0, 5, 7, 100, 5, 7, -100]);
    const model = await load(logits, { ...table(), activation: "sigmoid" }, from);
    const scores = (await pointsOf(engine, model, spot(0, 0))).map(({ score }) => score);
    t.strictSame(scores.slice(0, 2), [0.5, 1]);
    t.ok(scores[2]! >= 0 && scores[2]! < 1e-40);
    const columns = points("columns", [3, 2], [1, 2, 3, 4, 5, 6]);
    const two: Keypoints = { ...table(), labels: [label("a", 0.5), label("b", 0.5)] };
    const wrong = await load(columns, two, from);
    await t.rejects(pointsOf(engine, wrong, spot(0, 0)), { code: "output_invalid" });
  });
});

t.test("what is said of points", (t) => {
  const output = table();
  const thresholds = [[0.5, 0.5, 0.5]];
  const points = [
    { x: 3, y: 4, score: 0.5, label: 0 },
    { x: 5, y: 6, score: 0.25, label: 1 },
    { x: NaN, y: 6, score: 0.75, label: 2 },
  ];
  const given = { kind: "points", tensor: "points", points } as const;
  const { findings, warnings } = interpret([output], thresholds, {
    outputs: [given],
    spacing: undefined,
  });
  t.match(findings, [
    { label: "apex", present: true, score: 0.5, threshold: 0.5, point: { x: 3, y: 4 } },
    { label: "carina", present: false, score: 0.25, point: { x: 5, y: 6 } },
    { label: "angle", present: false, score: 0.75, point: undefined },
  ]);
  t.match(warnings, [{ code: "point_outside", message: /"angle"/ }]);
  t.ok(findings.every((finding) => resultKindOf(output).isOf(finding)));
  const box = { slice: 0, slices: 1, top: 10, rows: 9, left: 20, columns: 9 };
  const whole = { slices: 1, rows: 100, columns: 100 };
  const laid = kindOfGiven(given).laidBack!(given, box, whole);
  t.match(laid, { points: [{ x: 23, y: 14 }, { x: 25, y: 16 }, { x: NaN }] });
  const nothing = resultKindOf(output).nothing!(output, whole, false);
  const looked = interpret([output], thresholds, { outputs: [nothing], spacing: undefined });
  t.strictSame(
    looked.findings.map(({ present, point }) => [present, point]),
    output.labels.map(() => [false, undefined]),
  );
  const unscored = { ...table({ columns: ["x", "y"] }), labels: [label("apex"), label("carina")] };
  const [apex] = interpret([unscored], [[NaN, NaN]], {
    outputs: [given],
    spacing: undefined,
  }).findings;
  t.strictSame(apex, { ...apex, present: true, point: { x: 3, y: 4 } });
  t.notOk("score" in apex! || "threshold" in apex!);
  t.end();
});

t.test("what a manifest may say of points, and what the graph has to give", (t) => {
  const manifest = manifestOf("detector");
  manifest.accepts.modality = ["CR"];
  const messages = (output: Keypoints) =>
    manifestSchema
      .safeParse({ ...manifest, stage: "draft", results: { outputs: ["json"] }, outputs: [output] })
      .error?.issues.map(({ message }) => message) ?? [];
  t.strictSame(messages(table()), []);
  t.strictSame(messages({ ...heatmaps, activation: "sigmoid" }), []);
  t.match(messages(table({ columns: ["x", "x", "score"] })), [
    /column x is there 2 times/,
    /Expected a column y/,
  ]);
  t.match(messages({ ...table({ columns: ["x", "y"] }), activation: "sigmoid" }), [
    /Expected none/,
    ...table().labels.map(() => /Only with a column score/),
  ]);
  t.match(
    messages({ ...heatmaps, labels: [label("tip")] }),
    [/threshold/i, /nothing is guessed/].slice(1),
  );
  const volume = manifestOf("volume");
  const issues = manifestSchema.safeParse({ ...volume, outputs: [table()] }).error!.issues;
  t.ok(issues.some(({ message }) => /for volumes, found keypoints/.test(message)));
  const side = (shape: number[]) => ({
    tensors: [{ name: "points", dtype: "float32" as const, shape, names: shape.map(() => "") }],
    rank: 4,
    channelsLast: false,
    sides: [],
    tiled: false,
    outputs: [],
  });
  const two = { ...table(), labels: [label("a", 0.5), label("b", 0.5)] };
  for (const shape of [
    [1, 2, 3],
    [-1, 2, 3],
    [2, 3],
    [-1, 6],
    [1, -1, 3],
  ])
    t.strictSame(keypoints.graphFaults(two, side(shape)), [], String(shape));
  for (const shape of [
    [1, 3, 2],
    [-1, 3, 2],
    [1, 2, 2],
    [1, 7],
  ])
    t.match(
      keypoints.graphFaults(two, side(shape)),
      [{ message: /2 labels, 3 columns/ }],
      String(shape),
    );
  t.end();
});

t.test("an image with points, to its files", { skip: needs(ADDON) }, async (t) => {
  const { engine, folder } = engineWithFolder(t, "keypoints-files");
  // 24 x 32 pixels lie in 32 x 32 from row 4 on
  const bytes = onnxModel(points("landmarks", [3, 3], [8, 12, 0.9, 20, 10, 0.7, 4, 14, 0.4]));
  const modelPath = join(folder, "model.onnx");
  writeFileSync(modelPath, bytes);
  const manifest: Manifest = { ...manifestOf("columns"), name: "landmarks", outputs: [table()] };
  const { version, inputs, outputs, batching } = manifest;
  const loaded = await engine.load({
    modelPath,
    name: "landmarks",
    version,
    inputs,
    outputs,
    batching,
    provider: "cpu",
  });
  const model: ModelEntry = {
    name: "landmarks",
    version,
    sha256: sha256(bytes),
    manifest,
    site: { thresholds: {} },
    thresholds: outputs.map((output) => labelsOf(output).map(({ threshold }) => threshold ?? NaN)),
    state: "ready",
    nativeId: loaded.id,
    provider: "cpu",
  };
  const inputPath = join(folder, "image.dcm");
  writeFileSync(inputPath, radiograph());
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
  const [result] = receipt.models;
  t.match(result!.findings, [
    { label: "apex", present: true, point: { x: 8, y: 8 } },
    { label: "carina", present: true, point: { x: 20, y: 6 } },
    { label: "angle", present: false, point: { x: 4, y: 10 } },
  ]);
  t.match(result!.decoding, [
    { step: "table", columns: ["x", "y", "score"], counted_from: "edges" },
    { step: "scores", activation: "none" },
    { step: "thresholds", at_or_above: { apex: 0.5, carina: 0.5, angle: 0.5 } },
    { step: "to_source", counted_from: "edges" },
  ]);
  const paths = answer.models[0]!.outputs.map(({ path }) => path);
  const report = paths.find((path) => path.endsWith(".sr.dcm"))!;
  const { attributes } = openFile(readFileSync(report));
  const regions = (item: typeof attributes): (typeof attributes)[] => [
    ...(item.string("ValueType") === "SCOORD" ? [item] : []),
    ...(item.sequence("ContentSequence") ?? []).flatMap(regions),
  ];
  t.strictSame(
    regions(attributes).map((item) => [item.string("GraphicType"), item.numbers("GraphicData")]),
    [
      ["POINT", [8, 8]],
      ["POINT", [20, 6]],
    ],
  );
  if (commandsAre("dciodvfy") === false)
    for (const path of paths.filter((each) => each.endsWith(".dcm")))
      t.strictSame(objectErrors(path), []);
  t.ok(paths.some((path) => path.endsWith(".png")));
  const image = await readImage(readFileSync(inputPath));
  t.match(await replay({ receipt, image, models: [model], engine }), [
    { verdict: "ok" },
    { verdict: "ok" },
  ]);
  receipt.models[0]!.findings[0]!.point!.x = 9;
  t.match(await replay({ receipt, image, models: [model], engine }), [
    { verdict: "ok" },
    { verdict: "differs" },
  ]);
});
