import "../../support/result-keys.js";
import { createHash } from "node:crypto";
import { mkdirSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import t, { type Test } from "tap";
import { signedText } from "../../../src/results/receipt/receipt.js";
import { seriesImage } from "../../../src/images/dicom/series.js";
import { volumeOf } from "../../../src/images/dicom/volume.js";
import type { RadserveError } from "../../../src/base/errors.js";
import type { Image } from "../../../src/images/image.js";
import { openInput } from "../../../src/files/guarded-paths.js";
import { readImage } from "../../../src/images/read-image.js";
import { readSeriesFolder } from "../../../src/inference/read-input.js";
import { failure } from "../../support/expect.js";
import {
  doseGrid,
  folderOf,
  multiFrame,
  readFolder,
  slice,
  type SliceOptions,
} from "../../support/series.js";
import { statedSides } from "../../../src/results/findings/sides.js";
import { receiptOf } from "../../support/commits.js";
import {
  attributesOf,
  compress,
  dicomFile,
  imageAttributes,
  picture,
  SYNTAXES,
  Typed,
  type Attributes,
} from "../../support/dicom.js";

const stack = (count: number, step = 2): Buffer[] =>
  Array.from({ length: count }, (_, i) => slice({ z: i * step, fill: i + 1 }));

/** The first value of each frame, which says which slice it is. */
async function fills(image: Image): Promise<number[]> {
  const found: number[] = [];
  for (let i = 0; i < image.frameCount; i++)
    found.push(Buffer.from(await image.frame(i)).readInt16LE(0));
  return found;
}

t.test("shuffled files become a sorted, right-handed stack", async (t) => {
  const order = [3, 0, 4, 1, 2];
  const files = order.map((i) => slice({ z: -7.5 + i * 2.5, fill: i + 1 }));
  const image = await readFolder(t, folderOf(t, files));
  t.strictSame(await fills(image), [1, 2, 3, 4, 5]);
  t.strictSame(image.series?.volume, {
    frames: [0, 1, 2, 3, 4],
    geometry: {
      origin: [-10, -20, -7.5],
      columnDirection: [1, 0, 0],
      rowDirection: [0, 1, 0],
      sliceDirection: [0, 0, 1],
      columnSpacing: 0.8,
      rowSpacing: 0.5,
      sliceSpacing: 2.5,
    },
  });
  t.strictSame(image.transforms, [
    {
      step: "sort_slices",
      by: "ImagePositionPatient",
      along: [0, 0, 1],
      slices: 5,
      spacing_mm: 2.5,
    },
  ]);
  t.strictSame(image.warnings, []);
  t.match(image.source, {
    sopInstanceUid: undefined,
    seriesInstanceUid: "1.2.3.4",
    modality: "CT",
  });
  t.equal(
    image.source.bytes,
    files.reduce((sum, file) => sum + file.length, 0),
  );
  t.strictSame(
    image.series?.slices.map(({ sopInstanceUid }) => sopInstanceUid),
    [-7.5, -5, -2.5, 0, 2.5].map((z) => `1.2.3.4.${z * 1000 + 100_000}`),
  );
  const sha256 = (bytes: string | Uint8Array) => createHash("sha256").update(bytes).digest("hex");
  const sorted = [1, 3, 4, 0, 2].map((i) => `${sha256(files[i]!)}\n`);
  t.equal(
    image.source.fileSha256,
    sha256(sorted.join("")),
    "as sha256sum of the slices' hashes gives it",
  );
});

t.test(
  "the order follows the normal, not the coordinate or the direction of the scan",
  async (t) => {
    const cases: [string, string, (d: number) => string, [number, number, number]][] = [
      ["feet first", "1\\0\\0\\0\\1\\0", (d) => `0\\0\\${d}`, [0, 0, 1]],
      ["prone", "-1\\0\\0\\0\\1\\0", (d) => `0\\0\\${-d}`, [0, 0, -1]],
      ["sagittal", "0\\1\\0\\0\\0\\-1", (d) => `${-d}\\0\\0`, [-1, 0, 0]],
      ["coronal", "1\\0\\0\\0\\0\\-1", (d) => `0\\${d}\\0`, [0, 1, 0]],
      ["oblique", "0.8\\0.6\\0\\0\\0\\-1", (d) => `${-0.6 * d}\\${0.8 * d}\\0`, [-0.6, 0.8, 0]],
    ];
    for (const [name, orientation, place, normal] of cases)
      await t.test(name, async (t) => {
        const files = [20, 0, 10].map((d) =>
          slice({
            z: d,
            attributes: { ImageOrientationPatient: orientation, ImagePositionPatient: place(d) },
          }),
        );
        const image = await readFolder(t, folderOf(t, files));
        t.strictSame(await fills(image), [0, 10, 20]);
        const { sliceDirection, sliceSpacing } = image.series!.volume.geometry;
        t.ok(
          sliceDirection.every((v, i) => Math.abs(v - normal[i]!) < 1e-12),
          sliceDirection.join(" "),
        );
        t.ok(Math.abs(sliceSpacing - 10) < 1e-9);
      });
  },
);

t.test("every slice keeps its own rescale", async (t) => {
  const files = [0, 1, 2].map((z) => slice({ z, attributes: { RescaleSlope: String(z + 1) } }));
  const image = await readFolder(t, folderOf(t, files));
  t.strictSame(
    [0, 1, 2].map((i) => image.interpretation(i).modality),
    [1, 2, 3].map((slope) => ({ kind: "rescale", slope, intercept: 0 })),
  );
});

t.test("compressed slices, and one syntax named only where all have it", async (t) => {
  const raw = picture({
    rows: 8,
    columns: 8,
    samples: 1,
    bitsAllocated: 16,
    bitsStored: 16,
    signed: true,
  });
  const encoded = await compress("jpeg-ls", raw);
  const attributes = (z: number): Attributes =>
    attributesOf(raw, {
      SOPInstanceUID: `1.2.${z}`,
      SeriesInstanceUID: "1.2",
      FrameOfReferenceUID: "1.3",
      PixelSpacing: "1\\1",
      ImagePositionPatient: `0\\0\\${z}`,
      ImageOrientationPatient: "1\\0\\0\\0\\1\\0",
    });
  const image = await readFolder(
    t,
    folderOf(t, [
      dicomFile({
        transferSyntax: SYNTAXES["jpeg-ls"],
        attributes: attributes(1),
        pixels: { fragments: [encoded] },
      }),
      dicomFile({ attributes: attributes(0), pixels: raw.data }),
    ]),
  );
  for (const frame of [0, 1])
    t.strictSame(Buffer.from(await image.frame(frame)), Buffer.from(raw.data));
  t.equal(image.source.transferSyntaxUid, undefined);
});

const turned = "0.999\\0.0447\\0\\-0.0447\\0.999\\0";
const at = (position: string): Attributes => ({ ImagePositionPatient: position });

/**
 * What is wrong with a stack, the reason it is refused for, and numbers that the details have to
 * hold.
 */
const refusals: [string, (SliceOptions | Buffer)[], string, Record<string, unknown>][] = [
  ["one slice", [{ z: 0 }], "single_slice", { slices: 1 }],
  ["nothing", [], "no_images", {}],
  [
    "a missing slice",
    [{ z: 0 }, { z: 2 }, { z: 4 }, { z: 8 }, { z: 10 }],
    "gap",
    { spacing_mm: 2, missing: 1, gaps: [{ after_mm: 4, before_mm: 8, missing: 1 }] },
  ],
  [
    "two gaps",
    [{ z: 0 }, { z: 6 }, { z: 8 }, { z: 10 }, { z: 14 }],
    "gap",
    { spacing_mm: 2, missing: 3 },
  ],
  ["a missing slice of three", [{ z: 0 }, { z: 2 }, { z: 6 }], "gap", { missing: 1 }],
  [
    "two at one place",
    [{ z: 0 }, { z: 2 }, { z: 4 }, { z: 2.005 }],
    "duplicate_position",
    { duplicates: 1 },
  ],
  ["uneven", [{ z: 0 }, { z: 2 }, { z: 4.03 }, { z: 6 }], "uneven_spacing", {}],
  [
    "a spacing that drifts",
    Array.from({ length: 61 }, (_, i) => ({ z: i < 30 ? 2 * i : 2 * i + 0.016 * (i - 30) })),
    "uneven_spacing",
    {},
  ],
  [
    "a tilted gantry",
    [0, 1, 2, 3].map((i) => ({ z: 2 * i, attributes: at(`0\\${i * 0.1}\\${2 * i}`) })),
    "tilt",
    { offset_mm: 0.30000000000000004 },
  ],
  [
    "a slice beside the stack",
    [0, 1, 2, 3].map((i) => ({ z: 2 * i, attributes: at(`${i === 2 ? 0.2 : 0}\\0\\${2 * i}`) })),
    "tilt",
    {},
  ],
  [
    "another orientation",
    [{ z: 0 }, { z: 2 }, { z: 4, attributes: { ImageOrientationPatient: turned } }],
    "mixed_orientation",
    { turned: 1, slices: 3 },
  ],
  [
    "directions that are none",
    [0, 2].map((z) => ({ z, attributes: { ImageOrientationPatient: "1\\0\\0\\0.5\\0.5\\0" } })),
    "invalid_orientation",
    {},
  ],
  [
    "no position",
    [{ z: 0 }, { z: 2, attributes: { ImagePositionPatient: undefined } }, { z: 4 }],
    "missing_geometry",
    { missing: 1, slices: 3 },
  ],
  [
    "spacing at the detector only",
    [0, 2].map((z) => ({
      z,
      attributes: { PixelSpacing: undefined, ImagerPixelSpacing: "0.5\\0.8" },
    })),
    "missing_geometry",
    { missing: 2 },
  ],
  [
    "another spacing",
    [{ z: 0 }, { z: 2, attributes: { PixelSpacing: "0.5\\0.81" } }],
    "mixed_spacing",
    { side: "column" },
  ],
  [
    "another size",
    [{ z: 0 }, { z: 2, attributes: { Rows: 6, Columns: 4 } }],
    "mixed_size",
    { sizes: ["6 x 4", "4 x 6"] },
  ],
  [
    "another polarity",
    [{ z: 0 }, { z: 2, attributes: { PhotometricInterpretation: "MONOCHROME1" } }],
    "mixed_format",
    { fields: ["photometricInterpretation"] },
  ],
  [
    "another kind of object",
    [{ z: 0 }, { z: 2, attributes: { SOPClassUID: "1.2.840.10008.5.1.4.1.1.4" } }],
    "mixed_format",
    {},
  ],
  [
    "two frames of reference",
    [{ z: 0 }, { z: 2 }, { z: 4, attributes: { FrameOfReferenceUID: "1.2.6" } }],
    "mixed_frame_of_reference",
    { frames_of_reference: 2 },
  ],
  [
    "two series",
    [{ z: 0 }, { z: 2 }, { z: 4, attributes: { SeriesInstanceUID: "1.9" } }],
    "several_series",
    {
      found: 2,
      series: [{ series_instance_uid: "1.2.3.4", modality: "CT", images: 2 }, { images: 1 }],
    },
  ],
  [
    "no series",
    [{ z: 0 }, { z: 2, attributes: { SeriesInstanceUID: undefined } }],
    "missing_series_uid",
    { missing: 1 },
  ],
  [
    "two patients",
    [{ z: 0 }, { z: 2, attributes: { PatientID: "Nobody else" } }],
    "several_patients",
    { attributes: ["PatientID"] },
  ],
];

async function refusal(t: Test, work: Promise<unknown>): Promise<RadserveError> {
  const error = await failure(work);
  t.notMatch(JSON.stringify(error.toObject()), /Nobody/, "no patient data");
  return error;
}

for (const [name, slices, reason, details] of refusals)
  t.test(`refused: ${name}`, async (t) => {
    const files = slices.map((options) => (Buffer.isBuffer(options) ? options : slice(options)));
    const error = await refusal(t, readFolder(t, folderOf(t, files)));
    t.equal(error.code, "series_invalid");
    t.match(error.details, { reason, ...details });
    t.match(error.message, /^Expected .*found|^Expected .*;/);
  });

t.test("fine stacks are judged by their own distance", async (t) => {
  const stacked = (places: readonly number[], aside = 0) =>
    readFolder(
      t,
      folderOf(
        t,
        places.map((z, i) =>
          slice({
            z: i,
            attributes: {
              PixelSpacing: "0.01\\0.01",
              ImagePositionPatient: `${aside * z}\\0\\${z}`,
            },
          }),
        ),
      ),
    );
  const drifting = [0, 0.02, 0.044, 0.06, 0.084, 0.1];
  t.match((await failure(stacked(drifting))).details, { reason: "uneven_spacing" });
  const even = [0, 0.02, 0.04, 0.06];
  t.match((await failure(stacked(even, 0.15))).details, { reason: "tilt" });
  t.strictSame((await stacked(even)).warnings, []);
  // 0.0175 mm, rounded to three digits
  t.strictSame((await stacked([0, 0.018, 0.035, 0.053, 0.07])).warnings, []);
});

t.test("what rounding does is no fault", async (t) => {
  const places = ["0", "0.667", "1.333", "2", "2.667"];
  const image = await readFolder(
    t,
    folderOf(
      t,
      places.map((z, i) =>
        slice({
          z: i,
          attributes: {
            ImagePositionPatient: `${i * 0.004}\\0\\${z}`,
            ImageOrientationPatient: `1\\0\\${i * 0.00002}\\0\\1\\0`,
          },
        }),
      ),
    ),
  );
  t.equal(image.series?.volume.geometry.sliceSpacing, 2.667 / 4);
});

t.test("a frame of reference for every slice is what a de-identification leaves", async (t) => {
  const files = [0, 1, 2].map((z) =>
    slice({ z, attributes: { FrameOfReferenceUID: `1.2.7.${z}` } }),
  );
  const image = await readFolder(t, folderOf(t, files));
  t.match(image.warnings, [{ code: "frame_of_reference_by_slice" }]);
});

t.test("several frames of reference of files of several frames leave no places", async (t) => {
  const own = (i: number) => ({ SOPInstanceUID: `1.6.${i}`, FrameOfReferenceUID: `1.2.7.${i}` });
  const stacks = [0, 1, 2].map((i) => multiFrame([4 * i, 4 * i + 2], own(i)));
  const error = await refusal(t, readFolder(t, folderOf(t, stacks)));
  t.match(error.details, { reason: "mixed_frame_of_reference", frames_of_reference: 3 });
  const several = await readFolder(t, folderOf(t, stacks), { grouped: true });
  t.match(several.warnings, [{ code: "no_volume", message: /Expected one FrameOfReferenceUID/ }]);
  const twice = [0, 0, 1, 1].map((z, i) => slice({ z, attributes: own(i) }));
  const phases = await readFolder(t, folderOf(t, twice), { grouped: true });
  t.match(phases.warnings, [
    { code: "no_volume", message: /a place of its own/ },
    { code: "frame_of_reference_by_slice", message: /as in one frame of reference/ },
  ]);
  for (let frame = 0; frame < several.frameCount; frame++) t.equal(several.plane(frame), undefined);
  t.ok(phases.plane(0), "a de-identification has given each slice its own");
  const unplaced = twice.map((_, i) =>
    slice({ z: i, attributes: { ...own(i), ImagePositionPatient: undefined } }),
  );
  const nowhere = await readFolder(t, folderOf(t, unplaced), { grouped: true });
  t.strictSame(
    nowhere.warnings.map(({ code }) => code),
    ["no_volume"],
    "without positions there is nothing to say",
  );
});

t.test("what lies beside the slices is left out, and counted", async (t) => {
  const receipt = receiptOf("old", "pixels", []);
  receipt.models = [
    {
      ...receipt.models[0]!,
      name: "m",
      version: "1",
      status: "succeeded",
      findings: [],
      measurements: [],
      warnings: [],
      sha256: "0".repeat(64),
      site_thresholds: {},
      transforms: [],
      outputs: [{ path: "old.m.sc.dcm", media_type: "application/dicom", sha256: "0".repeat(64) }],
    },
  ];
  const other = (attributes: Attributes) =>
    slice({ z: 0, attributes: { SeriesInstanceUID: "1.9", ...attributes } });
  const folder = folderOf(t, {
    ...Object.fromEntries(stack(3).map((file, i) => [`slice ${3 - i}`, file])),
    DICOMDIR: dicomFile({ attributes: { SOPClassUID: "1.2.840.10008.1.3.10" } }),
    "report.dcm": dicomFile({
      attributes: imageAttributes({ SOPClassUID: "1.2.840.10008.5.1.4.1.1.88.33", Modality: "SR" }),
    }),
    "segmentation.dcm": other({ SOPClassUID: "1.2.840.10008.5.1.4.1.1.66.4", Modality: "SEG" }),
    "scout.dcm": other({ ImageType: "ORIGINAL\\PRIMARY\\LOCALIZER" }),
    "capture.dcm": other({
      SOPClassUID: "1.2.840.10008.5.1.4.1.1.7",
      ContributingEquipmentSequence: [
        {
          PurposeOfReferenceCodeSequence: [{ CodeValue: "109102", CodingSchemeDesignator: "DCM" }],
        },
      ],
    }),
    "old.json": Buffer.from(await signedText(receipt, "old")),
    "old.m.sc.dcm": other({}),
    "notes.txt": Buffer.from("Nobody's notes"),
    "picture.png": Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]),
    empty: Buffer.alloc(0),
  });
  mkdirSync(join(folder, "inner"));
  writeFileSync(join(folder, "inner", "slice"), slice({ z: 99 }));
  symlinkSync("slice 1", join(folder, "link"));
  const image = await readFolder(t, folder);
  t.strictSame(await fills(image), [1, 2, 3]);
  t.strictSame(
    image.warnings.map(({ code, message }) => [code, /\((\d+)\)\.$/.exec(message)?.[1]]),
    [
      ["left_out_localizer", "1"],
      ["left_out_no_image", "2"],
      ["left_out_not_a_file", "2"],
      ["left_out_not_dicom", "3"],
      ["left_out_result", "1"],
      ["left_out_segmentation", "1"],
    ],
  );
  t.notMatch(JSON.stringify(image.warnings), /Nobody|slice 1|notes/, "no names of files");
});

