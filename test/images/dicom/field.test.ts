/**
 * Files as devices and archives send them: against the standard, read by others, and to be read
 * right or refused.
 */
import { deflateRawSync } from "node:zlib";
import t from "tap";
import { inspectImage } from "../../../src/inference/inspection.js";
import { readImage } from "../../../src/images/read-image.js";
import {
  attributesOf,
  BIG_ENDIAN,
  compress,
  DEFLATED_FRAMES,
  dicomFile,
  encapsulated,
  encodeElement,
  EXPLICIT,
  imageAttributes,
  picture,
  RLE,
  SYNTAXES,
  Typed,
  type Attributes,
  type FileOptions,
  type Raw,
} from "../../support/dicom.js";
import { refuses, warned } from "../../support/expect.js";

const LAYOUT = { rows: 20, columns: 24, samples: 1, bitsAllocated: 16, bitsStored: 12 };
const RAW = picture(LAYOUT);
const LOSSLESS = SYNTAXES["jpeg-lossless"];

const words = (...values: number[]) => Buffer.from(new Uint16Array(values).buffer);

/** `values` on a frame that is otherwise `base`. */
function withValues(base: Raw, ...values: number[]): Raw {
  const data = Buffer.from(base.data);
  words(...values).copy(data);
  return { ...base, data };
}

/** The file's only frame as it was coded, and the codes of its warnings. */
async function reads(options: FileOptions): Promise<{ frame: Buffer; codes: string[] }> {
  const image = await readImage(dicomFile(options));
  return { frame: Buffer.from(await image.frame(0)), codes: warned(image) };
}

t.test("fragments in icons and private elements do not stop the walk", async (t) => {
  const fragments = [await compress("jpeg-lossless", RAW)];
  const icon = await compress("jpeg", picture({ ...LAYOUT, bitsAllocated: 8, bitsStored: 8 }));
  const inside = new Typed("OB", encapsulated({ fragments: [icon] }), true);
  const holders: [string, Attributes][] = [
    ["icon", { IconImageSequence: new Typed("SQ", [{ Rows: 20, PixelData: inside }], true) }],
    ["icon of defined length", { IconImageSequence: [{ Rows: 20, PixelData: inside }] }],
    ["private", { "20010010": new Typed("LO", "Some vendor"), "20011010": inside }],
  ];
  for (const [name, holder] of holders) {
    const attributes = attributesOf(RAW, holder);
    const { frame, codes } = await reads({
      transferSyntax: LOSSLESS,
      attributes,
      pixels: { fragments },
    });
    t.strictSame(frame, Buffer.from(RAW.data), name);
    t.notOk(codes.includes("missing_delimiter"), `${name}: nothing was missed`);
  }
  const open = encapsulated({ fragments: [icon], delimiter: false });
  const attributes = attributesOf(RAW, { "20011010": new Typed("OB", open, true) });
  await refuses(
    t,
    dicomFile({ attributes }),
    "truncated_image",
    /\(2001,1010\)/,
    "private without an end",
  );
});

t.test(
  "explicit elements in a sequence of unknown representation, the first of them private",
  async (t) => {
    const explicit = Buffer.concat([
      Buffer.from("feff00e0ffffffff", "hex"),
      encodeElement(0x20011001, "FL", Buffer.alloc(4), { explicit: true, little: true }),
      encodeElement(0x20011002, "US", Buffer.alloc(2), { explicit: true, little: true }),
      Buffer.from("feff0de000000000feffdde000000000", "hex"),
    ]);
    const raw = picture({ ...LAYOUT, rows: 600, columns: 700 });
    const attributes = attributesOf(raw, { "20019000": new Typed("UN", explicit, true) });
    // Far from the end of the file the bytes of a representation can pass for a length
    const { frame, codes } = await reads({ attributes, pixels: raw.data });
    t.ok(frame.equals(raw.data));
    t.strictSame(codes, ["explicit_in_implicit"]);
  },
);

