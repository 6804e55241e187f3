/**
 * Where images lie, and how large their pixels are, as devices and archives say it: read right,
 * warned of, or refused.
 */
import { readFileSync } from "node:fs";
import t, { type Test } from "tap";
import { volumeOf } from "../../../src/images/dicom/volume.js";
import type { Image } from "../../../src/images/image.js";
import { readImage } from "../../../src/images/read-image.js";
import { modalityValue, valueReader } from "../../../src/images/stored-values.js";
import {
  attributesOf,
  dicomFile,
  imageAttributes,
  Typed,
  type Attributes,
} from "../../support/dicom.js";
import { failure, refuses, warned } from "../../support/expect.js";
import { needs } from "../../support/needs.js";
import { folderOf, multiFrame, readFolder, slice } from "../../support/series.js";

const CASES = "../shared/cases/dicom";
const withCases = { skip: needs(CASES) };
const caseFile = (name: string) => readImage(readFileSync(`${CASES}/${name}`));
const caseFolder = (t: Test, name: string) => readFolder(t, `${process.cwd()}/${CASES}/${name}`);

/** All modality values of a frame. */
async function values(image: Image, frame: number): Promise<number[]> {
  const read = valueReader(await image.frame(frame), image.format);
  const { modality } = image.interpretation(frame);
  const { rows, columns } = image.format;
  return Array.from({ length: rows * columns }, (_, i) => modalityValue(modality, read(i)));
}

const read = (attributes: Attributes) => {
  const frames = Number(attributes["NumberOfFrames"] ?? 1);
  return readImage(
    dicomFile({ attributes: imageAttributes(attributes), pixels: Buffer.alloc(16 * frames) }),
  );
};

t.test("the cases", withCases, async (t) => {
  await t.test("regions of ultrasound count against PixelSpacing", async (t) => {
    const image = await caseFile("us-pixelspacing-against-region.dcm");
    t.match(image.spacing(0), { row: 0.5, column: 0.5, source: "SequenceOfUltrasoundRegions" });
    t.strictSame(warned(image), ["spacing_mismatch"]);
  });

  await t.test("a lost orientation stops what needs one", async (t) => {
    const image = await caseFile("us-orientation-zeros.dcm");
    t.strictSame(warned(image), ["invalid_orientation"]);
    t.equal(image.plane(0), undefined);
    t.equal((await image.frame(0)).length, 32 * 32 * 3);
  });

  await t.test(
    "a reconstruction of nuclear medicine lies where its detector's item says",
    async (t) => {
      const image = await caseFile("nm-recon-tomo.dcm");
      t.strictSame(
        image.plane(7)?.position,
        [-32, -32, 72],
        "downwards, by the sign of SpacingBetweenSlices",
      );
      const { frames, geometry } = volumeOf(image);
      t.strictSame(frames, [7, 6, 5, 4, 3, 2, 1, 0]);
      t.match(geometry, {
        origin: [-32, -32, 72],
        sliceDirection: [0, 0, 1],
        sliceSpacing: 4,
        rowSpacing: 4,
      });
      t.strictSame(warned(image), []);
    },
  );

  await t.test("slices that are stored with other bits are one volume", async (t) => {
    const image = await caseFolder(t, "mr-series-bitsallocated-mixed");
    t.strictSame(warned(image), ["mixed_storage"]);
    t.equal(image.series?.volume.frames.length, 5);
    for (const [frame, number] of ["00", "01", "02", "03", "04"].entries()) {
      const alone = await caseFile(`mr-series-bitsallocated-mixed/${number}.dcm`);
      t.strictSame(await values(image, frame), await values(alone, 0), `slice ${number}`);
    }
  });

  await t.test("secondary captures with a plane have their spacing in the patient", async (t) => {
    const image = await caseFolder(t, "sc-series-plane-and-nominal-spacing");
    t.match(image.series?.volume.geometry, {
      rowSpacing: 0.5,
      columnSpacing: 0.5,
      sliceSpacing: 1,
    });
    t.strictSame(warned(image), []);
  });

  await t.test("an empty PET slice with the slope 0 is zeros", async (t) => {
    const image = await caseFolder(t, "pt-series-slope-0-empty-slice");
    t.ok((await values(image, 0)).every((value) => value === 0));
    t.ok((await values(image, 1)).some((value) => value > 0));
    t.strictSame(warned(image), ["empty_slice"]);
  });
});

