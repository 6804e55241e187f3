import t from "tap";
import type { EngineOutput } from "../../../src/engine/types.js";
import { RadserveError } from "../../../src/base/errors.js";
import { unique } from "../../../src/models/acceptance.js";
import type { UltrasoundRegion, Spacing, VolumeGeometry } from "../../../src/images/image.js";
import type { ModelOutput } from "../../../src/manifest/outputs/outputs.js";
import { interpret } from "../../../src/results/findings/findings.js";
import { receiptSchema } from "../../../src/results/receipt/receipt.js";
import { receiptOf } from "../../support/commits.js";

const code = (value: string) => ({ value, scheme: "SCT", meaning: value });
const PATIENT: Spacing = { row: 0.5, column: 0.8, source: "PixelSpacing", patient: true };
const DETECTOR: Spacing = { row: 0.5, column: 0.5, source: "ImagerPixelSpacing", patient: false };

const classification: ModelOutput = {
  kind: "classification",
  tensor: "p",
  activation: "sigmoid",
  calibration: { kind: "none" },
  labels: [
    { label: "a", code: code("1"), threshold: 0.5 },
    { label: "b", threshold: 0.7 },
  ],
};
const segmentation: ModelOutput = {
  kind: "segmentation",
  tensor: "m",
  activation: "argmax",
  labels: [{ label: "fat", code: code("2") }, { label: "bone" }],
  postprocess: [],
  measurements: ["area"],
};
const map: ModelOutput = {
  kind: "probability_map",
  tensor: "t",
  activation: "none",
  threshold: 0.3,
  minimum_area: 1,
  unclip: 1,
  max_boxes: 9,
  label: { label: "text", threshold: 0.6 },
};
const detection: ModelOutput = {
  kind: "detection",
  boxes: { tensor: "b", format: "xyxy", normalised: false },
  scores: { tensor: "s", activation: "none" },
  max_boxes: 9,
  labels: [
    { label: "nodule", threshold: 0.3 },
    { label: "cyst", threshold: 0.4 },
  ],
};
const regression: ModelOutput = {
  kind: "regression",
  tensor: "r",
  values: [
    {
      name: "Ratio",
      unit: { value: "1", scheme: "UCUM", meaning: "no units" },
      multiply: 1,
      add: 0,
    },
  ],
};
const heatmap: ModelOutput = {
  kind: "heatmap",
  tensor: "h",
  activation: "none",
  label: { label: "heat" },
};

const scores = (...values: number[]): EngineOutput => ({
  kind: "classification",
  tensor: "p",
  scores: Float32Array.from(values),
});
const mask = (...counts: number[]): EngineOutput => ({
  kind: "segmentation",
  tensor: "m",
  rows: 2,
  columns: 2,
  overlapping: false,
  mask: new Uint8Array(4),
  counts,
});

function one(
  output: ModelOutput,
  thresholds: number[],
  given: EngineOutput,
  spacing?: Spacing,
  regions?: readonly UltrasoundRegion[],
) {
  return interpret([output], [thresholds], { outputs: [given], spacing, regions });
}

function refused(work: () => unknown): string {
  try {
    work();
  } catch (error) {
    if (error instanceof RadserveError) return error.code;
    throw error;
  }
  return "no error";
}

t.test("a score is present at or above its threshold, in the precision of the model", (t) => {
  const { findings } = one(classification, [0.5, 0.7], scores(0.25, 0.7));
  t.same(findings, [
    { label: "a", code: code("1"), score: 0.25, threshold: 0.5, present: false },
    { label: "b", score: Math.fround(0.7), threshold: 0.7, present: true },
  ]);
  t.ok(Math.fround(0.7) < 0.7, "which a comparison of doubles would call below");
  t.equal(
    one(classification, [0.5, 0.7], scores(0.4999, 0.6999)).findings.filter((f) => f.present)
      .length,
    0,
  );
  t.end();
});

t.test("areas in cm2 where the spacing is the patient's", (t) => {
  const { findings, measurements, warnings } = one(segmentation, [NaN, NaN], mask(250, 0), PATIENT);
  t.same(findings, [
    { label: "fat", code: code("2"), present: true, area: { pixels: 250, cm2: 1 } },
    { label: "bone", present: false, area: { pixels: 0, cm2: 0 } },
  ]);
  t.match(measurements, [
    { name: "Area", label: "fat", value: 1, unit: { value: "cm2", scheme: "UCUM" } },
    { name: "Area", label: "bone", value: 0 },
  ]);
  t.same(warnings, []);
  t.same(one({ ...segmentation, measurements: [] }, [], mask(250, 0), PATIENT).measurements, []);
  t.end();
});

t.test("areas in pixels, with a warning, where it is not", (t) => {
  for (const spacing of [undefined, DETECTOR]) {
    const got = one(segmentation, [], mask(250, 0), spacing);
    t.same(got.findings[0]?.area, { pixels: 250 });
    t.same(got.measurements, []);
    t.match(got.warnings, [{ code: "no_patient_spacing" }]);
  }
  t.end();
});

