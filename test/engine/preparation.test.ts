/**
 * What goes into a network is what the libraries with which networks are trained make of the same
 * picture: test/reference/preparation/preparation.py has stored it once. docs/manifest.md has the
 * table.
 */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import t from "tap";
import { decodeNpy } from "../../src/engine/npy.js";
import type { Plane } from "../../src/engine/types.js";
import type { ImageInput, Manifest } from "../../src/manifest/manifest.js";
import type { ModelOutput } from "../../src/manifest/outputs/outputs.js";
import { toNumbers } from "../../src/models/compare.js";
import { ADDON, needs } from "../support/needs.js";
import { engine } from "../support/real-engine.js";
import { geometryOf } from "../support/volumes.js";
import {
  heatmap,
  identity,
  input,
  loadOptions,
  plane,
  writeModel,
} from "../support/tiny-models.js";

const read = (name: string) =>
  decodeNpy(readFileSync(join("test/reference/preparation", `${name}.npy`)));

const SAMPLED = { interpolation: "linear", antialias: false } as const;
const each = { of: "all", channels: "each" } as const;
const nonzero = { of: "nonzero", channels: "together" } as const;
/** 5 and 95 percent. */
const inner = { low: 5, high: 95 };

const CUT = { kind: "resize_then_crop" } as const;
const PADDED = { kind: "resize_then_pad" } as const;
const BICUBIC = { fit: "crop", interpolation: "cubic" } as const;

const example = JSON.parse(
  readFileSync("models/examples/cxr-densenet121/model.json", "utf8"),
) as Pick<Manifest, "inputs">;
/** What the example says of chest radiographs, but for the tensor's name and size. */
const { tensor: _tensor, size: _size, ...chest } = example.inputs[0] as ImageInput;

const PREPARED: Record<string, Partial<ImageInput>> = {
  "opencv-linear": SAMPLED,
  "opencv-cubic": { interpolation: "cubic", antialias: false },
  "opencv-nearest": { interpolation: "nearest_floor" },
  "opencv-area": { interpolation: "area" },
  "torch-linear": SAMPLED,
  "torch-cubic": { interpolation: "cubic", antialias: false },
  "torch-linear-antialias": { interpolation: "linear" },
  "torch-cubic-antialias": { interpolation: "cubic" },
  "torch-area": { interpolation: "adaptive_area" },
  "monai-zscore-before": { ...SAMPLED, normalisation: { kind: "z_score", over: "image" } },
  "monai-zscore-after": { ...SAMPLED, intensity: [{ kind: "z_score", at: "tensor", ...each }] },
  "monai-nonzero-before": {
    ...SAMPLED,
    intensity: [{ kind: "z_score", at: "source", ...nonzero }],
  },
  "monai-nonzero-after": { ...SAMPLED, intensity: [{ kind: "z_score", at: "tensor", ...nonzero }] },
  "monai-percentiles": {
    ...SAMPLED,
    intensity: [{ kind: "percentile", ...inner, to: [0, 1], clip: true, at: "tensor", ...each }],
  },
  "torchvision-crop": {
    fit: "crop",
    placement: { ...CUT, shortest_edge: 19, rounding: "down", offset: "half_even" },
  },
  "timm-center": {
    ...BICUBIC,
    placement: { ...CUT, shortest_edge: 22, rounding: "down", offset: "half_even" },
  },
  "timm-squash": { ...BICUBIC, placement: { ...CUT, height: 22, width: 22, offset: "half_even" } },
  "transformers-clip": {
    ...BICUBIC,
    placement: { ...CUT, shortest_edge: 19, rounding: "down", offset: "half" },
  },
  "transformers-convnext": {
    fit: "crop",
    placement: { ...CUT, shortest_edge: 19, rounding: "down", offset: "half" },
  },
  "transformers-deit": { ...BICUBIC, placement: { ...CUT, height: 21, width: 23, offset: "half" } },
  "transformers-sam": {
    fit: "letterbox",
    placement: { ...PADDED, rounding: "half_up", offset: "top_left" },
  },
  "transformers-detr": {
    fit: "letterbox",
    size: { kind: "edges", shortest: 20, longest: 25, rounding: "transformers" },
  },
  "torchvision-edges": {
    fit: "letterbox",
    size: { kind: "edges", shortest: 20, longest: 27, rounding: "torchvision" },
  },
  "detectron2-edges": {
    fit: "letterbox",
    size: { kind: "edges", shortest: 20, longest: 27, rounding: "detectron2", multiple: 8 },
  },
  "albumentations-pad": {
    ...SAMPLED,
    fit: "letterbox",
    placement: { ...PADDED, rounding: "half_even", offset: "top_left" },
    background: 114,
  },
  "albumentations-letterbox": {
    ...SAMPLED,
    fit: "letterbox",
    placement: { ...PADDED, rounding: "half_even", offset: "half" },
    background: 114,
  },
  "ultralytics-letterbox": {
    ...SAMPLED,
    fit: "letterbox",
    placement: { ...PADDED, rounding: "half_even", offset: "half" },
    background: 114,
  },
  "albumentations-crop": {
    ...SAMPLED,
    fit: "crop",
    placement: { ...CUT, shortest_edge: 18, rounding: "half_even", offset: "half" },
  },
  "skimage-mirror": { interpolation: "gaussian", border: { kind: "mirror" } },
  "skimage-constant": { interpolation: "gaussian", border: { kind: "value", value: 40 } },
  "skimage-plain": { interpolation: "gaussian", border: { kind: "mirror" }, antialias: false },
  torchxrayvision: chest,
  "torch-corners": { ...SAMPLED, align_corners: true },
  "monai-clip-percentiles": {
    ...SAMPLED,
    intensity: [
      { kind: "clip_percentiles", ...inner, at: "source", ...each },
      { kind: "z_score", at: "source", ...nonzero },
    ],
  },
};