/** Why an image's frames are no volume. */
function volumeFault(image: Image): unknown {
  try {
    return volumeOf(image);
  } catch (error) {
    return error;
  }
}

const region = (delta: number, more: Attributes = {}): Attributes => ({
  RegionSpatialFormat: 1,
  PhysicalUnitsXDirection: 3,
  PhysicalUnitsYDirection: 3,
  PhysicalDeltaX: new Typed("FD", delta),
  PhysicalDeltaY: new Typed("FD", delta),
  RegionLocationMinX0: 0,
  RegionLocationMinY0: 0,
  RegionLocationMaxX1: 3,
  RegionLocationMaxY1: 3,
  ...more,
});

t.test("regions of ultrasound whose pixels are of no possible size", async (t) => {
  const file = (...regions: Attributes[]) =>
    dicomFile({
      attributes: imageAttributes({ SequenceOfUltrasoundRegions: regions }),
      pixels: Buffer.alloc(16),
    });
  const size = (PhysicalDeltaX: number, more: Attributes = {}) =>
    region(0.05, { PhysicalDeltaX: new Typed("FD", PhysicalDeltaX), ...more });
  for (const delta of [1e19, 1001, -1001, 1e-8, 1e-12])
    await refuses(
      t,
      file(region(0.05), size(delta)),
      "corrupt_image",
      /PhysicalDeltaX .* from 1e-7 to 1000 cm/,
      `${delta} cm`,
    );
  const other = await readImage(file(region(0.05), size(1e19, { PhysicalUnitsXDirection: 4 })));
  t.equal(other.regions?.(0)?.length, 2, "seconds have no such limit");
  for (const delta of [1000, -1e-7, 0]) await readImage(file(size(delta)));
});

