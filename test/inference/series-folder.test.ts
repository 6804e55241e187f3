/** A folder through the whole use-case, with the real engine. */
import { createHash } from "node:crypto";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import t, { type Test } from "tap";
import { MemoryPlaces, ProcessMemory } from "../../src/base/process-memory.js";
import { openInput } from "../../src/files/guarded-paths.js";
import { infer } from "../../src/inference/infer-image.js";
import { readSeriesFolder } from "../../src/inference/read-input.js";
import { SliceMemory } from "../../src/inference/reading-memory.js";
import { type ModelSet } from "../../src/models/set.js";
import { receiptSchema } from "../../src/results/receipt/receipt.js";
import { dicomFile } from "../support/dicom.js";
import { failure } from "../support/expect.js";
import { ADDON, needs } from "../support/needs.js";
import { engine, modelsOf } from "../support/real-engine.js";
import { copyModel } from "../support/manifests.js";
import { folderOf, multiFrame, SERIES, slice } from "../support/series.js";
import { writeVolumeModel } from "../support/volume-model.js";

const z = [0, 2.5, 5, 7.5];

/**
 * Slices in air, fat, soft tissue and bone, from the feet to the head, under names in another
 * order.
 */
const hounsfield = [-1000, -100, 40, 300];
const files = () => ({
  b: slice({ z: z[0]!, fill: hounsfield[0]! }),
  d: slice({ z: z[1]!, fill: hounsfield[1]! }),
  a: slice({ z: z[2]!, fill: hounsfield[2]! }),
  c: slice({ z: z[3]!, fill: hounsfield[3]! }),
});

async function written(t: Test, write: (directory: string) => void): Promise<ModelSet> {
  const directory = t.testdir({});
  write(directory);
  const models = await modelsOf(directory);
  t.teardown(() => models.close());
  return models;
}

const runner = (models: ModelSet, inputPath: string, outputFolder: string, series?: string) => () =>
  infer(
    {
      requestId: "r",
      inputPath,
      outputFolder,
      ...(series === undefined ? {} : { seriesInstanceUid: series }),
      priority: "routine",
      cancelId: 1,
      roots: { input: undefined, output: undefined },
    },
    { engine: engine(), models: models.entries },
  );

/** DataSetTrailingPadding (FFFC,FFFC), PS3.10 section 7.2. */
function padding(bytes: number): Buffer {
  const head = Buffer.from([0xfc, 0xff, 0xfc, 0xff, 0x4f, 0x42, 0, 0, 0, 0, 0, 0]);
  head.writeUInt32LE(bytes, 8);
  return Buffer.concat([head, Buffer.alloc(bytes)]);
}

const receiptAt = (file: string) => receiptSchema.parse(JSON.parse(readFileSync(file, "utf8")));

/** Two stacks in one folder: four slices of CT, and two of another modality. */
const study = (modality = "MR") => ({
  ...files(),
  x: slice({
    z: 0,
    fill: 7,
    attributes: { SeriesInstanceUID: "1.9", Modality: modality, SOPInstanceUID: "1.9.1" },
  }),
  y: slice({
    z: 3,
    fill: 7,
    attributes: { SeriesInstanceUID: "1.9", Modality: modality, SOPInstanceUID: "1.9.2" },
  }),
});