t.teardown(() => engine().close());

t.test("a picture is prepared as it was for training", { skip: needs(ADDON) }, async (t) => {
  const model = writeModel(t.testdir(), identity);
  const picture = read("picture");
  const [rows = 0, columns = 0] = picture.shape;
  const samples = Array.from(toNumbers(picture));
  const signed = plane(rows, columns, samples);
  const picturePlane: Plane = {
    ...signed,
    format: { ...signed.format, bitsAllocated: 8, bitsStored: 8, highBit: 7, signed: false },
    data: Uint8Array.from(samples),
  };
  const found = new Map<string, readonly number[]>();
  for (const [name, fields] of Object.entries(PREPARED)) {
    const expected = read(name);
    const [height = 0, width = 0] = expected.shape;
    const size = { kind: "fixed", height, width } as const;
    for (const layout of ["NCHW", "NCWH"] as const) {
      const inputs = [{ ...input, size, ...fields, layout }];
      const loaded = await engine().load(loadOptions(model, { inputs, outputs: [heatmap] }));
      const { tensors } = await engine().infer(loaded.id, [picturePlane], { dump: true });
      await engine().unload(loaded.id);
      const given = tensors!.inputs[0]!;
      const own = Array.from(toNumbers(given));
      const upright =
        layout === "NCHW"
          ? own
          : own.map((_, i) => own[(i % width) * height + Math.floor(i / width)]!);
      const wanted = toNumbers(expected);
      const scale = wanted.reduce((most, one) => Math.max(most, Math.abs(one)), 0);
      const far = upright.reduce((most, one, i) => Math.max(most, Math.abs(one - wanted[i]!)), 0);
      t.strictSame(given.shape, layout === "NCHW" ? [1, 1, height, width] : [1, 1, width, height]);
      t.ok(far < 4e-6 * scale, `${name} in ${layout}: ${far} of ${scale}`);
      found.set(name, upright);
    }
  }
  // Where two are alike, a comparison would show nothing
  const unlike = [
    ["torch-linear", "torch-linear-antialias"],
    ["torch-cubic", "torch-cubic-antialias"],
    ["torch-area", "opencv-area"],
    ["monai-nonzero-before", "monai-nonzero-after"],
    ["monai-zscore-before", "monai-zscore-after"],
    ["timm-center", "timm-squash"],
    ["albumentations-pad", "albumentations-letterbox"],
    ["skimage-mirror", "skimage-constant"],
    ["skimage-mirror", "skimage-plain"],
    ["torch-linear", "torch-corners"],
  ] as const;
  for (const [one, other] of unlike) {
    const [a, b] = [found.get(one)!, found.get(other)!];
    t.ok(
      a.some((value, i) => Math.abs(value - b[i]!) > 0.01),
      `${one} is not ${other}`,
    );
  }
});

t.test("DETR keeps an image whose shorter side is right", { skip: needs(ADDON) }, async (t) => {
  const size = { kind: "edges", shortest: 800, longest: 32, rounding: "transformers" } as const;
  const inputs = [{ ...input, size, fit: "letterbox" as const }];
  const model = writeModel(t.testdir(), identity);
  const loaded = await engine().load(loadOptions(model, { inputs, outputs: [heatmap] }));
  const wide = plane(
    10,
    31,
    Array.from({ length: 310 }, (_, i) => i),
  );
  const { tensors } = await engine().infer(loaded.id, [wide], { dump: true });
  await engine().unload(loaded.id);
  t.strictSame(tensors!.inputs[0]!.shape, [1, 1, 10, 31]);
});