t.test("a slice that cannot be read refuses the series, by its number", async (t) => {
  const files = stack(3);
  const error = await refusal(
    t,
    readFolder(t, folderOf(t, [files[0]!, files[1]!.subarray(0, -8), files[2]!])),
  );
  t.equal(error.code, "truncated_image");
  t.match(error.message, /entry 2 of 3 of the folder/);
  t.match(error.details, { entry: 2 });
});

t.test("bounds", async (t) => {
  const folder = folderOf(t, stack(4));
  const opened = await openInput(folder, undefined);
  t.teardown(() => opened.close());
  const size = stack(4).reduce((sum, file) => sum + file.length, 0);
  const limited = (limits: object) =>
    readSeriesFolder(opened, undefined, { files: 4, bytes: size, elements: 1_000, ...limits });
  await t.resolves(limited({}));
  const files = await refusal(t, limited({ files: 3 }));
  t.match(files.details, { reason: "too_many_files", most: 3, found: 4 });
  const bytes = await refusal(t, limited({ bytes: size - 1 }));
  t.match(bytes.details, { reason: "too_many_bytes", most: size - 1 });
  const elements = await refusal(t, limited({ elements: 50 }));
  t.match(elements.details, { reason: "too_many_elements", most: 50 });
});

t.test("a slice that changes under our hands is noticed", async (t) => {
  const folder = folderOf(t, stack(3));
  const image = await readFolder(t, folder);
  writeFileSync(join(folder, "0.dcm"), slice({ z: 0, fill: 99 }));
  t.match((await refusal(t, image.frame(0))).details, { reason: "changed" });
  await t.resolves(image.frame(1));
  rmSync(join(folder, "2.dcm"));
  t.match((await refusal(t, image.frame(2))).details, { reason: "changed" });
  rmSync(join(folder, "1.dcm"));
  writeFileSync(join(folder, "copy"), stack(3)[1]!);
  symlinkSync("copy", join(folder, "1.dcm"));
  await image.frame(0).catch(() => undefined);
  t.match(
    (await refusal(t, image.frame(1))).details,
    { reason: "changed" },
    "a link is not followed",
  );
});

