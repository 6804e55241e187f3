import sharp from "sharp";
import t from "tap";
import type { EngineOutput } from "../../../src/engine/types.js";
import type { ModelOutput } from "../../../src/manifest/outputs/outputs.js";
import { interpret } from "../../../src/results/findings/findings.js";
import { panelSize } from "../../../src/results/picture/layout.js";
import { packPng, type Picture } from "../../../src/addon/picture.js";
import type { OverlayInput } from "../../../src/results/picture/arrangement.js";
import { renderOverlay } from "../../../src/results/picture/overlay.js";
import { textWidth } from "../../../src/results/picture/text.js";

/** Places of a pair of panels of this width: text and the room round it grow with what is shown. */
function pair(width: number): { x: number; right: number; y: number; unit: number } {
  const unit = Math.min(Math.max((2 * width) / 1024, 1), 1.75);
  const [margin, header, caption, gutter, gap] = [40, 82, 26, 22, 56].map((n) =>
    Math.round(n * unit),
  );
  return {
    x: margin!,
    right: margin! + width + gap!,
    y: margin! + header! + caption! + gutter!,
    unit,
  };
}
const RED = [255, 0, 0] as const;
const BLUE = [0, 0, 255] as const;

interface Decoded {
  width: number;
  height: number;
  at(x: number, y: number): number[];
  /** Pixels within a box that are far from the background. */
  ink(x: number, y: number, width: number, height: number): number;
}

function look({ width, height, rgb }: Picture): Decoded {
  const at = (x: number, y: number) => [
    ...rgb.subarray((y * width + x) * 3, (y * width + x) * 3 + 3),
  ];
  const ink = (left: number, top: number, across: number, down: number): number => {
    let count = 0;
    for (let v = top; v < top + down; v++)
      for (let u = left; u < left + across; u++) if (Math.max(...at(u, v)) > 100) count++;
    return count;
  };
  return { width, height, at, ink };
}

const drawn = (input: OverlayInput): Decoded => look(renderOverlay(input).picture);

/** Grey that differs from pixel to pixel, dark enough for colours to show. */
function grey(width: number, height: number): Uint8Array {
  const rgb = new Uint8Array(width * height * 3);
  for (let i = 0; i < width * height; i++) rgb.fill(20 + ((i * 7) % 60), i * 3, i * 3 + 3);
  return rgb;
}

const segmentation = (activation: "argmax" | "sigmoid"): ModelOutput => ({
  kind: "segmentation",
  tensor: "m",
  activation,
  labels: [
    { label: "Red thing", colour: [...RED], threshold: 0.5 },
    { label: "Blue thing", colour: [...BLUE], threshold: 0.5 },
  ],
  postprocess: [],
  measurements: ["area"],
});

function inputOf(
  rows: number,
  columns: number,
  outputs: ModelOutput[],
  results: EngineOutput[],
  change: Partial<OverlayInput> = {},
): OverlayInput {
  const { render } = panelSize(rows, columns, 1);
  const thresholds = outputs.map((o) =>
    "labels" in o ? o.labels.map((l) => l.threshold ?? NaN) : [0.5],
  );
  const got = interpret(outputs, thresholds, { outputs: results, spacing: undefined });
  const picture = { ...render, rgb: grey(render.width, render.height) };
  return {
    shots: [{ picture, frame: 1, results, findings: got.findings }],
    source: { rows, columns, pixelAspect: 1, frames: 1, called: "frame", modality: "CT" },
    model: {
      name: "test-model",
      version: "1.0.0",
      manufacturer: "Tests",
      regulatory: "For research use only. Not for diagnostic use.",
      outputs,
    },
    findings: got.findings,
    measurements: got.measurements,
    warnings: [],
    opacity: 0.3,
    ...change,
  };
}

function maskOf(rows: number, columns: number, set: [number, number, number][]): EngineOutput {
  const mask = new Uint8Array(rows * columns);
  for (const [x, y, label] of set) mask[y * columns + x] = label;
  const counts = [1, 2].map((label) => mask.filter((m) => m === label).length);
  return { kind: "segmentation", tensor: "m", rows, columns, overlapping: false, mask, counts };
}

