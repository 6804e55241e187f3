/**
 * A hundred and seventeen labels on the page, in Debian's Chromium: found, shown alone, drawn, and
 * told apart by eight kinds of sight.
 */
import { mkdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import type { Page } from "playwright-core";
import t, { type Test } from "tap";
import { int, onnxModel, type ModelDescription } from "../../../scripts/lib/onnx-model.js";
import { ctSeries } from "../../../scripts/demo/samples.js";
import { sha256 } from "../../../src/files/durable-files.js";
import { CHROMIUM, look, signIn, startBrowser } from "../../support/looks.js";
import {
  BRIGHT,
  DARK,
  flat,
  inverse,
  scalar,
  sct,
  segmentation,
  thirds,
  TISSUE,
} from "../../support/model-parts.js";
import { ADDON, needs } from "../../support/needs.js";
import { makePlace, radserve, startServer } from "../../support/server.js";
import { lookApart, SIGHTS, type Colour, type Sight } from "../../support/sight.js";
import { manifestOf } from "../../support/test-models.js";
import { until } from "../../support/until.js";

t.setTimeout(300_000);

const MOST = 117;
const GROUPS = [
  ["vertebrae", 24],
  ["rib", 24],
  ["lung", 5],
  ["organ", MOST - 53],
] as const;
const LABELS = GROUPS.flatMap(([group, size]) =>
  Array.from({ length: size }, (_, i) => ({
    label: `${group}_${i + 1}`,
    code: sct("87784001", "Soft tissue"),
    category: TISSUE,
  })),
);

/** A label for each of so many steps of brightness. */
const steps: ModelDescription = {
  ...thirds("body", flat),
  initializers: [scalar("three", MOST + 1), scalar("zero", 0), scalar("two", MOST)],
};

type Segmentation = ReturnType<typeof segmentation>;

function writeModel(models: string, described: ModelDescription, output: Segmentation): string {
  const folder = path.join(models, described.name);
  mkdirSync(folder);
  const graph = onnxModel(described);
  writeFileSync(path.join(folder, "model.onnx"), graph);
  const manifest = {
    ...manifestOf("segmenter"),
    name: described.name,
    accepts: { formats: ["dicom"], modality: ["CT"], dimensions: "2d_frames" },
    files: [{ path: "model.onnx", sha256: sha256(graph) }],
    outputs: [output],
  };
  writeFileSync(path.join(folder, "model.json"), JSON.stringify(manifest));
  return folder;
}

/** A server with the model, which has analysed the series, and a page that shows its result. */
async function shown(
  t: Test,
  series: readonly Uint8Array[],
  described: ModelDescription,
  output: Segmentation,
): Promise<Page> {
  const place = makePlace({ RADSERVE_FILES_BY_HTTP: "view" });
  const model = writeModel(place.environment["RADSERVE_MODELS_DIR"]!, described, output);
  const input = path.join(place.input, "series");
  mkdirSync(input);
  series.forEach((bytes, i) => writeFileSync(path.join(input, `${i}.dcm`), bytes));
  const canary = await radserve(place, "models", "canary", model, path.join(input, "0.dcm"));
  t.equal(canary.status, 0, canary.stderr);
  const server = await startServer(place);
  t.teardown(() => server.stop());
  const answer = await server.post("/single_inference", {
    input_image_path: input,
    output_folder_path: place.output,
    group: "series",
    outputs: ["seg"],
  });
  t.equal(answer.status, 200, (await answer.text()).slice(0, 600));
  const page = await (await startBrowser(t)).newPage();
  await signIn(page, server, "#/results");
  await page.getByRole("link", { name: "series", exact: true }).click();
  await page.locator("canvas.outlines[data-drawn]").waitFor();
  return page;
}

/**
 * The pixels of the masks and of the outlines over them, as the browser has them; none while others
 * are loaded.
 */
const DRAWN_PIXELS = `(async () => {
  const [image, outlines] = ["img.marks", "canvas.outlines"].map((one) =>
    document.querySelector(one));
  if (image?.complete !== true || outlines === null) return [];
  const marks = await createImageBitmap(image);
  const size = [marks.width, marks.height];
  const canvas = new OffscreenCanvas(...size);
  canvas.getContext("2d").drawImage(marks, 0, 0);
  return [canvas, outlines].map((one) => {
    const { data } = one.getContext("2d").getImageData(0, 0, ...size);
    return Array.from(data, (part) => String.fromCharCode(part)).join("");
  });
})()`;
const SIDE = 512;

/** A border between two labels: their colours, and those of the two pixels that are drawn there. */
type Border = readonly [Colour, Colour, Colour, Colour];

function bordersOf(masks: Buffer, outlines: Buffer): Border[] {
  const colourIn = (pixels: Buffer, at: number): Colour => [
    pixels[4 * at]!,
    pixels[4 * at + 1]!,
    pixels[4 * at + 2]!,
  ];
  const label = (at: number) => masks.readUInt32LE(4 * at);
  const found = new Map<string, Border>();
  for (let y = 2; y < SIDE - 2; y++)
    for (let x = 2; x < SIDE - 2; x++)
      for (const step of [1, SIDE]) {
        const at = y * SIDE + x;
        const [a, b] = [label(at), label(at + step)];
        const isThin = label(at - step) !== a && label(at + 2 * step) !== b;
        if (a === b || a === 0 || b === 0 || isThin) continue;
        const border = [masks, outlines].flatMap((of) => [
          colourIn(of, at),
          colourIn(of, at + step),
        ]) as unknown as Border;
        found.set(border.join("/"), border);
      }
  return [...found.values()];
}

/** By how much two labels are told apart at their border: by what is drawn there, or a seam. */
function apartAt([a, b, ...drawn]: Border, eye: Sight): number {
  const seams = drawn.map((one) => Math.min(lookApart(one, a, eye), lookApart(one, b, eye)));
  return Math.max(lookApart(...drawn, eye), ...seams);
}

t.test("117 labels", { skip: needs(ADDON, CHROMIUM) }, async (t) => {
  const all = segmentation({ labels: LABELS, measurements: [] });
  const page = await shown(t, ctSeries(4, 12, SIDE), steps, all);
  const labels = page.getByRole("list", { name: "Labels" });
  const rows = labels.getByRole("listitem");
  t.equal(await rows.count(), MOST);
  await look(t, page, "labels");

  const [masks = "", outlines = ""] = await page.evaluate<string[]>(DRAWN_PIXELS);
  const borders = bordersOf(Buffer.from(masks, "latin1"), Buffer.from(outlines, "latin1"));
  t.ok(borders.length > 50, `${borders.length} borders`);
  for (const [sight, eye] of Object.entries(SIGHTS)) {
    const least = Math.min(...borders.map((border) => apartAt(border, eye)));
    t.ok(least > 10, `${sight}: neighbours differ by at least ${least.toFixed(1)} (CIEDE2000)`);
  }

  /** Milliseconds from a click until the marks of another slice are drawn, in the page itself. */
  const drawn = (frame: number) =>
    page.evaluate<number>(`new Promise((resolve) => {
      const began = performance.now();
      const input = document.querySelector(".slice input");
      input.value = ${frame};
      input.dispatchEvent(new Event("input", { bubbles: true }));
      const look = () => {
        const isThere = document.querySelector(".stage").dataset.frame === "${frame}" &&
          document.querySelector("canvas.outlines[data-drawn]") !== null &&
          document.querySelector("canvas.outlines").width === 512;
        if (isThere) resolve(performance.now() - began); else requestAnimationFrame(look);
      };
      requestAnimationFrame(look);
    })`);
  for (const frame of [1, 2, 3, 4])
    t.comment(`slice ${frame}: ${Math.round(await drawn(frame))} ms`);

  await page.getByLabel("Find a label").fill("rib_1");
  t.same(await rows.locator("button.link").allInnerTexts(), [
    "rib_1",
    ...Array.from({ length: 10 }, (_, i) => `rib_${i + 10}`),
  ]);
  await page.getByRole("button", { name: "Only these 11" }).click();
  await page.getByLabel("Find a label").fill("");
  await page.getByLabel("Group").selectOption("lung");
  t.equal(await rows.count(), 5);
  t.notOk(await labels.getByLabel("Show lung_1", { exact: true }).isChecked());
  await page.getByRole("button", { name: "All labels" }).click();
  t.ok(await labels.getByLabel("Show lung_1", { exact: true }).isChecked());
  await labels.getByRole("button", { name: "Only lung_2" }).click();
  t.notOk(await labels.getByLabel("Show lung_1", { exact: true }).isChecked());
  await page.getByLabel("Group").selectOption("organ");
  await labels.getByRole("button", { name: "organ_30", exact: true }).click();
  await page.locator(".stage:focus").waitFor();
});

/** How many pixels of the outlines are of a label, and how many divide two. */
const OUTLINED = `(() => {
  const { width, height } = document.querySelector("canvas.outlines");
  const { data } = document.querySelector("canvas.outlines").getContext("2d")
    .getImageData(0, 0, width, height);
  const found = { coloured: 0, black: 0 };
  for (let at = 0; at < data.length; at += 4)
    if (data[at + 3] === 255)
      found[data[at] + data[at + 1] + data[at + 2] === 0 ? "black" : "coloured"] += 1;
  return found;
})()`;

t.test("masks that are drawn by probabilities", { skip: needs(ADDON, CHROMIUM) }, async (t) => {
  const both = segmentation({
    activation: "none",
    segment_type: "fractional",
    labels: [BRIGHT, DARK],
    measurements: [],
  });
  const page = await shown(t, ctSeries(1, 12, 128), inverse("soft", flat), both);

  await t.test("the label at the pointer is always named", async (t) => {
    const { x, y, width, height } = (await page.locator(".stage .picture").boundingBox())!;
    for (let step = 1; step < 24; step++) {
      const share = step / 24;
      await page.mouse.move(x + width * share, y + height * (0.3 + 0.4 * share));
      const [column, row] = [share, 0.3 + 0.4 * share].map((part) => Math.floor(128 * part));
      const said = page.locator(".corners .sw").getByText(`(${column}, ${row})`);
      t.match(await said.innerText(), /HU · (bright|dark)$/);
    }
  });

  await t.test("pixels of at least one half are counted", async (t) => {
    const labels = await page.getByRole("list", { name: "Labels" }).innerText();
    const counts = [...labels.matchAll(/([\d,]+) pixels/g)].map(([, all]) =>
      Number(all?.replaceAll(",", "")),
    );
    t.equal(counts.length, 2);
    t.equal(
      counts.reduce((sum, count) => sum + count, 0),
      128 * 128,
    );
  });

  await t.test("no black line lies within a label", async (t) => {
    const labels = page.getByRole("list", { name: "Labels" });
    const come = page.waitForResponse((response) => response.url().includes("only="));
    await labels.getByRole("button", { name: "Only bright" }).click();
    await come;
    await page.locator("canvas.outlines[data-drawn]").waitFor();
    const { coloured, black } = await page.evaluate<Record<string, number>>(OUTLINED);
    t.ok(Number(coloured) > 100, `${coloured} pixels of the edge`);
    t.equal(black, 0);
  });
});

/** The same brightness twice: for a label of what is not dark, and one of what is bright in it. */
const twice: ModelDescription = {
  name: "twice",
  inputs: [{ name: "x", dtype: "float32", shape: flat }],
  outputs: [{ name: "y", dtype: "float32", shape: ["n", 2, "h", "w"] }],
  nodes: [{ op: "Concat", inputs: ["x", "x"], outputs: ["y"], attributes: { axis: int(1) } }],
};
/** Rows and columns of its slice. */
const FEW = 128;

t.test("a label within another one", { skip: needs(ADDON, CHROMIUM) }, async (t) => {
  const both = segmentation({
    activation: "sigmoid",
    labels: [
      { ...DARK, label: "organ", threshold: 0.51 },
      { ...BRIGHT, label: "lesion", threshold: 0.7 },
    ],
    measurements: [],
  });
  const page = await shown(t, ctSeries(1, 12, FEW), twice, both);
  // Picture and labels are on the screen together, and no click moves the picture
  await page.setViewportSize({ width: 1280, height: 2000 });
  const labels = page.getByRole("list", { name: "Labels" });
  /** What is drawn, a number for each pixel, and 0 where there is nothing. */
  const drawn = async () => {
    const all = await page.evaluate<string[]>(DRAWN_PIXELS);
    const [masks = [], lines = []] = all.map((text) => {
      const bytes = Buffer.from(text, "latin1");
      return Array.from({ length: FEW * FEW }, (_, at) => bytes.readUInt32LE(4 * at));
    });
    return { masks, lines };
  };
  const coloursOf = (pixels: readonly number[]) => new Set(pixels.filter((pixel) => pixel !== 0));
  const first = await drawn();
  const only = async (label: string, others: ReadonlySet<number>) => {
    await labels.getByRole("button", { name: `Only ${label}` }).click();
    return until(`${label} alone is drawn`, async () => {
      const { masks, lines } = await drawn();
      const [colour = 0, another] = coloursOf(masks);
      const isDrawn = another === undefined && !others.has(colour) && coloursOf(lines).has(colour);
      return isDrawn && { colour, isIn: (at: number) => masks[at] === colour };
    });
  };
  const organ = await only("organ", new Set([0]));
  const lesion = await only("lesion", new Set([0, organ.colour]));
  const places = Array.from({ length: FEW * FEW }, (_, at) => at);
  const isShared = (at: number) => organ.isIn(at) && lesion.isIn(at);
  const size = places.filter(lesion.isIn).length;
  t.ok(size > 100, `${size} pixels of the lesion`);
  t.equal(places.filter(isShared).length, size, "all of them in the organ");
  t.ok(places.filter(organ.isIn).length > size + 100, "which is larger");

  await t.test("both are drawn, as stripes", (t) => {
    const wanted = places.map((at) => {
      if (!organ.isIn(at)) return 0;
      const stripe = Math.floor(((at % FEW) + Math.floor(at / FEW)) / 4);
      return lesion.isIn(at) && stripe % 2 === 1 ? lesion.colour : organ.colour;
    });
    t.same(coloursOf(first.masks), coloursOf(wanted));
    t.equal(places.filter((at) => first.masks[at] !== wanted[at]).length, 0, "all other pixels");
    t.end();
  });

  await t.test("each has its own outline, and no stripe has one", (t) => {
    const isEdge = (isIn: (at: number) => boolean, at: number) =>
      isIn(at) &&
      ((at % FEW > 0 && !isIn(at - 1)) ||
        (at % FEW < FEW - 1 && !isIn(at + 1)) ||
        (at >= FEW && !isIn(at - FEW)) ||
        (at < FEW * (FEW - 1) && !isIn(at + FEW)));
    const wanted = places.map((at) =>
      isEdge(lesion.isIn, at) ? lesion.colour : isEdge(organ.isIn, at) ? organ.colour : 0,
    );
    t.equal(places.filter((at) => first.lines[at] !== wanted[at]).length, 0, "all other pixels");
    t.end();
  });

  await t.test("the labels at the pointer are all named", async (t) => {
    await page.getByRole("button", { name: "All labels" }).click();
    await until("both are drawn again", async () => coloursOf((await drawn()).lines).size === 2);
    const box = (await page.locator(".stage .picture").boundingBox())!;
    const saidAt = async (at: number): Promise<string> => {
      const [column, row] = [at % FEW, Math.floor(at / FEW)];
      await page.mouse.move(
        box.x + (box.width * (column + 0.5)) / FEW,
        box.y + (box.height * (row + 0.5)) / FEW,
      );
      const said = page.locator(".corners .sw").getByText(`(${column}, ${row})`);
      return until(`there is a label at ${column}, ${row}`, async () => {
        const text = await said.innerText();
        return / · /.test(text) && text;
      });
    };
    const shared = places.filter(isShared);
    for (const at of [shared.at(0), shared.at(-1), shared[shared.length >> 1]])
      t.match(await saidAt(at!), /HU · organ and lesion$/);
    t.match(await saidAt(places.find((at) => organ.isIn(at) && !lesion.isIn(at))!), /· organ$/);
  });
});
