/**
 * What lies at a place in the source lies at that place again when it has gone through the tensor
 * and back.
 */
import { mkdtempSync, rmSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import t, { type Test } from "tap";
import { createEngine } from "../../src/engine/engine.js";
import { type EngineOutput, type Plane } from "../../src/engine/types.js";
import type { ImageInput } from "../../src/manifest/manifest.js";
import { random } from "../support/dicom.js";
import { identity, input, loadOptions, plane, writeModel } from "../support/tiny-models.js";

const CASES = 12;
const folder = mkdtempSync(path.join(os.tmpdir(), "radserve-geometry-"));
const engine = createEngine({ provider: "cpu", threads: 1 });
t.teardown(async () => {
  await engine.close();
  rmSync(folder, { recursive: true, force: true });
});
const model = writeModel(folder, identity);
const next = random(7);
const between = (low: number, high: number) => Math.floor(low + next() * (high - low + 1));

interface Point {
  x: number;
  y: number;
}

/** Dark but for a block whose centre is returned, counted from the image's edge. */
function blockIn(rows: number, columns: number, dark = 0): { plane: Plane; centre: Point } {
  const height = Math.max(3, rows >> 3);
  const width = Math.max(3, columns >> 3);
  // In the middle, so that no crop loses it
  const top = (rows >> 1) - (height >> 1) + between(-2, 2);
  const left = (columns >> 1) - (width >> 1) + between(-2, 2);
  const samples = Array.from({ length: rows * columns }, (_, i) => {
    const inside = (at: number, from: number, size: number) => at >= from && at < from + size;
    return inside(Math.floor(i / columns), top, height) && inside(i % columns, left, width)
      ? 1000
      : dark;
  });
  return {
    plane: plane(rows, columns, samples),
    centre: { x: left + width / 2, y: top + height / 2 },
  };
}

/** Centre of mass of a heatmap. */
function centreOf(output: EngineOutput): Point {
  if (output.kind !== "heatmap") throw new Error("Expected a heatmap");
  let [sum, x, y] = [0, 0, 0];
  output.values.forEach((value, i) => {
    sum += value;
    x += value * ((i % output.columns) + 0.5);
    y += value * (Math.floor(i / output.columns) + 0.5);
  });
  return { x: x / sum, y: y / sum };
}

async function through(given: Plane, more: Partial<ImageInput>) {
  const { id } = await engine.load(loadOptions(model, { inputs: [{ ...input, ...more }] }));
  const { outputs, preparation } = await engine.infer(id, [given], {});
  await engine.unload(id);
  return { centre: centreOf(outputs[0]!), placement: preparation.placement! };
}

/** Half a pixel, of the source or of the tensor: whichever is coarser. */
function near(
  t: Test,
  found: Point,
  expected: Point,
  scale: { x: number; y: number },
  name: string,
) {
  for (const axis of ["x", "y"] as const) {
    const off = Math.abs(found[axis] - expected[axis]);
    t.ok(off <= 0.5 * Math.max(1, scale[axis]), `${name}: ${axis} is off by ${off.toFixed(3)}`);
  }
}

t.test("letterbox, crop and stretch, there and back", async (t) => {
  for (let i = 0; i < CASES; i++)
    for (const fit of ["letterbox", "crop", "stretch"] as const)
      for (const interpolation of ["area", "linear"] as const) {
        const [rows, columns] = [between(30, 170), between(30, 170)];
        const [height, width] = [between(24, 120), between(24, 120)];
        const block = blockIn(rows, columns);
        block.plane.pixelAspect = 0.5 + next() * 1.5;
        const size = { kind: "fixed" as const, height, width };
        const { centre, placement } = await through(block.plane, { size, fit, interpolation });
        const scale = {
          x: placement.sourceWidth / placement.width,
          y: placement.sourceHeight / placement.height,
        };
        near(
          t,
          centre,
          block.centre,
          scale,
          `${rows}x${columns} ${fit} ${interpolation} ${height}x${width}`,
        );
      }
});

t.test("padding up to a multiple, and Pixel Padding round the image", async (t) => {
  for (let i = 0; i < CASES; i++) {
    const [rows, columns] = [between(30, 170), between(30, 170)];
    const block = blockIn(rows, columns, -2000);
    block.plane.interpretation = {
      ...block.plane.interpretation,
      padding: { from: -2000, to: -2000 },
    };
    const size = { kind: "multiple_of" as const, multiple: 32, max_side: 96 };
    const { centre, placement } = await through(block.plane, {
      size,
      fit: "letterbox",
      background: 0,
    });
    const scale = {
      x: placement.sourceWidth / placement.width,
      y: placement.sourceHeight / placement.height,
    };
    near(t, centre, block.centre, scale, `${rows}x${columns}`);
  }
});