t.test("the image is left as it is on the left, and marked on the right", (t) => {
  const block: [number, number, number][] = [];
  for (let y = 100; y < 140; y++)
    for (let x = 200; x < 260; x++) block.push([x, y, x < 230 ? 1 : 2]);
  const input = inputOf(512, 512, [segmentation("argmax")], [maskOf(512, 512, block)]);
  const png = drawn(input);
  const { x: left, right, y: top } = pair(512);
  let [changed, different] = [0, 0];
  for (let y = 0; y < 512; y++)
    for (let x = 0; x < 512; x++) {
      const source = input.shots[0]!.picture.rgb[(y * 512 + x) * 3]!;
      const plain = png.at(left + x, top + y);
      if (plain.some((v) => v !== source)) changed++;
      const marked = png.at(right + x, top + y);
      const inside = x >= 200 && x < 260 && y >= 100 && y < 140;
      if (!inside && marked.some((v) => v !== source)) different++;
    }
  t.equal(changed, 0, "every pixel of the left panel is the picture's");
  t.equal(different, 0, "outside the mask the right panel is the picture's");
  const redInside = png.at(right + 215, top + 120);
  const source = input.shots[0]!.picture.rgb[(120 * 512 + 215) * 3]!;
  t.ok(redInside[0]! > source + 40 && redInside[2]! < source, "tinted in the label's colour");
  t.ok(png.at(right + 200, top + 120)[0]! > 200, "outlined");
  t.ok(png.at(right + 245, top + 120)[2]! > 60, "the other label in its own colour");
  t.end();
});

t.test("small images grow by whole pixels, and a mask of one pixel covers exactly that", (t) => {
  const input = inputOf(64, 64, [segmentation("argmax")], [maskOf(64, 64, [[10, 20, 2]])]);
  const png = drawn(input);
  const { x: left, right, y: top } = pair(896);
  for (const [x, y] of [
    [0, 0],
    [13, 13],
    [14 * 63, 14 * 63 + 13],
    [14 * 9 + 13, 14 * 20],
    [14 * 11, 14 * 20],
  ] as const) {
    const source = input.shots[0]!.picture.rgb[(Math.floor(y / 14) * 64 + Math.floor(x / 14)) * 3]!;
    t.same(png.at(left + x, top + y), [source, source, source]);
    t.same(png.at(right + x, top + y), [source, source, source]);
  }
  t.ok(png.at(right + 14 * 10, top + 14 * 20)[2]! > 200);
  t.ok(png.at(right + 14 * 10 + 13, top + 14 * 20 + 13)[2]! > 200);
  t.end();
});

t.test("the smallest region still shows when a large image shrinks", (t) => {
  const organ: [number, number, number][] = [];
  for (let y = 1000; y < 1100; y++) for (let x = 1000; x < 1100; x++) organ.push([x, y, 1]);
  const input = inputOf(
    3600,
    3600,
    [segmentation("argmax")],
    [maskOf(3600, 3600, [...organ, [400, 800, 1], [1050, 1050, 2]])],
  );
  const png = drawn(input);
  const { right, y: top } = pair(900);
  const alone = png.at(right + 100, top + 200);
  t.ok(alone[0]! > alone[1]! + 80, "one pixel on its own");
  const within = png.at(right + 262, top + 262);
  t.ok(within[2]! > within[0]!, "one pixel of a rare label within a common one");
  t.end();
});

t.test("labels that overlap are both drawn", (t) => {
  const plane = new Uint8Array(2 * 512 * 512);
  for (let y = 100; y < 200; y++)
    for (let x = 100; x < 200; x++) {
      plane[y * 512 + x] = 1;
      plane[512 * 512 + (y + 50) * 512 + x + 50] = 1;
    }
  const mask: EngineOutput = {
    kind: "segmentation",
    tensor: "m",
    rows: 512,
    columns: 512,
    overlapping: true,
    mask: plane,
    counts: [10000, 10000],
  };
  const png = drawn(inputOf(512, 512, [segmentation("sigmoid")], [mask]));
  const { right, y: top } = pair(512);
  const [red, blue] = [120, 225].map((at) => png.at(right + at, top + at));
  t.ok(red![0]! > red![2]! && blue![2]! > blue![0]!);
  const seen = new Set<string>();
  for (let x = 160; x < 190; x++) {
    const [r, g, b] = png.at(right + x, top + 175);
    seen.add(r! > g! + 20 && b! <= g! ? "red" : b! > g! + 20 && r! <= g! ? "blue" : "mixed");
  }
  t.same(
    [...seen].sort(),
    ["blue", "red"],
    "stripes of the legend's colours, and no colour that it does not have",
  );
  t.end();
});

