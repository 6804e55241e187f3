/** What a model says of images whose place or scale is told in odd ways: through the use-case. */
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import t from "tap";
import { openFile } from "../../src/images/dicom/dicom-file.js";
import { infer } from "../../src/inference/infer-image.js";
import { imageInputs } from "../../src/manifest/manifest.js";
import type { ModelEntry } from "../../src/models/entry.js";
import { attributesOf, dicomFile, picture, Typed, type Attributes } from "../support/dicom.js";
import { failure } from "../support/expect.js";
import { ADDON, commandsAre, needs } from "../support/needs.js";
import { engineWithFolder } from "../support/real-engine.js";
import { slice } from "../support/series.js";
import { loadTestModel } from "../support/test-models.js";
import { objectErrors } from "../support/validators.js";

const RAW = picture({ rows: 24, columns: 20, samples: 1, bitsAllocated: 8, bitsStored: 8 });

/** A picture whose brightness grows from left to right, so that the right third is marked. */
const image = (more: Attributes = {}, frames = 1): Buffer =>
  dicomFile({
    attributes: attributesOf(RAW, {
      StudyInstanceUID: "1.2.3",
      SeriesInstanceUID: "1.2.3.4",
      SOPInstanceUID: "1.2.3.4.5",
      FrameOfReferenceUID: "1.2.5",
      PatientID: "4711",
      Modality: "OT",
      ...more,
    }),
    pixels: Buffer.concat(Array.from({ length: frames }, () => RAW.data)),
  });

const LOST = { ImagePositionPatient: "0\\0\\0", ImageOrientationPatient: "0\\0\\0\\0\\0\\0" };

