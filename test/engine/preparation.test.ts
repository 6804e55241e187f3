/**
 * What goes into a network is what the libraries with which networks are trained make of the same
 * picture: test/reference/preparation/preparation.py has stored it once. docs/manifest.md has the
 * table.
 */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import t from "tap";
import { decodeNpy } from "../../src/engine/npy.js";
import type { ImageInput } from "../../src/manifest/manifest.js";
import { toNumbers } from "../../src/models/compare.js";
import { ADDON, needs } from "../support/needs.js";
import { engine } from "../support/real-engine.js";
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

const PREPARED: Record<string, Partial<ImageInput>> = {
  "opencv-linear": SAMPLED,
  "opencv-cubic": { interpolation: "cubic", antialias: false },
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
  "monai-clip-percentiles": {
    ...SAMPLED,
    intensity: [
      { kind: "clip_percentiles", ...inner, at: "source", ...each },
      { kind: "z_score", at: "source", ...nonzero },
    ],
  },
};

t.test("a picture is prepared as it was for training", { skip: needs(ADDON) }, async (t) => {
  t.teardown(() => engine().close());
  const model = writeModel(t.testdir(), identity);
  const picture = read("picture");
  const [rows = 0, columns = 0] = picture.shape;
  const samples = Array.from(toNumbers(picture));
  const found = new Map<string, readonly number[]>();
  for (const [name, fields] of Object.entries(PREPARED)) {
    const expected = read(name);
    const [height = 0, width = 0] = expected.shape;
    const size = { kind: "fixed", height, width } as const;
    for (const layout of ["NCHW", "NCWH"] as const) {
      const inputs = [{ ...input, size, ...fields, layout }];
      const loaded = await engine().load(loadOptions(model, { inputs, outputs: [heatmap] }));
      const { tensors } = await engine().infer(loaded.id, [plane(rows, columns, samples)], {
        dump: true,
      });
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
  ] as const;
  for (const [one, other] of unlike) {
    const [a, b] = [found.get(one)!, found.get(other)!];
    t.ok(
      a.some((value, i) => Math.abs(value - b[i]!) > 0.01),
      `${one} is not ${other}`,
    );
  }
});
