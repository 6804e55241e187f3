/**
 * `npm run bench:volume -- [--slices 800] [--window 96] [--json]`: time and memory of a CT of 512 x 512 pixels at
 * 0.75 mm and 1 mm between slices, that a small network of 105 classes sees at 1.5 mm in nnU-Net's windows. Memory is
 * the peak of the process above what it has with the source and the model in memory.
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { createEngine } from "../src/engine/engine.js";
import { CLASSES, forgetPeak, manyLabels, nearestLabel, peakMemory } from "../test/support/many-labels.js";
import { writeModel } from "../test/support/tiny-models.js";
import { geometryOf, slicesOf } from "../test/support/volumes.js";
import { machine } from "./lib/server.js";

const { values } = parseArgs({
  options: {
    slices: { type: "string", default: "800" },
    window: { type: "string", default: "96" },
    json: { type: "boolean" },
  },
});
const slices = Number(values.slices);
const SIDE = 512;
const GIB = 2 ** 30;

const folder = mkdtempSync(join(tmpdir(), "radserve-volume-"));
const engine = createEngine({ provider: "cpu" });
try {
  // Blocks of 32 voxels, each of one label.
  const voxels = new Uint16Array(slices * SIDE * SIDE);
  for (let z = 0, i = 0; z < slices; z++)
    for (let y = 0; y < SIDE; y++)
      for (let x = 0; x < SIDE; x++) voxels[i++] = ((z >> 5) * 31 + (y >> 5) * 7 + (x >> 5)) % CLASSES;
  const spacing: [number, number, number] = [1.5, 1.5, 1.5];
  const { id } = await engine.load(
    manyLabels(writeModel(folder, nearestLabel), Number(values.window), spacing),
  );
  const geometry = geometryOf("SPL", [1, 0.75, 0.75]);
  const planes = slicesOf(voxels, [slices, SIDE, SIDE]);
  const plan = engine.plan(id, { slices, rows: SIDE, columns: SIDE, geometry });
  const before = forgetPeak();
  const { outputs, timings } = await engine.infer(id, planes, { geometry });
  const took = peakMemory() - before;
  const [output] = outputs;
  if (output?.kind !== "segmentation") throw new Error("The network segments");
  let same = 0;
  for (let i = 0; i < voxels.length; i++) if (output.mask[i] === voxels[i]) same++;
  const result = {
    machine: machine(),
    slices,
    window: Number(values.window),
    planned_gib: plan / GIB,
    peak_gib: took / GIB,
    mask_gib: output.mask.length / GIB,
    seconds: {
      prepare: timings.prepareMs / 1000,
      network: timings.runMs / 1000,
      blend_resample_decide: timings.postprocessMs / 1000,
    },
    voxels_of_their_block: same / voxels.length,
  };
  console.log(JSON.stringify(result, undefined, values.json === true ? undefined : 2));
} finally {
  await engine.close();
  rmSync(folder, { recursive: true });
}
