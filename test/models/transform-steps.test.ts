import t from "tap";
import type { Interpretation } from "../../src/images/image.js";
import { frameSteps } from "../../src/models/transform-steps.js";
import { imageInputs } from "../../src/manifest/manifest.js";
import { imageOf } from "../support/images.js";
import { shipped } from "../support/manifests.js";

const image = imageOf();
const { format } = image;
const interpretation = (frame: number) => image.interpretation(frame);
const [input] = imageInputs(shipped("ct-tissue"));
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

t.test("changes by statistics are told where they are done", (t) => {
  const how = { of: "nonzero", channels: "each" } as const;
  const prepared = {
    ...input!,
    interpolation: "linear" as const,
    antialias: false,
    intensity: [
      { kind: "clip_percentiles" as const, low: 1, high: 99, at: "source" as const, ...how },
      { kind: "z_score" as const, at: "tensor" as const, ...how },
    ],
  };
  const steps = frameSteps(format, [interpretation(0)], prepared);
  const names = steps.map(({ step }) => step);
  t.strictSame(names.slice(names.indexOf("intensity_clip_percentiles"), -1), [
    "intensity_clip_percentiles",
    "resample",
    ...names.filter((name) => name.startsWith("normalise")),
    "intensity_z_score",
  ]);
  t.match(
    steps.find(({ step }) => step === "resample"),
    { antialias: false },
  );
  t.match(steps[names.indexOf("intensity_clip_percentiles")], {
    low: 1,
    high: 99,
    at: "source",
    ...how,
  });
  t.end();
});

t.test("what was found while preparing is said", (t) => {
  const prepared = {
    ...input!,
    normalisation: {
      kind: "percentile" as const,
      over: "image" as const,
      low: 1,
      high: 99,
      to: [0, 1] as [number, number],
    },
  };
  const placement = {
    rows: 8,
    columns: 8,
    top: 2,
    left: 0,
    height: 4,
    width: 8,
    sourceTop: 0,
    sourceLeft: 0,
    sourceHeight: 2,
    sourceWidth: 4,
  };
  const found = { min: 0, max: 9, mean: 4, std: 2, low: 0.5, high: 8.5 };
  const steps = frameSteps(format, [interpretation(0), interpretation(0)], prepared, [
    { placement, found },
    { placement, found: { ...found, low: 0.75 } },
  ]);
  t.match(
    steps.find(({ step }) => step === "resample"),
    {
      source_area: { top: 0, left: 0, height: 2, width: 4 },
      tensor_area: { top: 2, left: 0, height: 4, width: 8 },
      scale: { rows: 2, columns: 2 },
    },
  );
  t.match(
    steps.find(({ step }) => step === "normalise_percentile"),
    { low: 1, high: 99, found_low: { least: 0.5, most: 0.75 }, found_high: 8.5, by_frame: true },
  );
  const voi = {
    ...input!,
    values: { kind: "voi" as const, index: 3, if_absent: "min_max" as const },
  };
  t.match(
    frameSteps(format, [interpretation(0)], voi, [{ observed: { low: -7, high: 80 } }]).find(
      ({ step }) => step === "min_max",
    ),
    { from_low: -7, from_high: 80, to: [0, 1] },
  );
  const placed = {
    ...input!,
    values: { kind: "full_range" as const },
    fit: "crop" as const,
    placement: {
      kind: "crop_then_resize" as const,
      rounding: "down" as const,
      offset: "halves" as const,
    },
    interpolation: "gaussian" as const,
    border: { kind: "mirror" as const },
  };
  const told = frameSteps(format, [interpretation(0)], placed, []);
  t.ok(told.some(({ step }) => step === "full_range"));
  t.match(
    told.find(({ step }) => step === "resample"),
    { whole_pixels: placed.placement, interpolation: "gaussian", border: { kind: "mirror" } },
  );
  t.end();
});

t.test("Hounsfield units are never turned over, other values are", (t) => {
  const negative = { ...format, photometricInterpretation: "MONOCHROME1" as const };
  const inverts = (units: string | undefined, values: (typeof modality)["values"]) =>
    frameSteps(negative, [{ ...interpretation(0), units }], {
      ...modality,
      values,
      monochrome1: "invert",
    }).some(({ step }) => step === "invert");
  const modality = { ...input!, values: input!.values };
  t.notOk(inverts("HU", { kind: "modality" }));
  t.ok(inverts(undefined, { kind: "modality" }));
  t.ok(inverts("HU", { kind: "window", center: 40, width: 400, function: "LINEAR" }));
  t.end();
});

t.test("a volume's grid is said", (t) => {
  const [brain] = imageInputs(shipped("examples/brain-tissue-3d"));
  const steps = frameSteps(format, [interpretation(0)], brain!);
  t.match(
    steps.find(({ step }) => step === "resample"),
    { spacing_mm: [1, 1, 1], orientation: "AIL" },
  );
  t.end();
});
