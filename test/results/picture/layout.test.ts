import t from "tap";
import { edgesOf } from "../../../src/results/findings/edges.js";
import { gridOf, panelSize, scaleBar } from "../../../src/results/picture/layout.js";
import { scoreText, type LegendScope } from "../../../src/results/kinds/legend-row.js";
import { legendOf } from "../../../src/results/picture/legend.js";
import { heatRange } from "../../../src/results/colour.js";
import type { ModelOutput } from "../../../src/manifest/outputs/outputs.js";
import type { Spacing } from "../../../src/images/image.js";

const ONE: LegendScope = { frames: 1, called: "frame", heat: { low: 0, high: 1 } };

t.test("panels: small ones grow by whole numbers, large ones shrink to 900", (t) => {
  const size = (rows: number, columns: number, aspect = 1) => {
    const { width, height, render } = panelSize(rows, columns, aspect);
    return [width, height, render.width, render.height];
  };
  t.same(size(64, 64), [896, 896, 64, 64]);
  t.same(size(512, 512), [512, 512, 512, 512]);
  t.same(size(900, 300), [300, 900, 300, 900]);
  t.same(size(3000, 2500), [750, 900, 750, 900]);
  t.same(size(16, 20000), [900, 1, 900, 1]);
  t.same(size(1, 1), [900, 900, 1, 1]);
  t.same(size(100, 200, 2), [800, 800, 200, 100], "pixels twice as high as wide");
  t.same(size(200, 100, 0.5), [800, 800, 100, 200], "pixels twice as wide as high");
  t.end();
});

t.test("grids: panels as large as a screen allows, more across than down", (t) => {
  const grid = (count: number, rows: number, columns: number) => {
    const { columns: across, panel } = gridOf(count, rows, columns, 1);
    return [across, panel.width, panel.height];
  };
  t.same(grid(12, 512, 512), [4, 360, 360]);
  t.same(grid(12, 64, 64), [4, 320, 320], "whole pixels");
  t.same(grid(12, 256, 256), [4, 256, 256], "no row with empty places");
  t.same(grid(2, 600, 800), [2, 720, 540]);
  t.same(grid(12, 100, 2000), [1, 1440, 72], "wide ones one below the other");
  t.same(grid(12, 3000, 300), [12, 108, 1080]);
  t.end();
});

t.test("scale bars are round lengths within a third of the panel", (t) => {
  const spacing = (column: number): Spacing => ({
    row: column,
    column,
    source: "PixelSpacing",
    patient: true,
  });
  t.same(scaleBar(spacing(0.78125), 512, 512), { length: 128, text: "10 cm" });
  t.same(scaleBar(spacing(0.1), 900, 900), { length: 200, text: "2 cm" });
  t.match(scaleBar(spacing(0.0001), 900, 900), { text: "20 µm" });
  t.match(scaleBar(spacing(0.01), 500, 500), { text: "1 mm" });
  t.same(
    scaleBar(spacing(1), 64, 19.2, 300),
    { length: 60, text: "20 cm" },
    "longer than a narrow panel",
  );
  t.equal(scaleBar(undefined, 512, 512), undefined);
  t.equal(scaleBar(spacing(1), 10, 10), undefined, "too small for a bar");
  t.end();
});

t.test("orientation letters", (t) => {
  const plane = (...orientation: [number, number, number, number, number, number]) =>
    edgesOf({ position: [0, 0, 0], orientation });
  t.same(plane(1, 0, 0, 0, 1, 0), { left: "R", right: "L", top: "A", bottom: "P" }, "axial");
  t.same(plane(0, 1, 0, 0, 0, -1), { left: "A", right: "P", top: "H", bottom: "F" }, "sagittal");
  t.match(plane(0.8, 0.6, 0, 0, 0, -1), { left: "RA", right: "LP" }, "oblique");
  t.same(edgesOf(undefined, ["L", "F"]), { left: "R", right: "L", top: "H", bottom: "F" });
  t.same(edgesOf(undefined, ["A", "FR"])?.top, "HL");
  t.equal(
    edgesOf(undefined, ["CR", "V"]),
    undefined,
    "a quadruped's are not turned by a biped's rules",
  );
  t.equal(edgesOf(undefined, []), undefined);
  t.equal(edgesOf(undefined), undefined);
  t.end();
});

t.test("a score is never shown on the wrong side of its threshold", (t) => {
  t.equal(scoreText(0.62, 0.5, true), "score 0.62, threshold 0.50");
  t.equal(scoreText(0.4996, 0.5, false), "score 0.4996, threshold 0.5000");
  t.equal(scoreText(0.5, 0.5, true), "score 0.50, threshold 0.50");
  t.equal(scoreText(0.504, 0.5, true), "score 0.50, threshold 0.50");
  t.equal(scoreText(Math.fround(0.7), 0.7, true), "score 0.70, threshold 0.70");
  t.end();
});