t.test("regions of ultrasound and PixelSpacing", async (t) => {
  const of = async (spacing: string, ...regions: Attributes[]) => {
    const image = await read({ PixelSpacing: spacing, SequenceOfUltrasoundRegions: regions });
    return { spacing: image.spacing(0), regions: image.regions?.(0)?.length, codes: warned(image) };
  };
  const pixel = { source: "PixelSpacing", patient: true };
  const byRegion = { source: "SequenceOfUltrasoundRegions", patient: true };
  t.match(
    await of("0.5\\0.5", region(0.05)),
    { spacing: pixel, regions: undefined, codes: { length: 0 } },
    "they agree",
  );
  t.match(
    await of("0.5\\0.5", region(0.05004)),
    { spacing: pixel, codes: { length: 0 } },
    "but for rounding",
  );
  t.match(await of("0.5\\0.5", region(0.0501)), { spacing: byRegion, codes: ["spacing_mismatch"] });
  t.match(
    await of("0.5\\0.5", region(0.05), region(0.05, { PhysicalUnitsXDirection: 4 })),
    { spacing: undefined, regions: 2, codes: { length: 0 } },
    "one beside them is of time",
  );
  t.match(await of("0.5\\0.5", region(0.05), region(0.04)), {
    spacing: undefined,
    regions: 2,
    codes: ["spacing_mismatch"],
  });
  t.match(await of("0.5\\0.5", region(0.05, { PhysicalUnitsXDirection: 4 })), {
    spacing: pixel,
    codes: { length: 0 },
  });
  t.match(
    await of("0.5\\0.5", region(0.05, { RegionLocationMaxX1: 9 })),
    { spacing: { patient: false }, regions: undefined, codes: ["regions_ignored"] },
    "shrunk, and PixelSpacing with it",
  );
  t.match(
    await of("1\\1", region(0.05, { RegionLocationMaxX1: 9 })),
    { spacing: pixel, regions: undefined, codes: ["regions_ignored"] },
    "shrunk, and PixelSpacing is another",
  );
  const nowhere = region(0.05, { RegionLocationMinX0: undefined });
  const ignored = { regions: undefined, codes: ["regions_ignored"] };
  t.match(
    await of("0.5\\0.5", nowhere),
    { spacing: pixel, ...ignored },
    "no place, and PixelSpacing says the same",
  );
  t.match(
    await of("1\\1", nowhere),
    { spacing: { patient: false }, ...ignored },
    "no place, and another scale",
  );
  t.match(
    await of("", nowhere),
    { spacing: undefined, ...ignored },
    "no place, and no PixelSpacing",
  );
  t.match(
    await of("", region(0.05), region(0.05, { RegionLocationMinX0: 3, RegionLocationMaxX1: 1 })),
    { spacing: undefined, ...ignored },
    "one that ends before it begins",
  );
  const spectrum = region(0.05, { RegionSpatialFormat: 3 });
  t.match(
    await of("0.5\\0.5", region(0.05), spectrum),
    { spacing: byRegion, regions: 2, codes: { length: 0 } },
    "PixelSpacing is not that of a spectrum",
  );
  t.match(
    await of("0.5\\0.5", spectrum),
    { spacing: { patient: false }, regions: undefined, codes: ["spacing_mismatch"] },
    "a picture of nothing but a spectrum",
  );
  t.match(
    await of("0.5\\0.5", region(0.05), region(1, { RegionSpatialFormat: 5 })),
    { spacing: pixel, regions: undefined, codes: { length: 0 } },
    "graphics lie over the picture",
  );
});

const PLANE: Attributes = {
  ImagePositionPatient: "0\\0\\0",
  ImageOrientationPatient: "1\\0\\0\\0\\1\\0",
};

t.test("PixelSpacing that equals the detector's or the film's", async (t) => {
  const spacing = { PixelSpacing: "0.5\\0.5" };
  const scanned = { ...spacing, NominalScannedPixelSpacing: "0.5\\0.5" };
  const imager = { ...spacing, ImagerPixelSpacing: "0.5\\0.5" };
  const CR = { SOPClassUID: "1.2.840.10008.5.1.4.1.1.1" };
  const cases: [string, Attributes, boolean][] = [
    ["a secondary capture with a plane", { ...scanned, ...PLANE }, true],
    ["of an X-ray reconstruction", { ...imager, ...PLANE, Modality: "XA" }, true],
    ["without a plane", scanned, false],
    [
      "with a lost orientation",
      { ...scanned, ...PLANE, ImageOrientationPatient: "0\\0\\0\\0\\0\\0" },
      false,
    ],
    ["without a position", { ...scanned, ...PLANE, ImagePositionPatient: undefined }, false],
    ["a projection", { ...imager, ...PLANE, ...CR, Modality: "CR" }, false],
    [
      "a projection with a lost orientation",
      { ...spacing, ...CR, Modality: "CR", ImageOrientationPatient: "0\\0\\0\\0\\0\\0" },
      false,
    ],
  ];
  for (const [name, attributes, patient] of cases)
    t.equal((await read(attributes)).spacing(0)?.patient, patient, name);
});

