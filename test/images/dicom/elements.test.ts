import t from "tap";
import { readImage } from "../../../src/images/read-image.js";
import {
  BIG_ENDIAN,
  DEFLATED,
  dicomFile,
  encodeAttributes,
  encodeElement,
  EXPLICIT,
  imageAttributes,
  IMPLICIT,
  Typed,
  type Attributes,
} from "../../support/dicom.js";
import { refuses, warned } from "../../support/expect.js";

const pixels = Buffer.from(Array.from({ length: 16 }, (_, i) => i * 3));
const swapped = Buffer.from(pixels).swap16();
const explicit = { explicit: true, little: true };
const implicit = { explicit: false, little: true };

t.test("the same image in every encoding of the data set", async (t) => {
  for (const transferSyntax of [IMPLICIT, EXPLICIT, DEFLATED, BIG_ENDIAN])
    for (const preamble of [true, false])
      for (const meta of [true, false]) {
        if (transferSyntax === DEFLATED && !meta) continue;
        const name = `${transferSyntax} preamble ${preamble} meta ${meta}`;
        const isBig = transferSyntax === BIG_ENDIAN;
        const image = await readImage(
          dicomFile({ transferSyntax, preamble, meta, pixels: isBig ? swapped : pixels }),
        );
        t.strictSame(Buffer.from(await image.frame(0)), pixels, name);
        t.equal(image.source.transferSyntaxUid, transferSyntax, name);
        t.equal(image.source.sopInstanceUid, "1.2.3.4.5", name);
        t.equal(warned(image).includes("missing_preamble"), !preamble, name);
        t.equal(warned(image).includes("missing_transfer_syntax"), !meta, name);
      }
});

t.test("sequences of defined and undefined length, nested, and inside UN", async (t) => {
  const inner: Attributes = { CodeValue: "T-1", CodeMeaning: "inner" };
  const cases: Record<string, Typed> = {
    defined: new Typed("SQ", [{ AnatomicRegionSequence: new Typed("SQ", [inner]) }]),
    undefined: new Typed("SQ", [{ AnatomicRegionSequence: new Typed("SQ", [inner], true) }], true),
    "undefined in defined": new Typed("SQ", [
      { AnatomicRegionSequence: new Typed("SQ", [inner], true) },
    ]),
    "UN of undefined length is implicit": new Typed(
      "UN",
      [{ AnatomicRegionSequence: [inner] }],
      true,
      true,
    ),
    "UN of defined length is implicit": new Typed(
      "UN",
      [{ AnatomicRegionSequence: [inner] }],
      false,
      true,
    ),
    "implicit items in an explicit sequence": new Typed(
      "SQ",
      [{ AnatomicRegionSequence: [inner] }],
      false,
      true,
    ),
  };
  for (const [name, value] of Object.entries(cases)) {
    const image = await readImage(
      dicomFile({ attributes: imageAttributes({ ReferencedImageSequence: value }), pixels }),
    );
    const item = image
      .attributes!.sequence("ReferencedImageSequence")![0]!
      .sequence("AnatomicRegionSequence")![0]!;
    t.equal(item.string("CodeMeaning"), "inner", name);
    t.strictSame(Buffer.from(await image.frame(0)), pixels, name);
  }
});

t.test("the wrong one of explicit and implicit is noticed", async (t) => {
  const attributes = imageAttributes();
  const body = (encoding: typeof explicit) =>
    Buffer.concat([
      encodeAttributes(attributes, encoding),
      encodeElement(0x7fe00010, "OW", pixels, encoding),
    ]);
  const head = (transferSyntax: string) => dicomFile({ transferSyntax, attributes: {} });
  for (const [name, file, code] of [
    [
      "implicit called explicit",
      Buffer.concat([head(EXPLICIT), body(implicit)]),
      "implicit_in_explicit",
    ],
    [
      "explicit called implicit",
      Buffer.concat([head(IMPLICIT), body(explicit)]),
      "explicit_in_implicit",
    ],
  ] as const) {
    const image = await readImage(file);
    t.strictSame(Buffer.from(await image.frame(0)), pixels, name);
    t.ok(warned(image).includes(code), name);
  }
});