t.test("the legend shows what is present first, and what was not found too", (t) => {
  const outputs: ModelOutput[] = [
    {
      kind: "classification",
      tensor: "p",
      activation: "sigmoid",
      calibration: { kind: "none" },
      labels: ["a", "b", "c"].map((label) => ({ label, threshold: 0.5 })),
    },
  ];
  const findings = [0.1, 0.9, 0.2].map((score, i) => ({
    label: "abc"[i]!,
    score,
    threshold: 0.5,
    present: score >= 0.5,
  }));
  const legend = legendOf(outputs, findings, [], ONE);
  t.same(
    legend.rows.map((row) => row.label),
    ["b", "a", "c"],
  );
  t.equal(legend.headline, "1 of 3 labels at or above threshold");
  const none = legendOf(
    outputs,
    findings.map((f) => ({ ...f, score: 0.1, present: false })),
    [],
    ONE,
  );
  t.equal(none.headline, "No finding at or above its threshold");
  t.equal(none.rows.length, 3);
  t.end();
});

t.test("the legend of several frames tells the largest, where it is, and in how many", (t) => {
  const over: LegendScope = { ...ONE, frames: 20, called: "slice" };
  const labels = [{ label: "a", threshold: 0.5 }];
  const areas = [0, 120, 80].map((pixels, i) => ({
    label: "a",
    present: pixels > 0,
    frame: i + 1,
    area: { pixels, cm2: pixels / 100 },
  }));
  const segmentation: ModelOutput = {
    kind: "segmentation",
    tensor: "m",
    activation: "argmax",
    labels,
    postprocess: [],
    measurements: [],
  };
  const value = (output: ModelOutput, findings: Parameters<typeof legendOf>[1]) =>
    legendOf([output], findings, [], over).rows[0]?.value;
  t.equal(value(segmentation, areas), "up to 1.20 cm² (slice 2)  ·  in 2 of 20");
  const finer = { label: "a", present: true, frame: 1, area: { pixels: 500, cm2: 0.5 } };
  t.equal(
    value(segmentation, [finer, ...areas]),
    "up to 1.20 cm² (slice 2)  ·  in 3 of 20",
    "the largest, not that of the most pixels",
  );
  const unmeasured = { label: "a", present: true, frame: 1, area: { pixels: 100 } };
  t.equal(
    value(segmentation, [unmeasured, ...areas]),
    "up to 120 px (slice 2)  ·  in 3 of 20",
    "cm² only if every frame has its area in cm²",
  );
  t.equal(value(segmentation, areas.slice(0, 1)), "0.0 cm²  ·  0 px");
  const volume = (voxels: number) => [
    { label: "a", present: true, volume: { voxels, ml: voxels / 500 } },
  ];
  t.equal(value(segmentation, volume(1)), "0.002 mL  ·  1 voxel");
  t.equal(value(segmentation, volume(2)), "0.004 mL  ·  2 voxels");
  const scores = [0.2, 0.7, 0.6].map((score, i) => ({
    label: "a",
    score,
    threshold: 0.5,
    present: score >= 0.5,
    frame: i + 1,
  }));
  const classification: ModelOutput = {
    kind: "classification",
    tensor: "p",
    activation: "sigmoid",
    calibration: { kind: "none" },
    labels,
  };
  t.equal(
    value(classification, scores),
    "highest score 0.70, threshold 0.50 (slice 2)  ·  in 2 of 20",
  );
  const box = { x0: 0, y0: 0, x1: 1, y1: 1 };
  const detection: ModelOutput = {
    kind: "detection",
    boxes: { tensor: "b", format: "xyxy", normalised: false },
    scores: { tensor: "s", activation: "none" },
    max_boxes: 9,
    labels,
  };
  t.equal(
    value(
      detection,
      [...scores, ...scores].map((finding) => ({ ...finding, box })),
    ),
    "4 boxes in 2 of 20 slices, scores 0.60 to 0.70, threshold 0.50",
  );
  const mm = { value: "mm", scheme: "UCUM", meaning: "millimeter" };
  const lengths = [7.25, 8, 7.5].map((length, i) => ({
    name: "Length",
    value: length,
    unit: mm,
    frame: i + 1,
  }));
  const regression: ModelOutput = {
    kind: "regression",
    tensor: "r",
    values: [{ name: "Length", unit: mm, multiply: 1, add: 0 }],
  };
  t.equal(
    legendOf([regression], [], lengths, over).rows[0]?.value,
    "7.25 to 8 mm  ·  over 3 slices",
  );
  t.equal(legendOf([regression], [], lengths.slice(1, 2), ONE).rows[0]?.value, "8 mm");
  t.end();
});

t.test("a heat map's row has the values at the ends of its colours", (t) => {
  const heat: ModelOutput = {
    kind: "heatmap",
    tensor: "h",
    activation: "none",
    label: { label: "Heat" },
  };
  const legend = legendOf([heat], [], [], {
    ...ONE,
    heat: heatRange([Float32Array.of(0, 3), Float32Array.of(-1)]),
  });
  t.same(legend.rows[0]?.ramp, { low: -1, high: 3 });
  t.equal(legend.headline, "");
  t.same(heatRange([Float32Array.of(0.2)]), { low: 0, high: 1 });
  t.end();
});
