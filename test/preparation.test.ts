import t from "tap";
import type { Interpretation } from "../src/image.js";
import { frameSteps } from "../src/preparation.js";
import { imageOf } from "./lib/images.js";
import { shipped } from "./lib/manifests.js";

const image = imageOf();
const { format } = image;
const interpretation = (frame: number) => image.interpretation(frame);
const [input] = shipped("ct-tissue").inputs;
const rescaled = (slope: number, intercept: number): Interpretation => ({
  ...interpretation(0),
  modality: { kind: "rescale", slope, intercept },
});

t.test("frames that are prepared alike have one list of steps", (t) => {
  const [first] = frameSteps(format, [rescaled(1, -1024), rescaled(1, -1024)], input!);
  t.strictSame(first, { step: "rescale", slope: 1, intercept: -1024, units: "HU" });
  t.end();
});

t.test("numbers that differ from frame to frame are given as their range", (t) => {
  const steps = frameSteps(format, [rescaled(2, -5), rescaled(1, -5), rescaled(3, -5)], input!);
  t.strictSame(steps[0], {
    step: "rescale",
    slope: { least: 1, most: 3 },
    intercept: -5,
    units: "HU",
    by_frame: true,
  });
  t.equal(steps.filter((step) => step["by_frame"] === true).length, 1);
  t.end();
});

t.test("frames that are prepared otherwise are counted", (t) => {
  const steps = frameSteps(format, [rescaled(2, 0), interpretation(0), rescaled(4, 0)], input!);
  t.match(steps[0], { slope: { least: 2, most: 4 } });
  t.strictSame(steps.at(-1), { step: "prepared_otherwise", frames: 1 });
  t.end();
});

t.test("a volume's grid is said", (t) => {
  const [brain] = shipped("examples/brain-tissue-3d").inputs;
  const steps = frameSteps(format, [interpretation(0)], brain!);
  t.match(
    steps.find(({ step }) => step === "resample"),
    { spacing_mm: [1, 1, 1], orientation: "AIL" },
  );
  t.end();
});