t.test("oddities that do not forbid reading", async (t) => {
  const padding = encodeElement(0xfffcfffc, "OB", Buffer.alloc(30), explicit);
  const cases: Record<string, [Buffer, string?]> = {
    "trailing padding": [dicomFile({ pixels, trailing: padding })],
    "garbage behind the pixels": [
      dicomFile({ pixels, trailing: Buffer.from("garbage") }),
      "trailing_data",
    ],
    "odd length": [
      dicomFile({
        attributes: imageAttributes({ ImageComments: new Typed("LT", Buffer.from("odd")) }),
        pixels,
      }),
      "odd_length",
    ],
    "private tags": [
      dicomFile({
        attributes: imageAttributes({
          "00091001": new Typed("UN", Buffer.from("privately")),
          "00090010": "ME",
        }),
        pixels,
      }),
      "odd_length",
    ],
    "an icon with its own pixels": [
      dicomFile({
        attributes: imageAttributes({
          IconImageSequence: new Typed(
            "SQ",
            [{ Rows: 2, Columns: 2, PixelData: new Typed("OW", Buffer.alloc(4)) }],
            true,
          ),
        }),
        pixels,
      }),
    ],
  };
  for (const [name, [file, code]] of Object.entries(cases)) {
    const image = await readImage(file);
    t.strictSame(Buffer.from(await image.frame(0)), pixels, name);
    t.equal(image.format.rows, 4, name);
    if (code !== undefined) t.ok(warned(image).includes(code), `${name} warns`);
    else t.strictSame(warned(image), [], name);
  }
});

t.test(
  "items that lie in no sequence, as behind a sequence whose length was written as 0",
  async (t) => {
    const head = (attributes: Attributes) => encodeAttributes(attributes, explicit);
    const item = (length: number, body: Buffer) =>
      Buffer.concat([encodeElement(0xfffee000, "", Buffer.alloc(0), implicit, length), body]);
    const end = encodeElement(0xfffee00d, "", Buffer.alloc(0), implicit);
    const { Rows, Columns, BitsAllocated, BitsStored, HighBit, PixelRepresentation, ...before } =
      imageAttributes();
    const after = { Rows, Columns, BitsAllocated, BitsStored, HighBit, PixelRepresentation };
    const content = head({
      Modality: "MR",
      SOPInstanceUID: "9.9",
      InstanceNumber: "6",
      RescaleSlope: "7",
    });
    const sequence = encodeElement(0x00280009, "SQ", Buffer.alloc(0), explicit);
    for (const [name, stray] of Object.entries({
      "of known length": item(content.length, content),
      "of length 0": item(0, content),
      "of undefined length": Buffer.concat([item(0xffffffff, content), end]),
    })) {
      const image = await readImage(
        Buffer.concat([
          dicomFile({ attributes: {} }),
          head(before),
          sequence,
          stray,
          head(after),
          encodeElement(0x7fe00010, "OW", pixels, explicit),
        ]),
      );
      t.strictSame(Buffer.from(await image.frame(0)), pixels, name);
      t.strictSame(warned(image), ["stray_item"], name);
      t.equal(image.source.sopInstanceUid, "1.2.3.4.5", "what the item holds is not the image's");
      t.notOk(image.attributes!.has("InstanceNumber"), name);
      t.equal(
        image.interpretation(0).modality.kind,
        name === "of length 0" ? "rescale" : "identity",
        name,
      );
    }
  },
);

t.test("value representations that are none, with a short length", async (t) => {
  for (const vr of ["  ", "??", "--", "\0\0"]) {
    const image = await readImage(
      dicomFile({
        attributes: imageAttributes({ PixelPaddingValue: new Typed(vr, Buffer.from([7, 0])) }),
        pixels,
      }),
    );
    t.strictSame(image.interpretation(0).padding, { from: 7, to: 7 }, JSON.stringify(vr));
    t.strictSame(warned(image), ["vr_unknown"]);
  }
});

t.test("DICM inside a text of a file without preamble", async (t) => {
  const plain = dicomFile({ attributes: imageAttributes(), pixels, preamble: false, meta: false });
  const at = (text: string) =>
    dicomFile({
      attributes: imageAttributes({ SpecificCharacterSet: "ISO_IR 100", InstitutionName: text }),
      pixels,
      preamble: false,
      meta: false,
    });
  const offset = 128 - at("x".repeat(100)).indexOf("x".repeat(100));
  const file = at(`${"x".repeat(offset)}DICM${"x".repeat(30)}`);
  t.equal(file.toString("latin1", 128, 132), "DICM");
  const image = await readImage(file);
  t.strictSame(Buffer.from(await image.frame(0)), pixels);
  t.ok(warned(image).includes("missing_preamble"));
  t.equal(plain.toString("latin1", 128, 132) === "DICM", false);
});