t.test("reconstructions of nuclear medicine", async (t) => {
  const detector = {
    ImagePositionPatient: "-10\\-20\\30",
    ImageOrientationPatient: "1\\0\\0\\0\\0\\-1",
  };
  const nuclear = (more: Attributes = {}) =>
    read({
      Modality: "NM",
      ImageType: "ORIGINAL\\PRIMARY\\RECON TOMO\\EMISSION",
      NumberOfFrames: "4",
      PixelSpacing: "4\\4",
      SpacingBetweenSlices: "2.5",
      SliceVector: new Typed("US", [1, 2, 3, 4]),
      DetectorInformationSequence: [detector],
      ...more,
    });
  const places = (image: Image) => [0, 1, 2, 3].map((frame) => image.plane(frame)?.position[1]);
  const upwards = await nuclear();
  t.strictSame(places(upwards), [-20, -17.5, -15, -12.5], "along the normal");
  t.strictSame(warned(upwards), []);
  t.strictSame(
    places(await nuclear({ SliceVector: new Typed("US", [4, 3, 2, 1]) })),
    [-12.5, -15, -17.5, -20],
    "by the slices' numbers",
  );
  t.strictSame(
    places(await nuclear({ DetectorInformationSequence: [detector, detector] })),
    places(upwards),
  );
  const gated = await nuclear({
    ImageType: "ORIGINAL\\PRIMARY\\RECON GATED TOMO\\EMISSION",
    SliceVector: new Typed("US", [1, 2, 1, 2]),
  });
  t.strictSame(places(gated), [-20, -17.5, -20, -17.5]);
  t.match(
    volumeFault(gated),
    { details: { reason: "duplicate_position" } },
    "several times are no volume",
  );
  const unplaced: [string, Attributes, string][] = [
    ["no distance", { SpacingBetweenSlices: undefined }, "missing_geometry"],
    ["the distance 0", { SpacingBetweenSlices: "0" }, "missing_geometry"],
    ["no numbers", { SliceVector: undefined }, "missing_geometry"],
    ["too few numbers", { SliceVector: new Typed("US", [1, 2, 3]) }, "missing_geometry"],
    ["numbers from 0", { SliceVector: new Typed("US", [0, 1, 2, 3]) }, "missing_geometry"],
    [
      "several places",
      { DetectorInformationSequence: [detector, { ...detector, ImagePositionPatient: "0\\0\\0" }] },
      "missing_geometry",
    ],
    [
      "a lost orientation",
      {
        DetectorInformationSequence: [{ ...detector, ImageOrientationPatient: "0\\0\\0\\0\\0\\0" }],
      },
      "invalid_orientation",
    ],
  ];
  for (const [name, more, reason] of unplaced) {
    const image = await nuclear(more);
    t.strictSame(places(image), [undefined, undefined, undefined, undefined], name);
    t.strictSame(warned(image), [reason], name);
    t.match(volumeFault(image), { code: "series_invalid", details: { reason } }, name);
  }
  t.strictSame(
    places(await nuclear({ ...detector, DetectorInformationSequence: [{}] })),
    places(upwards),
  );
  const nowhere = await nuclear({ DetectorInformationSequence: [{}] });
  t.strictSame([nowhere.plane(0), warned(nowhere)], [undefined, []], "nothing is said of a place");
  const planar = await nuclear({ ImageType: "ORIGINAL\\PRIMARY\\STATIC\\EMISSION" });
  t.strictSame([planar.plane(0), warned(planar)], [undefined, []], "other images of a camera");
});

