/** Pictures of results over images of several frames, through the whole use-case. */
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import sharp from "sharp";
import t, { type Test } from "tap";
import { openFile } from "../src/dicom/file.js";
import { infer } from "../src/infer.js";
import type { ModelEntry } from "../src/models.js";
import { renderOverlay, type Shot } from "../src/results/overlay.js";
import { VERSION } from "../src/version.js";
import { loadTestModel } from "./lib/object-models.js";
import { engine } from "./lib/engine.js";
import { folderOf, slice } from "./lib/series.js";
import { ADDON, needs } from "./support/needs.js";

/** Slices 1 mm apart, in disorder; those in `bright` have a bright half, the others are even. */
function series(t: Test, count: number, bright: readonly number[]): string {
  const files = Array.from({ length: count }, (_, i) => {
    const z = (i * 7) % count;
    const values = Int16Array.from({ length: 24 }, (_, at) => (bright.includes(z) && at % 6 > 2 ? 1000 : 0));
    return slice({
      z,
      frames: [new Uint8Array(values.buffer)],
      attributes: { InstanceNumber: String(500 - z), WindowCenter: "500", WindowWidth: "1000" },
    });
  });
  return folderOf(t, files);
}

async function run(folder: string, inputPath: string, model: ModelEntry) {
  const answer = await infer(
    {
      requestId: "test",
      inputPath,
      outputFolder: mkdtempSync(join(folder, "out-")),
      priority: "routine",
      cancelId: 1,
      startedAt: "2026-11-21T10:00:00Z",
      roots: { input: undefined, output: undefined },
    },
    { engine: engine(), models: [model] },
  );
  const [result] = answer.models;
  const file = (ending: string) => {
    const output = result?.outputs.find(({ path }) => path.endsWith(ending));
    return readFileSync(output?.path ?? "");
  };
  const sc = openFile(file(".sc.dcm")).attributes;
  const png = file(".png");
  const source = sc.sequence("SourceImageSequence") ?? [];
  return {
    png,
    size: await sharp(png).metadata(),
    result,
    sc,
    shown: source.map((item) => item.string("ReferencedSOPInstanceUID")),
  };
}

const uid = (z: number): string => `1.2.3.4.${z * 1000 + 100_000}`;

t.test("pictures of series", { skip: needs(ADDON) }, async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "radserve-picture-"));
  t.teardown(() => {
    rmSync(folder, { recursive: true });
  });
  const segmenter = await loadTestModel(engine(), folder, "segmenter");

  await t.test("the slices with findings, in their order, and the objects they came from", async (t) => {
    const { shown, size, sc, png } = await run(folder, series(t, 20, [3, 4, 15]), segmenter);
    t.same(shown, [3, 4, 15].map(uid));
    t.same([sc.number("Rows"), sc.number("Columns")], [size.height, size.width]);
    const again = await run(folder, series(t, 20, [3, 4, 15]), segmenter);
    t.ok(Buffer.compare(png, again.png) === 0, "equal input gives equal bytes");
  });

  await t.test("each with its number, its position, and its number in the series", async (t) => {
    const { png, result } = await run(folder, series(t, 20, [3, 4, 15]), segmenter);
    const isBright = Array.from({ length: 24 }, (_, at) => at % 6 > 2);
    const picture = {
      width: 6,
      height: 4,
      rgb: Uint8Array.from(isBright.flatMap((bright) => [0, 0, 0].fill(bright ? 255 : 0))),
    };
    const mask = Uint8Array.from(isBright, (bright) => (bright ? 2 : 0));
    const shots = [3, 4, 15].map((z): Shot => ({
      picture,
      frame: z + 1,
      place: `${z} mm  ·  image ${500 - z}`,
      edges: { left: "R", right: "L", top: "A", bottom: "P" },
      results: [
        { kind: "segmentation", tensor: "y", rows: 4, columns: 6, overlapping: false, mask, counts: [0, 12] },
      ],
      findings: [],
    }));
    const expected = await renderOverlay({
      shots,
      source: {
        rows: 4,
        columns: 6,
        pixelAspect: 0.5 / 0.8,
        modality: "CT",
        frames: 20,
        called: "slice",
        window: "W 1000  L 500",
        spacing: { row: 0.5, column: 0.8, source: "PixelSpacing", patient: true },
      },
      model: segmenter.manifest,
      findings: result?.findings ?? [],
      measurements: result?.measurements ?? [],
      warnings: result?.warnings ?? [],
      radserveVersion: VERSION,
    });
    t.ok(Buffer.compare(png, expected) === 0);
  });

  await t.test("of one slice with findings, a pair: the image and the overlay", async (t) => {
    const { shown, size } = await run(folder, series(t, 9, [6]), segmenter);
    t.same(shown, [uid(6)]);
    const three = await run(folder, series(t, 9, [1, 3, 6]), segmenter);
    t.not(three.size.width, size.width);
  });

  await t.test("at most twelve, the whole stack where nothing is found", async (t) => {
    const all = Array.from({ length: 40 }, (_, z) => z);
    const many = await run(folder, series(t, 40, all), segmenter);
    t.equal(many.shown.length, 12);
    const none = await run(folder, series(t, 40, []), segmenter);
    t.equal(none.shown.length, 12);
    t.ok(none.result?.findings.every(({ present }) => !present));
  });
});