t.test("a study folder", { skip: needs(ADDON) }, async (t) => {
  const models = await written(t, (directory) => writeVolumeModel(directory, "bright"));
  const list = [
    { series_instance_uid: SERIES, modality: "CT", images: 4 },
    { series_instance_uid: "1.9", modality: "MR", images: 2 },
  ];

  await t.test(
    "the series that a model of series takes is taken, under a name of its own",
    async (t) => {
      const folder = folderOf(t, study());
      const output = join(folder, "..", "out");
      const { receipt_path, warnings } = await runner(models, folder, output)();
      t.equal(receipt_path, join(output, `series.${SERIES}.json`));
      t.match(receiptAt(receipt_path).source, { series_instance_uid: SERIES, frames: 4 });
      t.match(warnings, [
        {
          code: "left_out_other_series",
          message: "Left out: 2 images of 1 other series in the folder.",
        },
      ]);
    },
  );

  await t.test("where models take both, or none, one has to be named", async (t) => {
    const folder = folderOf(t, study("CT"));
    const output = join(folder, "..", "out");
    const both = await failure(runner(models, folder, output)());
    t.match(both, { code: "series_invalid", message: /active models of series take 2 of them/ });
    t.strictSame(both.details, {
      reason: "several_series",
      found: 2,
      series: list.map((one) => ({ ...one, modality: "CT" })),
    });
    const { receipt_path } = await runner(models, folder, output, "1.9")();
    t.equal(receipt_path, join(output, "series.1.9.json"));
    t.match(receiptAt(receipt_path).source, { series_instance_uid: "1.9", frames: 2 });
    const other = await runner(models, folder, output, SERIES)();
    t.equal(other.receipt_path, join(output, `series.${SERIES}.json`), "each has its own results");
  });

  await t.test("a series whose UID is none names no results", async (t) => {
    const folder = folderOf(t, {
      ...files(),
      x: slice({ z: 0, attributes: { SeriesInstanceUID: "../1" } }),
    });
    const output = join(folder, "..", "out");
    for (const uid of [undefined, SERIES])
      t.match((await failure(runner(models, folder, output, uid)())).details, {
        reason: "invalid_series_uid",
      });
  });

  await t.test("models of frames choose none", async (t) => {
    const frames = await written(t, (directory) => copyModel(directory, "ct-tissue", "tissue"));
    const folder = join(t.testdirName, "study");
    mkdirSync(folder);
    for (const [name, bytes] of Object.entries(study())) writeFileSync(join(folder, name), bytes);
    const unclear = await failure(runner(frames, folder, join(folder, "..", "out"))());
    t.match(unclear, { code: "series_invalid", message: /no active model of series takes one/ });
  });

  await t.test("a series that is not there is refused, in a folder and in a file", async (t) => {
    const folder = folderOf(t, study());
    const output = join(folder, "..", "out");
    const missing = await failure(runner(models, folder, output, "1.2.3")());
    t.strictSame(missing.details, { reason: "no_such_series", found: 2, series: list });
    const single = folderOf(t, files());
    const alone = await failure(runner(models, single, output, "1.9")());
    t.match(alone.details, { reason: "no_such_series", series: [list[0]] });
    t.equal(
      (await runner(models, single, output, SERIES)()).receipt_path,
      join(output, "series.json"),
    );
    const file = await failure(runner(models, join(single, "a"), output, "1.9")());
    t.match(file.details, { reason: "no_such_series" });
  });
});

t.test("the largest slice is counted once more while its frames are read again", async (t) => {
  const large = 10 * 2 ** 20;
  const folder = folderOf(t, {
    ...files(),
    d: Buffer.concat([slice({ z: z[1]!, fill: 0 }), padding(large)]),
  });
  const places = new MemoryPlaces(1, 2 ** 30);
  const memory = new ProcessMemory(places.take());
  const slices = new SliceMemory(memory, { patient: true, check: () => undefined });
  const opened = await openInput(folder, undefined);
  t.teardown(() => opened.close());
  const image = await readSeriesFolder(opened, slices);
  t.equal(image.frameCount, 4);
  t.ok(places.bytes >= large, "after all were read, as long as the image is used");
  await slices.close();
  t.equal(places.bytes, 0);
});

t.test("a report of many parts is read beside slices that fill the memory", async (t) => {
  const report = dicomFile({
    attributes: {
      SOPClassUID: "1.2.840.10008.5.1.4.1.1.88.67",
      SOPInstanceUID: "1.2.3.9",
      StudyInstanceUID: "1.2.3",
      SeriesInstanceUID: "1.2.3.8",
      Modality: "SR",
      ContentSequence: Array.from({ length: 2_000 }, () => ({
        RelationshipType: "CONTAINS",
        ValueType: "TEXT",
        TextValue: "dose",
      })),
    },
  });
  // The first eight are read beside each other, and then the report
  const slices = Array.from({ length: 8 }, (_, i) => [`slice ${i}`, slice({ z: i })] as const);
  const folder = folderOf(t, { ...Object.fromEntries(slices), "the report": report });
  // Of which what is kept of eight slices is the half, and work may have a quarter
  const places = new MemoryPlaces(1, 2 ** 20);
  const memory = new SliceMemory(new ProcessMemory(places.take()), {
    patient: true,
    check: () => undefined,
  });
  const opened = await openInput(folder, undefined);
  t.teardown(() => opened.close());
  const image = await readSeriesFolder(opened, memory);
  t.equal(image.frameCount, 8);
  t.match(image.warnings, [{ code: "left_out_no_image" }]);
  t.ok(places.bytes >= 2 ** 19);
  await memory.close();
  t.equal(places.bytes, 0);
});