t.test("places and scales", { skip: needs(ADDON) }, async (t) => {
  const { engine, folder } = engineWithFolder(t, "where");
  let count = 0;
  const run = async (
    file: Uint8Array | readonly Uint8Array[],
    model: ModelEntry,
    outputs: string[],
  ) => {
    const inputPath = join(folder, `source-${++count}`);
    if (file instanceof Uint8Array) writeFileSync(inputPath, file);
    else {
      mkdirSync(inputPath);
      file.forEach((bytes, i) => writeFileSync(join(inputPath, `${i}.dcm`), bytes));
    }
    const task = {
      requestId: "test",
      inputPath,
      outputFolder: join(folder, `out-${count}`),
      cancelId: 1,
    };
    const roots = { input: undefined, output: undefined };
    const answer = await infer(
      { ...task, outputs: outputs as ("json" | "seg")[], priority: "routine", roots },
      { engine, models: [model] },
    );
    const [said] = answer.models;
    if (commandsAre("dciodvfy") === false)
      for (const { path } of said?.outputs ?? [])
        if (path.endsWith(".dcm")) t.strictSame(objectErrors(path), [], basename(path));
    return { ...said!, fileCodes: answer.warnings.map(({ code }) => code) };
  };

  const segmenter = await loadTestModel(engine, folder, "segmenter");

  await t.test("areas in ultrasound are those of its regions", async (t) => {
    const region = {
      RegionSpatialFormat: 1,
      PhysicalUnitsXDirection: 3,
      PhysicalUnitsYDirection: 3,
      RegionFlags: 0,
      PhysicalDeltaX: new Typed("FD", 0.05),
      PhysicalDeltaY: new Typed("FD", 0.05),
      RegionLocationMinX0: 0,
      RegionLocationMinY0: 0,
      RegionLocationMaxX1: 19,
      RegionLocationMaxY1: 23,
    };
    const contradicted = { PixelSpacing: "1\\1", SequenceOfUltrasoundRegions: [region] };
    const { findings, fileCodes } = await run(image(contradicted), segmenter, ["json"]);
    const { pixels = 0, cm2 = 0 } = findings[0]?.area ?? {};
    t.ok(pixels > 0);
    t.ok(Math.abs(cm2 - pixels * 0.0025) < 1e-9, `${pixels} pixels are ${cm2} cm2`);
    t.strictSame(fileCodes, ["spacing_mismatch"]);
  });

  await t.test(
    "a lost orientation: findings and objects without a place, and the reason",
    async (t) => {
      const outputs = ["json", "png", "sr", "seg", "sc"];
      const lost = await run(image({ ...LOST, PixelSpacing: "0.5\\0.5" }), segmenter, outputs);
      t.equal(lost.status, "succeeded");
      t.strictSame(lost.fileCodes, ["invalid_orientation"]);
      t.ok(lost.findings[0]?.area?.cm2, "an area needs no place");
      const seg = lost.outputs.find(({ path }) => path.endsWith(".seg.dcm"))!;
      const shared = openFile(readFileSync(seg.path)).attributes.sequence(
        "SharedFunctionalGroupsSequence",
      );
      t.equal(shared?.[0]?.has("PlaneOrientationSequence"), false);
      const classifier = await loadTestModel(engine, folder, "classifier");
      t.equal((await run(image(LOST), classifier, ["json"])).status, "succeeded");
    },
  );

  await t.test("a mosaic has no areas", async (t) => {
    const mosaic = { ImageType: "ORIGINAL\\PRIMARY\\M\\ND\\MOSAIC", PixelSpacing: "2\\2" };
    const { findings, warnings, fileCodes } = await run(image(mosaic), segmenter, ["json"]);
    t.strictSame(Object.keys(findings[0]?.area ?? {}), ["pixels"]);
    t.match(warnings, [{ code: "no_patient_spacing" }]);
    t.strictSame(fileCodes, ["mosaic"]);
  });

  await t.test("segments of a reconstruction in nuclear medicine lie in its slices", async (t) => {
    const frames = 3;
    const nuclear = {
      SOPClassUID: "1.2.840.10008.5.1.4.1.1.20",
      Modality: "NM",
      NumberOfFrames: String(frames),
      ImageType: "ORIGINAL\\PRIMARY\\RECON TOMO\\EMISSION",
      PixelSpacing: "4\\4",
      SliceThickness: "4",
      SpacingBetweenSlices: "-4",
      SliceVector: new Typed("US", [1, 2, 3]),
      DetectorInformationSequence: [
        { ImagePositionPatient: "-32\\-32\\100", ImageOrientationPatient: "1\\0\\0\\0\\1\\0" },
      ],
    };
    const model = await loadTestModel(engine, folder, "segmenter", (manifest) => {
      manifest.accepts = { formats: ["dicom"], dimensions: "2d_frames" };
    });
    const { outputs, fileCodes } = await run(image(nuclear, frames), model, ["json", "seg"]);
    t.strictSame(fileCodes, []);
    const seg = outputs.find(({ path }) => path.endsWith(".seg.dcm"))!;
    const groups = openFile(readFileSync(seg.path)).attributes.sequence(
      "PerFrameFunctionalGroupsSequence",
    );
    const places = (groups ?? []).map((group) =>
      group.sequence("PlanePositionSequence")?.[0]?.numbers("ImagePositionPatient"),
    );
    t.strictSame(places.slice(0, frames), [
      [-32, -32, 100],
      [-32, -32, 96],
      [-32, -32, 92],
    ]);
  });

  await t.test("slices that are stored differently are one thing to a model", async (t) => {
    const words = (values: readonly number[]) =>
      new Uint8Array(
        Int16Array.from({ length: 24 }, (_, i) => values[i % values.length] ?? 0).buffer,
      );
    const bits = (PixelRepresentation: number, RescaleIntercept: string) => ({
      PixelRepresentation,
      RescaleIntercept,
      RescaleType: "HU",
    });
    const files = [
      slice({ z: 0, attributes: bits(0, "-1024"), frames: [words([0, 1064])] }),
      slice({ z: 2, attributes: bits(1, "0"), frames: [words([-1024, 40])] }),
    ];
    const model = await loadTestModel(engine, folder, "classifier", (manifest) => {
      const [input] = imageInputs(manifest);
      if (input !== undefined)
        Object.assign(input, {
          values: { kind: "modality" },
          monochrome1: "as_stored",
          colour_source: "refuse",
        });
      manifest.accepts = { formats: ["dicom"], modality: ["CT"], dimensions: "2d_frames" };
    });
    const { measurements, fileCodes } = await run(files, model, ["json"]);
    t.strictSame(
      measurements.map(({ frame, value }) => [frame, Math.round(value)]),
      [
        [1, -4919],
        [2, -4919],
      ],
      "ten times the mean of -1024 and 40, and one",
    );
    t.strictSame(fileCodes, ["mixed_storage"]);
    const filled = [
      slice({ z: 0, attributes: bits(0, "-1024"), frames: [words([0, 1064])] }),
      slice({ z: 2, attributes: bits(1, "-1024"), frames: [words([-32768, 1064])] }),
    ];
    const { status } = await run(filled, model, ["json"]);
    t.equal(
      status,
      "succeeded",
      "the least value of a slice's own bits often fills what is outside",
    );
  });

  await t.test("models of series are told why frames are no volume", async (t) => {
    const model = await loadTestModel(engine, folder, "classifier", (manifest) => {
      manifest.accepts.dimensions = "series";
    });
    for (const [more, reason] of [
      [LOST, "series_invalid_orientation"],
      [{ ImageType: "ORIGINAL\\PRIMARY\\MOSAIC" }, "series_mosaic"],
    ] as const) {
      const spaced = { NumberOfFrames: "2", PixelSpacing: "1\\1", ...more };
      const error = await failure(run(image(spaced, 2), model, ["json"]));
      t.equal(error.code, "no_model_accepts");
      t.match(JSON.stringify(error.details), reason);
    }
  });
});