const PREPARED_VOLUMES: Record<string, Partial<ImageInput>> = {
  "volume-torch-linear": SAMPLED,
  "volume-monai-linear": SAMPLED,
  "volume-torch-area": { interpolation: "adaptive_area" },
  "volume-torch-corners": { ...SAMPLED, align_corners: true },
  "volume-scipy-zoom": { ...SAMPLED, align_corners: true },
};

const volumeIdentity = {
  ...identity,
  inputs: [{ name: "x", dtype: "float32" as const, shape: ["n", 1, "d", "h", "w"] }],
  outputs: [{ name: "y", dtype: "float32" as const, shape: ["n", 1, "d", "h", "w"] }],
};
const bright: ModelOutput = {
  kind: "segmentation",
  tensor: "y",
  activation: "sigmoid",
  labels: [{ label: "bright", threshold: 0.5 }],
  postprocess: [],
  measurements: [],
};

t.test("a volume is prepared as it was for training", { skip: needs(ADDON) }, async (t) => {
  const model = writeModel(t.testdir(), volumeIdentity);
  const { shape, ...volume } = read("volume");
  const [slices = 0, rows = 0, columns = 0] = shape;
  const samples = Array.from(toNumbers({ shape, ...volume }));
  const planes = Array.from({ length: slices }, (_, slice) =>
    plane(rows, columns, samples.slice(slice * rows * columns, (slice + 1) * rows * columns)),
  );
  for (const [name, fields] of Object.entries(PREPARED_VOLUMES)) {
    const expected = read(name);
    const [depth = 0, height = 0, width = 0] = expected.shape;
    const size = { kind: "fixed", depth, height, width } as const;
    const inputs = [{ ...input, layout: "NCDHW", size, ...fields } as const];
    const loaded = await engine().load(loadOptions(model, { inputs, outputs: [bright] }));
    const { tensors } = await engine().infer(loaded.id, planes, {
      dump: true,
      geometry: geometryOf("SPL"),
    });
    await engine().unload(loaded.id);
    const own = Array.from(toNumbers(tensors!.inputs[0]!));
    const wanted = toNumbers(expected);
    const far = own.reduce((most, one, i) => Math.max(most, Math.abs(one - wanted[i]!)), 0);
    t.ok(far < 4e-4, `${name}: ${far} of 250`);
  }
});

t.test("what is found goes back to where it is", { skip: needs(ADDON) }, async (t) => {
  const model = writeModel(t.testdir(), identity);
  const [rows, columns] = [90, 140];
  // A disc whose middle lies at 62.5, 40.5 in pixels counted from edges
  const disc = Array.from({ length: rows * columns }, (_, i) => {
    const [y, x] = [Math.floor(i / columns) - 40, (i % columns) - 62];
    return x * x + y * y <= 15 * 15 ? 200 : 0;
  });
  const output = {
    ...bright,
    activation: "none" as const,
    labels: [{ label: "disc", threshold: 0.5 }],
  };
  const scaled = { normalisation: { kind: "scale", multiply: 1 / 200, add: 0 } } as const;
  const size = { kind: "fixed", height: 64, width: 64 } as const;
  for (const fields of [
    {
      fit: "crop",
      placement: { ...CUT, shortest_edge: 73, rounding: "down", offset: "half_even" },
    },
    { fit: "crop", placement: { ...CUT, height: 80, width: 100, offset: "half" } },
    { fit: "crop", placement: { kind: "crop_then_resize", rounding: "down", offset: "halves" } },
    { fit: "letterbox", placement: { ...PADDED, rounding: "down", offset: "top_left" } },
    { fit: "stretch", antialias: false, align_corners: true },
    { fit: "stretch", interpolation: "gaussian", border: { kind: "mirror" } },
  ] as Partial<ImageInput>[]) {
    const inputs = [{ ...input, ...scaled, size, ...fields }];
    const loaded = await engine().load(loadOptions(model, { inputs, outputs: [output] }));
    const { outputs } = await engine().infer(loaded.id, [plane(rows, columns, disc)], {});
    await engine().unload(loaded.id);
    const [found] = outputs;
    const mask = found?.kind === "segmentation" ? found.mask : new Uint8Array();
    const marked = Array.from(mask.keys()).filter((i) => mask[i] === 1);
    const mean = (of: (i: number) => number) =>
      marked.reduce((sum, i) => sum + of(i) + 0.5, 0) / marked.length;
    const x = mean((i) => i % columns);
    const y = mean((i) => Math.floor(i / columns));
    const name = JSON.stringify(fields);
    t.ok(Math.abs(x - 62.5) < 0.35 && Math.abs(y - 40.5) < 0.35, `${name}: at ${x}, ${y}`);
    const area = marked.length / disc.filter((value) => value > 0).length;
    t.ok(Math.abs(area - 1) < 0.05, `${name}: ${area} of its area`);
  }
});