t.test("a folder of slices", { skip: needs(ADDON) }, async (t) => {
  await t.test("models of frames take every slice on its own, in order", async (t) => {
    const models = await written(t, (directory) => copyModel(directory, "ct-tissue", "tissue"));
    await t.test("run", async (t) => {
      const folder = folderOf(t, files());
      const output = join(folder, "..", "out");
      const run = runner(models, folder, output);
      const answer = await run();
      t.equal(answer.receipt_path, join(output, "series.json"));
      const [model] = answer.models;
      t.strictSame(
        model?.findings.filter(({ present }) => present).map(({ frame, label }) => [frame, label]),
        [
          [2, "fat"],
          [3, "muscle and soft tissue"],
          [4, "bone"],
        ],
        "air that touches the border is outside the patient",
      );
      const { source, transforms } = receiptAt(answer.receipt_path);
      t.match(source, {
        name: "series",
        frames: 4,
        series_instance_uid: SERIES,
        sop_instance_uid: undefined,
      });
      t.strictSame(
        source.slices?.map(({ sop_instance_uid }) => sop_instance_uid),
        z.map((place) => `1.2.3.4.${place * 1000 + 100_000}`),
      );
      t.match(transforms, [{ step: "sort_slices", spacing_mm: 2.5, slices: 4 }]);
      const pixels = createHash("sha256");
      for (const value of hounsfield)
        pixels.update(new Uint8Array(Int16Array.from({ length: 24 }, () => value).buffer));
      t.equal(source.pixel_sha256, pixels.digest("hex"), "over the slices in their order");

      t.equal((await run()).reused, true);
      writeFileSync(join(folder, "notes.txt"), "no slice");
      t.equal((await run()).reused, true, "what is left out does not change the series");
      writeFileSync(join(folder, "e"), slice({ z: 10, fill: 0 }));
      await t.rejects(run(), { code: "output_name_taken" }, "a longer series is another image");
    });
  });

  await t.test("another series under the name is refused", async (t) => {
    const models = await written(t, (directory) => copyModel(directory, "ct-tissue", "tissue"));
    await t.test("run", async (t) => {
      const folder = folderOf(t, files());
      const output = join(folder, "..", "out");
      await runner(models, folder, output)();
      for (const [name, place] of [
        ["b", 0],
        ["d", 2.5],
        ["a", 5],
        ["c", 7.5],
      ] as const)
        writeFileSync(
          join(folder, name),
          slice({
            z: place,
            fill: hounsfield[place / 2.5]!,
            attributes: { SeriesInstanceUID: "1.9" },
          }),
        );
      await t.rejects(runner(models, folder, output)(), { code: "output_name_taken" });
    });
  });

  await t.test("a model of single images says why it does not take it", async (t) => {
    const models = await written(t, (directory) =>
      copyModel(directory, "ct-tissue", "tissue", (m) => (m.accepts.dimensions = "2d")),
    );
    await t.test("run", async (t) => {
      const folder = folderOf(t, files());
      const refused = await failure(runner(models, folder, join(folder, "..", "out"))());
      t.equal(refused.code, "no_model_accepts");
      t.match(
        JSON.stringify(refused.details),
        /single_frame_required.*4 slices of a series: send them one by one/,
      );
    });
  });

  await t.test("a model of volumes takes them all at once", async (t) => {
    const models = await written(t, (directory) => writeVolumeModel(directory, "bright"));
    await t.test("a folder", async (t) => {
      const folder = folderOf(t, files());
      const answer = await runner(models, folder, join(folder, "..", "out"))();
      const [model] = answer.models;
      const ml = 0.024;
      t.match(model, {
        status: "succeeded",
        findings: [{ label: "bright", present: true, volume: { voxels: 24, ml } }],
        measurements: [{ name: "Volume", label: "bright", value: ml, unit: { value: "mL" } }],
      });
      t.equal(model?.findings[0]?.frame, undefined);
      t.equal(model?.outputs.length, 1, "a picture");
    });

    await t.test("a part of a concatenation is no volume, all its parts are one", async (t) => {
      const part = (number: number, places: number[]) =>
        multiFrame(places, {
          SOPInstanceUID: `1.7.${number}`,
          ConcatenationUID: "1.7",
          InConcatenationNumber: number,
          InConcatenationTotalNumber: 2,
          ConcatenationFrameOffsetNumber: 2 * (number - 1),
        });
      const folder = folderOf(t, { a: part(2, [4, 6]), b: part(1, [0, 2]) });
      const refused = await failure(
        runner(models, join(folder, "b"), join(folder, "..", "half"))(),
      );
      t.equal(refused.code, "no_model_accepts");
      t.match(JSON.stringify(refused.details), /series_incomplete_concatenation.*part 1 of 2/);
      const answer = await runner(models, folder, join(folder, "..", "out"))();
      t.equal(answer.models[0]?.status, "succeeded");
      t.match(receiptAt(answer.receipt_path).source, { frames: 4 });
    });

    await t.test("a single slice is no series", async (t) => {
      const folder = folderOf(t, files());
      const refused = await failure(runner(models, join(folder, "a"), join(folder, "..", "out"))());
      t.match(JSON.stringify(refused.details), /series_required/);
    });
  });
});
