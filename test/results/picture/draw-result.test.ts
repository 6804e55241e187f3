/** Pictures of results over images of several frames, through the whole use-case. */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import sharp from "sharp";
import t, { type Test } from "tap";
import { packPng } from "../../../src/addon/picture.js";
import { openFile } from "../../../src/images/dicom/dicom-file.js";
import type { Engine } from "../../../src/engine/engine.js";
import { infer } from "../../../src/inference/infer-image.js";
import type { Manifest } from "../../../src/manifest/manifest.js";
import type { ModelEntry } from "../../../src/models/entry.js";
import type { OverlaySource, Shot } from "../../../src/results/picture/arrangement.js";
import { RESULT_FORMS } from "../../../src/results/forms.js";
import { overlayInput } from "../../../src/results/picture/draw-result.js";
import { renderOverlay } from "../../../src/results/picture/overlay.js";
import { loadTestModel, manifestOf } from "../../support/test-models.js";
import { engine, modelsOf } from "../../support/real-engine.js";
import { writeVolumeModel } from "../../support/volume-model.js";
import { folderOf, readFolder, slice } from "../../support/series.js";
import { radiograph } from "../../support/radiograph.js";
import type { Attributes } from "../../support/dicom.js";
import { ADDON, needs } from "../../support/needs.js";

/** Of 4 x 6 pixels, whether they lie in the right half. */
const HALF = Array.from({ length: 24 }, (_, at) => at % 6 > 2);

