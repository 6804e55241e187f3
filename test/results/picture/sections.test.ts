/**
 * Planes across the slices of a volume: what their pixels are of, which way they hang, and what is
 * said beside them.
 */
import t, { type Test } from "tap";
import { volumeOf } from "../../../src/images/dicom/volume.js";
import { ANY_STACK } from "../../../src/images/image.js";
import type { EngineOutput, Plane } from "../../../src/engine/types.js";
import { arranged, type OverlayInput } from "../../../src/results/picture/arrangement.js";
import {
  drawPicture,
  overlayInput,
  planeOf,
  type DrawRequest,
} from "../../../src/results/picture/draw-result.js";
import { renderOverlay } from "../../../src/results/picture/overlay.js";
import {
  fullestCrossing,
  markedPixels,
  sliceOutputs,
} from "../../../src/results/findings/volume-outputs.js";
import { openInput } from "../../../src/files/guarded-paths.js";
import { readInput } from "../../../src/inference/read-input.js";
import {
  AXIAL,
  CORONAL,
  pointOf,
  SAGITTAL,
  scanned,
  type Point,
  type Scan,
} from "../../support/body.js";
import { Typed, type Attributes } from "../../support/dicom.js";
import { ADDON, needs } from "../../support/needs.js";
import { engine } from "../../support/real-engine.js";
import { folderOf } from "../../support/series.js";

/** Half the extents of what is scanned along the patient's axes, in voxels of 3, 4 and 5 mm. */
const STEP: Point = [3, 4, 5];
const SIZE: Point = [10, 8, 6];

/**
 * An F in each plane, and a value of its own for each voxel of it, so that no other place has it: 1
 * to 249.
 */
function valueAt([x, y, z]: Point): number {
  const [i, j, k] = [x / STEP[0] + 4.5, y / STEP[1] + 3.5, z / STEP[2] + 2.5];
  return 1 + ((Math.round(i) * 37 + Math.round(j) * 59 + Math.round(k) * 83) % 249);
}

/** The patient's left, front and upper part: no turning brings it onto itself. */
function isMarked([x, y, z]: Point): boolean {
  const [i, j, k] = [x / STEP[0] + 4.5, y / STEP[1] + 3.5, z / STEP[2] + 2.5].map(
    Math.round,
  ) as Point;
  const stem = i === 6 && j === 2;
  const arm = k === 5 && ((j === 2 && i >= 6 && i <= 8) || (i === 6 && j >= 2 && j <= 5));
  const bar = k === 3 && ((j === 2 && i === 7) || (i === 6 && j === 3));
  return stem || arm || bar;
}

/** The scan's spacings and counts, whichever of the patient's axes its sides run along. */
function scanOf(across: Point, down: Point): Scan {
  const [a, b, c] = across;
  const [d, e, f] = down;
  const normal: Point = [b * f - c * e, c * d - a * f, a * e - b * d];
  const axes = [across, down, normal].map((side) => side.findIndex((value) => value !== 0));
  return {
    across,
    down,
    counts: axes.map((axis) => SIZE[axis]!) as Point,
    spacing: axes.map((axis) => STEP[axis]!) as Point,
    more: { WindowCenter: "127.5", WindowWidth: "255", VOILUTFunction: "LINEAR_EXACT" },
  };
}

interface Change {
  valueAt?: (point: Point, slice: number) => number;
  moreOf?: (slice: number) => Attributes;
  isMarked?: (point: Point) => boolean;
}

