import t from "tap";
import type { Image } from "../../../src/images/image.js";
import { readImage } from "../../../src/images/read-image.js";
import {
  BIG_ENDIAN,
  CT,
  dicomFile,
  EXPLICIT,
  imageAttributes,
  IMPLICIT,
  Typed,
  type Attributes,
} from "../../support/dicom.js";
import { refuses, warned } from "../../support/expect.js";

const read = (attributes: Attributes, transferSyntax = EXPLICIT): Promise<Image> =>
  readImage(
    dicomFile({
      transferSyntax,
      attributes: imageAttributes(attributes),
      pixels: Buffer.alloc(attributes.NumberOfFrames === "2" ? 32 : 16),
    }),
  );

const words = (...values: number[]) => new Typed("US", values);

t.test("modality transform and units", async (t) => {
  const cases: [string, Attributes, object, string | undefined][] = [
    ["none", {}, { kind: "identity" }, undefined],
    [
      "rescale",
      { RescaleSlope: "2", RescaleIntercept: "-1024" },
      { kind: "rescale", slope: 2, intercept: -1024 },
      undefined,
    ],
    [
      "intercept alone",
      { RescaleIntercept: "5" },
      { kind: "rescale", slope: 1, intercept: 5 },
      undefined,
    ],
    [
      "said to be HU",
      { RescaleSlope: "1", RescaleType: "HU" },
      { kind: "rescale", slope: 1, intercept: 0 },
      "HU",
    ],
    [
      "unspecified",
      { RescaleSlope: "1", RescaleType: "US" },
      { kind: "rescale", slope: 1, intercept: 0 },
      undefined,
    ],
    [
      "CT",
      { SOPClassUID: CT, RescaleSlope: "1", RescaleIntercept: "-1000" },
      { kind: "rescale" },
      "HU",
    ],
    ["CT without rescale", { SOPClassUID: CT }, { kind: "identity" }, undefined],
    [
      "CT localizer",
      { SOPClassUID: CT, RescaleSlope: "1", ImageType: "ORIGINAL\\PRIMARY\\LOCALIZER" },
      { kind: "rescale" },
      undefined,
    ],
    ["PET", { Modality: "PT", RescaleSlope: "1", Units: "BQML" }, { kind: "rescale" }, "BQML"],
    [
      "modality LUT",
      {
        ModalityLUTSequence: [
          { LUTDescriptor: words(3, 0, 16), LUTData: words(7, 8, 9), ModalityLUTType: "HU" },
        ],
      },
      { kind: "lut", lut: { firstMapped: 0, bits: 16, entries: Uint16Array.of(7, 8, 9) } },
      "HU",
    ],
  ];
  for (const [name, attributes, modality, units] of cases) {
    const found = (await read(attributes)).interpretation(0);
    t.match(found.modality, modality, name);
    t.equal(found.units, units, name);
  }
});

t.test("dose grids", async (t) => {
  const dose = (
    await read({ Modality: "RTDOSE", DoseGridScaling: "2.5e-5", DoseUnits: "GY" })
  ).interpretation(0);
  t.strictSame(dose.modality, { kind: "rescale", slope: 2.5e-5, intercept: 0 });
  t.equal(dose.units, "GY");
});

t.test("LUT items that were never filled in are none", async (t) => {
  const empty = {
    LUTDescriptor: new Typed("US", []),
    LUTData: new Typed("US", []),
    LUTExplanation: "",
  };
  const image = await read({
    ModalityLUTSequence: [empty],
    VOILUTSequence: [empty, { LUTDescriptor: words(2, 0, 16), LUTData: words(1, 20000) }],
    RescaleSlope: "3",
  });
  t.match(image.interpretation(0), {
    modality: { kind: "rescale", slope: 3 },
    voi: [{ kind: "lut" }],
  });
  t.equal(image.interpretation(0).voi.length, 1);
  t.strictSame(warned(image), ["lut_empty", "lut_empty"]);
});