t.test("the frames of one file as a volume", async (t) => {
  const image = await readImage(multiFrame([4, 0, 2]));
  const { frames, geometry } = volumeOf(image);
  t.strictSame(frames, [1, 2, 0]);
  t.match(geometry, { origin: [0, 0, 0], sliceSpacing: 2, rowSpacing: 0.5, columnSpacing: 0.8 });
  const faults: [string, Buffer, string][] = [
    ["two times of one place", multiFrame([0, 2, 0, 2]), "duplicate_position"],
    ["no positions at all", multiFrame([undefined, undefined]), "missing_geometry"],
    ["a gap", multiFrame([0, 2, 4, 8]), "gap"],
    ["one frame", multiFrame([0]), "single_slice"],
    [
      "one position at the top, and items without any",
      multiFrame([undefined, undefined], at("0\\0\\1")),
      "missing_frame_positions",
    ],
  ];
  for (const [name, file, reason] of faults) {
    const read = await readImage(file);
    t.throws(() => volumeOf(read), { code: "series_invalid", details: { reason } }, name);
  }
});

t.test("frames of a tomosynthesis are a volume in the patient", async (t) => {
  const tomosynthesis = (more: Attributes = {}) =>
    multiFrame([0, 1, 2], {
      SOPClassUID: "1.2.840.10008.5.1.4.1.1.13.1.3",
      Modality: "MG",
      ...more,
    });
  for (const more of [{}, { ImagerPixelSpacing: "0.5\\0.8" }, { ImagerPixelSpacing: "0.1\\0.1" }]) {
    const image = await readImage(tomosynthesis(more));
    t.match(image.spacing(1), { row: 0.5, column: 0.8, source: "PixelSpacing", patient: true });
    t.match(volumeOf(image).geometry, { sliceSpacing: 1, rowSpacing: 0.5, columnSpacing: 0.8 });
  }
  const projection = await readImage(
    tomosynthesis({
      SharedFunctionalGroupsSequence: [{ PixelMeasuresSequence: [{ PixelSpacing: "0.5\\0.8" }] }],
    }),
  );
  t.equal(
    projection.spacing(0)?.patient,
    false,
    "a projection, whose frames are no planes, is not believed",
  );
});