t.test("compressed pixel data of a defined length is not taken for pixels", async (t) => {
  const coded = Buffer.from(await compress("jpeg-lossless", RAW));
  const attributes = attributesOf(RAW);
  const given: [string, Uint8Array, string][] = [
    ["items", encapsulated({ fragments: [coded] }), LOSSLESS],
    ["items without delimiter", encapsulated({ fragments: [coded], delimiter: false }), LOSSLESS],
    ["a bare codestream", coded, LOSSLESS],
    ["items of RLE", encapsulated({ fragments: [await compress("rle", RAW)] }), RLE],
  ];
  for (const [name, pixels, transferSyntax] of given) {
    const { frame, codes } = await reads({ transferSyntax, attributes, pixels, pixelVr: "OB" });
    t.strictSame(frame, Buffer.from(RAW.data), name);
    t.strictSame(
      codes.filter((code) => code !== "precision_mismatch"),
      ["defined_length"],
      name,
    );
  }
  const plain = await reads({ transferSyntax: LOSSLESS, attributes, pixels: RAW.data });
  t.strictSame(plain.frame, Buffer.from(RAW.data), "pixels that are not compressed are still read");
  t.ok(plain.codes.includes("not_encapsulated"));
});

t.test("a frame in the place of the Basic Offset Table, and empty fragments", async (t) => {
  const coded = await compress("jpeg-lossless", RAW);
  const attributes = attributesOf(RAW);
  const withTable = encapsulated({ fragments: [coded] });
  const body = Buffer.concat([
    dicomFile({ transferSyntax: LOSSLESS, attributes }),
    Buffer.from("e07f10004f420000ffffffff", "hex"),
    withTable.subarray(8),
  ]);
  const image = await readImage(body);
  t.strictSame(Buffer.from(await image.frame(0)), Buffer.from(RAW.data));
  t.ok(warned(image).includes("missing_offset_table"));
  const rle = await compress("rle", RAW);
  const fragments = [rle, rle, new Uint8Array(0)];
  const two = attributesOf(RAW, { NumberOfFrames: "2" });
  const { frame } = await reads({ transferSyntax: RLE, attributes: two, pixels: { fragments } });
  t.strictSame(frame, Buffer.from(RAW.data), "an empty fragment at the end is no frame");
});

t.test("RLE under another transfer syntax, and another coding under RLE", async (t) => {
  const attributes = attributesOf(RAW);
  const rle = { fragments: [await compress("rle", RAW)] };
  const jpeg = { fragments: [await compress("jpeg-lossless", RAW)] };
  const cases: [string, typeof rle, string][] = [
    [LOSSLESS, rle, "codestream_mismatch"],
    [EXPLICIT, rle, "encapsulated_in_native"],
    [RLE, jpeg, "codestream_mismatch"],
    [EXPLICIT, jpeg, "encapsulated_in_native"],
  ];
  for (const [transferSyntax, pixels, code] of cases) {
    const { frame, codes } = await reads({ transferSyntax, attributes, pixels });
    t.strictSame(frame, Buffer.from(RAW.data));
    t.ok(codes.includes(code), `${transferSyntax}: ${code}`);
  }
});

t.test("the byte order is that of the bytes", async (t) => {
  for (const [declared, real] of [
    [EXPLICIT, BIG_ENDIAN],
    [BIG_ENDIAN, EXPLICIT],
  ] as const) {
    const pixels = Buffer.from(RAW.data);
    if (real === BIG_ENDIAN) pixels.swap16();
    const file = dicomFile({ transferSyntax: real, attributes: attributesOf(RAW), pixels });
    const at = file.indexOf(real, 0, "latin1");
    // The UIDs are of one length when padded
    file.write(declared.padEnd(20, "\0"), at, "latin1");
    const image = await readImage(file);
    t.strictSame(
      Buffer.from(await image.frame(0)),
      Buffer.from(RAW.data),
      `${declared} that is ${real}`,
    );
    t.strictSame(warned(image), ["byte_order_mismatch"]);
  }
});

t.test("zeros behind the pixel data are no elements", async (t) => {
  const { codes } = await reads({ pixels: Buffer.alloc(16), trailing: Buffer.alloc(100) });
  t.strictSame(codes, ["trailing_data"]);
});