t.test("per-frame functional groups override shared ones, and those the top", async (t) => {
  const rescale = (slope: string) => ({
    PixelValueTransformationSequence: [{ RescaleSlope: slope, RescaleIntercept: "0" }],
  });
  const position = (z: string) => ({
    PlanePositionSequence: [{ ImagePositionPatient: `0\\0\\${z}` }],
  });
  const image = await read({
    NumberOfFrames: "2",
    RescaleSlope: "9",
    PixelSpacing: "9\\9",
    SharedFunctionalGroupsSequence: [
      {
        ...rescale("2"),
        PixelMeasuresSequence: [{ PixelSpacing: "0.5\\0.25" }],
        PlaneOrientationSequence: [{ ImageOrientationPatient: "1\\0\\0\\0\\1\\0" }],
      },
    ],
    PerFrameFunctionalGroupsSequence: [{ ...rescale("3"), ...position("10") }, position("20")],
  });
  t.match(image.interpretation(0).modality, { slope: 3 });
  t.match(image.interpretation(1).modality, { slope: 2 });
  t.strictSame(image.spacing(1), { row: 0.5, column: 0.25, source: "PixelSpacing", patient: true });
  t.equal(image.pixelAspect(0), 2);
  t.strictSame(image.plane(0)?.position, [0, 0, 10]);
  t.strictSame(image.plane(1), { position: [0, 0, 20], orientation: [1, 0, 0, 0, 1, 0] });
  t.throws(() => image.interpretation(2), { code: "bad_request" });
  await t.rejects(image.frame(-1), { code: "bad_request" });
});

t.test("windows and VOI LUTs", async (t) => {
  const image = await read({
    WindowCenter: "40\\ 450",
    WindowWidth: "350\\1500 ",
    WindowCenterWidthExplanation: "SOFT\\BONE",
    VOILUTSequence: [
      { LUTDescriptor: words(2, 5, 12), LUTData: words(0, 4095), LUTExplanation: "NORMAL" },
    ],
  });
  t.strictSame(image.interpretation(0).voi, [
    { kind: "window", center: 40, width: 350, function: "LINEAR", explanation: "SOFT" },
    { kind: "window", center: 450, width: 1500, function: "LINEAR", explanation: "BONE" },
    {
      kind: "lut",
      lut: { firstMapped: 5, bits: 12, entries: Uint16Array.of(0, 4095) },
      explanation: "NORMAL",
    },
  ]);
  const cases: [Attributes, object[], string[]][] = [
    [{ WindowCenter: "1", WindowWidth: "0" }, [], ["window_ignored"]],
    [{ WindowCenter: "1", WindowWidth: "" }, [], ["window_ignored"]],
    [
      { WindowCenter: "1", WindowWidth: "0.5" },
      [{ function: "LINEAR_EXACT", width: 0.5 }],
      ["window_narrow"],
    ],
    [
      { WindowCenter: "1", WindowWidth: "0.5", VOILUTFunction: "SIGMOID" },
      [{ function: "SIGMOID" }],
      [],
    ],
    [
      { WindowCenter: "1", WindowWidth: "9", VOILUTFunction: "ODD" },
      [{ function: "LINEAR" }],
      ["voi_function_unknown"],
    ],
  ];
  for (const [attributes, expected, warnings] of cases) {
    const found = await read(attributes);
    t.match(found.interpretation(0).voi, expected, JSON.stringify(attributes));
    t.equal(found.interpretation(0).voi.length, expected.length);
    t.strictSame(warned(found), warnings);
  }
});

t.test("lookup tables", async (t) => {
  const lut = async (item: Attributes, more: Attributes = {}, transferSyntax = EXPLICIT) => {
    const { modality } = (
      await read({ ModalityLUTSequence: [item], ...more }, transferSyntax)
    ).interpretation(0);
    return modality.kind === "lut" ? modality.lut : undefined;
  };
  const whole = await lut(
    {
      LUTDescriptor: words(0, 0, 16),
      LUTData: words(...Array.from({ length: 65536 }, (_, i) => i)).value,
    },
    {},
    IMPLICIT,
  );
  t.equal(whole?.entries.length, 65536, "0 entries are 65,536");
  const signed = await lut(
    { LUTDescriptor: words(2, 65534, 16), LUTData: words(1, 2) },
    { PixelRepresentation: 1 },
  );
  t.equal(signed?.firstMapped, -2, "first mapped value of signed pixels");
  const unsigned = await lut({ LUTDescriptor: words(2, 65534, 16), LUTData: words(1, 2) });
  t.equal(unsigned?.firstMapped, 65534);
  for (const syntax of [EXPLICIT, BIG_ENDIAN]) {
    const packed = new Typed("OW", [0x0201, 0x0403]);
    t.strictSame(
      (await lut({ LUTDescriptor: words(4, 0, 8), LUTData: packed }, {}, syntax))?.entries,
      Uint16Array.of(1, 2, 3, 4),
      `8-bit entries in words, ${syntax}`,
    );
    t.strictSame(
      (await lut({ LUTDescriptor: words(2, 0, 8), LUTData: new Typed("OW", [7, 8]) }, {}, syntax))
        ?.entries,
      Uint16Array.of(7, 8),
      "8-bit entries, a word each",
    );
  }
  const bytes = await lut({
    LUTDescriptor: words(3, 0, 8),
    LUTData: new Typed("OB", Buffer.from([1, 2, 3, 0])),
  });
  t.strictSame(bytes?.entries, Uint16Array.of(1, 2, 3), "OB");
  const broken = (item: Attributes) =>
    dicomFile({
      attributes: imageAttributes({ ModalityLUTSequence: [item] }),
      pixels: Buffer.alloc(16),
    });
  await refuses(
    t,
    broken({ LUTDescriptor: words(9, 0, 16), LUTData: words(1) }),
    "corrupt_image",
    /LUTData/,
    "too short",
  );
  await refuses(
    t,
    broken({ LUTDescriptor: words(1, 0, 3), LUTData: words(1) }),
    "corrupt_image",
    /LUTDescriptor/,
    "3 bits",
  );
  await refuses(
    t,
    broken({ LUTDescriptor: words(1, 0, 16) }),
    "corrupt_image",
    /LUTData/,
    "no data",
  );
});

