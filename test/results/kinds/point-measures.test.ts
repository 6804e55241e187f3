/**
 * Measurements of named points: against numpy and shapely, without a spacing or a point, and in
 * receipt, report and picture.
 */
import { readFileSync } from "node:fs";
import t from "tap";
import type { Spacing } from "../../../src/images/image.js";
import type { Keypoints, Measure } from "../../../src/manifest/outputs/keypoints.js";
import { manifestSchema } from "../../../src/manifest/rules.js";
import { interpret } from "../../../src/results/findings/findings.js";
import { constant, sct } from "../../support/model-parts.js";
import { ADDON, commandsAre, needs } from "../../support/needs.js";
import { reportItems, resultOf } from "../../support/one-output.js";
import { radiograph } from "../../support/radiograph.js";
import { engineWithFolder } from "../../support/real-engine.js";
import { manifestOf } from "../../support/test-models.js";
import { plane } from "../../support/tiny-models.js";
import { objectErrors } from "../../support/validators.js";

type Asked = Measure extends infer One
  ? One extends Measure
    ? Omit<One, "name" | "code">
    : never
  : never;
const { points: reference } = JSON.parse(
  readFileSync(new URL("../../../../test/reference/points/points.json", import.meta.url), "utf8"),
) as {
  points: {
    row: number;
    column: number;
    places: Record<string, [number, number]>;
    measures: (Asked & { value: number })[];
  };
};

const code = sct("410668003", "Length");
const names = Object.keys(reference.places);
const output = (measures: Measure[]): Keypoints => ({
  kind: "keypoints",
  tensor: "points",
  activation: "none",
  table: { columns: ["x", "y", "score"], normalised: false, counted_from: "edges" },
  labels: names.map((label) => ({ label, code: sct("39607008", "Lung"), threshold: 0.5 })),
  measures,
});
const asked = reference.measures.map((measure, i) => ({
  ...Object.fromEntries(Object.entries(measure).filter(([key]) => key !== "value")),
  name: `measure ${i}`,
  code,
})) as Measure[];
const thresholds = [names.map(() => 0.5)];

/** @param changed places of points in the image, or the score of one */
function measured(
  measures: Measure[],
  part: object = {},
  changed: Record<string, { x?: number; y?: number; score?: number }> = {},
) {
  const points = names.map((name, label) => {
    const [x, y] = reference.places[name]!;
    return { x, y, score: 0.75, label, ...changed[name] };
  });
  const given = { kind: "points", tensor: "points", points } as const;
  return interpret([output(measures)], thresholds, {
    outputs: [given],
    spacing: undefined,
    ...part,
  });
}
const spacing: Spacing = {
  row: reference.row,
  column: reference.column,
  source: "PixelSpacing",
  patient: true,
};
const UNITS = { distance: "mm", line_distance: "mm", angle: "deg", line_angle: "deg" };

t.test("what numpy and shapely measure", (t) => {
  const { measurements, warnings } = measured(asked, { spacing });
  t.strictSame(warnings, []);
  t.equal(measurements.length, reference.measures.length);
  for (const [i, expected] of reference.measures.entries()) {
    const { value, unit } = measurements[i]!;
    t.ok(
      Math.abs(value - expected.value) < 1e-10,
      `${expected.type} ${expected.points.join(" ")}: ${value}`,
    );
    const of = expected.type === "ratio" ? (expected.percent ? "%" : "1") : UNITS[expected.type];
    t.equal(unit.value, of);
  }
  t.ok(
    reference.measures.some(({ value }) => value < 0),
    "one that lies the other way round is below 0",
  );
  t.end();
});

t.test("the lines that were measured", (t) => {
  const square = { spacing: { ...spacing, row: 0.5, column: 0.5 } };
  const at = { a: { x: 0, y: 0 }, b: { x: 10, y: 0 }, c: { x: 4, y: 3 } };
  const lines = (measure: Asked) =>
    measured([{ ...measure, name: "it" }], square, at).measurements[0]?.lines;
  t.strictSame(lines({ type: "line_distance", points: ["c", "a", "b"] }), [
    [at.c, { x: 4, y: 0 }],
    [at.a, at.b],
  ]);
  t.strictSame(lines({ type: "distance", points: ["a", "c"], along: "columns" }), [
    [at.a, { x: 0, y: 3 }],
  ]);
  t.strictSame(lines({ type: "distance", points: ["a", "c"], along: ["b", "a"] }), [
    [at.a, { x: 4, y: 0 }],
  ]);
  t.strictSame(lines({ type: "angle", points: ["a", "c", "b"] }), [[at.a, at.c, at.b]]);
  t.end();
});