t.test(
  "overlays in the high bits of compressed pixels are left out, other bits refused",
  async (t) => {
    const data = Buffer.from(RAW.data);
    for (let i = 1; i < data.length; i += 6) data[i]! |= 0x10;
    const raw = { ...RAW, bitsStored: 16, data };
    const overlay = { "60000100": new Typed("US", 16), "60000102": new Typed("US", 12) };
    const file = async (coder: "jpeg-lossless" | "jpeg2000", more: Attributes) =>
      dicomFile({
        transferSyntax: SYNTAXES[coder],
        attributes: attributesOf(RAW, more),
        pixels: { fragments: [await compress(coder, raw)] },
      });
    for (const coder of ["jpeg-lossless", "jpeg2000"] as const) {
      const image = await readImage(await file(coder, overlay));
      t.strictSame(Buffer.from(await image.frame(0)), data, `${coder}: containers are not masked`);
      t.ok(((await inspectImage(image)).first_frame.max ?? NaN) <= 4095, `${coder}: values are`);
      const elsewhere = { ...overlay, "60000102": new Typed("US", 13) };
      await refuses(
        t,
        await file(coder, elsewhere),
        "decode_suspect",
        /BitsStored 12/,
        "another bit",
      );
      const apart = { ...overlay, "60003000": new Typed("OW", Buffer.alloc(60)) };
      await refuses(
        t,
        await file(coder, apart),
        "decode_suspect",
        /BitsStored 12/,
        "data of its own",
      );
      await refuses(t, await file(coder, {}), "decode_suspect", /BitsStored 12/, "no overlay");
    }
    const negative = picture({ ...LAYOUT, signed: true });
    const signed = withValues(negative, 0xe800, 0xf800, 0x1000);
    const image = await readImage(
      dicomFile({
        transferSyntax: SYNTAXES["jpeg-ls"],
        attributes: attributesOf(negative, overlay),
        pixels: { fragments: [await compress("jpeg-ls", { ...signed, bitsStored: 16 })] },
      }),
    );
    t.strictSame(Buffer.from(await image.frame(0)), Buffer.from(signed.data), "over sign bits");
  },
);

/** Pixels that no codec judges, in each form that a file can hold them in. */
const UNCODED: Record<
  string,
  (data: Uint8Array) => Pick<FileOptions, "transferSyntax" | "pixels">
> = {
  native: (data) => ({ pixels: data }),
  "encapsulated uncompressed": (data) => ({
    transferSyntax: "1.2.840.10008.1.2.1.98",
    pixels: { fragments: [data] },
  }),
  "deflated frames": (data) => ({
    transferSyntax: DEFLATED_FRAMES,
    pixels: { fragments: [deflateRawSync(data)] },
  }),
};

t.test("bits above BitsStored of pixels that no codec judged are said", async (t) => {
  for (const [form, pixelsOf] of Object.entries(UNCODED)) {
    const codes = async ({ data }: Raw, attributes: Attributes) =>
      (await reads({ attributes, ...pixelsOf(data) })).codes;
    const attributes = attributesOf(RAW);
    t.strictSame(await codes(RAW, attributes), [], form);
    const stray = withValues(RAW, 0x1830);
    t.strictSame(await codes(stray, attributes), ["stray_bits"], form);
    // A padding value that BitsStored cannot hold: all bits above continue a sign
    const padding = withValues(RAW, 0xf830);
    t.strictSame(await codes(padding, attributes), ["sign_mismatch", "stray_bits"], form);
    const overlay = { "60000100": new Typed("US", 16), "60000102": new Typed("US", 12) };
    const explained = await codes(stray, attributesOf(RAW, overlay));
    t.strictSame(explained, [], `${form}: an overlay explains them`);
    const negative = picture({ ...LAYOUT, signed: true });
    const sign = await codes(negative, attributesOf(negative));
    t.strictSame(sign, [], `${form}: so does the sign`);
  }
});

t.test("HighBit above where the values are does not shift them away unsaid", async (t) => {
  const right = await readImage(dicomFile({ attributes: attributesOf(RAW), pixels: RAW.data }));
  const { min, max, mean } = (await inspectImage(right)).first_frame;
  const read = async (coder: "jpeg2000" | "htj2k", raw: Raw) =>
    readImage(
      dicomFile({
        transferSyntax: SYNTAXES[coder],
        attributes: attributesOf(RAW, { HighBit: 15 }),
        pixels: { fragments: [await compress(coder, raw)] },
      }),
    );
  const low = await read("jpeg2000", RAW);
  t.match(
    (await inspectImage(low)).first_frame,
    { min, max, mean },
    "a codestream of 12 bits has them low",
  );
  t.strictSame(warned(low), ["high_bit_mismatch"]);
  const data = Buffer.from(RAW.data);
  for (let i = 0; i < data.length; i += 2) data.writeUInt16LE(data.readUInt16LE(i) << 4, i);
  const high = await read("jpeg2000", { ...RAW, bitsStored: 16, data });
  t.match(
    (await inspectImage(high)).first_frame,
    { min, max, mean },
    "one of 16 bits has them high",
  );
  t.notOk(warned(high).includes("stray_bits"));
  // This coder writes 16 bits whatever is stored
  const unsaid = await read("htj2k", RAW);
  await unsaid.frame(0);
  t.ok(
    warned(unsaid).includes("stray_bits"),
    "bits below HighBit tell of values that are not there",
  );
  const attributes = attributesOf(RAW, { HighBit: 15 });
  t.strictSame((await reads({ attributes, pixels: RAW.data })).codes, ["stray_bits"], "native");
  t.strictSame((await reads({ attributes, pixels: data })).codes, [], "native and right");
  const overlays = Object.fromEntries(
    [0, 1, 2, 3].map((bit) => [`600${bit * 2}0102`, new Typed("US", bit)]),
  );
  const explained = await reads({
    attributes: attributesOf(RAW, { HighBit: 15, ...overlays }),
    pixels: RAW.data,
  });
  t.strictSame(explained.codes, [], "overlays explain bits below too");
  const fragments = [await compress("rle", RAW)];
  t.strictSame((await reads({ transferSyntax: RLE, attributes, pixels: { fragments } })).codes, [
    "stray_bits",
  ]);
});

