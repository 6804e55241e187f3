/**
 * Turned boxes: against Ultralytics and shapely, where they lie in the source, and what receipt,
 * report and picture say.
 */
import { readFileSync } from "node:fs";
import t from "tap";
import type { Engine } from "../../../src/engine/engine.js";
import type { EngineOutput } from "../../../src/engine/types.js";
import type { ImageInput } from "../../../src/manifest/manifest.js";
import {
  detectionTable,
  type DetectionTable,
} from "../../../src/manifest/outputs/detection-table.js";
import { manifestSchema } from "../../../src/manifest/rules.js";
import { interpret } from "../../../src/results/findings/findings.js";
import { kindOfGiven } from "../../../src/results/kinds/kinds.js";
import { constant, sct } from "../../support/model-parts.js";
import { ADDON, commandsAre, needs } from "../../support/needs.js";
import { reportItems, resultOf } from "../../support/one-output.js";
import { radiograph } from "../../support/radiograph.js";
import { engineWithFolder } from "../../support/real-engine.js";
import { manifestOf } from "../../support/test-models.js";
import { input, loadOptions, plane, writeModel } from "../../support/tiny-models.js";
import { objectErrors } from "../../support/validators.js";

interface Reference {
  side: number;
  boxes: number;
  least: number;
  raw: number[];
  corners: [number, number][][];
  best: number[];
  labels: number[];
  cases: {
    iou: number;
    per_class: boolean;
    kind: "fast" | "greedy";
    overlap: "probabilistic" | "polygon";
    kept: number[];
  }[];
}
const { turned } = JSON.parse(
  readFileSync(new URL("../../../../test/reference/points/points.json", import.meta.url), "utf8"),
) as { turned: Reference };

const label = (name: string, threshold: number) => ({
  label: name,
  threshold,
  code: sct("27925004", "Nodule"),
});
/** As Ultralytics exports a network of the task obb. */
const columns: DetectionTable = {
  kind: "detection_table",
  tensor: "boxes",
  axes: "columns_boxes",
  columns: ["cx", "cy", "w", "h", "class_scores", "angle"],
  normalised: false,
  scores: { activation: "none", labels_per_box: "one" },
  angle: "radians_clockwise",
  nms: { kind: "fast", iou: 0.45, per_class: true, overlap: "probabilistic" },
  max_boxes: 300,
  labels: [label("nodule", turned.least), label("mass", turned.least)],
};
/** One whose graph has chosen the boxes: rows of cx, cy, w, h, score, class, angle. */
const rows: DetectionTable = {
  ...columns,
  axes: "boxes_columns",
  columns: ["cx", "cy", "w", "h", "score", "class", "angle"],
  scores: { activation: "none" },
  classes: { first: 0 },
  nms: { kind: "none" },
};
const graphOf = (name: string, shape: readonly number[], data: number[]) =>
  constant(name, "boxes", ["h", "w"], shape, data);

async function boxesOf(engine: Engine, id: number, side: readonly [number, number]) {
  const [output] = (await engine.infer(id, [plane(...side)], {})).outputs;
  if (output?.kind !== "boxes") throw new Error("A table gives boxes");
  return output.boxes;
}

t.test("the boxes that Ultralytics and shapely keep", { skip: needs(ADDON) }, async (t) => {
  const { engine, folder } = engineWithFolder(t, "turned");
  const modelPath = writeModel(folder, graphOf("obb", [7, turned.boxes], turned.raw));
  const from: ImageInput = { ...input, fit: "none" };
  for (const { kept, ...nms } of turned.cases) {
    const { id } = await engine.load(
      loadOptions(modelPath, { inputs: [from], outputs: [{ ...columns, nms }] }),
    );
    const boxes = await boxesOf(engine, id, [turned.side, turned.side]);
    const name = `${nms.kind} ${nms.overlap} ${nms.iou} ${nms.per_class}`;
    t.strictSame(
      boxes.map(({ score, label: of }) => [score, of]),
      kept.map((i) => [turned.best[i], turned.labels[i]]),
      name,
    );
    const furthest = boxes.flatMap(({ corners = [] }, i) => {
      // Ultralytics begins at the corner that is the lower right one before it is turned, and goes
      // the other way round
      const [right, upper, left, lower] = turned.corners[kept[i]!]!;
      return [left, upper, right, lower].map(([x, y] = [NaN, NaN], k) =>
        Math.hypot(x - (corners[k]?.x ?? NaN), y - (corners[k]?.y ?? NaN)),
      );
    });
    t.ok(Math.max(...furthest) < 1e-4, `${name}: corners`);
    await engine.unload(id);
  }
});