const text: ModelOutput = {
  kind: "probability_map",
  tensor: "t",
  activation: "none",
  threshold: 0.3,
  minimum_area: 1,
  unclip: 1,
  max_boxes: 99,
  label: { label: "Text", colour: [0, 255, 0], threshold: 0.5 },
};
const boxed = (boxes: [number, number, number, number, number][]): EngineOutput => ({
  kind: "boxes",
  tensor: "t",
  boxes: boxes.map(([x0, y0, x1, y1, score]) => ({ x0, y0, x1, y1, score, label: 0 })),
});

t.test("boxes lie where the source says, those below threshold are not drawn", (t) => {
  const boxes = boxed([
    [100, 200, 300, 240, 0.9],
    [100, 300, 300, 340, 0.4],
  ]);
  const png = drawn(inputOf(1024, 1024, [text], [boxes]));
  const { right, y: top } = pair(900);
  const scale = 900 / 1024;
  const green = ([r, g, b]: number[]): boolean => g! > 150 && r! < 120 && b! < 120;
  const [x, y] = [Math.round(right + 200 * scale), top + 240 * scale];
  t.ok(
    [-1, 0, 1].some((d) => green(png.at(x, Math.round(y) + d))),
    "lower edge",
  );
  t.notOk(green(png.at(x, Math.round(top + 220 * scale))), "hollow");
  const low = Math.round(top + 340 * scale);
  t.notOk([-1, 0, 1].some((d) => green(png.at(x, low + d))));
  const middle = Math.round(top + 220 * scale);
  t.ok(green(png.at(Math.round(right + 900 + 14), middle - 8)), "tag");
  let other = 0;
  for (let v = 0; v < 900; v++)
    for (let u = 0; u < 900; u++) {
      const lines = Math.abs(v - 220 * scale) < 21 && u > 83;
      const [red, , blue] = png.at(right + u, top + v);
      if (!lines && red !== blue) other++;
    }
  t.equal(other, 0, "only its lines lie over the image");
  t.end();
});

t.test("text is there: model, legend, regulatory line", (t) => {
  const png = drawn(inputOf(512, 512, [text], [boxed([])]));
  const { x, y } = pair(512);
  t.ok(png.ink(x, 44, 160, 20) > 200, "the model's name");
  t.ok(png.ink(x, y + 512 + 22, 250, 14) > 100, "no patient spacing");
  t.ok(png.ink(x, png.height - 60, 500, 40) > 500, "the regulatory line");
  t.equal(png.ink(0, 0, png.width, 36), 0, "nothing at the border");
  t.end();
});

t.test("whatever there is to say, the picture holds it", (t) => {
  const many: ModelOutput = {
    kind: "classification",
    tensor: "p",
    activation: "sigmoid",
    calibration: { kind: "none" },
    labels: Array.from({ length: 100 }, (_, i) => ({
      label: `${"Long label ".repeat(5)}${i}`,
      threshold: 0.5,
    })),
  };
  const scores = Float32Array.from({ length: 100 }, (_, i) => i / 100);
  const input = inputOf(512, 512, [many], [{ kind: "classification", tensor: "p", scores }]);
  const few = { ...input, findings: input.findings.slice(0, 24) };
  const png = drawn(input);
  t.equal(png.height, drawn(few).height, "rows that do not fit are counted instead");
  const model = {
    ...input.model,
    regulatory: "Not for diagnostic use. ".repeat(80),
    name: "n".repeat(63),
  };
  const warnings = Array.from({ length: 9 }, (_, i) => ({
    code: `w${i}`,
    message: "caveat ".repeat(60),
  }));
  const long = drawn({ ...input, model, warnings });
  t.equal(long.width, png.width);
  t.equal(long.ink(long.width - 36, 0, 36, long.height), 0, "nothing runs over the right border");
  for (const [rows, columns] of [
    [1, 1],
    [4096, 16],
    [16, 4096],
    [1, 3000],
  ] as const) {
    const small = drawn(inputOf(rows, columns, [text], [boxed([[0, 0, 1, 1, 0.9]])]));
    t.ok(small.width <= 2300 && small.height <= 2200, `${rows} x ${columns}`);
  }
  t.end();
});