t.test("a reversible wavelet that was cut off may ring as well", async (t) => {
  const raw = { ...withValues(RAW, 4098, 4100), bitsStored: 16 };
  const file = async (more: Attributes) =>
    dicomFile({
      transferSyntax: "1.2.840.10008.1.2.4.91",
      attributes: attributesOf(RAW, more),
      pixels: { fragments: [await compress("jpeg2000", raw)] },
    });
  const image = await readImage(await file({ LossyImageCompression: "01" }));
  t.strictSame(Buffer.from(await image.frame(0)).subarray(0, 4), words(4095, 4095));
  t.ok(warned(image).includes("overshoot_clamped"));
  await refuses(t, await file({}), "decode_suspect", /BitsStored 12/, "not said to be lossy");
});

t.test("bytes between the segments of a JPEG are skipped, as libjpeg does", async (t) => {
  const raw = picture({ ...LAYOUT, bitsAllocated: 8, bitsStored: 8 });
  const coded = Buffer.from(await compress("jpeg", raw));
  const second = 4 + coded.readUInt16BE(4);
  const torn = Buffer.concat([
    coded.subarray(0, second),
    Buffer.from([0, 7]),
    coded.subarray(second),
  ]);
  const options = { transferSyntax: SYNTAXES.jpeg, attributes: attributesOf(raw) };
  const whole = await reads({ ...options, pixels: { fragments: [coded] } });
  const found = await reads({ ...options, pixels: { fragments: [torn] } });
  t.strictSame(found.frame, whole.frame);
  t.ok(found.codes.includes("codestream_irregular"));
});

const grey = (attributes: Attributes) =>
  readImage(dicomFile({ attributes: imageAttributes(attributes), pixels: Buffer.alloc(16) }));

t.test("a padding value written as text", async (t) => {
  const image = await grey({ PixelRepresentation: 1, PixelPaddingValue: new Typed("IS", "-100") });
  t.strictSame(image.interpretation(0).padding, { from: -100, to: -100 });
});

const table = (bits: number, ...entries: number[]) => ({
  LUTDescriptor: new Typed("US", [entries.length, 0, bits]),
  LUTData: new Typed("OW", entries),
});

t.test("the Modality LUT of XA and XRF is not for display", async (t) => {
  const XA = "1.2.840.10008.5.1.4.1.1.12.1";
  const lut = { ModalityLUTSequence: [table(16, 0, 1000, 2000, 60000)] };
  const cases: [string, Attributes, string][] = [
    ["XA, LOG", { SOPClassUID: XA, PixelIntensityRelationship: "LOG" }, "identity"],
    [
      "XRF, DISP",
      { SOPClassUID: `${XA.slice(0, -1)}2`, PixelIntensityRelationship: "DISP" },
      "identity",
    ],
    ["XA, LIN", { SOPClassUID: XA, PixelIntensityRelationship: "LIN" }, "lut"],
    ["another class", { PixelIntensityRelationship: "LOG" }, "lut"],
  ];
  for (const [name, more, kind] of cases) {
    const image = await grey({ ...lut, ...more });
    t.equal(image.interpretation(0).modality.kind, kind, name);
    t.equal(warned(image).includes("modality_lut_ignored"), kind === "identity", name);
  }
});

t.test("PresentationLUTShape against PhotometricInterpretation is said", async (t) => {
  for (const photometric of ["MONOCHROME1", "MONOCHROME2"])
    for (const shape of ["IDENTITY", "INVERSE", "LIN OD", undefined]) {
      const image = await grey({
        PhotometricInterpretation: photometric,
        PresentationLUTShape: shape,
      });
      const against = shape === (photometric === "MONOCHROME1" ? "IDENTITY" : "INVERSE");
      t.strictSame(warned(image), against ? ["polarity_mismatch"] : [], `${photometric}, ${shape}`);
    }
});

