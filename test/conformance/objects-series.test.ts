/**
 * Result objects of the whole CT series and of multi-frame sources: every frame at its own place.
 */
import { readdirSync, readFileSync } from "node:fs";
import { basename, join, resolve } from "node:path";
import t from "tap";
import { openFile } from "../../src/images/dicom/dicom-file.js";
import { infer } from "../../src/inference/infer-image.js";
import { engineWithFolder } from "../support/real-engine.js";
import { loadTestModel } from "../support/test-models.js";
import { ADDON, commandsAre, DICOM_FILES, needs } from "../support/needs.js";
import { objectErrors } from "../support/validators.js";

const skip = needs(ADDON, DICOM_FILES) || commandsAre("dciodvfy");
const folder = resolve("../shared/dicom");

t.test("segmentations of many frames", { skip }, async (t) => {
  const { engine, folder: outputFolder } = engineWithFolder(t, "series");
  const model = await loadTestModel(engine, outputFolder, "segmenter");
  const run = async (name: string) => {
    const roots = { input: undefined, output: undefined };
    const task = { requestId: "test", priority: "routine" as const, cancelId: 1, roots };
    const answer = await infer(
      { ...task, inputPath: join(folder, name), outputFolder, outputs: ["sr", "seg"] },
      { engine, models: [model] },
    );
    const paths = answer.models[0]!.outputs.map(({ path }) => path);
    for (const path of paths) t.strictSame(objectErrors(path), [], basename(path));
    const seg = openFile(readFileSync(paths.find((path) => path.endsWith(".seg.dcm"))!)).attributes;
    return seg.sequence("PerFrameFunctionalGroupsSequence")!.map((groups) => {
      const source = groups
        .sequence("DerivationImageSequence")![0]!
        .sequence("SourceImageSequence")![0]!;
      return {
        instance: source.string("ReferencedSOPInstanceUID")!,
        frame: source.number("ReferencedFrameNumber"),
        place: groups.sequence("PlanePositionSequence")?.[0]?.numbers("ImagePositionPatient"),
        index: groups.sequence("FrameContentSequence")![0]!.numbers("DimensionIndexValues"),
      };
    });
  };

  await t.test("a series: each frame lies where the slice that it names lies", async (t) => {
    const frames = await run("ct-series-chest");
    const slices = readdirSync(join(folder, "ct-series-chest")).map(
      (name) => openFile(readFileSync(join(folder, "ct-series-chest", name))).attributes,
    );
    const places = new Map(
      slices.map((slice) => [
        slice.string("SOPInstanceUID"),
        slice.numbers("ImagePositionPatient"),
      ]),
    );
    t.equal(frames.length, 2 * slices.length);
    for (const { instance, frame, place } of frames) {
      t.strictSame(place, places.get(instance));
      t.equal(frame, undefined);
    }
    t.equal(new Set(frames.map(({ index }) => String(index))).size, frames.length);
  });

  await t.test(
    "frames without places of their own are given none, those of a dose grid theirs",
    async (t) => {
      const dose = "rle-rtdose-32bit.dcm";
      for (const [name, count] of [
        [dose, 15],
        ["rle-mr-multiframe12.dcm", 10],
      ] as const) {
        const frames = await run(name);
        t.equal(frames.length, 2 * count);
        t.strictSame(
          frames.slice(0, count).map(({ frame }) => frame),
          Array.from({ length: count }, (_, i) => i + 1),
        );
        const placed = frames.filter(({ place }) => place !== undefined);
        t.equal(placed.length, name === dose ? frames.length : 0);
      }
      const { attributes } = openFile(readFileSync(join(folder, dose)));
      const [x, y, z = NaN] = attributes.numbers("ImagePositionPatient") ?? [];
      const offsets = attributes.numbers("GridFrameOffsetVector") ?? [];
      t.strictSame(
        (await run(dose)).slice(0, offsets.length).map(({ place }) => place),
        offsets.map((offset) => [x, y, z + offset]),
      );
    },
  );
});