t.test("palettes, plain and segmented", async (t) => {
  const palette = (bits: number, entries: number, red: Typed, segmented = false): Attributes => {
    const prefix = segmented ? "Segmented" : "";
    return {
      PhotometricInterpretation: "PALETTE COLOR",
      ...Object.fromEntries(
        ["Red", "Green", "Blue"].flatMap((colour) => [
          [`${colour}PaletteColorLookupTableDescriptor`, words(entries, 10, bits)],
          [`${prefix}${colour}PaletteColorLookupTableData`, red],
        ]),
      ),
    };
  };
  const entries = async (attributes: Attributes) =>
    (await read(attributes)).interpretation(0).palette;
  t.match(await entries(palette(16, 3, new Typed("OW", [0, 300, 65535]))), {
    firstMapped: 10,
    bits: 16,
    red: Uint16Array.of(0, 300, 65535),
    blue: Uint16Array.of(0, 300, 65535),
  });
  t.match(await entries(palette(8, 4, new Typed("OW", [0x0201, 0x0403]))), {
    bits: 8,
    green: Uint16Array.of(1, 2, 3, 4),
  });
  t.match(
    await entries(palette(8, 2, new Typed("OW", [0xff00, 0x8000]))),
    { bits: 16 },
    "8 bits said, 16 meant",
  );
  // PS3.3 C.7.9.2: discrete 0 and 1000; linear over 4 to 2000; both copied by an indirect segment
  const segments = [0, 2, 0, 1000, 1, 4, 2000, 2, 2, 0, 0];
  t.strictSame(
    (await entries(palette(16, 12, new Typed("OW", segments), true)))?.red,
    Uint16Array.of(0, 1000, 1250, 1500, 1750, 2000, 0, 1000, 1250, 1500, 1750, 2000),
  );
  const packed = Buffer.from([0, 2, 0, 100, 1, 4, 200, 0]);
  t.strictSame(
    (await entries(palette(8, 6, new Typed("OW", packed), true)))?.red,
    Uint16Array.of(0, 100, 125, 150, 175, 200),
  );
  for (const [vr, codes] of [
    ["OW", Buffer.from(packed).swap16()],
    ["OB", packed],
  ] as const)
    t.strictSame(
      (await read(palette(8, 6, new Typed(vr, codes), true), BIG_ENDIAN)).interpretation(0).palette
        ?.red,
      Uint16Array.of(0, 100, 125, 150, 175, 200),
      `big endian, ${vr}`,
    );
  const file = (attributes: Attributes) =>
    dicomFile({ attributes: imageAttributes(attributes), pixels: Buffer.alloc(16) });
  await refuses(
    t,
    file({ PhotometricInterpretation: "PALETTE COLOR" }),
    "corrupt_image",
    /RedPalette/,
    "no palette",
  );
  await refuses(
    t,
    file(palette(16, 9, new Typed("OW", [0, 1, 5]), true)),
    "corrupt_image",
    /ends inside/,
    "short segments",
  );
  // An indirect segment of 3,000 linear ones, of which the first fills the table
  const many = [
    0,
    1,
    0,
    2,
    3000,
    14,
    0,
    ...Array.from({ length: 3000 }, () => [1, 65535, 9]).flat(),
  ];
  t.equal((await entries(palette(16, 65535, new Typed("OW", many), true)))?.red.length, 65535);
  const circle = [
    ...Array.from({ length: 100 }, () => [2, 65535, 800, 0]).flat(),
    ...Array.from({ length: 2 * 65535 }, () => 0),
  ];
  await refuses(
    t,
    file(palette(16, 9, new Typed("OW", circle), true)),
    "corrupt_image",
    /repeats segments/,
    "segments without entries",
  );
  await refuses(
    t,
    file(palette(16, 9, new Typed("OW", [1, 4, 5]), true)),
    "corrupt_image",
    /linear/,
    "linear first",
  );
  await refuses(
    t,
    file(palette(16, 9, new Typed("OW", [2, 1, 0, 0]), true)),
    "corrupt_image",
    /segment type/,
    "endless",
  );
});

