/**
 * Volumes whose blended outputs are large: they are blended and decided slice by slice, in memory
 * that is known before.
 */
import t from "tap";
import type { ModelDescription } from "../../scripts/lib/onnx-model.js";
import { createEngine } from "../../src/engine/engine.js";
import { endlessGraph } from "../support/endless.js";
import {
  CLASSES,
  forgetPeak,
  manyLabels,
  nearestLabel,
  peakMemory,
} from "../support/many-labels.js";
import { writeModel } from "../support/tiny-models.js";
import { geometryOf, slicesOf } from "../support/volumes.js";

const folder = t.testdir();
const engine = createEngine({ provider: "cpu", threads: 2 });
t.teardown(() => engine.close());
const file = writeModel(folder, nearestLabel);

const [SLICES, SIDE, WINDOW] = [130, 72, 16] as const;
const voxels = Uint16Array.from(
  { length: SLICES * SIDE * SIDE },
  (_, i) => (i * 7 + (i >> 9)) % CLASSES,
);
const planes = slicesOf(voxels, [SLICES, SIDE, SIDE]);
/** What all of the output takes in float32. */
const WHOLE = voxels.length * CLASSES * 4;
/**
 * Allocators, V8 and ONNX Runtime's arena take some on top of a plan: 1.37 times as much on a quiet
 * machine, and 1.57 beside six busy processes.
 */
const MORE = 1.75;

t.test("a volume of 105 labels takes a part of what its blended output would", async (t) => {
  const { id } = await engine.load(manyLabels(file, WINDOW, [null, null, null]));
  const small = slicesOf(voxels, [2 * WINDOW, SIDE, SIDE]);
  await engine.infer(id, small, { geometry: geometryOf("SPL") });
  for (const letters of ["SPL", "IAR"]) {
    const geometry = geometryOf(letters);
    const plan = engine.plan(id, { slices: SLICES, rows: SIDE, columns: SIDE, geometry });
    t.ok(plan < WHOLE / 3, `the plan, ${plan}, is a part of ${WHOLE}`);
    const before = forgetPeak();
    const { outputs } = await engine.infer(id, planes, { geometry });
    const took = peakMemory() - before;
    const [output] = outputs;
    t.ok(
      output?.kind === "segmentation" && output.mask.every((label, i) => label === voxels[i]),
      letters,
    );
    t.ok(took < plan * MORE, `it took ${took}, planned were ${plan}`);
  }
});

t.test("a mask in the model's grid is planned too, and made in the same pass", async (t) => {
  const options = manyLabels(file, WINDOW, [null, null, null]);
  const outputs = options.outputs.map((output) =>
    output.kind === "segmentation" ? { ...output, segment_grid: "model" as const } : output,
  );
  const { id: plain } = await engine.load(options);
  const { id } = await engine.load({ ...options, outputs });
  // What windows take is known of both then.
  for (const one of [plain, id])
    await engine.infer(one, slicesOf(voxels, [WINDOW, SIDE, SIDE]), {
      geometry: geometryOf("SPL"),
    });
  const geometry = geometryOf("AIR");
  const planOf = (one: number) =>
    engine.plan(one, { slices: SLICES, rows: SIDE, columns: SIDE, geometry });
  const plan = planOf(id);
  t.ok(plan - planOf(plain) >= voxels.length, "a byte for each voxel and more");
  const before = forgetPeak();
  const { outputs: found } = await engine.infer(id, planes, { geometry });
  const took = peakMemory() - before;
  const [output] = found;
  const mask = output?.kind === "segmentation" ? output.model?.mask : undefined;
  t.equal(mask?.length, voxels.length);
  t.ok(
    mask?.every((label, i) => label === voxels[i]),
    "the network's grid is the source's here",
  );
  t.ok(took < plan * MORE, `it took ${took}, planned were ${plan}`);
});

t.test("the plan grows by the input where only the number of slices does", async (t) => {
  const { id } = await engine.load(manyLabels(file, WINDOW, [null, null, null]));
  const geometry = geometryOf("SPL");
  const [one, two] = [400, 800].map((slices) =>
    engine.plan(id, { slices, rows: SIDE, columns: SIDE, geometry }),
  );
  t.equal(two! - one!, 400 * SIDE * SIDE * 4);
  const { id: plain } = await engine.load({
    ...manyLabels(file, WINDOW, [null, null, null]),
    tiling: undefined,
  });
  t.equal(engine.plan(plain, { slices: 9, rows: SIDE, columns: SIDE, geometry }), 0);
});

t.test(
  "raw outputs that come slice by slice have a hash of their own, the same every time",
  async (t) => {
    const { id } = await engine.load(manyLabels(file, WINDOW, [null, null, null]));
    const geometry = geometryOf("SPL");
    const hashOf = async (values: Uint16Array) =>
      (await engine.infer(id, slicesOf(values, [3 * WINDOW, SIDE, SIDE]), { geometry })).rawSha256;
    const few = voxels.slice(0, 3 * WINDOW * SIDE * SIDE);
    const first = await hashOf(few);
    t.equal(await hashOf(few), first);
    few[5] = (few[5]! + 1) % CLASSES;
    t.not(await hashOf(few), first);
  },
);

const [x] = nearestLabel.inputs;
const gate = endlessGraph(x!, { ...x!, name: "passed" }, CLASSES);
/** A window with a value above all labels does not end. */
const untilStopped: ModelDescription = {
  ...nearestLabel,
  name: "until-stopped",
  initializers: [...nearestLabel.initializers!, ...gate.initializers!],
  nodes: [...gate.nodes, { op: "Conv", inputs: ["passed", "weights", "bias"], outputs: ["y"] }],
};

t.test("progress counts windows, and a stop comes between them", async (t) => {
  const stopped = writeModel(folder, untilStopped);
  const { id } = await engine.load(manyLabels(stopped, WINDOW, [null, null, null]));
  const endless = voxels.slice();
  endless[endless.length - 1] = 2 * CLASSES;
  const planes = slicesOf(endless, [SLICES, SIDE, SIDE]);
  const seen: number[] = [];
  const running = engine.infer(id, planes, { geometry: geometryOf("SPL"), cancelId: 41 });
  let windows = 0;
  const look = setInterval(() => {
    const progress = engine.progress(41);
    if (progress === undefined) return;
    windows = progress.windows;
    seen.push(progress.done);
    if (progress.done > progress.windows / 4) engine.cancel(41);
  }, 2);
  t.teardown(() => clearInterval(look));
  await t.rejects(running, { code: "cancelled" });
  t.equal(windows, 16 * 8 * 8);
  t.strictSame(
    seen,
    seen.toSorted((a, b) => a - b),
  );
  t.ok(seen.at(-1)! < windows);
  t.equal(engine.progress(41), undefined, "none once it has ended");
  const late = engine.infer(id, planes, { geometry: geometryOf("SPL"), timeoutMs: 50 });
  await t.rejects(late, { code: "deadline_exceeded" });
});