t.test("a line of one pixel is marked, and what lies under it still shows", (t) => {
  const line = Array.from({ length: 300 }, (_, i): [number, number, number] => [100 + i, 250, 1]);
  const block = Array.from({ length: 1600 }, (_, i): [number, number, number] => [
    300 + (i % 40),
    100 + Math.floor(i / 40),
    1,
  ]);
  const input = inputOf(
    512,
    512,
    [segmentation("argmax")],
    [maskOf(512, 512, [...line, ...block])],
  );
  const png = drawn(input);
  const { right, y: top } = pair(512);
  const under = (x: number, y: number) => input.shots[0]!.picture.rgb[(y * 512 + x) * 3]!;
  const covered = (x: number, y: number) => 1 - png.at(right + x, top + y)[1]! / under(x, y);
  for (const x of [120, 250, 390]) {
    t.ok(covered(x, 250) > 0.4, "marked");
    t.ok(covered(x, 250) < 0.6, "half of the grey is left");
  }
  t.ok(covered(300, 120) > 0.8, "an outline round an area is firm");
  t.ok(covered(320, 120) < 0.4, "and the area is tinted lightly");
  t.end();
});

t.test("a model that marks nothing shows the image once", (t) => {
  const classifier: ModelOutput = {
    kind: "classification",
    tensor: "p",
    activation: "sigmoid",
    calibration: { kind: "none" },
    labels: [{ label: "a", threshold: 0.5 }],
  };
  const scores: EngineOutput = {
    kind: "classification",
    tensor: "p",
    scores: Float32Array.of(0.7),
  };
  const once = drawn(inputOf(600, 900, [classifier], [scores]));
  t.equal(once.width, 40 + 900 + 40);
  const { y: top } = pair(450);
  t.ok(once.at(40, top + 1)[0]! > 16 && once.at(939, top + 598)[0]! > 16, "the image");
  t.equal(once.ink(0, top, 39, 600) + once.ink(941, top, 39, 600), 0, "nothing beside it");
  t.same(once.at(20, top + 300), [16, 19, 24]);
  const twice = drawn(inputOf(600, 900, [text], [boxed([[10, 10, 90, 40, 0.9]])]));
  t.ok(twice.width > 2 * 900);
  t.end();
});

t.test("text grows with the picture", (t) => {
  const heightOf = (side: number) => {
    const png = drawn(inputOf(side, side, [text], [boxed([[10, 10, 90, 40, 0.9]])]));
    const rows = Array.from({ length: 200 }, (_, y) => png.ink(0, y, 300, 1) > 0);
    return rows.indexOf(false, rows.indexOf(true)) - rows.indexOf(true);
  };
  t.ok(heightOf(900) >= 1.5 * heightOf(512), "the model's name");
  t.end();
});

t.test("a montage: the frames in their order, each marked, with one legend", (t) => {
  const outputs = [segmentation("argmax")];
  const shots = [3, 5, 8, 9, 11].map((frame): OverlayInput["shots"][number] => ({
    picture: { width: 100, height: 80, rgb: new Uint8Array(100 * 80 * 3).fill(10 * frame) },
    frame,
    place: `${frame} mm`,
    edges: { left: "R", right: "L", top: "A", bottom: "P" },
    results: [maskOf(80, 100, [[50, 40, 2]])],
    findings: [],
  }));
  const base = inputOf(80, 100, outputs, [maskOf(80, 100, [])]);
  const source = { ...base.source, frames: 20, called: "slice" as const };
  const findings = [3, 5, 8, 9, 11].map((frame) => ({
    label: "Red thing",
    present: true,
    frame,
    area: { pixels: frame },
  }));
  const render = (change: Partial<OverlayInput> = {}) =>
    renderOverlay({ ...base, shots, source, findings, ...change });
  const { picture } = render();
  const png = look(picture);
  t.ok(Buffer.compare(picture.rgb, render().picture.rgb) === 0, "equal input gives equal pixels");
  // Three across at four times their size: 1440 / 3 and 1080 / 2 hold 400 x 320
  const unit = (3 * 400) / 1024;
  const [margin, header, above, gap] = [40, 82, 44, 30].map((n) => Math.round(n * unit)) as [
    number,
    number,
    number,
    number,
  ];
  t.equal(png.width, 2 * margin + 3 * 400 + 2 * gap);
  shots.forEach(({ frame }, i) => {
    const x = margin + (i % 3) * (400 + gap);
    const y = margin + header + above + Math.floor(i / 3) * (320 + above);
    const grey = 10 * frame;
    t.same(png.at(x, y), [grey, grey, grey], `slice ${frame}`);
    t.same(png.at(x + 399, y + 319), [grey, grey, grey]);
    t.notSame(png.at(x - 1, y), [grey, grey, grey]);
    t.ok(png.at(x + 201, y + 161)[2]! > grey + 40, "its mask");
    t.ok(png.ink(x, y - above, 120, above - 8) > 100, "its caption");
    t.ok(png.ink(x - gap + 4, y + 150, gap - 6, 24) > 20, "left of it the side");
    for (let v = 140; v < 180; v++) t.same(png.at(x + 2, y + v), [grey, grey, grey], "not over it");
  });
  t.equal(
    png.ink(margin + 2 * (400 + gap), margin + header + 320 + 2 * above, 400, 320),
    0,
    "five of six places",
  );
  t.end();
});