t.test("a lost orientation", async (t) => {
  for (const orientation of [
    "1\\0\\0\\1\\0\\0",
    "1\\0\\0\\0.5\\0.5\\0",
    "1\\0\\0\\0\\1.2\\0",
    "0\\0\\0\\0\\0\\0",
  ]) {
    const image = await read({
      ...PLANE,
      PixelSpacing: "1\\1",
      ImageOrientationPatient: orientation,
    });
    t.strictSame(warned(image), ["invalid_orientation"], orientation);
    t.equal(image.plane(0), undefined);
    t.match(image.spacing(0), { patient: true }, "lengths need no place");
    const two = [0, 2].map((z) =>
      slice({ z, attributes: { ImageOrientationPatient: orientation } }),
    );
    t.match(await failure(readFolder(t, folderOf(t, two))), {
      code: "series_invalid",
      details: { reason: "invalid_orientation" },
    });
  }
  const plane = (orientation: string): Attributes => ({
    PlanePositionSequence: [{ ImagePositionPatient: "0\\0\\0" }],
    PlaneOrientationSequence: [{ ImageOrientationPatient: orientation }],
  });
  const frames = [plane("1\\0\\0\\0\\1\\0"), plane("0\\1\\0\\0\\1\\0")];
  const shared = [{ PixelMeasuresSequence: [{ PixelSpacing: "0.5\\0.8" }] }];
  const image = await readImage(
    multiFrame([0, 2], {
      PerFrameFunctionalGroupsSequence: frames,
      SharedFunctionalGroupsSequence: shared,
    }),
  );
  t.strictSame(warned(image), ["invalid_orientation"], "of one frame of two");
  t.ok(image.plane(0));
  t.match(volumeFault(image), { details: { reason: "invalid_orientation" } });
  const rounded = await read({
    ...PLANE,
    ImageOrientationPatient: "0.999\\0.0447\\0\\-0.0447\\0.999\\0",
  });
  t.strictSame(warned(rounded), [], "what rounding does is no fault");
});

t.test("functional groups in both places", async (t) => {
  const both = async (macro: string, shared: Attributes, own: Attributes) => {
    const groups = (item: Attributes) => ({ [macro]: [item] });
    return read({
      NumberOfFrames: "2",
      SharedFunctionalGroupsSequence: [groups(shared)],
      PerFrameFunctionalGroupsSequence: [groups(own), groups(own)],
    });
  };
  const cases: [string, Attributes, Attributes, (image: Image) => unknown, unknown][] = [
    [
      "PixelMeasuresSequence",
      { PixelSpacing: "0.5\\0.5" },
      { PixelSpacing: "0.7\\0.7" },
      (image) => image.spacing(0)?.row,
      0.7,
    ],
    [
      "PixelValueTransformationSequence",
      { RescaleSlope: "1", RescaleIntercept: "0", RescaleType: "US" },
      { RescaleSlope: "2", RescaleIntercept: "0", RescaleType: "US" },
      (image) => image.interpretation(0).modality,
      { kind: "rescale", slope: 2, intercept: 0 },
    ],
    [
      "RealWorldValueMappingSequence",
      {
        RealWorldValueFirstValueMapped: 0,
        RealWorldValueLastValueMapped: 9,
        RealWorldValueSlope: 1,
      },
      {
        RealWorldValueFirstValueMapped: 0,
        RealWorldValueLastValueMapped: 5,
        RealWorldValueSlope: 1,
      },
      (image) => image.interpretation(0).realWorld?.[0]?.last,
      5,
    ],
    [
      "FrameVOILUTSequence",
      { WindowCenter: "40", WindowWidth: "400" },
      { WindowCenter: "50", WindowWidth: "400" },
      (image) => image.interpretation(0).voi.map((voi) => (voi.kind === "window" ? voi.center : 0)),
      [50],
    ],
  ];
  for (const [macro, shared, own, found, expected] of cases) {
    const image = await both(macro, shared, own);
    t.strictSame(found(image), expected, `${macro}: the frame's own`);
    t.strictSame(warned(image), ["functional_group_twice"], macro);
    t.strictSame(warned(await both(macro, own, own)), [], `${macro}: equal`);
    const empty = await both(macro, own, {});
    t.strictSame(found(empty), expected, `${macro}: an empty item says nothing`);
    t.strictSame(warned(empty), []);
  }
  const written = await both(
    "PixelMeasuresSequence",
    { PixelSpacing: "0.50\\5E-1" },
    { PixelSpacing: "0.5\\0.5" },
  );
  t.strictSame(warned(written), [], "numbers that are written in another way are equal");
});