/** What a picture of the scan is asked for, with the marks that a model of volumes would give. */
async function request(t: Test, scan: Scan, change: Change = {}): Promise<DrawRequest> {
  const opened = await openInput(
    folderOf(t, scanned(scan, change.valueAt ?? valueAt, change.moreOf)),
    undefined,
  );
  t.teardown(() => opened.close());
  const image = await readInput(opened, undefined, { tolerance: ANY_STACK });
  const volume = volumeOf(image, ANY_STACK);
  const planes: Plane[] = [];
  for (const frame of volume.frames) planes.push(planeOf(image, frame, await image.frame(frame)));
  const [columns, rows, slices] = scan.counts;
  const marked = change.isMarked ?? isMarked;
  const mask = Uint8Array.from({ length: slices * rows * columns }, (_, at) => {
    const index: Point = [
      at % columns,
      Math.floor(at / columns) % rows,
      Math.floor(at / columns / rows),
    ];
    return marked(pointOf(scan, index)) ? 1 : 0;
  });
  const counts = [mask.filter((value) => value > 0).length];
  const shape = { kind: "segmentation", tensor: "m", overlapping: false } as const;
  const outputs: EngineOutput[] = [{ ...shape, slices, rows, columns, mask, counts }];
  const pixels = markedPixels(outputs, slices);
  const crossing = fullestCrossing(outputs, pixels);
  const shown = pixels.slices.flatMap((weight, slice) => {
    const { data } = planes[slice]!;
    const value = {
      outputs: () => sliceOutputs(outputs, slice),
      findings: [],
      slice: slice + 1,
      data,
    };
    return weight === 0 && crossing !== undefined
      ? []
      : [{ frame: volume.frames[slice]!, weight, value }];
  });
  const manifest = {
    name: "m",
    version: "1.0.0",
    manufacturer: "m",
    regulatory: "None.",
    outputs: [
      {
        kind: "segmentation",
        tensor: "m",
        activation: "label_map",
        labels: [{ label: "F" }],
        postprocess: [],
        measurements: [],
      },
    ],
  } as unknown as DrawRequest["manifest"];
  return {
    image,
    engine: engine(),
    manifest,
    shown,
    opacity: 0.3,
    marked: crossing === undefined ? undefined : { volume, planes, outputs, crossing },
    result: { findings: [], measurements: [], warnings: [] },
  };
}

/** The middle of a scan's voxel in millimetres along one of the patient's axes. */
const place = (axis: 0 | 1 | 2, at: number): number => (at - (SIZE[axis] - 1) / 2) * STEP[axis];

/**
 * Each plane as readers hang it, read from the body and not from the slices: its sides, letters,
 * and points.
 */
const HUNG = {
  axial: { across: 0, down: 1, letters: ["R", "A", "L", "P"], flipped: false },
  coronal: { across: 0, down: 2, letters: ["R", "H", "L", "F"], flipped: true },
  sagittal: { across: 1, down: 2, letters: ["A", "H", "P", "F"], flipped: true },
} as const;

/** Where the F is fullest along each of the patient's axes. */
const FULLEST = { sagittal: place(0, 6), coronal: place(1, 2) };

function bodyPoint(name: keyof typeof HUNG, normalAt: number, x: number, y: number): Point {
  const { across, down, flipped } = HUNG[name];
  const point: Point = [normalAt, normalAt, normalAt];
  point[across] = place(across, x);
  point[down] = place(down, flipped ? SIZE[down] - 1 - y : y);
  return point;
}

const AXES: [string, Point][] = [
  ["L", [1, 0, 0]],
  ["R", [-1, 0, 0]],
  ["P", [0, 1, 0]],
  ["A", [0, -1, 0]],
  ["H", [0, 0, 1]],
  ["F", [0, 0, -1]],
];