/** Slices 1 mm apart, in disorder; those in `bright` have a bright half, the others are even. */
function series(
  t: Test,
  count: number,
  bright: readonly number[],
  more: (z: number) => Attributes = () => ({}),
): string {
  const files = Array.from({ length: count }, (_, i) => {
    const z = (i * 7) % count;
    const values = Int16Array.from({ length: 24 }, (_, at) =>
      bright.includes(z) && HALF[at] ? 1000 : 0,
    );
    return slice({
      z,
      frames: [new Uint8Array(values.buffer)],
      attributes: {
        InstanceNumber: String(500 - z),
        WindowCenter: "500",
        WindowWidth: "1000",
        ...more(z),
      },
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

  await t.test(
    "the slices with findings, in their order, and the objects they came from",
    async (t) => {
      const { shown, size, sc, png } = await run(folder, series(t, 20, [3, 4, 15]), segmenter);
      t.same(shown, [3, 4, 15].map(uid));
      t.same([sc.number("Rows"), sc.number("Columns")], [size.height, size.width]);
      const again = await run(folder, series(t, 20, [3, 4, 15]), segmenter);
      t.ok(Buffer.compare(png, again.png) === 0, "equal input gives equal bytes");
    },
  );

  /** What a picture of bright halves has to be. */
  const expected = (
    shots: readonly Pick<Shot, "frame" | "place">[],
    source: Partial<OverlaySource>,
    result: Awaited<ReturnType<typeof run>>["result"],
  ) => {
    const mask = Uint8Array.from(HALF, (bright) => (bright ? 2 : 0));
    const rgb = Uint8Array.from(HALF.flatMap((bright) => [0, 0, 0].fill(bright ? 255 : 0)));
    const segmented = { kind: "segmentation", tensor: "y", overlapping: false, mask } as const;
    const { picture } = renderOverlay({
      shots: shots.map((shot): Shot => ({
        ...shot,
        picture: { width: 6, height: 4, rgb },
        edges: { left: "R", right: "L", top: "A", bottom: "P" },
        results: [{ ...segmented, rows: 4, columns: 6, counts: [0, 12] }],
        findings: [],
      })),
      source: {
        rows: 4,
        columns: 6,
        pixelAspect: 0.5 / 0.8,
        modality: "CT",
        frames: 20,
        called: "slice",
        window: "W 1000  L 500",
        spacing: { row: 0.5, column: 0.8, source: "PixelSpacing", patient: true },
        ...source,
      },
      model: segmenter.manifest,
      findings: result?.findings ?? [],
      measurements: result?.measurements ?? [],
      warnings: result?.warnings ?? [],
      opacity: RESULT_FORMS.overlayOpacity,
    });
    return packPng(picture);
  };
  const slices = [3, 4, 15].map((z) => ({ frame: z + 1, place: `${z} mm  ·  image ${500 - z}` }));

  await t.test("each with its number, its position, and its number in the series", async (t) => {
    const { png, result } = await run(folder, series(t, 20, [3, 4, 15]), segmenter);
    t.ok(Buffer.compare(png, await expected(slices, {}, result)) === 0);
  });

  await t.test("windows that differ are not told as one", async (t) => {
    const windowOf = (z: number): Attributes =>
      z === 4 ? { WindowCenter: "400", WindowWidth: "800" } : {};
    const { png, result } = await run(folder, series(t, 20, [3, 4, 15], windowOf), segmenter);
    const source = { window: "each slice in its own window" };
    t.ok(Buffer.compare(png, await expected(slices, source, result)) === 0);
  });

  await t.test("frames whose pixels differ in size have no common scale", async (t) => {
    const bright = new Uint8Array(Int16Array.from(HALF, (is) => (is ? 1000 : 0)).buffer);
    const file = slice({
      z: 0,
      frames: [bright, bright],
      attributes: {
        SOPClassUID: "1.2.840.10008.5.1.4.1.1.2.1",
        NumberOfFrames: "2",
        WindowCenter: "500",
        WindowWidth: "1000",
        PerFrameFunctionalGroupsSequence: [1, 2].map((size) => ({
          PlanePositionSequence: [{ ImagePositionPatient: `0\\0\\${size}` }],
          PixelMeasuresSequence: [
            { PixelSpacing: `${size * 0.5}\\${size * 0.8}`, SliceThickness: "1" },
          ],
        })),
      },
    });
    const path = join(t.testdir({}), "frames.dcm");
    writeFileSync(path, file);
    const { png, result } = await run(folder, path, segmenter);
    const white = result?.findings
      .filter(({ label }) => label === "white")
      .map(({ area }) => area?.cm2);
    t.strictSame(
      white?.map((cm2) => cm2?.toFixed(4)),
      ["0.0480", "0.1920"],
    );
    const source = { frames: 2, called: "frame", spacing: "differs" } as const;
    const frames = [1, 2].map((frame) => ({ frame, place: `${frame} mm` }));
    t.ok(Buffer.compare(png, await expected(frames, source, result)) === 0);
  });

  await t.test("of one slice with findings, a pair: the image and the overlay", async (t) => {
    const { shown, size } = await run(folder, series(t, 9, [6]), segmenter);
    t.same(shown, [uid(6)]);
    const three = await run(folder, series(t, 9, [1, 3, 6]), segmenter);
    t.not(three.size.width, size.width);
  });

  await t.test("of a volume, planes across its slices too", async (t) => {
    const directory = join(folder, "volumes");
    writeVolumeModel(directory, "bright-3d");
    const set = await modelsOf(directory);
    const [draft] = set.entries;
    // A draft writes no Secondary Capture, and a final one has to have codes, which a picture does
    // not show
    const manifest = {
      ...draft!.manifest,
      stage: "final",
      results: { outputs: ["png", "sc"] },
    } as Manifest;
    const model = { ...draft!, manifest };
    const all = Array.from({ length: 9 }, (_, z) => uid(z));
    const found = await run(folder, series(t, 9, [3, 5]), model);
    t.same(found.shown, all);
    t.same(
      [found.sc.number("Rows"), found.sc.number("Columns")],
      [found.size.height, found.size.width],
    );
    const again = await run(folder, series(t, 9, [3, 5]), model);
    t.ok(Buffer.compare(found.png, again.png) === 0, "equal input gives equal bytes");
    // The same marks in frames: slices alone
    const frames = await run(folder, series(t, 9, [3, 5]), segmenter);
    t.ok(found.size.height > frames.size.height || found.size.width > frames.size.width);
    const nothing = await run(folder, series(t, 9, []), model);
    t.same(nothing.shown, all, "all nine as slices");
    t.not(nothing.size.height, found.size.height);
    await set.close();
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

t.test("each image of a group has the sides of its own file", async (t) => {
  const orientations = ["L\\F", "A\\F", "R\\F"];
  const files = orientations.map((PatientOrientation, i) =>
    radiograph({ PatientOrientation, SOPInstanceUID: `1.2.3.1.${i}`, InstanceNumber: `${i}` }),
  );
  const image = await readFolder(t, folderOf(t, files), { grouped: true });
  const { shots } = await overlayInput({
    image,
    engine: { render: () => Promise.resolve(new Uint8Array()) } as unknown as Engine,
    manifest: manifestOf("segmenter"),
    shown: orientations.map((_, frame) => ({
      frame,
      weight: 1,
      value: { outputs: () => [], findings: [] },
    })),
    result: { findings: [], measurements: [], warnings: [] },
    opacity: 0.3,
  });
  t.strictSame(
    shots.map(({ edges }) => edges?.right),
    ["L", "A", "R"],
  );
});
