/**
 * The real network of examples/brain-tissue-3d: the published counts of its reference volume,
 * through the whole way.
 */
import { resolve } from "node:path";
import t from "tap";
import { createEngine } from "../../src/engine/engine.js";
import { type InferOptions, type LoadOptions } from "../../src/engine/types.js";
import { imageInputs } from "../../src/manifest/manifest.js";
import { shipped } from "../support/manifests.js";
import { ADDON, needs } from "../support/needs.js";
import { geometryOf, slicesOf, turn } from "../support/volumes.js";

const WEIGHTS = "../shared/models/brain-mri-tissue-meshnet/model.onnx";
const SIDE = 256;
/** The tensor's axes in the manifest. */
const OWN = "AIL";
/**
 * Voxels of background, white and grey matter that ONNX Runtime 1.20.1 found in the volume with a
 * maximum of 0.75.
 */
const REFERENCE = [15132417, 506726, 1138073];

/** Thousandths by the distance from (128, 128, 128): the reference's test volume. */
function shells(): Uint16Array {
  const voxels = new Uint16Array(SIDE ** 3);
  let i = 0;
  for (let d = 0; d < SIDE; d++)
    for (let h = 0; h < SIDE; h++)
      for (let w = 0; w < SIDE; w++) {
        const r = Math.hypot(d - 128, h - 128, w - 128);
        voxels[i++] = r < 60 ? 750 : r < 80 ? 500 : r < 90 ? 100 : 0;
      }
  return voxels;
}

// Three runs of seven seconds on two idle cores.
t.setTimeout(300_000);

t.test(
  "tissue of the reference volume",
  { skip: needs(ADDON, WEIGHTS), timeout: 300_000 },
  async (t) => {
    const engine = createEngine({ provider: "cpu" });
    t.teardown(() => engine.close());
    const manifest = shipped("examples/brain-tissue-3d");
    const options: LoadOptions = {
      modelPath: resolve(WEIGHTS),
      name: manifest.name,
      version: manifest.version,
      inputs: manifest.inputs,
      outputs: manifest.outputs,
      provider: "cpu",
      batching: manifest.batching,
    };
    const [input] = imageInputs(manifest);
    if (input === undefined) throw new Error("The manifest has an input");
    // The reference was made without scaling 0.75 up to 1.
    const asStated = {
      ...input,
      normalisation: { ...input.normalisation, to: [0, 0.75] },
    } as typeof input;
    const { id } = await engine.load({ ...options, inputs: [asStated] });
    const voxels = shells();
    const run = async (letters: string, more: InferOptions = {}) => {
      const planes = slicesOf(turn(voxels, SIDE, OWN, letters), [SIDE, SIDE, SIDE], 0.001);
      const result = await engine.infer(id, planes, { geometry: geometryOf(letters), ...more });
      const [found] = result.outputs;
      if (found?.kind !== "segmentation") throw new Error("Expected a segmentation");
      return { ...found, rawSha256: result.rawSha256 };
    };
    const own = await run(OWN);
    t.strictSame(own.counts, REFERENCE.slice(1));
    t.equal(
      own.mask.reduce((sum, v) => sum + (v === 0 ? 1 : 0), 0),
      REFERENCE[0],
    );
    // Sagittal slices, from left to right, rows to the feet, columns to the back: other axes, and
    // flips.
    const sagittal = await run("RIP");
    t.strictSame(sagittal.counts, own.counts);
    t.equal(sagittal.rawSha256, own.rawSha256, "the tensor was the same");
    const expected = turn(own.mask, SIDE, OWN, "RIP");
    t.equal(Buffer.compare(sagittal.mask, expected), 0, "voxel for voxel");
    t.not(Buffer.compare(own.mask, expected), 0, "which says something: unturned they differ");
    await engine.unload(id);
    // As the manifest says, up to 1: the counts that ONNX Runtime gives for that tensor.
    const scaled = await engine.load(options);
    const planes = slicesOf(voxels, [SIDE, SIDE, SIDE]);
    const { outputs, timings } = await engine.infer(scaled.id, planes, {
      geometry: geometryOf(OWN),
    });
    t.strictSame(outputs[0]?.kind === "segmentation" && outputs[0].counts, [480198, 1225026]);
    t.comment(JSON.stringify(timings));
  },
);