t.test("a series of multi-frame files is one stack of all their frames", async (t) => {
  const files = [
    multiFrame([6, 4], { SOPInstanceUID: "1.1" }),
    multiFrame([0, 2], { SOPInstanceUID: "1.2" }),
  ];
  const image = await readFolder(t, folderOf(t, files));
  t.strictSame(await fills(image), [0, 1, 1, 0]);
  t.match(image.series?.slices, [
    { sopInstanceUid: "1.2", frame: 1 },
    { sopInstanceUid: "1.2", frame: 2 },
    { sopInstanceUid: "1.1", frame: 2 },
    { sopInstanceUid: "1.1", frame: 1 },
  ]);
});

t.test("a series without files", (t) => {
  t.throws(() => seriesImage([], []), { code: "series_invalid", details: { reason: "no_images" } });
  t.end();
});

/**
 * Part `number` of a concatenation, with a frame at each of its places and `offset` frames before
 * it.
 */
const part = (
  number: number,
  places: readonly (number | undefined)[],
  offset: number,
  more: Attributes = {},
): Buffer =>
  multiFrame(places, {
    SOPInstanceUID: `1.7.${number}`,
    ConcatenationUID: "1.7",
    SOPInstanceUIDOfConcatenationSource: "1.7.9",
    InConcatenationNumber: number,
    InConcatenationTotalNumber: 3,
    ConcatenationFrameOffsetNumber: offset,
    ...more,
  });