t.test(
  "a supplemental palette colours some grey values for display; the image stays grey",
  async (t) => {
    const image = await read({
      PixelPresentation: "COLOR",
      RescaleSlope: "2",
      ...Object.fromEntries(
        ["Red", "Green", "Blue"].flatMap((colour) => [
          [`${colour}PaletteColorLookupTableDescriptor`, words(2, 200, 16)],
          [`${colour}PaletteColorLookupTableData`, new Typed("OW", [0, 65535])],
        ]),
      ),
    });
    t.match(image.format, { photometricInterpretation: "MONOCHROME2", samplesPerPixel: 1 });
    t.match(image.interpretation(0), { palette: undefined, modality: { slope: 2 } });
  },
);

t.test("padding", async (t) => {
  const cases: [Attributes, object | undefined][] = [
    [{}, undefined],
    [{ PixelPaddingValue: words(200) }, { from: 200, to: 200 }],
    [
      { PixelPaddingValue: words(200), PixelPaddingRangeLimit: words(100) },
      { from: 200, to: 100 },
    ],
    [
      { PixelPaddingValue: words(63536), PixelRepresentation: 1 },
      { from: -2000, to: -2000 },
    ],
  ];
  for (const [attributes, expected] of cases)
    for (const syntax of [EXPLICIT, IMPLICIT])
      t.strictSame((await read(attributes, syntax)).interpretation(0).padding, expected);
});

t.test("regions of an ultrasound image, each with its scale", async (t) => {
  const region = (more: Attributes): Attributes => ({
    RegionSpatialFormat: 1,
    PhysicalUnitsXDirection: 3,
    PhysicalUnitsYDirection: 3,
    PhysicalDeltaX: new Typed("FD", 0.5),
    PhysicalDeltaY: new Typed("FD", 0.25),
    RegionLocationMinX0: 0,
    RegionLocationMinY0: 0,
    RegionLocationMaxX1: 1,
    RegionLocationMaxY1: 1,
    ...more,
  });
  const whole = { x0: 0, y0: 0, x1: 1, y1: 1 };
  const image = await read({
    SequenceOfUltrasoundRegions: [
      region({}),
      region({ PhysicalDeltaX: new Typed("FD", -1), RegionLocationMinX0: 1, RegionFlags: 1 }),
      region({ PhysicalUnitsXDirection: 4, RegionFlags: 2 }),
      region({ RegionSpatialFormat: 3 }),
    ],
  });
  t.strictSame(image.regions?.(0), [
    { ...whole, scale: { row: 2.5, column: 5 }, highPriority: true },
    { ...whole, x0: 1, scale: { row: 2.5, column: 10 }, highPriority: false },
    { ...whole, scale: undefined, highPriority: true },
    { ...whole, scale: undefined, highPriority: true },
  ]);
  t.equal(image.spacing(0), undefined, "no spacing of the whole image");
  const shrunk = await read({
    SequenceOfUltrasoundRegions: [region({}), region({ RegionLocationMaxX1: 99 })],
  });
  t.equal(shrunk.regions?.(0), undefined, "regions of a larger image");
});