t.test("a long value beside a short label is not cut", (t) => {
  const boxes = Array.from({ length: 161 }, (_, i) => ({
    label: "Text",
    score: i === 0 ? 0.57 : 0.98,
    threshold: 0.5,
    present: true,
    frame: 1 + (i % 30),
    box: { x0: 0, y0: 0, x1: 1, y1: 1 },
  }));
  const base = inputOf(512, 512, [text], [boxed([])]);
  const source = { ...base.source, frames: 30 };
  const png = drawn({ ...base, source, findings: boxes });
  const value = "161 boxes in 30 of 30 frames, scores 0.57 to 0.98, threshold 0.50";
  const right = 40 + 620;
  const left = Math.floor(right - textWidth(value, { size: 12.5, face: "regular" }));
  const row = pair(512).y + 512 + 22 + 30 + 28 + 14;
  t.ok(png.ink(left, row, 12, 30) > 10, "its first letter is where a whole one begins");
  t.equal(png.ink(left - 12, row, 11, 30), 0, "and nothing before it");
  t.end();
});

t.test("a heat map is laid over the image where it is high", (t) => {
  const output: ModelOutput = {
    kind: "heatmap",
    tensor: "h",
    activation: "none",
    label: { label: "Heat" },
  };
  const values = new Float32Array(512 * 512);
  values.fill(1, 0, 512 * 100);
  const heat: EngineOutput = { kind: "heatmap", tensor: "h", rows: 512, columns: 512, values };
  const input = inputOf(512, 512, [output], [heat]);
  const png = drawn(input);
  const { right, y: top } = pair(512);
  t.ok(png.at(right + 50, top + 50)[0]! > 140);
  const source = input.shots[0]!.picture.rgb[(300 * 512 + 50) * 3]!;
  t.same(png.at(right + 50, top + 300), [source, source, source]);
  t.end();
});

t.test("equal input gives equal bytes", async (t) => {
  const make = () => renderOverlay(inputOf(512, 512, [text], [boxed([[10, 10, 90, 40, 0.9]])]));
  const [one, two] = await Promise.all([make(), make()].map(({ picture }) => packPng(picture)));
  t.ok(Buffer.compare(one!, two!) === 0);
  t.notOk(Buffer.from(one!).includes("tIME"));
});

t.test("a preview is the picture as it is", async (t) => {
  const rgb = grey(30, 20);
  const { data, info } = await sharp(await packPng({ width: 30, height: 20, rgb }))
    .raw()
    .toBuffer({ resolveWithObject: true });
  t.match(info, { width: 30, height: 20, channels: 3 });
  t.ok(Buffer.compare(data, rgb) === 0);
});

/** A picture of one label that fills a rectangle, over one grey. */
function filled(value: number, change: Partial<OverlayInput> = {}) {
  const block: [number, number, number][] = [];
  for (let y = 100; y < 200; y++) for (let x = 100; x < 200; x++) block.push([x, y, 1]);
  const output: ModelOutput = {
    ...(segmentation("argmax") as Extract<ModelOutput, { kind: "segmentation" }>),
    labels: [{ label: "Sky", colour: [86, 180, 233] }],
  };
  const result = { ...maskOf(512, 512, block), counts: [block.length] } as EngineOutput;
  const input = inputOf(512, 512, [output], [result], change);
  for (const { picture } of input.shots) picture.rgb.fill(value);
  return drawn(input);
}