t.test("planes across slices", { skip: needs(ADDON) }, async (t) => {
  await t.test("hang as readers expect them, whatever way the slices were taken", async (t) => {
    for (const [right, across] of AXES)
      for (const [bottom, down] of AXES) {
        const axes = [across, down].map((side) => side.findIndex((value) => value !== 0));
        if (axes[0] === axes[1]) continue;
        const own = (["sagittal", "coronal", "axial"] as const)[3 - axes[0]! - axes[1]!]!;
        await t.test(`rows to ${right}, columns to ${bottom}`, async (t) => {
          const input = await overlayInput(await request(t, scanOf(across, down)));
          const names = (["axial", "coronal", "sagittal"] as const).filter((name) => name !== own);
          t.same(
            input.sections?.map(({ name }) => name),
            names,
          );
          for (const [i, name] of names.entries()) {
            const { picture, edges, results, place: said, size } = input.sections![i]!;
            const hung = HUNG[name];
            t.same([edges?.left, edges?.top, edges?.right, edges?.bottom], hung.letters, name);
            t.same([size.columns, size.rows], [SIZE[hung.across], SIZE[hung.down]]);
            t.same([size.columnSpacing, size.rowSpacing], [STEP[hung.across], STEP[hung.down]]);
            // The F is fullest at one row, column and slice: what is told beside the plane says
            // which
            const told = Number(said?.replace("\u2212", "-").replace(" mm", ""));
            const normalAt = name === "sagittal" ? -told : told;
            if (name !== "axial") t.equal(normalAt, FULLEST[name], "through the stem");
            const [mask] = results;
            let [values, marks, marked] = [0, 0, 0];
            for (let y = 0, at = 0; y < size.rows; y++)
              for (let x = 0; x < size.columns; x++, at++) {
                const point = bodyPoint(name, normalAt, x, y);
                if (picture.rgb[at * 3] !== valueAt(point)) values++;
                const is = isMarked(point) ? 1 : 0;
                if (mask?.kind !== "segmentation" || mask.mask[at] !== is) marks++;
                marked += is;
              }
            t.same([picture.width, picture.height], [size.columns, size.rows], "one pixel a voxel");
            t.equal(values, 0, `${name}: every pixel is the body's`);
            t.equal(marks, 0, `${name}: every mark is the body's`);
            t.ok(marked > 0, "goes through what is marked");
          }
        });
      }
  });

  await t.test("of oblique slices, by their coordinates", async (t) => {
    const [c, s] = [Math.cos(0.5), Math.sin(0.5)];
    const scan: Scan = { ...scanOf([1, 0, 0], [0, 1, 0]), across: [c, s, 0], down: [-s, c, 0] };
    // In the patient as it lies in the scan: the body turns with it
    const turned = ([x, y, z]: Point): Point => [x * c + y * s, y * c - x * s, z];
    const input = await overlayInput(
      await request(t, scan, {
        valueAt: (point) => valueAt(turned(point)),
        isMarked: (point) => isMarked(turned(point)),
      }),
    );
    t.match(input.sections, [
      { name: "oblique coronal", edges: { left: "RA", top: "H", right: "LP", bottom: "F" } },
      { name: "oblique sagittal", edges: { left: "AL", top: "H", right: "PR", bottom: "F" } },
    ]);
    const [coronal] = input.sections!;
    for (let y = 0, at = 0; y < 6; y++)
      for (let x = 0; x < 10; x++, at++) {
        const value = valueAt(bodyPoint("coronal", FULLEST.coronal, x, y));
        if (coronal!.picture.rgb[at * 3] !== value) t.fail(`${x}, ${y}`);
      }
    t.equal(coronal!.place, `${String(FULLEST.coronal).replace("-", "\u2212")} mm`);
  });

  await t.test(
    "slices with rescales, paddings and windows of their own are one body",
    async (t) => {
      const scan = scanOf([1, 0, 0], [0, 1, 0]);
      const common = await overlayInput(await request(t, scan));
      const slope = (slice: number) => 0.25 * (1 + (slice % 3));
      const own = await overlayInput(
        await request(t, scan, {
          valueAt: (point, slice) => (valueAt(point) - slice) / slope(slice),
          moreOf: (slice) => ({
            RescaleSlope: String(slope(slice)),
            RescaleIntercept: String(slice),
            ...(slice === 5 ? {} : { WindowCenter: "60", WindowWidth: "120" }),
          }),
        }),
      );
      t.match(own.source, { window: "each slice in its own window" });
      for (const [i, { picture, place: said }] of own.sections!.entries()) {
        const wanted = common.sections![i]!;
        // The slice with most marked is the uppermost
        t.equal(said, `${wanted.place}  ·  W 255  L 127.5`, "and their window is told");
        const far = picture.rgb.filter(
          (value, at) => Math.abs(value - wanted.picture.rgb[at]!) > 1,
        );
        t.equal(far.length, 0, "as one");
      }
      const padded = await overlayInput(
        await request(t, scan, {
          valueAt: (point, slice) => (point[0] < -10 ? 1000 + slice : valueAt(point)),
          moreOf: (slice) => ({ PixelPaddingValue: new Typed("US", 1000 + slice) }),
        }),
      );
      const [coronal] = padded.sections!;
      t.same(
        Array.from({ length: 6 }, (_, y) => coronal!.picture.rgb[y * 30]),
        [0, 0, 0, 0, 0, 0],
        "padding is black",
      );
    },
  );

  await t.test("are drawn in their true proportions, with the marks and no other", async (t) => {
    const input = await overlayInput(await request(t, scanOf([1, 0, 0], [0, 1, 0])));
    const { picture, masked } = renderOverlay(input);
    t.equal(masked.length, input.shots.length + 2, "all are checked");
    const [slice] = masked;
    const pixelsPerMm = slice!.width / (10 * 3);
    for (const [i, panel] of masked.slice(-2).entries()) {
      const { size, results } = input.sections![i]!;
      t.equal(panel.width, Math.round(size.columns * size.columnSpacing * pixelsPerMm));
      t.equal(panel.height, Math.round(size.rows * size.rowSpacing * pixelsPerMm));
      const [mask] = results;
      let [changed, plain] = [0, 0];
      for (let y = 0; y < panel.height; y++)
        for (let x = 0; x < panel.width; x++) {
          const voxel =
            Math.floor((y * size.rows) / panel.height) * size.columns +
            Math.floor((x * size.columns) / panel.width);
          const at = ((panel.y + y) * picture.width + panel.x + x) * 3;
          const same = [0, 1, 2].every(
            (c) => picture.rgb[at + c] === panel.picture.rgb[voxel * 3 + c],
          );
          const marked = mask?.kind === "segmentation" && mask.mask[voxel] !== 0;
          if (marked && same) plain++;
          if (!marked && !same) changed++;
        }
      t.same([changed, plain], [0, 0]);
    }
    const drawn = await drawPicture(await request(t, scanOf([1, 0, 0], [0, 1, 0])));
    t.same(drawn.frames, [0, 1, 2, 3, 4, 5], "all slices are shown in them");
    t.ok(Buffer.compare(drawn.picture.rgb, picture.rgb) === 0, "equal input, equal pixels");
  });

  await t.test("a mark of one voxel, also in a corner, is in both", async (t) => {
    const scan = scanOf([1, 0, 0], [0, 1, 0]);
    for (const at of [
      [0, 0, 0],
      [9, 7, 5],
      [9, 0, 3],
    ] satisfies Point[]) {
      const here = pointOf(scan, at);
      const isMarked = (point: Point) =>
        point.every((value, axis) => Math.abs(value - here[axis]!) < 0.1);
      const input = await overlayInput(await request(t, scan, { isMarked }));
      t.equal(input.shots.length, 1);
      const places = input.sections!.map(({ results: [mask] }) =>
        mask?.kind === "segmentation" ? mask.mask.indexOf(1) : -1,
      );
      t.same(places, [(5 - at[2]) * 10 + at[0], (5 - at[2]) * 8 + at[1]]);
      await drawPicture(await request(t, scan, { isMarked }));
    }
  });

  await t.test("none where nothing is marked; of stacks that are none, the reason", async (t) => {
    const scan = scanOf([1, 0, 0], [0, 1, 0]);
    const nothing = await request(t, scan, { isMarked: () => false });
    const input = await overlayInput(nothing);
    t.match([input.sections, input.withoutSections], [undefined, undefined]);
    t.same((await drawPicture(nothing)).frames, [0, 1, 2, 3, 4, 5]);
    const reason = async (change: Partial<Scan>, missing?: number) => {
      const asked = await request(t, { ...scan, ...change });
      if (missing !== undefined) {
        const flaws = { tiltDegrees: 0, missing, places: [], aside: { row: 0, column: 0 } };
        const refusals = { tilt: undefined, gap: undefined };
        asked.marked!.volume = { ...asked.marked!.volume, flaws: { ...flaws, refusals } };
      }
      const made = await overlayInput(asked);
      t.equal(made.sections, undefined);
      t.match(arranged(made).header[0], made.withoutSections);
      return made.withoutSections;
    };
    t.equal(await reason({ shear: 2 }), "no planes across the slices, because the stack is tilted");
    t.equal(await reason({}, 2), "no planes across the slices, because slices are missing");
  });

  await t.test("what a volume does not hold is not drawn", async (t) => {
    for (const { across, down } of [AXIAL, SAGITTAL]) {
      const asked = await request(t, scanOf(across, down));
      const { planes } = asked.marked!;
      const short = planes.map((plane, i) =>
        i === 0 ? { ...plane, data: plane.data.subarray(0, 40) } : plane,
      );
      const refused = { code: "output_invalid", message: /plane failed its check/ };
      await t.rejects(
        overlayInput({ ...asked, marked: { ...asked.marked!, planes: short } }),
        refused,
      );
    }
  });

  await t.test("slices that are in memory are not decoded again", async (t) => {
    const asked = await request(t, scanOf(CORONAL.across, CORONAL.down));
    let decoded = 0;
    const image = Object.create(asked.image) as DrawRequest["image"];
    image.frame = (frame) => {
      decoded++;
      return asked.image.frame(frame);
    };
    await overlayInput({ ...asked, image });
    t.equal(decoded, 0);
  });
});