t.test(
  "areas in pixels, with a warning, where a label leaves the regions that have a scale",
  (t) => {
    const scale = { row: PATIENT.row, column: PATIENT.column };
    const regions = [{ x0: 2, y0: 0, x1: 3, y1: 9, scale, highPriority: true }];
    const spacing: Spacing = { ...PATIENT, source: "SequenceOfUltrasoundRegions" };
    const labels = Uint8Array.from([0, 0, 1, 1, 0, 0, 1, 2, 0, 2, 0, 0]);
    const counts = [3, 2];
    const exclusive = {
      kind: "segmentation",
      tensor: "m",
      rows: 3,
      columns: 4,
      overlapping: false,
    } as const;
    const got = one(segmentation, [], { ...exclusive, mask: labels, counts }, spacing, regions);
    t.match(got.findings, [
      { area: { pixels: 3, cm2: 0.012 } },
      { area: { pixels: 2, cm2: undefined } },
    ]);
    t.same(
      got.measurements.map(({ label }) => label),
      ["fat"],
    );
    t.match(got.warnings, [{ code: "partly_unmeasured", message: /"bone"/ }]);
    t.equal(got.warnings.length, 1);
    const planes = Uint8Array.from([
      ...labels.map((value) => +(value === 1)),
      ...labels.map((v) => +(v === 2)),
    ]);
    const overlapping = { ...exclusive, overlapping: true, mask: planes, counts };
    t.same(one(segmentation, [], overlapping, spacing, regions), got);
    t.end();
  },
);

t.test("each label is measured by the region of the ultrasound image that holds it whole", (t) => {
  const fine = { row: 1, column: 1 };
  const coarse = { row: 2, column: 5 };
  const region = (
    x0: number,
    x1: number,
    scale: UltrasoundRegion["scale"],
    highPriority = true,
  ): UltrasoundRegion => ({
    x0,
    x1,
    y0: 0,
    y1: 0,
    scale,
    highPriority,
  });
  const halves = [region(0, 3, fine), region(4, 7, coarse)];
  const inset = (high: boolean) => [region(0, 7, fine, !high), region(4, 7, coarse, high)];
  /** Digits are labels; the areas of "fat" and "bone" in cm2, and why one has none. */
  const cases: [
    string,
    string,
    readonly UltrasoundRegion[],
    (number | undefined)[],
    RegExp | undefined,
  ][] = [
    ["one in each", "11000022", halves, [0.02, 0.2], undefined],
    [
      "one across both",
      "11100122",
      halves,
      [undefined, 0.2],
      /"fat" lies in regions .* different scales/,
    ],
    ["one that is not there", "11000000", halves, [0.02, 0], undefined],
    [
      "one that leaves the regions",
      "11000022",
      [region(0, 3, fine), region(4, 6, coarse)],
      [0.02, undefined],
      /"bone" reaches beyond the regions/,
    ],
    [
      "one in a region without a scale",
      "11000022",
      [region(0, 3, fine), region(4, 7, undefined)],
      [0.02, undefined],
      /"bone" reaches beyond/,
    ],
    ["an inset that covers", "11000022", inset(true), [0.02, 0.2], undefined],
    ["an inset that is covered", "11000022", inset(false), [0.02, 0.02], undefined],
    [
      "an inset of the same priority",
      "11000022",
      [region(0, 7, fine), region(4, 7, coarse)],
      [0.02, undefined],
      /"bone" lies in regions/,
    ],
    [
      "regions of one scale",
      "11111022",
      [region(0, 3, coarse), region(4, 7, coarse)],
      [0.5, 0.2],
      undefined,
    ],
  ];
  for (const [name, text, regions, areas, warning] of cases) {
    const labels = Uint8Array.from(text, Number);
    const counts = [1, 2].map((label) => labels.filter((value) => value === label).length);
    const given = {
      kind: "segmentation",
      tensor: "m",
      rows: 1,
      columns: 8,
      overlapping: false,
    } as const;
    const got = one(segmentation, [], { ...given, mask: labels, counts }, undefined, regions);
    t.same(
      got.findings.map(({ area }) => area?.cm2),
      areas,
      name,
    );
    t.equal(got.measurements.length, areas.filter((area) => area !== undefined).length, name);
    t.match(
      got.warnings,
      warning === undefined ? { length: 0 } : [{ code: "partly_unmeasured", message: warning }],
      name,
    );
    t.equal(got.warnings.length, warning === undefined ? 0 : 1, name);
  }
  t.end();
});