t.test("mosaics are no slices", async (t) => {
  const spaced = { ...PLANE, PixelSpacing: "2\\2", Modality: "MR" };
  const named = await read({ ...spaced, ImageType: "ORIGINAL\\PRIMARY\\M\\ND\\Mosaic" });
  const counted = await read({
    ...spaced,
    "00190010": new Typed("LO", "SIEMENS MR HEADER"),
    "0019100a": new Typed("US", 36),
  });
  for (const image of [named, counted]) {
    t.strictSame(warned(image), ["mosaic"]);
    t.equal(image.plane(0), undefined);
    t.equal(image.spacing(0)?.patient, false, "no area is of one slice");
  }
  t.match(counted.warnings, [{ message: /of 36/ }]);
  const one = await read({
    ...spaced,
    "00190010": new Typed("LO", "SIEMENS MR HEADER"),
    "0019100a": new Typed("US", 1),
  });
  t.strictSame(warned(one), []);
  const folder = [0, 2].map((z) =>
    slice({ z, attributes: { ImageType: "ORIGINAL\\PRIMARY\\MOSAIC" } }),
  );
  t.match(await failure(readFolder(t, folderOf(t, folder))), {
    code: "series_invalid",
    message: /mosaic/,
    details: { reason: "mosaic" },
  });
});

/** A slice whose stored values are those of `numbers`, over and over. */
function stored(
  z: number,
  bits: number,
  numbers: readonly number[],
  more: Attributes = {},
): Buffer {
  const words = bits > 16 ? Int32Array : bits > 8 ? Int16Array : Int8Array;
  const cells = new words(Array.from({ length: 16 }, (_, i) => numbers[i % numbers.length] ?? 0));
  const data = new Uint8Array(cells.buffer);
  const raw = {
    rows: 4,
    columns: 4,
    samples: 1,
    bitsAllocated: words.BYTES_PER_ELEMENT * 8,
    bitsStored: bits,
    data,
  };
  return slice({
    z,
    attributes: {
      ...attributesOf({ ...raw, signed: numbers.some((n) => n < 0) }),
      Modality: "MR",
      SOPClassUID: "1.2.840.10008.5.1.4.1.1.4",
      SOPInstanceUID: `1.2.3.4.${z + 1}`,
      RescaleSlope: undefined,
      RescaleIntercept: undefined,
      ...more,
    },
    frames: [data],
  });
}

t.test("slices that are stored differently and mean the same", async (t) => {
  const lifted = { RescaleSlope: "1", RescaleIntercept: "-1024", RescaleType: "HU" };
  const plain = { RescaleSlope: "1", RescaleIntercept: "0", RescaleType: "HU" };
  const cases: [string, Buffer[], number[][], object][] = [
    [
      "sign and intercept",
      [stored(0, 16, [0, 1064], lifted), stored(2, 16, [-1024, 40], plain)],
      [
        [-1024, 40],
        [-1024, 40],
      ],
      { bitsAllocated: 32, bitsStored: 17, signed: true },
    ],
    [
      "bits stored",
      [stored(0, 12, [0, 4095]), stored(2, 16, [0, 5000])],
      [
        [0, 4095],
        [0, 5000],
      ],
      { bitsAllocated: 16, bitsStored: 16, signed: false },
    ],
    [
      "bits allocated and sign",
      [stored(0, 8, [3, 127]), stored(2, 12, [-5, 2000])],
      [
        [3, 127],
        [-5, 2000],
      ],
      { bitsAllocated: 16, bitsStored: 12, signed: true },
    ],
    [
      "the place in the container",
      [stored(0, 12, [16, 32], { HighBit: 15 }), stored(2, 12, [1, 2])],
      [
        [1, 2],
        [1, 2],
      ],
      { bitsAllocated: 16, bitsStored: 12, highBit: 11 },
    ],
    [
      "32 bits",
      [stored(0, 32, [70_000, 1]), stored(2, 8, [7, 1])],
      [
        [70_000, 1],
        [7, 1],
      ],
      { bitsAllocated: 32, bitsStored: 32 },
    ],
  ];
  for (const [name, files, expected, format] of cases) {
    const image = await readFolder(t, folderOf(t, files));
    t.match(image.format, format, name);
    t.strictSame(warned(image), ["mixed_storage"], name);
    t.match(image.transforms, [{ step: "sort_slices" }, { step: "store_alike" }]);
    for (const [frame, values_] of expected.entries())
      t.strictSame((await values(image, frame)).slice(0, 2), values_, `${name}, slice ${frame}`);
  }
  const padded = await readFolder(
    t,
    folderOf(t, [
      stored(0, 8, [3, 4], { PixelPaddingValue: 3 }),
      stored(2, 16, [-7, 4], { PixelPaddingValue: new Typed("SS", -7) }),
    ]),
  );
  t.strictSame(
    [0, 1].map((frame) => padded.interpretation(frame).padding?.from),
    [3, -7],
    "each keeps its padding",
  );
});

