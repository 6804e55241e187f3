/** Whether neighbouring labels are told apart by eight kinds of sight, as the page shows them. */
import t from "tap";
import { labelColours } from "../../../src/results/colour.js";
import { shipped } from "../../support/manifests.js";
import { deltaE2000, lookApart, over, SIGHTS, type Colour } from "../../support/sight.js";

/** From here on two colours beside each other are two. */
const TOLD_APART = 10;

t.test("the measure has the values of its authors", (t) => {
  // Sharma, Wu and Dalal 2005, table 1, rows 1, 7, 17 and 25
  for (const [a, b, expected] of [
    [[50, 2.6772, -79.7751], [50, 0, -82.7485], 2.0425],
    [[50, 0, 0], [50, -1, 2], 2.3669],
    [[50, 2.5, 0], [73, 25, -18], 27.1492],
    [[60.2574, -34.0099, 36.2677], [60.4626, -34.1751, 39.4387], 1.2644],
  ] as const)
    t.ok(Math.abs(deltaE2000(a, b) - expected) < 5e-5, `${deltaE2000(a, b)} and ${expected}`);
  t.end();
});

/** Greys of the tissues in the window of soft tissue (W 400, L 40). */
const UNDER: Readonly<Record<string, number>> = {
  "gas and lung": 0,
  fat: 38,
  "muscle and soft tissue": 128,
  bone: 220,
};
/** As the page draws them before anybody changes it (web/stage.tsx). */
const OPACITY = 0.4;

t.test("tissues of a CT, filled as the page fills them, and their outlines", (t) => {
  const { outputs } = shipped("ct-tissue");
  const [output] = outputs;
  const labels = output?.kind === "segmentation" ? output.labels : [];
  const [colours = []] = labelColours(outputs) as Colour[][];
  t.equal(labels.length, 4);
  for (const [sight, eye] of Object.entries(SIGHTS)) {
    let [filled, outlines] = [Infinity, Infinity];
    labels.forEach(({ label }, i) => {
      labels.slice(0, i).forEach((other, j) => {
        const [a, b] = [colours[i]!, colours[j]!];
        outlines = Math.min(outlines, lookApart(a, b, eye));
        for (const [under, of] of [
          [UNDER[label]!, UNDER[other.label]!],
          [64, 64],
          [128, 128],
          [192, 192],
        ] as const)
          filled = Math.min(filled, lookApart(over(a, under, OPACITY), over(b, of, OPACITY), eye));
      });
    });
    t.ok(outlines > TOLD_APART, `${sight}: outlines ${outlines.toFixed(1)}`);
    // Without colours the greys of the image are what is seen of a filled mask
    if (sight !== "achromatopsia")
      t.ok(filled > TOLD_APART, `${sight}: filled ${filled.toFixed(1)}`);
  }
  t.end();
});

t.test("outlines of eight labels without colours", (t) => {
  const [colours = []] = labelColours([
    {
      kind: "segmentation",
      tensor: "m",
      activation: "argmax",
      labels: Array.from({ length: 8 }, (_, i) => ({ label: `label ${i}` })),
      postprocess: [],
      measurements: [],
    },
  ]) as Colour[][];
  // Eight greys that differ so much do not exist: the page draws a seam between two labels
  for (const [sight, eye] of Object.entries(SIGHTS).filter(([of]) => of !== "achromatopsia"))
    colours.forEach((a, i) =>
      colours.slice(0, i).forEach((b) => {
        const apart = lookApart(a, b, eye);
        t.ok(apart > TOLD_APART, `${sight}: ${a.join()} and ${b.join()}: ${apart.toFixed(1)}`);
      }),
    );
  t.end();
});