const PARTS = [part(1, [0, 2], 0), part(2, [4, 6], 2), part(3, [8], 4)];

t.test("all parts of a concatenation are one volume", async (t) => {
  const image = await readFolder(t, folderOf(t, [PARTS[2]!, PARTS[0]!, PARTS[1]!]));
  t.equal(image.frameCount, 5);
  t.match(image.series?.volume.geometry, { origin: [0, 0, 0], sliceSpacing: 2 });
  t.match(
    image.series?.slices.map(({ sopInstanceUid, frame }) => [sopInstanceUid, frame]),
    [
      ["1.7.1", 1],
      ["1.7.1", 2],
      ["1.7.2", 1],
      ["1.7.2", 2],
      ["1.7.3", undefined],
    ],
  );
  t.strictSame(image.warnings, []);
  const untold = { InConcatenationTotalNumber: undefined };
  const two = [part(1, [0, 2], 0, untold), part(2, [4, 6], 2, untold)];
  const unknown = await readFolder(t, folderOf(t, two));
  t.equal(unknown.frameCount, 4);
  t.match(unknown.warnings, [{ code: "concatenation_total_unknown" }]);
});

t.test("a concatenation of more parts than can be numbered is refused", async (t) => {
  const most = new Typed("UL", 4_000_000_000);
  const untold = { InConcatenationTotalNumber: undefined };
  for (const files of [
    [part(1, [0, 2], 0, { InConcatenationTotalNumber: most })],
    [part(1, [0, 2], 0, untold), part(2, [4], 2, { ...untold, InConcatenationNumber: most })],
  ]) {
    const found = await failure(readFolder(t, folderOf(t, files)));
    t.match(found, { code: "series_invalid", message: /at most 65535 parts.*found 4000000000/ });
  }
});