t.test("slices that do not mean the same", async (t) => {
  const cases: [string, Buffer[], string][] = [
    [
      "units",
      [stored(0, 16, [1], { RescaleSlope: "1", RescaleType: "HU" }), stored(2, 16, [1])],
      "mixed_units",
    ],
    [
      "polarity",
      [stored(0, 8, [1]), stored(2, 16, [1], { PhotometricInterpretation: "MONOCHROME1" })],
      "mixed_format",
    ],
    [
      "a CT slice without its rescale",
      [
        slice({ z: 0 }),
        slice({ z: 2, attributes: { RescaleSlope: undefined, RescaleIntercept: undefined } }),
      ],
      "mixed_units",
    ],
    ["33 bits together", [stored(0, 32, [1]), stored(2, 32, [-1])], "mixed_format"],
  ];
  for (const [name, files, reason] of cases)
    t.match(
      await failure(readFolder(t, folderOf(t, files))),
      { code: "series_invalid", details: { reason } },
      name,
    );
  // Bits above BitsStored that are those of a sign: air would be taken for bone
  const lost = [stored(0, 12, [-1000, 5], { PixelRepresentation: 0 }), stored(2, 16, [-1000, 5])];
  const image = await readFolder(t, folderOf(t, lost));
  t.match(await failure(image.frame(0)), {
    code: "decode_suspect",
    details: { reason: "sign_mismatch" },
  });
});

const at = (position: string): Attributes => ({ ImagePositionPatient: position });

/** A stack at these positions, "x\y\z". */
const stackAt = (positions: readonly string[], more: Attributes = {}) =>
  positions.map((position, z) => slice({ z, attributes: { ...at(position), ...more } }));

