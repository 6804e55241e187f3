/** Models that look at all of a picture that is not 0, as nnU-Net's networks of pictures do. */
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import t from "tap";
import { modelsTry } from "../../src/commands/models/try.js";
import { sha256 } from "../../src/files/durable-files.js";
import type { PixelFormat } from "../../src/images/image.js";
import { readImage } from "../../src/images/read-image.js";
import { infer } from "../../src/inference/infer-image.js";
import { nonzeroBox } from "../../src/inference/region.js";
import { replay } from "../../src/inference/replay.js";
import { receiptSchema } from "../../src/results/receipt/receipt.js";
import { planeOf } from "../../src/results/picture/draw-result.js";
import { BRIGHT, segmentation, sourceSize } from "../support/model-parts.js";
import { ADDON, needs } from "../support/needs.js";
import { pngFile } from "../support/raster.js";
import { engine } from "../support/real-engine.js";
import { graphOf, loadTestModel } from "../support/test-models.js";
import { plane } from "../support/tiny-models.js";

const [WIDTH, HEIGHT] = [9, 7];
/** What is not 0 lies in rows 2 to 4 and columns 3 to 7; some zeros are enclosed. */
const BOX = { top: 2, rows: 3, left: 3, columns: 5 };
const GREY = Buffer.alloc(WIDTH * HEIGHT);
for (const [i, value] of [10, 20, 0, 40, 50, 60, 0, 0, 90, 100, 110, 120, 130, 0, 150].entries())
  GREY[(BOX.top + Math.floor(i / BOX.columns)) * WIDTH + BOX.left + (i % BOX.columns)] = value;

t.test("the box round all that is not 0", async (t) => {
  const boxOf = async (colour: number, bits: number, pixels: Uint8Array) => {
    const image = await readImage(pngFile({ width: WIDTH, height: HEIGHT, bits, colour, pixels }));
    return nonzeroBox(planeOf(image, 0, await image.frame(0)));
  };
  t.match(await boxOf(0, 8, GREY), BOX);
  t.match(
    await boxOf(0, 16, Buffer.from([...GREY].flatMap((value) => [value, 0]))),
    BOX,
    "16 bits",
  );
  t.match(await boxOf(0, 16, Buffer.from([...GREY].flatMap((value) => [0, value]))), BOX);
  for (const sample of [0, 1, 2])
    t.match(
      await boxOf(
        2,
        8,
        Buffer.from([...GREY].flatMap((value) => [0, 1, 2].map((s) => (s === sample ? value : 0)))),
      ),
      BOX,
      `sample ${sample}`,
    );
  t.match(await boxOf(0, 8, Buffer.alloc(GREY.length, 1)), {
    top: 0,
    rows: HEIGHT,
    left: 0,
    columns: WIDTH,
  });
  t.equal(await boxOf(0, 8, Buffer.alloc(GREY.length)), undefined);
});

t.test("the box round what the stored bits say", (t) => {
  const boxOf = (format: Partial<PixelFormat>, data: Uint8Array) => {
    const made = plane(HEIGHT, WIDTH);
    return nonzeroBox({ ...made, format: { ...made.format, ...format }, data });
  };
  const words = (valueOf: (grey: number) => number) =>
    new Uint8Array(Uint16Array.from(GREY, valueOf).buffer);
  const unsigned = { signed: false, bitsStored: 12 };
  t.match(
    boxOf(
      { ...unsigned, highBit: 11 },
      words((grey) => grey | 0x8000),
    ),
    BOX,
    "an overlay above them",
  );
  t.match(
    boxOf(
      { ...unsigned, highBit: 15 },
      words((grey) => (grey << 4) | 1),
    ),
    BOX,
    "and below",
  );
  const bytes = { bitsAllocated: 8, bitsStored: 8, highBit: 7, signed: false } as const;
  const colour = { ...bytes, columns: 8, samplesPerPixel: 3, packed422: true };
  const packed = (from: number) => Buffer.alloc(8 * HEIGHT * 2).fill(128, from);
  const all = { top: 0, rows: HEIGHT, left: 0, columns: 8 };
  t.match(boxOf(colour, packed(0)), all, "pixels of two bytes");
  const last = { top: HEIGHT - 1, rows: 1, left: 2, columns: 6 };
  t.match(boxOf(colour, packed(16 * (HEIGHT - 1) + 6)), last, "whole pairs of them");
  t.end();
});

t.test("statistics and findings are those of the box", { skip: needs(ADDON) }, async (t) => {
  t.teardown(() => engine().close());
  const folder = t.testdir();
  /** 1 where a pixel is the mean or more: the sigmoid of its z-score is 0.5 there. */
  const load = (crop: boolean) =>
    loadTestModel(engine(), folder, "heatmap", (manifest) => {
      manifest.accepts = { formats: ["png"], photometric: ["MONOCHROME2"], dimensions: "2d" };
      manifest.inputs = [
        {
          ...sourceSize,
          values: { kind: "stored" },
          monochrome1: "refuse",
          normalisation: { kind: "z_score", over: "image" },
          ...(crop ? { crop: "nonzero" as const } : {}),
        },
      ];
      manifest.outputs = [
        segmentation({ activation: "sigmoid", labels: [{ ...BRIGHT, threshold: 0.5 }] }),
      ];
      manifest.results = { outputs: ["json"] };
    });
  const inputPath = join(folder, "grey.png");
  writeFileSync(
    inputPath,
    pngFile({ width: WIDTH, height: HEIGHT, bits: 8, colour: 0, pixels: GREY }),
  );
  for (const crop of [true, false]) {
    const entry = await load(crop);
    const { manifest } = entry;
    const tried = join(folder, manifest.name);
    mkdirSync(tried, { recursive: true });
    writeFileSync(join(tried, "model.onnx"), graphOf("heatmap"));
    const files = [{ path: "model.onnx", sha256: sha256(graphOf("heatmap")) }];
    writeFileSync(
      join(tried, "model.json"),
      JSON.stringify({ ...manifest, stage: "draft", files }),
    );
    const { text, data } = await modelsTry(tried, await readImage(readFileSync(inputPath)), {
      engine: engine(),
      providers: ["cpu"],
    });
    t.match(data, {
      input: { shape: [1, 1, ...(crop ? [BOX.rows, BOX.columns] : [HEIGHT, WIDTH])] },
    });
    t.match(text, `pixels of each label ${crop ? 7 : 10}`);
    const outputFolder = join(folder, `out-${crop}`);
    mkdirSync(outputFolder);
    const roots = { input: undefined, output: undefined };
    const answer = await infer(
      { requestId: "test", priority: "routine", cancelId: 1, roots, inputPath, outputFolder },
      { engine: engine(), models: [entry] },
    );
    const receipt = receiptSchema.parse(JSON.parse(readFileSync(answer.receipt_path, "utf8")));
    const [model] = receipt.models;
    // The mean of the box is 58.7, which 7 pixels reach; that of all pixels is 14.0, which 10 reach
    t.match(model?.findings, [{ label: "bright", area: { pixels: crop ? 7 : 10 } }]);
    t.match(
      model?.transforms[0],
      crop ? { step: "crop", to: "nonzero", source_area: BOX } : { step: /^(?!crop)/ },
    );
    const image = await readImage(readFileSync(inputPath));
    const again = await replay({ receipt, image, models: [entry], engine: engine() });
    t.ok(
      again.every(({ verdict }) => verdict === "ok"),
      "verify computes the same",
    );
  }
});