t.test("where they lie in the source", { skip: needs(ADDON) }, async (t) => {
  const { engine, folder } = engineWithFolder(t, "turned-places");
  let count = 0;
  const found = async (
    data: number[],
    more: Partial<DetectionTable>,
    from: Partial<ImageInput>,
  ) => {
    const modelPath = writeModel(folder, graphOf(`places-${++count}`, [data.length / 7, 7], data));
    const options = { inputs: [{ ...input, ...from }], outputs: [{ ...rows, ...more }] };
    return boxesOf(engine, (await engine.load(loadOptions(modelPath, options))).id, [6, 10]);
  };
  const near = (corners: { x: number; y: number }[] | undefined, expected: number[]) => {
    const places = (corners ?? []).flatMap(({ x, y }) => [x, y]);
    t.strictSame(
      places.map((one) => Math.round(one * 1e4) / 1e4 + 0),
      expected,
    );
  };
  const square = { size: { kind: "fixed", height: 20, width: 20 } } as const;
  const quarter = Math.PI / 2;
  // 6 x 10 pixels lie in 20 x 20 from row 4 on, twice as large
  const letterbox = { ...square, fit: "letterbox" } as const;
  const upright = [10, 10, 8, 4, 0.9, 1, 0];
  const [plain] = await found(upright, {}, letterbox);
  t.match(
    plain,
    { x0: 3, y0: 2, x1: 7, y1: 4, label: 1 },
    "without a turn it is the box along the axes",
  );
  near(plain?.corners, [3, 2, 7, 2, 7, 4, 3, 4]);
  for (const [angle, unit] of [
    [quarter, "radians_clockwise"],
    [-quarter, "radians_counterclockwise"],
    [90, "degrees_clockwise"],
    [-90, "degrees_counterclockwise"],
  ] as const) {
    const [box] = await found([...upright.slice(0, 6), angle], { angle: unit }, letterbox);
    near(box?.corners, [6, 1, 6, 5, 4, 5, 4, 1]);
  }
  // Stretched to half the width and 10 / 3 of the height, it is no rectangle any more
  const slanted = [10, 10, 8 * Math.SQRT2, 4 * Math.SQRT2, 0.9, 1, 45];
  const [sheared] = await found(
    slanted,
    { angle: "degrees_clockwise" },
    { ...square, fit: "stretch" },
  );
  near(sheared?.corners, [4, 1.2, 8, 3.6, 6, 4.8, 2, 2.4]);
  // The first lies below the image; the edges round the second meet it, and it does not
  const beyond = [0, 12, 8, 8, 0.9, 1, 45, 13, 9, 8, 8, 0.8, 0, 45];
  t.strictSame(await found(beyond, { angle: "degrees_clockwise" }, {}), []);
  const [left] = await found([0, 3, 4, 4, 0.9, 1, 45], { angle: "degrees_clockwise" }, {});
  t.match(left, { x0: 0 });
  t.ok(left!.corners!.some(({ x }) => x < 0) && Math.abs(left!.x1 - Math.SQRT2 * 2) < 1e-6);
});

t.test("what is said of turned boxes", (t) => {
  const corners = [
    { x: 2, y: 4 },
    { x: 4, y: 0 },
    { x: 6, y: 1 },
    { x: 4, y: 5 },
  ];
  const box = { x0: 2, y0: 0, x1: 6, y1: 5, score: 0.75, label: 0, corners };
  const given: EngineOutput = { kind: "boxes", tensor: "boxes", boxes: [box] };
  const thresholds = [[0.5, 0.5]];
  const said = (part: object) =>
    interpret([rows], thresholds, { outputs: [given], spacing: undefined, ...part }).findings[0];
  t.match(said({}), { label: "nodule", corners, box: { x0: 2, y1: 5 }, angle: -63.43494882292201 });
  const oblong = { row: 0.5, column: 1, source: "PixelSpacing", patient: true } as const;
  t.match(said({ spacing: oblong }), { angle: -45 }, "in the patient's proportions");
  const laid = kindOfGiven(given).laidBack!(
    given,
    { slice: 0, slices: 1, top: 10, rows: 9, left: 20, columns: 9 },
    { slices: 1, rows: 100, columns: 100 },
  );
  t.match(laid, { boxes: [{ x0: 22, y0: 10, corners: [{ x: 22, y: 14 }] }] });
  t.end();
});

