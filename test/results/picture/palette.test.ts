import t from "tap";
import type { ModelOutput } from "../../../src/manifest/outputs/outputs.js";
import { difference, type Rgb, labelColours } from "../../../src/results/colour.js";

const segmentation = (colours: (Rgb | undefined)[]): ModelOutput => ({
  kind: "segmentation",
  tensor: "m",
  activation: "argmax",
  labels: colours.map((colour, i) => ({
    label: `label ${i}`,
    ...(colour === undefined ? {} : { colour: [...colour] }),
  })),
  postprocess: [],
  measurements: [],
});

/** The two of a model's colours that are most alike. */
function closest(colours: readonly Rgb[]): number {
  return Math.min(...colours.flatMap((a, i) => colours.slice(0, i).map((b) => difference(a, b))));
}

t.test("red-green deficiency counts", (t) => {
  const [red, green]: [Rgb, Rgb] = [
    [200, 60, 0],
    [110, 110, 0],
  ];
  t.ok(difference(red, green) < 0.1, "brown and olive are one colour to some readers");
  t.ok(difference([255, 176, 0], [86, 180, 233]) > 0.2);
  t.equal(difference(red, red), 0);
  t.ok(Math.abs(difference([0, 0, 0], [255, 255, 255]) - 1) < 0.001);
  t.end();
});

t.test("eight labels without colours are told apart", (t) => {
  const [colours] = labelColours([segmentation(Array<undefined>(8).fill(undefined))]);
  t.ok(closest(colours!) > 0.13, String(closest(colours!)));
  t.end();
});

t.test("colours that the manifest names stay, and those it does not name are unlike them", (t) => {
  const named: Rgb[] = [
    [240, 228, 66],
    [86, 180, 233],
  ];
  const [colours] = labelColours([segmentation([named[0], undefined, named[1], undefined])]);
  t.same([colours![0], colours![2]], named);
  t.ok(closest(colours!) >= 0.1, String(closest(colours!)));
  t.end();
});

t.test("more labels than the palette has still have colours of their own", (t) => {
  const [colours] = labelColours([segmentation(Array<undefined>(40).fill(undefined))]);
  t.equal(new Set(colours!.map(String)).size, 40);
  t.end();
});

t.test("labels beyond the palette are told apart from each other and from the palette's", (t) => {
  for (const [count, least] of [
    [14, 0.075],
    [24, 0.05],
    [105, 0.01],
  ] as const) {
    const [colours] = labelColours([segmentation(Array<undefined>(count).fill(undefined))]);
    t.ok(closest(colours!) >= least, `${count}: ${closest(colours!)}`);
  }
  t.end();
});

t.test("a thousand labels have a colour each", (t) => {
  const [colours] = labelColours([segmentation(Array<undefined>(1000).fill(undefined))]);
  t.equal(colours!.length, 1000);
  t.end();
});