t.test("volumes in mL of a whole series", (t) => {
  const volume = {
    origin: [0, 0, 0],
    columnDirection: [1, 0, 0],
    rowDirection: [0, 1, 0],
    sliceDirection: [0, 0, 1],
    columnSpacing: 0.8,
    rowSpacing: 0.5,
    sliceSpacing: 2.5,
  } as const satisfies VolumeGeometry;
  const asked: ModelOutput = { ...segmentation, measurements: ["volume"] };
  const part = { outputs: [mask(2000, 0)], spacing: undefined, volume };
  const { findings, measurements, warnings } = interpret([asked], [[]], part);
  t.same(findings, [
    { label: "fat", code: code("2"), present: true, volume: { voxels: 2000, ml: 2 } },
    { label: "bone", present: false, volume: { voxels: 0, ml: 0 } },
  ]);
  t.same(measurements, [
    {
      name: "Volume",
      code: { value: "118565006", scheme: "SCT", meaning: "Volume" },
      label: "fat",
      value: 2,
      unit: { value: "mL", scheme: "UCUM", meaning: "milliliter" },
    },
    { ...measurements[0], label: "bone", value: 0 },
  ]);
  t.same(warnings, []);
  const area = interpret([segmentation], [[]], part);
  t.same(area.measurements, []);
  t.match(area.warnings, [{ code: "area_not_measured" }]);
  t.match(one(asked, [], mask(1, 0), PATIENT).warnings, [{ code: "volume_not_measured" }]);
  t.end();
});

t.test("one finding a box, and one for each label that has none", (t) => {
  const boxes: EngineOutput = {
    kind: "boxes",
    tensor: "b",
    boxes: [
      { x0: 1, y0: 2, x1: 3, y1: 4.5, score: 0.9, label: 0 },
      { x0: 1, y0: 2, x1: 9, y1: 4, score: 0.2, label: 0 },
    ],
  };
  t.same(one(detection, [0.3, 0.4], boxes).findings, [
    {
      label: "nodule",
      score: 0.9,
      threshold: 0.3,
      present: true,
      box: { x0: 1, y0: 2, x1: 3, y1: 4.5 },
    },
    {
      label: "nodule",
      score: 0.2,
      threshold: 0.3,
      present: false,
      box: { x0: 1, y0: 2, x1: 9, y1: 4 },
    },
    { label: "cyst", threshold: 0.4, present: false },
  ]);
  t.same(one(map, [0.6], { ...boxes, boxes: [] }).findings, [
    { label: "text", threshold: 0.6, present: false },
  ]);
  t.end();
});

t.test("values are measurements; a heat map is neither", (t) => {
  const value: EngineOutput = { kind: "regression", tensor: "r", values: Float32Array.of(0.5) };
  t.match(one(regression, [], value), {
    findings: { length: 0 },
    measurements: [{ name: "Ratio", value: 0.5 }],
  });
  const heat: EngineOutput = {
    kind: "heatmap",
    tensor: "h",
    rows: 1,
    columns: 1,
    values: Float32Array.of(1),
  };
  t.same(one(heatmap, [NaN], heat), { findings: [], measurements: [], warnings: [] });
  t.end();
});

t.test("frames are numbered, warnings said once, and a receipt holds it all", (t) => {
  const frames = [1, 2].map((frame) => ({
    frame,
    outputs: [scores(1, 0), mask(1, 2)],
    spacing: undefined,
  }));
  const said = frames.map((frame) =>
    interpret([classification, segmentation], [[0.5, 0.7], []], frame),
  );
  const got = {
    findings: said.flatMap(({ findings }) => findings),
    measurements: said.flatMap(({ measurements }) => measurements),
    warnings: unique(said.flatMap(({ warnings }) => warnings)),
  };
  t.same(
    got.findings.map((f) => [f.frame, f.label]),
    [1, 2].flatMap((frame) => ["a", "b", "fat", "bone"].map((label) => [frame, label])),
  );
  t.equal(got.warnings.length, 1);
  const model = {
    name: "m",
    version: "1",
    status: "succeeded" as const,
    outputs: [],
    sha256: "0".repeat(64),
    site_thresholds: {},
    transforms: [],
    ...got,
  };
  t.doesNotThrow(() => receiptSchema.parse(receiptOf("x", "p", [model])));
  t.end();
});

t.test("outputs that are not the manifest's are refused, never guessed", (t) => {
  for (const [output, thresholds, given] of [
    [classification, [0.5, 0.7], scores(1)],
    [classification, [0.5, 0.7], scores(1, NaN)],
    [classification, [0.5, NaN], scores(1, 1)],
    [classification, [0.5, 0.7], mask(1, 2)],
    [segmentation, [], mask(1)],
    [
      detection,
      [0.3, 0.4],
      { kind: "boxes", tensor: "b", boxes: [{ x0: 0, y0: 0, x1: 1, y1: 1, score: 1, label: 2 }] },
    ],
    [regression, [], { kind: "regression", tensor: "r", values: Float32Array.of(Infinity) }],
  ] as [ModelOutput, number[], EngineOutput][])
    t.equal(
      refused(() => one(output, thresholds, given)),
      "output_invalid",
    );
  t.equal(
    refused(() => interpret([classification], [[0.5, 0.7]], { outputs: [], spacing: undefined })),
    "output_invalid",
  );
  t.end();
});
