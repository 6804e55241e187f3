import { createHash } from "node:crypto";
import t from "tap";
import { formatInspection, dumpFrame, inspectImage } from "../../src/inference/inspection.js";
import { readImage } from "../../src/images/read-image.js";
import { folderOf, readFolder, slice } from "../support/series.js";
import { attributesOf, CT, dicomFile, EXPLICIT, picture, Typed } from "../support/dicom.js";

const layout = { rows: 4, columns: 6, samples: 1, bitsAllocated: 16, bitsStored: 12, signed: true };
const frames = [picture(layout, 1), picture(layout, 2)];
const file = dicomFile({
  attributes: attributesOf(frames[0]!, {
    SOPClassUID: CT,
    Modality: "CT",
    NumberOfFrames: "2",
    PixelSpacing: "0.5\\0.5",
    RescaleSlope: "1",
    RescaleIntercept: "-1024",
    WindowCenter: "40",
    WindowWidth: "400",
    PhotometricInterpretation: "MONOCHROME1",
  }),
  pixels: Buffer.concat(frames.map((f) => f.data)),
  preamble: false,
});

const sha256 = (bytes: Uint8Array) => createHash("sha256").update(bytes).digest("hex");

t.test("the JSON form", async (t) => {
  const inspection = await inspectImage(await readImage(file));
  const values = [...new Int16Array(frames[1]!.data.buffer)];
  t.match(inspection, {
    format: "dicom",
    transfer_syntax: EXPLICIT,
    frames: 2,
    rows: 4,
    columns: 6,
    samples: 1,
    bits_stored: 12,
    signed: true,
    units: "HU",
    first_frame: { sha256: sha256(frames[0]!.data) },
    last_frame: {
      sha256: sha256(frames[1]!.data),
      min: Math.min(...values),
      max: Math.max(...values),
      mean: values.reduce((a, b) => a + b) / values.length,
    },
    transforms: [
      { step: "rescale", slope: 1, intercept: -1024 },
      { step: "window", index: 0, center: 40, width: 400, function: "LINEAR" },
      { step: "invert" },
    ],
    warnings: [{ code: "missing_preamble" }],
  });
  const text = JSON.stringify(inspection);
  t.notMatch(text, /Nobody/, "no patient data");
  t.strictSame(JSON.parse(text), inspection, "plain JSON");
});

t.test("the form for people", async (t) => {
  const found = await inspectImage(await readImage(file));
  const [least = NaN, greatest = NaN] = [found.first_frame.min, found.first_frame.max].map(Number);
  const text = formatInspection(found);
  for (const expected of [
    "6 x 4, 2 frames",
    "MONOCHROME1, 1 x 12 of 16 bits, signed",
    "HU",
    "missing_preamble",
    "0.5 x 0.5 mm",
    "Explicit VR Little Endian (1.2.840.10008.1.2.1)",
    "CT Image Storage (1.2.840.10008.5.1.4.1.1.2)",
    `${least - 1024} to ${greatest - 1024} HU`,
    "rescale: slope 1, intercept -1024, units HU",
    "window: function LINEAR, center 40, width 400, index 0",
  ])
    t.ok(text.includes(expected), expected);
  t.notMatch(text, /Nobody/);
});

t.test("floating-point values that are not numbers are counted", async (t) => {
  const read = async (...values: number[]) => {
    const pixels = Buffer.from(Float32Array.from(values).buffer);
    const attributes = {
      ...attributesOf({ ...frames[0]!, rows: 2, columns: 2, bitsAllocated: 32, bitsStored: 32 }),
      FloatPixelData: new Typed("OF", pixels),
      RescaleSlope: "1",
      RescaleIntercept: "-1024",
    };
    return inspectImage(await readImage(dicomFile({ attributes })));
  };
  const some = await read(1, NaN, Infinity, 3);
  t.match(some.first_frame, { min: 1, max: 3, mean: 2, not_numbers: 2 });
  t.match(formatInspection(some), /First frame {2}1 to 3, mean 2\.000, 2 not numbers/);
  const none = await read(NaN, NaN, NaN, -Infinity);
  t.match(none.first_frame, { min: null, max: null, mean: null, not_numbers: 4 });
  t.match(formatInspection(none), /First frame {2}no numbers, 4 not numbers/);
  t.notMatch(formatInspection(none), /^Values/m);
});

t.test("a SOP class has its name", async (t) => {
  const attributes = attributesOf(frames[0]!, { SOPClassUID: "1.2.840.10008.5.1.4.1.1.1" });
  const image = await readImage(dicomFile({ attributes, pixels: frames[0]!.data }));
  t.equal((await inspectImage(image)).sop_class_name, "Computed Radiography Image Storage");
});

t.test("a folder", async (t) => {
  const image = await readFolder(
    t,
    folderOf(
      t,
      [4, 0, 2].map((z) => slice({ z })),
    ),
  );
  const inspection = await inspectImage(image);
  t.match(inspection, {
    frames: 3,
    volume: { slices: 3, sliceSpacing: 2, origin: [-10, -20, 0], sliceDirection: [0, 0, 1] },
    slice_order: ["1.2.3.4.100000", "1.2.3.4.102000", "1.2.3.4.104000"],
    first_frame: { min: 0, max: 0 },
    last_frame: { min: 4, max: 4 },
  });
  const text = formatInspection(inspection);
  for (const expected of [
    "3 slices 2 mm apart, from -10\\-20\\0 along 1\\0\\0 and 0\\1\\0 and 0\\0\\1",
    `sha256 ${image.source.fileSha256} over those of the slices`,
    "0.5 x 0.8 mm",
  ])
    t.ok(text.includes(expected), expected);
  t.equal(
    (await inspectImage(await readImage(file))).volume,
    null,
    "frames without places are none",
  );
});

t.test("frames are dumped by their DICOM number", async (t) => {
  const image = await readImage(file);
  t.strictSame(Buffer.from(await dumpFrame(image, 1)), Buffer.from(frames[0]!.data));
  t.strictSame(Buffer.from(await dumpFrame(image, 2)), Buffer.from(frames[1]!.data));
  for (const number of [0, 3, 1.5, Number.NaN])
    await t.rejects(dumpFrame(image, number), { code: "bad_request" });
});