t.test("what a manifest may say of them", (t) => {
  const manifest = manifestOf("detector");
  manifest.accepts.modality = ["CR"];
  const messages = (output: DetectionTable) =>
    manifestSchema
      .safeParse({ ...manifest, stage: "draft", results: { outputs: ["json"] }, outputs: [output] })
      .error?.issues.map(({ message }) => message) ?? [];
  t.strictSame(messages(columns), []);
  t.strictSame(messages(rows), []);
  t.match(messages({ ...columns, angle: undefined }), [/how it is counted: radians_clockwise/]);
  t.match(messages({ ...columns, normalised: true }), [/Expected false/]);
  t.match(messages({ ...columns, nms: { kind: "greedy", iou: 0.5, per_class: true } }), [
    /probabilistic/,
  ]);
  t.match(messages({ ...rows, columns: ["x1", "y1", "x2", "y2", "score", "class", "angle"] }), [
    /cx cy w h/,
  ]);
  const plain = { ...rows, columns: rows.columns.slice(0, 6) };
  t.match(messages(plain), [/Only with a column angle/]);
  const side = (shape: number[]) => ({
    tensors: [{ name: "boxes", dtype: "float32" as const, shape, names: shape.map(() => "") }],
    rank: 4,
    channelsLast: false,
    sides: [],
    tiled: false,
    outputs: [],
  });
  t.strictSame(detectionTable.graphFaults(columns, side([1, 7, 8400])), []);
  t.match(detectionTable.graphFaults(columns, side([1, 6, 8400])), [
    { message: /Expected 7 columns/ },
  ]);
  t.end();
});

t.test("an image with turned boxes, to its files", { skip: needs(ADDON) }, async (t) => {
  const place = engineWithFolder(t, "turned-files");
  // 24 x 32 pixels lie in 32 x 32 from row 4 on
  const data = [16, 16, 12, 4, 0.9, 0, Math.PI / 6, 1, 10, 8, 8, 0.8, 1, Math.PI / 4];
  const { receipt, result, paths, verdicts } = await resultOf(place, {
    name: "turned",
    graph: graphOf("turned", [2, 7], data),
    output: rows,
    dicom: radiograph(),
  });
  t.match(result.findings, [
    { label: "nodule", present: true, corners: [{}, {}, {}, {}] },
    { label: "mass", present: true, box: { x0: 0 } },
  ]);
  t.ok(Math.abs(result.findings[0]!.angle! - 30) < 1e-5);
  t.match(result.decoding, [{ step: "table", angle: "radians_clockwise" }, { step: "scores" }]);
  const items = reportItems(paths);
  const outlines = items.filter((item) => item.string("ValueType") === "SCOORD");
  const numbers = outlines.map((item) => item.numbers("GraphicData") ?? []);
  t.ok(outlines.every((item) => item.string("GraphicType") === "POLYLINE"));
  t.strictSame(
    numbers.map((all) => all.length),
    [10, 12],
    "four corners, or those of the part within the image, and the first again",
  );
  for (const all of numbers) {
    t.strictSame(all.slice(0, 2), all.slice(-2));
    t.ok(all.every((one, i) => one >= 0 && one <= (i % 2 === 0 ? 32 : 24)));
  }
  const angles = items.filter(
    (item) =>
      item.sequence("ConceptNameCodeSequence")?.[0]?.string("CodeValue") === "angle-to-rows",
  );
  t.equal(angles.length, 2);
  if (commandsAre("dciodvfy") === false)
    for (const path of paths.filter((each) => each.endsWith(".dcm")))
      t.strictSame(objectErrors(path), []);
  t.ok(paths.some((path) => path.endsWith(".png")));
  t.strictSame(await verdicts(receipt), ["ok", "ok"]);
  receipt.models[0]!.findings[0]!.corners![0]!.x += 1;
  t.strictSame(await verdicts(receipt), ["ok", "differs"]);
});
