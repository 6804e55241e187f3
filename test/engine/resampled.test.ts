/** What is measured, clipped and filled of volumes that are resampled, and labels that go back. */
import t from "tap";
import { createEngine } from "../../src/engine/engine.js";
import type { Plane } from "../../src/engine/types.js";
import type { ImageInput } from "../../src/manifest/manifest.js";
import type { ModelOutput } from "../../src/manifest/outputs/outputs.js";
import { deep, firstVoxel, same, segmentation } from "../support/model-parts.js";
import { ADDON, needs } from "../support/needs.js";
import { input, loadOptions, writeModel } from "../support/tiny-models.js";
import { geometryOf, slicesOf } from "../support/volumes.js";

const folder = t.testdir();
const engine = createEngine({ provider: "cpu", threads: 2 });
t.teardown(() => engine.close());

const volume: ImageInput = {
  ...input,
  layout: "NCDHW",
  orientation: "SPL",
  interpolation: "spline",
  values: { kind: "stored" },
  resampling: firstVoxel,
};
const labelled = segmentation({ labels: [{ label: "one" }, { label: "two" }] });
/** Takes any numbers. */
const scored = segmentation({ activation: "sigmoid", labels: [{ label: "one" }] });
/** y = x. */
const graph = {
  ...same("resampled"),
  inputs: [{ name: "x", dtype: "float32", shape: deep }],
  outputs: [{ name: "y", dtype: "float32", shape: deep }],
} as const;

async function inferred(own: ImageInput, slices: Plane[], output: ModelOutput = scored) {
  const { id } = await engine.load(
    loadOptions(writeModel(folder, graph), { inputs: [own], outputs: [output] }),
  );
  const { outputs, tensors } = await engine.infer(id, slices, {
    geometry: geometryOf("SPL"),
    dump: true,
  });
  await engine.unload(id);
  return {
    output: outputs[0],
    tensor: [...new Float32Array(tensors!.inputs[0]!.data.slice().buffer)],
  };
}

t.test("between two labels that go back lies no third", { skip: needs(ADDON) }, async (t) => {
  const { output } = await inferred(
    { ...volume, resampling: { ...firstVoxel, spacing_mm: [2, 1, 1] } },
    slicesOf(Uint16Array.of(0, 9, 2, 9, 2), [5, 1, 1]),
    labelled,
  );
  const mask = output?.kind === "segmentation" ? [...output.mask] : [];
  t.ok(
    mask.every((label) => label === 0 || label === 2),
    mask.join(" "),
  );
  t.match(mask, [0, /0|2/, 2, 2, 2]);
});

t.test("values that are clipped last", { skip: needs(ADDON) }, async (t) => {
  const clip: [number, number] = [1, 3];
  const slices = () => slicesOf(Uint16Array.of(0, 2, 2, 9), [4, 1, 1]);
  const tensorOf = async (change: Partial<ImageInput>) =>
    (await inferred({ ...volume, clip, ...change }, slices())).tensor;

  for (const keep_range of [false, true])
    t.strictSame(
      await tensorOf({ resampling: { ...firstVoxel, keep_range } }),
      [1, 2, 2, 3],
      `keep_range ${keep_range}`,
    );
  for (const when of ["before", "after"] as const)
    t.strictSame(
      await tensorOf({
        resampling: { ...firstVoxel, clip: when },
        normalisation: { kind: "min_max", over: "volume", to: [0, 2] },
      }),
      [0, 1, 1, 2],
      `measured as they are clipped, ${when}`,
    );
});

t.test(
  "nothing is enclosed by a single slice, as nnU-Net fills",
  { skip: needs(ADDON) },
  async (t) => {
    const ring = Uint16Array.of(1, 3, 1, 3, 0, 3, 1, 3, 1);
    const { tensor } = await inferred(
      {
        ...volume,
        normalisation: { kind: "z_score", over: "volume", of: "nonzero" },
        resampling: { ...firstVoxel, spacing_mm: [null, 1, 1], clip: "before", crop: "nonzero" },
      },
      slicesOf(ring, [1, 3, 3]),
    );
    t.strictSame(tensor, [-1, 1, -1, 1, 0, 1, -1, 1, -1]);
  },
);