t.test("the parts of a concatenation that is no volume follow each other", async (t) => {
  const nowhere = [undefined, undefined];
  const renamed = (number: number, whole: number) =>
    part(number, nowhere, 2 * (number - 1), {
      SOPInstanceUID: `1.7.${whole}${4 - number}`,
      ConcatenationUID: `1.7.${whole}`,
      InstanceNumber: "1",
    });
  const parts = [1, 2].flatMap((whole) => [2, 3, 1].map((number) => renamed(number, whole)));
  const image = await readFolder(t, folderOf(t, parts), { grouped: true });
  t.match(image.warnings, [{ code: "no_volume" }]);
  t.strictSame(
    image.series?.slices.map(({ sopInstanceUid: uid, frame }) => [uid, frame]),
    ["1.7.13", "1.7.12", "1.7.11", "1.7.23", "1.7.22", "1.7.21"].flatMap((uid) => [
      [uid, 1],
      [uid, 2],
    ]),
  );
});

t.test("a concatenation that is not whole is refused, and says what is missing", async (t) => {
  const untold = { InConcatenationTotalNumber: undefined };
  const cases: [string, Buffer[], Record<string, unknown>, RegExp][] = [
    [
      "the last is missing",
      PARTS.slice(0, 2),
      { missing: [3], doubled: [] },
      /found 2 parts; 3 is missing/,
    ],
    ["the first is missing", PARTS.slice(1), { missing: [1] }, /1 is missing/],
    [
      "one of three",
      PARTS.slice(1, 2),
      { missing: [1, 3], parts: 3 },
      /found 1 part; 1, 3 are missing/,
    ],
    [
      "one twice",
      [...PARTS, part(2, [10, 12], 2, { SOPInstanceUID: "1.7.7" })],
      { missing: [], doubled: [2] },
      /2 is there more than once/,
    ],
    ["a number beyond the last", [...PARTS, part(4, [10], 5)], {}, /4 is not a number of a part/],
    [
      "totals that differ",
      [PARTS[0]!, part(2, [4], 2, { InConcatenationTotalNumber: 2 })],
      { totals: [3, 2] },
      /totals 3, 2/,
    ],
    [
      "no number",
      [PARTS[0]!, part(2, [4], 2, { InConcatenationNumber: undefined })],
      { unnumbered: 1 },
      /1 lack/,
    ],
    [
      "frames missing between parts",
      [part(1, [0, 2], 0), part(2, [4, 6], 3), PARTS[2]!],
      { offset: 3 },
      /found 3/,
    ],
    [
      "a part that does not say how many there are",
      [part(1, [0, 2], 0, untold)],
      {},
      /unknown number/,
    ],
  ];
  for (const [name, files, details, message] of cases) {
    const error = await refusal(t, readFolder(t, folderOf(t, files)));
    t.equal(error.code, "series_invalid", name);
    t.match(error.details, { reason: "incomplete_concatenation", ...details }, name);
    t.match(error.message, message, name);
  }
});