t.test("tables of 16 bits that hold bytes, and of bits between", async (t) => {
  const palette = (bits: number, ...entries: number[]) =>
    Object.fromEntries(
      ["Red", "Green", "Blue"].flatMap((colour) => [
        [`${colour}PaletteColorLookupTableDescriptor`, new Typed("US", [entries.length, 0, bits])],
        [`${colour}PaletteColorLookupTableData`, new Typed("OW", entries)],
      ]),
    );
  const read = async (bits: number, ...entries: number[]) => {
    const image = await grey({
      PhotometricInterpretation: "PALETTE COLOR",
      ...palette(bits, ...entries),
    });
    const found = image.interpretation(0).palette;
    return { bits: found?.bits, red: [...(found?.red ?? [])], codes: warned(image) };
  };
  t.strictSame(await read(16, 0, 100, 255), { bits: 8, red: [0, 100, 255], codes: ["table_bits"] });
  t.strictSame(await read(16, 0, 100, 256), { bits: 16, red: [0, 100, 256], codes: [] });
  t.strictSame(await read(12, 0, 0x800, 0xfff), { bits: 16, red: [0, 0x8000, 0xfff0], codes: [] });
  const voi = await grey({ VOILUTSequence: [table(16, 0, 100, 255)] });
  t.match(voi.interpretation(0).voi, [{ lut: { bits: 8 } }]);
  t.strictSame(warned(voi), ["table_bits"]);
  const modality = await grey({ ModalityLUTSequence: [table(16, 0, 100, 255)] });
  t.match(
    modality.interpretation(0).modality,
    { lut: { bits: 16 } },
    "values of a Modality LUT are what they are",
  );
});

t.test("the first value of a VOI LUT has the sign of what comes out of the rescale", async (t) => {
  const lut = (first: number) => ({
    VOILUTSequence: [
      {
        LUTDescriptor: new Typed("US", [4, first, 16]),
        LUTData: new Typed("OW", [0, 1, 2, 65535]),
      },
    ],
  });
  const bits = { BitsAllocated: 16, BitsStored: 16, HighBit: 15, Rows: 2 };
  const cases: [string, Attributes, number, number][] = [
    ["unsigned", bits, 61440, 61440],
    ["signed", { ...bits, PixelRepresentation: 1 }, 61440, -4096],
    ["below zero by the intercept", { ...bits, RescaleIntercept: "-1024" }, 64512, -1024],
    [
      "below zero by the slope",
      { ...bits, RescaleSlope: "-1", RescaleIntercept: "0" },
      61440,
      -4096,
    ],
    [
      "lifted above zero",
      { ...bits, PixelRepresentation: 1, RescaleIntercept: "32768" },
      61440,
      61440,
    ],
  ];
  for (const [name, attributes, first, expected] of cases)
    t.match(
      (await grey({ ...attributes, ...lut(first) })).interpretation(0).voi,
      [{ lut: { firstMapped: expected } }],
      name,
    );
});

t.test("big-endian pixel data in representations that it should not have", async (t) => {
  const bytes = picture({ ...LAYOUT, bitsAllocated: 8, bitsStored: 8 });
  const unknown = { transferSyntax: BIG_ENDIAN, attributes: attributesOf(bytes), pixelVr: "UN" };
  const read = await reads({ ...unknown, pixels: bytes.data });
  t.strictSame(read.frame, Buffer.from(bytes.data), "bytes in UN are not swapped");
  const deep = { transferSyntax: BIG_ENDIAN, attributes: attributesOf(RAW), pixels: RAW.data };
  t.strictSame((await reads({ ...deep, pixelVr: "OB" })).codes, ["big_endian_bytes"]);
});

t.test("fewer per-frame functional groups than frames", async (t) => {
  const group = { PlanePositionSequence: [{ ImagePositionPatient: "0\\0\\0" }] };
  const file = (groups: Attributes[]) =>
    dicomFile({
      attributes: imageAttributes({
        NumberOfFrames: "2",
        PerFrameFunctionalGroupsSequence: groups,
      }),
      pixels: Buffer.alloc(32),
    });
  await refuses(t, file([group]), "corrupt_image", /is 2 but .* describes 1/, "one of two");
  t.equal((await readImage(file([group, group]))).frameCount, 2);
  t.equal((await readImage(file([]))).frameCount, 2, "none at all");
});
