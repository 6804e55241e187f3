/**
 * `npm run bench -- volume [--slices 800] [--window 96] [--network one|unet]`: time and memory of a
 * CT of 512 x 512 pixels at 0.75 mm and 1 mm between slices, that a network of 105 classes sees at
 * 1.5 mm in nnU-Net's windows. Memory is the peak of the process above what it has with the source
 * and the model in memory. `one` is a network of one convolution, whose labels can be told; `unet`
 * is one of nnU-Net's size, and its windows are also run by a plain loop.
 */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { availableParallelism, tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { createEngine } from "../src/engine/engine.js";
import {
  CLASSES,
  forgetPeak,
  manyLabels,
  nearestLabel,
  peakMemory,
} from "../test/support/many-labels.js";
import { writeModel } from "../test/support/tiny-models.js";
import { geometryOf, slicesOf } from "../test/support/volumes.js";
import { unet3d } from "./lib/models.js";
import { buildRaw, Raw } from "./lib/raw.js";
import { machine } from "./lib/server.js";
import { mean } from "./lib/statistics.js";

const { values } = parseArgs({
  options: {
    slices: { type: "string", default: "800" },
    window: { type: "string", default: "96" },
    network: { type: "string", default: "one" },
  },
});
const slices = Number(values.slices);
const window = Number(values.window);
const isReal = values.network === "unet";
const SIDE = 512;
const SLICE_SPACING_MM = 1;
const PIXEL_SPACING_MM = 0.75;
const NETWORK_SPACING_MM = 1.5;
const GIB = 2 ** 30;

/** Windows of half an overlap along one axis, as nnU-Net counts them. */
function windowsAlong(count: number, spacing: number): number {
  const size = Math.max(window, Math.round((count * spacing) / NETWORK_SPACING_MM));
  return Math.ceil((size - window) / (window / 2)) + 1;
}

function shareAlike(mask: ArrayLike<number>, voxels: ArrayLike<number>): number {
  let same = 0;
  for (let i = 0; i < voxels.length; i++) if (mask[i] === voxels[i]) same++;
  return same / voxels.length;
}

/** Seconds of one window in a plain loop over all cores: the median of a quarter of a minute. */
async function rawWindow(graph: string): Promise<number> {
  const raw = new Raw(buildRaw(), graph);
  try {
    const { p50 } = await raw.run({
      lanes: 1,
      threads: availableParallelism(),
      spin: 1,
      batch: 1,
      seconds: 15,
      height: window,
      width: window,
      depth: window,
    });
    return p50 / 1000;
  } finally {
    raw.stop();
  }
}

const folder = mkdtempSync(join(tmpdir(), "radserve-volume-"));
const engine = createEngine({ provider: "cpu" });
try {
  // Blocks of 32 voxels, each of one label.
  const voxels = new Uint16Array(slices * SIDE * SIDE);
  for (let z = 0, i = 0; z < slices; z++)
    for (let y = 0; y < SIDE; y++)
      for (let x = 0; x < SIDE; x++)
        voxels[i++] = ((z >> 5) * 31 + (y >> 5) * 7 + (x >> 5)) % CLASSES;
  const spacing: [number, number, number] = [
    NETWORK_SPACING_MM,
    NETWORK_SPACING_MM,
    NETWORK_SPACING_MM,
  ];
  const graph = isReal ? join(folder, "unet.onnx") : writeModel(folder, nearestLabel);
  if (isReal) writeFileSync(graph, unet3d(CLASSES));
  const rawSeconds = isReal ? [await rawWindow(graph)] : [];
  const { id } = await engine.load(manyLabels(graph, window, spacing));
  const geometry = geometryOf("SPL", [SLICE_SPACING_MM, PIXEL_SPACING_MM, PIXEL_SPACING_MM]);
  const planes = slicesOf(voxels, [slices, SIDE, SIDE]);
  const plan = engine.plan(id, { slices, rows: SIDE, columns: SIDE, geometry });
  const before = forgetPeak();
  const { outputs, timings } = await engine.infer(id, planes, { geometry });
  const took = peakMemory() - before;
  const [output] = outputs;
  if (output?.kind !== "segmentation") throw new Error("The network segments");
  // Before and after, because the speed of a machine changes
  if (isReal) rawSeconds.push(await rawWindow(graph));
  const { prepareMs, runMs, postprocessMs } = timings;
  const windows =
    windowsAlong(slices, SLICE_SPACING_MM) * windowsAlong(SIDE, PIXEL_SPACING_MM) ** 2;
  const result = {
    machine: machine(),
    slices,
    window,
    windows,
    network: values.network,
    planned_gib: plan / GIB,
    peak_gib: took / GIB,
    mask_gib: output.mask.length / GIB,
    seconds: {
      prepare: prepareMs / 1000,
      network: runMs / 1000,
      blend_resample_decide: postprocessMs / 1000,
    },
    beside_the_network: (prepareMs + postprocessMs) / runMs,
    ...(isReal
      ? { raw_window_seconds: rawSeconds, of_raw: (mean(rawSeconds) * windows * 1000) / runMs }
      : { voxels_of_their_block: shareAlike(output.mask, voxels) }),
  };
  console.log(JSON.stringify(result, undefined, 2));
} finally {
  await engine.close();
  rmSync(folder, { recursive: true });
}