t.test("a part of a concatenation by itself is frames, and no volume", async (t) => {
  const image = await readImage(PARTS[0]!);
  t.match(image.warnings, [{ code: "incomplete_concatenation", message: /part 1 of 3/ }]);
  t.throws(() => volumeOf(image), {
    code: "series_invalid",
    details: { reason: "incomplete_concatenation" },
  });
  const whole = await readImage(part(1, [0, 2], 0, { InConcatenationTotalNumber: 1 }));
  t.strictSame(whole.warnings, []);
  t.equal(volumeOf(whole).frames.length, 2, "a concatenation of one part is whole");
});

t.test("the frames of a dose grid lie where its offsets say", async (t) => {
  const cases: [string, string, Attributes, [number, number, number][], readonly number[]][] = [
    [
      "from the first",
      "0\\2.5\\5",
      {},
      [
        [-10, -20, 30],
        [-10, -20, 32.5],
        [-10, -20, 35],
      ],
      [0, 1, 2],
    ],
    [
      "downwards",
      "0\\-2.5\\-5",
      {},
      [
        [-10, -20, 30],
        [-10, -20, 27.5],
        [-10, -20, 25],
      ],
      [2, 1, 0],
    ],
    [
      "in the patient",
      "30\\32.5\\35",
      {},
      [
        [-10, -20, 30],
        [-10, -20, 32.5],
        [-10, -20, 35],
      ],
      [0, 1, 2],
    ],
    [
      "along the normal of sagittal frames",
      "0\\3\\6",
      { ImageOrientationPatient: "0\\1\\0\\0\\0\\-1" },
      [
        [-10, -20, 30],
        [-13, -20, 30],
        [-16, -20, 30],
      ],
      [0, 1, 2],
    ],
  ];
  for (const [name, offsets, more, positions, order] of cases) {
    const image = await readImage(doseGrid(offsets, 3, more));
    t.strictSame(
      [0, 1, 2].map((frame) => image.plane(frame)?.position),
      positions,
      name,
    );
    const { frames, geometry } = volumeOf(image);
    t.strictSame(frames, order, name);
    t.equal(geometry.sliceSpacing, Math.abs(positions[1]![2] - positions[0]![2]) || 3, name);
  }
  const single = await readImage(doseGrid("0", 1));
  t.strictSame(single.plane(0)?.position, [-10, -20, 30]);
});

