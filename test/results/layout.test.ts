import t from "tap";
import { edgesOf, panelSize, scaleBar } from "../../src/results/layout.js";
import { legendOf, scoreText } from "../../src/results/legend.js";
import type { ModelOutput } from "../../src/manifest.js";
import type { Spacing } from "../../src/image.js";

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
  t.equal(edgesOf(undefined, ["CR", "V"]), undefined, "a quadruped's are not turned by a biped's rules");
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
  const legend = legendOf(outputs, findings, []);
  t.same(
    legend.rows.map((row) => row.label),
    ["b", "a", "c"],
  );
  t.equal(legend.headline, "1 of 3 labels at or above threshold");
  const none = legendOf(
    outputs,
    findings.map((f) => ({ ...f, score: 0.1, present: false })),
    [],
  );
  t.equal(none.headline, "No finding at or above its threshold");
  t.equal(none.rows.length, 3);
  t.end();
});