t.test("spacing and aspect", async (t) => {
  const region = (delta: number, format = 1) => ({
    RegionSpatialFormat: format,
    PhysicalUnitsXDirection: 3,
    PhysicalUnitsYDirection: 3,
    PhysicalDeltaX: new Typed("FD", delta),
    PhysicalDeltaY: new Typed("FD", delta * 2),
    ...placed(0, 0, 3, 3),
  });
  const placed = (x0: number, y0: number, x1: number, y1: number) => ({
    RegionLocationMinX0: x0,
    RegionLocationMinY0: y0,
    RegionLocationMaxX1: x1,
    RegionLocationMaxY1: y1,
  });
  const cases: [string, Attributes, object | undefined, number][] = [
    ["none", {}, undefined, 1],
    [
      "row, then column",
      { PixelSpacing: "0.8\\0.4" },
      { row: 0.8, column: 0.4, source: "PixelSpacing", patient: true },
      2,
    ],
    [
      "detector",
      { ImagerPixelSpacing: "0.1\\0.1" },
      { source: "ImagerPixelSpacing", patient: false },
      1,
    ],
    [
      "not corrected",
      { PixelSpacing: "0.1\\0.1", ImagerPixelSpacing: "0.1\\0.1" },
      { source: "ImagerPixelSpacing", patient: false },
      1,
    ],
    [
      "corrected",
      { PixelSpacing: "0.09\\0.09", ImagerPixelSpacing: "0.1\\0.1" },
      { row: 0.09, source: "PixelSpacing", patient: true },
      1,
    ],
    [
      "scanned",
      { NominalScannedPixelSpacing: "0.2\\0.2" },
      { source: "NominalScannedPixelSpacing", patient: false },
      1,
    ],
    [
      "ultrasound",
      { SequenceOfUltrasoundRegions: [region(0.05), region(9, 3)] },
      { row: 1, column: 0.5, source: "SequenceOfUltrasoundRegions", patient: true },
      2,
    ],
    [
      "ultrasound, where in the image it holds",
      { SequenceOfUltrasoundRegions: [{ ...region(0.05), ...placed(1, 2, 4, 3) }] },
      { row: 1, patient: true },
      2,
    ],
    [
      "ultrasound that was shrunk after it was calibrated",
      { SequenceOfUltrasoundRegions: [{ ...region(0.05), ...placed(1, 2, 7, 7) }] },
      undefined,
      1,
    ],
    [
      "ultrasound, regions that differ",
      { SequenceOfUltrasoundRegions: [region(0.05), region(0.06)] },
      undefined,
      1,
    ],
    [
      "not scanned at another size",
      { PixelSpacing: "0.2\\0.2", NominalScannedPixelSpacing: "0.2\\0.2" },
      { source: "NominalScannedPixelSpacing", patient: false },
      1,
    ],
    [
      "a projection that does not say",
      { Modality: "CR", PixelSpacing: "0.2\\0.2" },
      { row: 0.2, source: "PixelSpacing", patient: false },
      1,
    ],
    [
      "a calibrated projection",
      { Modality: "CR", PixelSpacing: "0.2\\0.2", PixelSpacingCalibrationType: "FIDUCIAL" },
      { row: 0.2, source: "PixelSpacing", patient: true },
      1,
    ],
    ["aspect alone", { PixelAspectRatio: "3\\2" }, undefined, 1.5],
    ["zero", { PixelSpacing: "0\\0" }, undefined, 1],
  ];
  for (const [name, attributes, expected, aspect] of cases) {
    const image = await read(attributes);
    if (expected === undefined) t.equal(image.spacing(0), undefined, name);
    else t.match(image.spacing(0), expected, name);
    t.equal(image.pixelAspect(0), aspect, name);
  }
});

t.test("padding and mappings have the sign that the VRs of a file without one name", async (t) => {
  const mapping = (vr: "SS" | "US", first: number, last: number) => ({
    RealWorldValueMappingSequence: [
      {
        RealWorldValueFirstValueMapped: new Typed(vr, [first]),
        RealWorldValueLastValueMapped: new Typed(vr, [last]),
        RealWorldValueSlope: 1,
        RealWorldValueIntercept: 0,
      },
    ],
  });
  const stated = { BitsAllocated: 16, BitsStored: 16, HighBit: 15, RescaleIntercept: "-1024" };
  for (const [signed, vr, first, last] of [
    [true, "SS", -2000, 3000],
    [false, "US", 63536, 65000],
  ] as const) {
    for (const PixelRepresentation of [undefined, signed ? 1 : 0]) {
      const attributes = imageAttributes({
        ...stated,
        PixelRepresentation,
        PixelPaddingValue: new Typed(vr, [first]),
        ...mapping(vr, first, last),
      });
      const image = await readImage(dicomFile({ attributes, pixels: Buffer.alloc(32) }));
      const { padding, realWorld } = image.interpretation(0);
      t.strictSame(padding, { from: first, to: first });
      t.match(realWorld, [{ first, last }]);
      t.equal(image.format.signed, signed);
    }
  }
});