t.test("a dose grid whose offsets are not its frames' is refused by name", async (t) => {
  const cases: [string, Buffer, RegExp, Record<string, unknown>][] = [
    ["too few", doseGrid("0\\2.5", 3), /each of the 3 frames, found 2/, { frames: 3, offsets: 2 }],
    ["too many", doseGrid("0\\1\\2\\3", 3), /found 4/, { offsets: 4 }],
    [
      "neither 0 nor z",
      doseGrid("1\\2\\3", 3),
      /z of ImagePositionPatient, 30; found 1/,
      { first: 1, z: 30 },
    ],
    [
      "z of frames that are not transverse",
      doseGrid("30\\32\\34", 3, { ImageOrientationPatient: "1\\0\\0\\0\\0\\-1" }),
      /transverse/,
      { transverse: false },
    ],
  ];
  for (const [name, file, message, details] of cases) {
    const error = await refusal(t, readImage(file));
    t.equal(error.code, "corrupt_image", name);
    t.match(error.message, message, name);
    t.match(error.message, /GridFrameOffsetVector/, name);
    t.match(error.details, details, name);
  }
});

t.test("what an item that is read late has is told too", async (t) => {
  const wrong = { FrameAnatomySequence: [{ FrameLaterality: "R*" }] };
  const slices = [0, 3, 6].map((z) =>
    slice({ z, attributes: { SharedFunctionalGroupsSequence: [wrong] } }),
  );
  const image = await readFolder(t, folderOf(t, slices));
  t.strictSame(image.warnings, []);
  t.strictSame(statedSides(image, undefined).size, 0);
  t.match(image.warnings, [{ code: "value_ignored", message: /^FrameLaterality/ }]);
});