t.test("no panel lies on another, nor beside the page, in whatever proportions", (t) => {
  const sides = [1, 7, 64, 300, 900];
  const spacings = [0.3, 1, 8];
  for (const shots of [1, 2, 5, 12])
    for (const [rows, columns] of sides.flatMap((a) => sides.map((b) => [a, b] as const)))
      for (const sliceSpacing of spacings)
        for (const slices of [2, 40, 700]) {
          const picture = { width: 1, height: 1, rgb: new Uint8Array(3) };
          const mask = {
            rows: 1,
            columns: 1,
            mask: Uint8Array.of(1),
            counts: [1],
            overlapping: false,
          };
          const results: EngineOutput[] = [{ kind: "segmentation", tensor: "m", ...mask }];
          const edges = { left: "RA", right: "LP", top: "H", bottom: "F" };
          const view = { picture, edges, results, findings: [] };
          const grid = (of: number) => ({
            size: { rows: slices, columns: of, rowSpacing: sliceSpacing, columnSpacing: 1 },
          });
          const input: OverlayInput = {
            shots: Array.from({ length: shots }, (_, i) => ({ ...view, frame: i + 1 })),
            sections: [
              { ...view, name: "coronal", ...grid(columns) },
              { ...view, name: "sagittal", ...grid(rows) },
            ],
            source: {
              rows,
              columns,
              pixelAspect: 1,
              frames: slices,
              called: "slice",
              spacing: { row: 1, column: 1, source: "PixelSpacing", patient: true },
            },
            model: {
              name: "m",
              version: "1",
              manufacturer: "m",
              regulatory: "None.",
              outputs: [
                {
                  kind: "segmentation",
                  tensor: "m",
                  activation: "label_map",
                  labels: [{ label: "m" }],
                  postprocess: [],
                  measurements: [],
                },
              ],
            },
            findings: [],
            measurements: [],
            warnings: [],
            opacity: 0.3,
          };
          const { panels, width, below, scales, metrics } = arranged(input);
          const boxes = panels.map((panel) => ({
            ...panel,
            y: panel.y - 30 * metrics.unit,
            height: panel.height + 30 * metrics.unit,
          }));
          const bars = scales.map(({ x, y }) => ({ x, y, width: 20, height: 10, cell: 20 }));
          const all = [...boxes, ...bars];
          const apart = all.every((a, i) =>
            all.every(
              (b, j) =>
                i >= j ||
                a.x + a.cell <= b.x ||
                b.x + b.cell <= a.x ||
                a.y + a.height <= b.y ||
                b.y + b.height <= a.y,
            ),
          );
          const within = boxes.every(
            (a) => a.x >= 0 && a.x + a.cell <= width && a.y + a.height <= below,
          );
          if (!apart || !within)
            t.fail(`${shots} of ${slices} x ${rows} x ${columns}, ${sliceSpacing} mm`);
        }
  t.pass("all looked at");
  t.end();
});