t.test("a file cut anywhere is refused as truncated or lacks its pixels", async (t) => {
  const whole = dicomFile({
    attributes: imageAttributes({
      ReferencedImageSequence: new Typed("SQ", [{ CodeValue: "1" }], true),
    }),
    pixels,
  });
  for (let size = 140; size < whole.length; size++) {
    let code = "read";
    try {
      const image = await readImage(whole.subarray(0, size));
      await image.frame(0);
    } catch (error) {
      code = (error as { code: string }).code;
    }
    t.ok(["truncated_image", "no_pixel_data"].includes(code), `${size} bytes: ${code}`);
  }
});

t.test("damage is refused", async (t) => {
  const attributes = imageAttributes();
  const deep = (levels: number): Attributes =>
    levels === 0
      ? { CodeValue: "x" }
      : { ReferencedImageSequence: new Typed("SQ", [deep(levels - 1)], true) };
  await refuses(
    t,
    dicomFile({ attributes: { ...attributes, ...deep(40) }, pixels }),
    "corrupt_image",
    /deeper than/,
    "depth",
  );
  const beyond = Buffer.concat([
    dicomFile({ attributes: {} }),
    encodeElement(0x00080008, "UN", Buffer.alloc(4), explicit, 0x7fffffff),
  ]);
  await refuses(
    t,
    beyond,
    "truncated_image",
    /ImageType \(0008,0008\)/,
    "a length beyond the file",
  );
  const deflated = dicomFile({ transferSyntax: DEFLATED, pixels });
  await refuses(
    t,
    deflated.subarray(0, deflated.length - 20),
    "truncated_image",
    /deflated/,
    "cut deflate stream",
  );
  const broken = Buffer.from(deflated);
  // Block type 3 does not exist (RFC 1951 section 3.2.3)
  broken[dicomFile({ transferSyntax: DEFLATED, attributes: {} }).length - 2] = 0x07;
  await refuses(t, broken, "corrupt_image", /inflated/, "broken deflate stream");
  // What inflates all the same is no longer as long as it was
  const other = dicomFile({ transferSyntax: DEFLATED, pixels, trailing: Buffer.alloc(5, 0x37) });
  await refuses(t, other, "corrupt_image", /deflated data set.*damaged/, "bytes behind the pixels");
});

t.test(
  "a file of very many faults keeps the first warnings and says that there are more",
  async (t) => {
    // Every element has an odd length, and each names itself
    const odd = Array.from({ length: 2000 }, (_, i) =>
      encodeElement(0x00111000 + i, "SH", Buffer.from("a"), explicit, 1),
    );
    const image = await readImage(
      dicomFile({ attributes: imageAttributes(), pixels, trailing: Buffer.concat(odd) }),
    );
    t.equal(image.warnings.length, 51);
    t.equal(warned(image).at(-1), "more_warnings");
    t.equal(new Set(image.warnings.map(({ message }) => message)).size, 51, "each once");
  },
);

t.test("frames and values without number are refused, not counted", async (t) => {
  const frames = {
    Rows: 1,
    Columns: 1,
    BitsAllocated: 8,
    BitsStored: 8,
    HighBit: 7,
    NumberOfFrames: "1000001",
  };
  const many = dicomFile({
    attributes: imageAttributes(frames),
    pixels: Buffer.alloc(1_000_002),
    pixelVr: "OB",
  });
  await refuses(t, many, "unsupported_format", /at most 1000000 frames/, "frames");
  const values = (VR: string, bytes: number) =>
    dicomFile({
      attributes: imageAttributes({ WindowCenter: new Typed(VR, Buffer.alloc(bytes, 0x5c)) }),
      pixels,
    });
  await refuses(t, values("UN", 1_000_002), "corrupt_image", /at most 1000000 values/, "texts");
  await t.resolves(readImage(values("UN", 100_000)));
});

t.test("empty items and elements without number are refused, not walked", async (t) => {
  const empty = Buffer.alloc(8);
  empty.writeUInt16LE(0xfffe, 0);
  empty.writeUInt16LE(0xe000, 2);
  const items = Buffer.alloc(2_000_001 * 8, empty);
  const end = Buffer.from("feffdde000000000", "hex");
  const file = (value: Buffer) => {
    const sequence = new Typed("SQ", Buffer.concat([value, end]), true);
    return dicomFile({
      attributes: imageAttributes({ ReferencedImageSequence: sequence }),
      pixels,
    });
  };
  await refuses(t, file(items), "unsupported_format", /2000000 elements and items/, "empty items");
  t.equal((await readImage(file(items.subarray(0, 80_000)))).warnings.length, 0);
  const fragments = new Typed("OB", Buffer.concat([items, end]), true);
  const icon = dicomFile({ attributes: imageAttributes({ "00091010": fragments }), pixels });
  await refuses(t, icon, "unsupported_format", /2000000 elements and items/, "empty fragments");
});