t.test("the swatch is the label's colour as it looks on dark, middle and light grey", (t) => {
  for (const opacity of [0.15, 0.3, 0.8])
    [0, 128, 235].forEach((grey, third) => {
      const png = filled(grey, { opacity });
      const { right, y: top } = pair(512);
      const inside = png.at(right + 150, top + 150);
      const row = top + 512 + 22 + 30 + 28 + 14 + 15;
      const swatch = png.at(40 + 10 * third + 5, row);
      t.ok(
        inside.every((value, c) => Math.abs(value - swatch[c]!) <= 2),
        `${String(inside)} on the image, ${String(swatch)} in the legend`,
      );
      t.same(png.at(right + 100, top + 150), [86, 180, 233], "the outline has the full colour");
      t.same(png.at(40 + 1, row), [86, 180, 233], "and frames the swatch");
    });
  t.end();
});

t.test("a tint keeps its hue over black: sky-blue is no navy", (t) => {
  const [r, g, b] = filled(0).at(pair(512).right + 150, pair(512).y + 150);
  t.ok(b! > 120 && g! > 90 && r! < 60, String([r, g, b]));
  t.end();
});

t.test("nothing marked: the image once, and words that say so", (t) => {
  const empty = inputOf(512, 512, [segmentation("argmax")], [maskOf(512, 512, [])]);
  const png = drawn(empty);
  const { x, y: top } = pair(512);
  t.equal(png.width, 40 + 800 + 40, "room for one panel");
  t.same(png.at(x + 512 + 56 + 100, top + 100), [16, 19, 24]);
  const caption = textWidth("Image", { size: 13, face: "bold" }) + 12;
  t.ok(png.ink(Math.floor(x + caption), top - 40, 160, 14) > 100, "the words");
  const below = drawn(inputOf(1024, 1024, [text], [boxed([[100, 200, 300, 240, 0.2]])]));
  t.equal(below.width, 40 + 900 + 40, "boxes below their threshold are not drawn either");
  t.end();
});

t.test("the letters of two panels stand apart, however many there are", (t) => {
  for (const edges of [
    { left: "R", right: "L", top: "A", bottom: "P" },
    { left: "RA", right: "LP", top: "HA", bottom: "FP" },
    { left: "HA", right: "FP", top: "RA", bottom: "LP" },
  ]) {
    const input = inputOf(512, 512, [segmentation("argmax")], [maskOf(512, 512, [[10, 10, 1]])]);
    input.shots[0]!.picture.rgb.fill(0);
    const png = drawn({ ...input, shots: [{ ...input.shots[0]!, edges }] });
    const { x, y: top } = pair(512);
    const from = x + 512;
    const across = png.width - 40 - 512 - from;
    const columns = Array.from(
      { length: across },
      (_, i) => png.ink(from + i, top + 240, 1, 40) > 0,
    );
    const widest = columns
      .map((ink) => (ink ? "x" : " "))
      .join("")
      .trim()
      .split("x")
      .reduce((most, gap) => Math.max(most, gap.length), 0);
    t.ok(widest >= 12, `${edges.right} and ${edges.left}: ${widest}`);
  }
  t.end();
});

t.test("of many boxes twelve have a tag, one below the other", (t) => {
  const boxes = Array.from({ length: 40 }, (_, i): [number, number, number, number, number] => [
    ...([
      20 + 40 * (i % 5),
      20 + 40 * Math.floor(i / 5),
      50 + 40 * (i % 5),
      40 + 40 * Math.floor(i / 5),
    ] as const),
    0.99 - i / 200,
  ]);
  const png = drawn(inputOf(512, 512, [text], [boxed(boxes)]));
  const { right, y: top } = pair(512);
  const column = right + 512 + 6 + 2;
  const rows = Array.from({ length: 512 }, (_, y) => {
    const [r, g, b] = png.at(column, top + y);
    return g! > 200 && r! < 60 && b! < 60 ? "x" : " ";
  });
  const tags = rows
    .join("")
    .split(/ +/)
    .filter((tag) => tag !== "");
  t.equal(tags.length, 12);
  t.ok(
    tags.every((tag) => tag.length >= 14 && tag.length <= 16),
    String(tags.map((tag) => tag.length)),
  );
  t.end();
});