t.test("in pixels where no spacing in the patient is known, and said", (t) => {
  const distances = asked.filter(({ type }) => type === "distance" || type === "line_distance");
  const named = distances.map(({ name }) => name).join(", ");
  for (const [given, words] of [
    [undefined, "The image does not say how large its pixels are"],
    [
      { ...spacing, column: spacing.row, source: "ImagerPixelSpacing", patient: false } as Spacing,
      "The image gives ImagerPixelSpacing, which is not known to be spacing in the patient",
    ],
  ] as const) {
    const { measurements, warnings } = measured(asked, { spacing: given });
    t.strictSame(warnings, [
      { code: "no_patient_spacing", message: `${words}; in pixels only: ${named}.` },
    ]);
    const [first] = measurements;
    const [a, b] = [reference.places["a"]!, reference.places["b"]!];
    t.match(first, { unit: { value: "{pixels}" } });
    t.ok(Math.abs(first!.value - Math.hypot(b[0] - a[0], b[1] - a[1])) < 1e-12);
  }
  // Only the proportions are known: angles and ratios are right, and distances have no unit
  const planes = [{ ...plane(1, 1), pixelAspect: reference.row / reference.column }];
  const { measurements, warnings } = measured(asked, { planes });
  const rest = reference.measures.filter(
    ({ type }) => type !== "distance" && type !== "line_distance",
  );
  t.equal(measurements.length, rest.length);
  for (const [i, { value }] of rest.entries())
    t.ok(Math.abs(measurements[i]!.value - value) < 1e-10);
  t.equal(warnings.length, distances.length);
  t.match(warnings, [
    { code: "not_measured", message: /"measure 0" is not measured: its pixels are not/ },
  ]);
  t.end();
});

t.test("never where a point is not there, or lines have no direction", (t) => {
  const one = (
    measure: Asked,
    changed: Parameters<typeof measured>[2],
    part: object = { spacing },
  ) => {
    const { measurements, warnings } = measured([{ ...measure, name: "Cobb" }], part, changed);
    t.strictSame(measurements, []);
    t.equal(warnings.length, 1);
    return warnings[0]!;
  };
  const cobb: Asked = { type: "line_angle", points: ["a", "b", "c", "d"] };
  t.strictSame(one(cobb, { b: { score: 0.25 } }), {
    code: "not_measured",
    message: '"Cobb" is not measured: "b" is not there.',
  });
  t.match(one(cobb, { b: { score: 0.25 }, d: { score: 0 } }), {
    message: /"b", "d" are not there/,
  });
  t.match(one(cobb, { b: { score: 0.25 } }, { spacing, frame: 3 }), { message: /on some frames/ });
  const at = { x: 50, y: 50 };
  t.match(one(cobb, { c: at, d: at }), { message: /in one place/ });
  t.match(one({ type: "angle", points: ["a", "b", "c"] }, { b: at, c: at }), {
    message: /in one place/,
  });
  t.match(one({ type: "line_distance", points: ["a", "b", "c"] }, { b: at, c: at }), {
    message: /in one place/,
  });
  const ratio: Asked = { type: "ratio", points: ["a", "b", "c", "d"], percent: false };
  t.match(one(ratio, { c: at, d: at }), { message: /divided by/ });
  t.match(one({ type: "distance", points: ["a", "b"], along: ["c", "d"] }, { d: { score: 0 } }), {
    message: /"d" is not there/,
  });
  t.end();
});

t.test("by the scale of the region of an ultrasound image", (t) => {
  const region = (x0: number, x1: number, mm: number | undefined) => ({
    x0,
    y0: 0,
    x1,
    y1: 200,
    highPriority: false,
    scale: mm === undefined ? undefined : { row: mm, column: mm },
  });
  const distance = [{ type: "distance", points: ["a", "b"], name: "it" }] as Measure[];
  const [whole] = measured(distance, { regions: [region(0, 200, 0.5)] }).measurements;
  const [a, b] = [reference.places["a"]!, reference.places["b"]!];
  t.match(whole, { unit: { value: "mm" } });
  t.ok(Math.abs(whole!.value - 0.5 * Math.hypot(b[0] - a[0], b[1] - a[1])) < 1e-12);
  const apart = measured(distance, { regions: [region(0, 60, 0.5), region(61, 200, 0.25)] });
  t.strictSame(apart.measurements, []);
  t.match(apart.warnings, [{ code: "not_measured", message: /one scale/ }]);
  t.match(measured(distance, { regions: [region(0, 60, 0.5)] }).measurements, { length: 0 });
  t.match(measured(distance, { regions: [region(0, 200, undefined)] }).measurements, { length: 0 });
  const over = [region(0, 200, 0.25), { ...region(0, 200, 0.5), highPriority: true }];
  t.strictSame(measured(distance, { regions: over }).measurements, [whole]);
  t.end();
});