t.test("positions that were rounded to a tenth of a millimetre", async (t) => {
  const round = (mm: number) => mm.toFixed(1);
  const axial = (step: number, count: number) =>
    Array.from({ length: count }, (_, i) => `0\\0\\${round(-31.3 + i * step)}`);
  for (const step of [0.667, 1.25, 2.54, 0.43]) {
    const image = await readFolder(t, folderOf(t, stackAt(axial(step, 40))));
    const { sliceSpacing } = image.series!.volume.geometry;
    t.ok(Math.abs(sliceSpacing - step) < 0.1 / 39, `${step} is ${sliceSpacing}`);
    t.strictSame(warned(image), ["rounded_positions"], String(step));
  }
  const exact = await readFolder(t, folderOf(t, stackAt(axial(2.5, 5))));
  t.strictSame(warned(exact), [], "rounding that changes nothing");
  // 30 degrees about the x-axis, 2 mm apart, each coordinate rounded by itself
  const [cos, sin] = [Math.cos(Math.PI / 6), Math.sin(Math.PI / 6)];
  const oblique = Array.from(
    { length: 30 },
    (_, i) => `0\\${round(-2 * i * sin)}\\${round(2 * i * cos)}`,
  );
  const turned = { ImageOrientationPatient: `1\\0\\0\\0\\${cos}\\${sin}` };
  const image = await readFolder(t, folderOf(t, stackAt(oblique, turned)));
  t.ok(Math.abs(image.series!.volume.geometry.sliceSpacing - 2) < 0.01);
  t.equal(image.series?.volume.flaws, undefined, "no tilt");
  t.strictSame(warned(image), ["rounded_positions"]);
  // Rounded before an origin was added that is no multiple of 0.1
  const shifted = Array.from({ length: 30 }, (_, i) => {
    const [y, z] = [round(-2 * i * sin), round(2 * i * cos)].map(Number);
    return `-7.0412\\${(y! - 78.3063).toFixed(4)}\\${(z! + 12.3456).toFixed(4)}`;
  });
  const moved = await readFolder(t, folderOf(t, stackAt(shifted, turned)));
  t.ok(Math.abs(moved.series!.volume.geometry.sliceSpacing - 2) < 0.01);
  t.strictSame(warned(moved), ["rounded_positions"]);
  const multi = await readImage(multiFrame([0, 0.7, 1.3, 2]));
  t.ok(volumeOf(multi));
  t.strictSame(warned(multi), ["rounded_positions"], "frames of one file");
});

t.test("what rounding to a tenth of a millimetre does not explain", async (t) => {
  const cases: [string, string[], string][] = [
    [
      "a slice 0.2 mm off",
      ["0\\0\\0", "0\\0\\2", "0\\0\\4.2", "0\\0\\6", "0\\0\\8"],
      "uneven_spacing",
    ],
    ["more digits", ["0\\0\\0", "0\\0\\0.71", "0\\0\\1.3", "0\\0\\2"], "uneven_spacing"],
    ["a drift", ["0\\0\\0", "0\\0\\2", "0\\0\\4.1", "0\\0\\6.3", "0\\0\\8.6"], "uneven_spacing"],
    ["a shear", ["0\\0\\0", "0.1\\0\\2", "0.2\\0\\4"], "tilt"],
    [
      "slices as near as the rounding",
      ["0\\0\\0", "0\\0\\0.2", "0\\0\\0.5", "0\\0\\0.7"],
      "uneven_spacing",
    ],
    ["a missing slice", ["0\\0\\0", "0\\0\\0.7", "0\\0\\1.3", "0\\0\\2.7", "0\\0\\3.3"], "gap"],
  ];
  for (const [name, positions, reason] of cases)
    t.match(
      await failure(readFolder(t, folderOf(t, stackAt(positions)))),
      { code: "series_invalid", details: { reason } },
      name,
    );
});

t.test("the slope 0", async (t) => {
  const zero = { RescaleSlope: "0", RescaleIntercept: "-3" };
  const empty = await read(zero);
  t.strictSame((await values(empty, 0)).slice(0, 2), [-3, -3], "the intercept, whatever the slope");
  t.strictSame(warned(empty), ["empty_slice"]);
  const pixels = Buffer.alloc(16, 5);
  const file = (more: Attributes) => dicomFile({ attributes: imageAttributes(more), pixels });
  await refuses(t, file(zero), "corrupt_image", /RescaleSlope is 0/, "values that are not");
  await refuses(
    t,
    file({ DoseGridScaling: "0" }),
    "corrupt_image",
    /DoseGridScaling is 0/,
    "of a dose",
  );
  const padded = await readImage(file({ ...zero, PixelPaddingValue: 5 }));
  t.strictSame((await values(padded, 0)).length, 16, "padding is no value");
  const last = Buffer.alloc(64);
  last[63] = 1;
  const frames = dicomFile({
    attributes: imageAttributes({ ...zero, NumberOfFrames: "4" }),
    pixels: last,
  });
  const image = await readImage(frames);
  t.ok(await image.frame(0));
  t.match(await failure(image.frame(3)), { code: "corrupt_image" });
});