t.test("what a manifest may ask", (t) => {
  const manifest = manifestOf("columns");
  manifest.accepts.modality = ["CR"];
  const messages = (measures: Measure[], stage = "draft") =>
    manifestSchema
      .safeParse({
        ...manifest,
        stage,
        results: { outputs: ["json"] },
        outputs: [output(measures)],
      })
      .error?.issues.map(({ message }) => message) ?? [];
  t.strictSame(messages(asked), []);
  const distance: Measure = { type: "distance", points: ["a", "b"], name: "it" };
  t.match(messages([{ ...distance, points: ["a", "z"] }]), [
    /No label is called "z"; labels are a, b/,
  ]);
  t.match(messages([{ ...distance, along: ["a", "z"] }]), [/No label is called "z"/]);
  t.match(messages([{ ...distance, points: ["a", "a"] }]), [/different points/]);
  t.match(messages([distance, distance]), [/it/]);
  t.ok(messages([distance], "final").some((message) => /Required in stage final/.test(message)));
  t.end();
});

t.test("an image with measured points, to its files", { skip: needs(ADDON) }, async (t) => {
  const place = engineWithFolder(t, "point-measures");
  const rows = [8, 12, 0.9, 20, 10, 0.9, 6, 24, 0.9, 26, 22, 0.9, 16, 16, 0.9, 3, 20, 0.1];
  const measures: Measure[] = [
    {
      type: "line_angle",
      points: ["a", "b", "c", "d"],
      name: "Cobb angle",
      code: sct("285285000", "Cobb angle"),
    },
    { type: "angle", points: ["a", "e", "d"], name: "Bend", code },
    { type: "line_distance", points: ["d", "a", "b"], name: "Offset", code },
    { type: "distance", points: ["a", "f"], name: "Gone", code },
  ];
  const { receipt, result, paths, verdicts } = await resultOf(place, {
    name: "measures",
    graph: constant("measures", "points", ["h", "w"], [6, 3], rows),
    output: output(measures),
    dicom: radiograph({ PixelSpacing: [0.5, 0.5] }),
  });
  // 24 x 32 pixels lie in 32 x 32 from row 4 on
  t.match(result.measurements, [
    {
      name: "Cobb angle",
      unit: { value: "deg" },
      lines: [
        [
          { x: 8, y: 8 },
          { x: 20, y: 6 },
        ],
        [{}, {}],
      ],
    },
    { name: "Bend" },
    { name: "Offset" },
  ]);
  t.equal(result.measurements.length, 3);
  t.match(
    result.warnings.filter(({ code: of }) => of === "not_measured"),
    [{ message: '"Gone" is not measured: "f" is not there.' }],
  );
  t.match(result.decoding?.at(-1), {
    step: "measures",
    of: [{ type: "line_angle", name: "Cobb angle" }],
  });
  const numbers = reportItems(paths).filter((item) => item.string("ValueType") === "NUM");
  const under = (name: string) =>
    numbers
      .find((item) => item.sequence("ConceptNameCodeSequence")?.[0]?.string("CodeMeaning") === name)
      ?.sequence("ContentSequence");
  const cobb = under("Cobb angle") ?? [];
  t.strictSame(
    cobb.map((item) => [
      item.string("RelationshipType"),
      item.string("GraphicType"),
      item.numbers("GraphicData"),
    ]),
    [
      ["INFERRED FROM", "POLYLINE", [8, 8, 20, 6]],
      ["INFERRED FROM", "POLYLINE", [6, 20, 26, 18]],
    ],
  );
  if (commandsAre("dciodvfy") === false)
    for (const path of paths.filter((each) => each.endsWith(".dcm")))
      t.strictSame(objectErrors(path), []);
  t.strictSame(await verdicts(receipt), ["ok", "ok"]);
  receipt.models[0]!.measurements[0]!.value += 1;
  t.strictSame(await verdicts(receipt), ["ok", "differs"]);
});
